"""What propagating columns over a compact graph will take: passes, memory, disk and time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from tidegraph.core.errors import ParameterError
from tidegraph.engine.channels import EngineSettings
from tidegraph.engine.compact import memory_bytes, memory_text
from tidegraph.engine.precision import Dtype

Stored: TypeAlias = Literal["float32", "float16"]

# All costs. Bytes follow from the structures in native/. Times are those of one thread of an AMD
# EPYC as measured by benchmarks/scale.py (`cpu_s`: entries and columns on a tenth of MAG with 4 and
# 16 columns, rows and events on a hundredth).
_PROCESS_BYTES = 128 << 20  # interpreter, libraries, stacks
_NODE_BYTES = 8 + 4 + 1 + 1  # degree, place in a step, removed, touched
_CHANNEL_NODE_VALUES = 1  # pivot
_BLOCK_NODE_VALUES = 3  # limit, drift, excess
_BLOCK_NODE_BYTES = 1 + 0.25  # marks, list of touched nodes
_COLUMN_VALUES = 2  # estimate and residual
_LARGE_PAGE = 2 << 20  # the arrays of a block begin at multiples of it
_NARROW_BYTES, _VECTOR_BYTES = 16, 32  # rows of few columns, or of whole vectors
_ENTRY_NS = 19.3  # of a sweep over one entry of a list
_ENTRY_COLUMN_NS = 2.1  # the same, for each column
_ROW_NS = 207.0  # to read, count, fill and sort one row of a table of edges
_EVENT_COLUMN_US = 0.27  # to apply one event of a stream to one column
WIDEST_PASS = 96  # columns of a block; more gain nothing


def _blocks(columns: int, value_bytes: int) -> tuple[int, int]:
    """Return how many blocks the engine makes of the columns, and their width with padding."""
    narrow = columns * value_bytes <= _NARROW_BYTES
    lanes = (_NARROW_BYTES if narrow else _VECTOR_BYTES) // value_bytes
    vectors = -(-columns // lanes)
    count = -(-vectors // (WIDEST_PASS // lanes))
    return count + (count % 2 == 1 and vectors >= 4), lanes * vectors


def pass_bytes(nodes: int, columns: int, channels: int, dtype: Dtype = "float32") -> int:
    """Return the memory of a propagator on a compact graph, mapped files not counted."""
    value_bytes = np.dtype(dtype).itemsize
    blocks, width = _blocks(columns, value_bytes)
    values = _CHANNEL_NODE_VALUES + _BLOCK_NODE_VALUES * blocks + _COLUMN_VALUES * width
    per_node = _NODE_BYTES + channels * (blocks * _BLOCK_NODE_BYTES + values * value_bytes)
    queues = channels * blocks * 4 * (1 << nodes.bit_length())
    arrays = channels * blocks * _COLUMN_VALUES
    return _PROCESS_BYTES + arrays * _LARGE_PAGE + queues + math.ceil(nodes * per_node)


@dataclass(frozen=True)
class Plan:
    """What propagating columns over a graph will take; times are estimates."""

    columns_per_pass: int
    passes: int
    memory_bytes: int  # of the process, without files in the page cache
    graph_bytes: int  # of the compact graph on disk, which should fit into the page cache
    build_disk_bytes: int  # while the graph is being built
    embedding_bytes: int
    build_s: float
    propagate_s: float
    update_s: float


def plan(
    nodes: int,
    edges: int,
    columns: int,
    *,
    memory: str | int = "8G",
    channels: int = 1,
    r_max: float = EngineSettings.r_max,
    events: int = 0,
    stored: Stored = "float32",
    dtype: Dtype = "float32",
    weighted: bool = False,
    threads: int = 2,
) -> Plan:
    """Return how many columns fit into a pass, and what all passes take.

    events: the length of a stream to be applied afterwards, in every pass.
    dtype: the dtype of the computation; times are those of float32.
    weighted: whether edges have weights; these count as float64 numbers of distinct edges, and
        times are those of edges without.

    >>> plan(121_751_665, 1_297_748_926, 64, memory="8G").columns_per_pass
    4
    """
    for name, value, least in (("nodes", nodes, 1), ("edges", edges, 0), ("columns", columns, 1)):
        if value < least:
            raise ParameterError(f"{name} is {value}; give at least {least}")
    if not 0 < r_max < 1:
        raise ParameterError(f"r_max is {r_max}; give a number between 0 and 1")
    room = memory_bytes(memory)
    fitting = [
        k
        for k in (*range(1, 5), *range(8, WIDEST_PASS + 1, 8))
        if pass_bytes(nodes, k, channels, dtype) <= room
    ]
    if not fitting:
        raise ParameterError(
            f"memory={memory} is too little for a pass over {nodes:,} nodes; give"
            f" memory={memory_text(pass_bytes(nodes, 1, channels, dtype))} or more"
        )
    passes = -(-columns // fitting[-1])
    # Share columns evenly among the passes, so that the last one is not a small rest.
    per_pass = min(k for k in fitting if k >= -(-columns // passes))
    entries = 2 * edges
    # A sweep over random features leaves about a third of a residual; one more writes residuals.
    sweeps = max(2, math.ceil(2 * math.log10(1 / r_max))) + 1
    sweep_ns = entries * (_ENTRY_NS + _ENTRY_COLUMN_NS * per_pass) * channels
    graph = 8 * (nodes + 1) + (12 if weighted else 4) * entries
    return Plan(
        columns_per_pass=per_pass,
        passes=passes,
        memory_bytes=pass_bytes(nodes, per_pass, channels, dtype),
        graph_bytes=graph,
        build_disk_bytes=graph + (16 if weighted else 8) * edges + (8 if weighted else 4) * nodes,
        embedding_bytes=nodes * channels * columns * (2 if stored == "float16" else 4),
        build_s=edges * _ROW_NS * 1e-9 / threads,
        propagate_s=passes * sweeps * sweep_ns * 1e-9 / threads,
        update_s=events * columns * channels * _EVENT_COLUMN_US * 1e-6,
    )

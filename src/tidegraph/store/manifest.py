"""What a store of trajectories is on disk, and the fingerprints of what it is recorded from.

A store is a directory. Records live in segments, which are written once and never changed;
`manifest.json` lists the segments that count. It is replaced atomically, so a store is always in a
state that was complete at some moment.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph import _native
from tidegraph.core.durable import replace_file
from tidegraph.core.errors import StateFileError
from tidegraph.core.statefile import digest
from tidegraph.engine.propagator import Propagator
from tidegraph.events.names import NodeNames
from tidegraph.events.steps import Steps
from tidegraph.store.segments import (
    PIECE_BYTES,
    VERSION,
    Entry,
    Layout,
    Segment,
    StoreDtype,
    other_version,
)

MANIFEST = "manifest.json"
NAMES = "names.json"
_FORMAT = "tidegraph trajectories"
# Every file that a recording may leave in its directory, temporary ones included.
OWN_FILE = re.compile(
    r"\.?(segment-\d+\.records|checkpoint-\d+\.state|names\.json|manifest\.json)(\.\w+)?"
)


@dataclass(frozen=True)
class Part:
    """A stream that was recorded, or is being recorded, by one call."""

    digest: str  # of its steps
    steps: int


@dataclass(frozen=True)
class StoreManifest:
    """Everything about a store that is not in a segment."""

    nodes: int
    columns: int
    dtype: StoreDtype
    epsilon: float
    unit: str | None
    names: str | None  # digest of the file of node names
    propagator: dict[str, Any]  # its settings
    thresholds: tuple[float, ...]
    features: str  # digest of what is propagated
    segment_records: int
    parts: tuple[Part, ...]
    steps: int  # recorded so far, over all parts
    time: int | None  # of the last of these steps
    complete: bool  # whether the last part was recorded to its end
    events: int  # that the propagator had seen when a part was last begun or completed
    drift: tuple[float, ...]  # by which an earlier release may have exceeded the threshold, or 0
    segments: tuple[Entry, ...]
    names_file: str = NAMES
    begun: int | None = None  # the propagator's time before the first step
    graph: str | None = None  # digest of its edges at that time; None: not known

    @property
    def layout(self) -> Layout:
        return Layout(len(self.propagator["settings"]["channels"]), self.columns, self.dtype)

    @property
    def records(self) -> int:
        return sum(entry.records for entry in self.segments)

    @property
    def steps_before_part(self) -> int:
        return sum(part.steps for part in self.parts[:-1])

    def reader(self, directory: Path, *, verify: bool = False) -> _native.TrajectoryReader:
        """Open the segments; with `verify`, compare them with their digests first."""
        layout = self.layout
        segments = [Segment(directory, layout, entry) for entry in self.segments]
        if verify:
            for segment in segments:
                segment.verify()
        arrays = [segment.native() for segment in segments]
        return _native.TrajectoryReader(layout.channels, layout.columns, layout.half, arrays)

    def read_names(self, directory: Path) -> NodeNames | None:
        """Return the names of the nodes, if the recorded stream had any."""
        if self.names is None:
            return None
        path = directory / self.names_file
        try:
            text = path.read_bytes()
        except OSError as error:
            raise StateFileError(f"cannot read {path}: {error.strerror or error}") from error
        if digest([text]) != self.names:
            raise _altered(path)
        return NodeNames(json.loads(text))

    def write(self, directory: Path) -> None:
        write_sealed(directory / MANIFEST, _FORMAT, VERSION, dataclasses.asdict(self))

    @classmethod
    def read(cls, directory: Path) -> StoreManifest:
        body = read_sealed(directory / MANIFEST, _FORMAT, VERSION)
        body["parts"] = tuple(Part(**part) for part in body["parts"])
        body["segments"] = tuple(Entry(**entry) for entry in body["segments"])
        body["thresholds"], body["drift"] = tuple(body["thresholds"]), tuple(body["drift"])
        return cls(**body)


# JSON with a digest -------------------------------------------------------------------------------


def write_sealed(path: Path, format_name: str, version: int, body: Mapping[str, Any]) -> None:
    """Write a JSON object with its format, version and digest, atomically."""
    sealed = {"format": format_name, "version": version, **body}
    replace_file(path, json.dumps({**sealed, "digest": _json_digest(sealed)}, indent=1))


def read_sealed(path: Path, format_name: str, version: int) -> dict[str, Any]:
    """Return what `write_sealed` wrote; raise StateFileError for anything else."""
    try:
        body = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise StateFileError(
            f"{path.parent} holds no {format_name}: it has no {path.name}"
        ) from None
    except OSError as error:
        raise StateFileError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError:
        body = None
    if not isinstance(body, dict) or body.get("format") != format_name:
        raise StateFileError(f"{path} is damaged or no file of {format_name}")
    if body.get("version") != version:
        raise other_version(path, body.get("version"))
    written = body.pop("digest", None)
    if written != _json_digest(body):
        raise _altered(path)
    del body["format"], body["version"]
    return body


def _json_digest(body: dict[str, Any]) -> str:
    return digest([json.dumps(body, sort_keys=True).encode()])


def _altered(path: Path) -> StateFileError:
    return StateFileError(f"{path} was altered: it does not match its digest")


# Names and checkpoints ----------------------------------------------------------------------------


def names_text(names: NodeNames, nodes: int | None = None) -> bytes:
    """Return the names of all nodes, or of the first `nodes`, as they are stored."""
    return json.dumps(names.values[:nodes].tolist()).encode()


def write_names(directory: Path, file: str, text: bytes) -> str:
    """Write a file of names atomically and return its digest."""
    replace_file(directory / file, lambda handle: handle.write(text))
    return digest([text])


def checkpoint_path(directory: Path, steps: int) -> Path:
    """Return the path of the checkpoint after so many steps."""
    return directory / f"checkpoint-{steps:09d}.state"


def checkpoints(directory: Path) -> list[int]:
    """Return, in ascending order, after how many steps there are checkpoints."""
    found = (re.fullmatch(r"checkpoint-(\d+)\.state", path.name) for path in directory.iterdir())
    return sorted(int(match[1]) for match in found if match)


# What a store is recorded from -------------------------------------------------------------------


def part_of(steps: Steps) -> Part:
    """Return steps as the manifest names them: by digest and number."""
    columns = (steps.src, steps.dst, steps.t, steps.weight, steps.op, steps.offsets, steps.times)
    return Part(digest(b"-" if column is None else column for column in columns), len(steps))


def first_steps(steps: Steps, count: int) -> Steps:
    """Return the first `count` steps."""
    rows = slice(0, int(steps.offsets[count]))
    weight, op = (None if column is None else column[rows] for column in (steps.weight, steps.op))
    bounds, times = steps.offsets[: count + 1], steps.times[:count]
    return Steps(steps.src[rows], steps.dst[rows], steps.t[rows], weight, op, bounds, times)


def recorded_from(propagator: Propagator) -> dict[str, Any]:
    """Return what decides what a propagator computes, as the manifest has it."""
    return {
        "propagator": json.loads(json.dumps(propagator._description())),
        "thresholds": tuple(propagator._thresholds.tolist()),
        "features": _features_digest(propagator),
    }


def _features_digest(propagator: Propagator) -> str:
    """Return the digest of all features, read in pieces."""
    step = max(1, PIECE_BYTES // (8 * propagator.columns))
    return digest(
        propagator.features(np.arange(first, min(first + step, propagator.nodes)))
        for first in range(0, propagator.nodes, step)
    )


def graph_digest(propagator: Propagator) -> str:
    """Return the digest of all edges, whatever their order."""
    src, dst, weight = propagator.edges()
    order = np.lexsort((dst, src))
    return digest(column[order] for column in (src, dst, weight))

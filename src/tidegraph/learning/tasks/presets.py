"""Settings by name: the package's own, and those of the paper's two tables."""

from __future__ import annotations

import re
from typing import Any

from tidegraph.core.errors import ParameterError

__all__ = ["LINK_PRESETS", "NODE_PRESETS", "preset", "preset_name"]

_PAPER_LINK = ("paper-lstm", "paper-gru", "paper-transformer")
LINK_PRESETS = ("default", "snapshots", "historical", *_PAPER_LINK)
NODE_PRESETS = ("node", "paper-node")

_NAME = re.compile(r"(?P<base>[a-z-]+?)(?P<variants>([+-](high-pass|time))*)")

# "Hyperparameters for future link prediction": dropout, hidden size, batch size, learning rate.
_LINK = {
    "wikipedia": (0.5, 128, 128, 1e-4),
    "reddit": (0.5, 128, 128, 1e-4),
    "uci": (0.1, 64, 1024, 1e-3),
    "bitcoin-alpha": (0.1, 128, 1024, 1e-3),
    "bitcoin-otc": (0.1, 64, 1024, 1e-3),
}
# "Hyperparameters for dynamic node classification": the same, after r_max.
_NODE = {
    "wikipedia": (1e-7, 0.1, 128, 256, 1e-4),
    "reddit": (1e-7, 0.1, 128, 256, 8e-3),
    "gdelt": (1e-7, 0.1, 64, 2048, 1e-3),
    "mag": (5e-8, 0.1, 64, 2048, 1e-3),
}
_EVENTS = ("wikipedia", "reddit")  # as one event after the other; the others as snapshots

# Where time counts snapshots, edges fade within a few of them, and any node may be the answer.
_SNAPSHOTS = {
    "columns": 64,
    "half_lives": (1 / 3, 1.0, 3.0),
    "any_node": True,
    "random_negatives": 10,
    "past_negatives": 0,
}
# Against pairs that happened before, at some cost against random ones.
_HISTORICAL = {"past_negatives": 2, "past_weight": 1.0}

# The classes of papers are asked for after the edges of their own year.
_OWN = {"pubmed-temporal": {"ask_after": 1}}


def preset_name(given: str | None, *, task: str, protocol: str | None) -> str:
    """The preset a model begins from: the one that was given, or else the task's and protocol's.

    >>> preset_name(None, task="link", protocol="roland")
    'snapshots'
    """
    if given is not None:
        return given
    if task == "node":
        return "node"
    return "snapshots" if protocol == "roland" else "default"


def preset(name: str, data: str | None = None) -> dict[str, Any]:
    """The settings of this name for a data set, to be given to `LinkPredictor` or `NodeClassifier`.

    For links: `default`; `snapshots`, where time counts snapshots; `historical`, trained to tell
    what happens now from what happened before; and `paper-lstm`, `paper-gru`, `paper-transformer`,
    to which `+high-pass` or `-high-pass` and `+time` or `-time` may be added; without, high-pass
    channels are there where the paper has them (data as snapshots) and the encoding of times is
    not. For nodes: `node`, the defaults and what the data set asks for, and `paper-node`. Without
    `data` the paper's settings are those for Wikipedia. The paper counts `r_max` in L1 norms,
    without a factor for degrees.

    >>> preset("paper-gru+time", data="uci")["hidden"]
    64
    """
    found = _NAME.fullmatch(name)
    base = found["base"] if found else name
    variants = re.findall(r"([+-])(high-pass|time)", found["variants"]) if found else []
    if base not in LINK_PRESETS + NODE_PRESETS or len({what for _, what in variants}) < len(
        variants
    ):
        raise ParameterError(
            f"there is no preset {name!r}; give one of {', '.join(LINK_PRESETS + NODE_PRESETS)},"
            " those of links from the paper with +high-pass or -high-pass, +time or -time if wanted"
        )
    wanted = {what: sign == "+" for sign, what in variants}
    if variants and base not in _PAPER_LINK:
        raise ParameterError(f"{base!r} has no variants; leave {name[len(base) :]!r} out")
    if base == "default":
        return {}
    if base == "snapshots":
        return dict(_SNAPSHOTS)
    if base == "historical":
        return dict(_HISTORICAL)
    if base == "node":
        return dict(_OWN.get(data or "", {}))
    if base == "paper-node":
        return _paper_node(_row(_NODE, name, data))
    columns = 172 if (data or "wikipedia") in _EVENTS else 128
    high_pass = wanted.get("high-pass", (data or "wikipedia") not in _EVENTS)
    encoder = base.removeprefix("paper-")
    options: dict[str, Any] = {"layers": 2, "time_encoding": wanted.get("time", False)}
    if encoder == "transformer":
        options["heads"] = 4
    dropout, hidden, batch_size, learning_rate = _row(_LINK, name, data)
    return {
        **_propagation(1e-7),
        "columns": columns,
        "high_pass": high_pass,
        "encoder": encoder,
        "encoder_options": options,
        "decoder": "concatenation",
        "width": hidden,
        "hidden": hidden,
        "layers": 1,  # and the output layer: two
        "dropout": dropout,
        "random_negatives": 1,
        "past_negatives": 0,
        "any_node": True,  # as the paper's program draws them
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }


def _paper_node(row: tuple[float, ...]) -> dict[str, Any]:
    r_max, dropout, hidden, batch_size, learning_rate = row
    return {
        **_propagation(r_max),
        "columns": 172,  # where the data has no features of nodes
        "high_pass": False,
        "states": True,
        "activity": False,
        "known_labels": False,
        "edge_features": False,
        "members": 1,
        "hidden": int(hidden),
        "layers": 2,  # and the output layer: three
        "dropout": dropout,
        "balance": 0.0,
        "batch_size": int(batch_size),
        "learning_rate": learning_rate,
    }


def _propagation(r_max: float) -> dict[str, Any]:
    return {
        "alpha": 0.2,
        "beta": 0.5,
        "half_lives": (),
        "r_max": r_max,
        "r_max_unit": "l1",
        "scale_by_degree": False,
    }


def _row(table: dict[str, tuple[Any, ...]], name: str, data: str | None) -> tuple[Any, ...]:
    row = table.get(data or "wikipedia")
    if row is None:
        raise ParameterError(
            f"the paper has no settings of {name!r} for {data!r}; there are those for"
            f" {', '.join(table)}"
        )
    return row

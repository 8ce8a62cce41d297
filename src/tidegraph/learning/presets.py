"""Settings by name: the package's own, and those of the paper's two tables. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidegraph.core.declarations import declared
from tidegraph.core.errors import ParameterError
from tidegraph.learning.settings import model_settings_of

_PLAIN: dict[str, dict[str, Any]] = {
    "default": {},
    "events": {},
    # Where time counts snapshots, edges fade within a few of them and any node may be the answer.
    "snapshots": {
        "columns": 64,
        "half_lives": (1 / 3, 1.0, 3.0),
        "any_node": True,
        "random_negatives": 10,
        "past_negatives": 0,
        # Slower steps than by default, with which snapshots have been measured.
        "epochs": 10,
        "learning_rate": 3e-3,
        "dropout": 0.1,
        "patience": 10,
    },
    # Better against pairs that happened before, at some cost against random ones.
    "historical": {"past_negatives": 2, "past_weight": 1.0},
}
# Of a quick run, unless others are given.
QUICK: Mapping[str, Any] = {"columns": 16, "epochs": 3, "max_examples": 20_000}
_PAPER_LINK = ("paper-lstm", "paper-gru", "paper-transformer")
LINK_PRESETS = ("default", "snapshots", "historical", *_PAPER_LINK)
NODE_PRESETS = ("node", "paper-node")
PRESETS_OF = {"link": LINK_PRESETS, "node": NODE_PRESETS, "events": ("events",)}
PRESETS = tuple(name for names in PRESETS_OF.values() for name in names)

_NAME = re.compile(r"(?P<base>[a-z-]+?)(?P<variants>([+-](high-pass|time))*)")

# "Hyperparameters for future link prediction" and "... dynamic node classification":
# r_max, dropout, hidden size, batch size, learning rate.
_LINK = {
    "wikipedia": (1e-7, 0.5, 128, 128, 1e-4),
    "reddit": (1e-7, 0.5, 128, 128, 1e-4),
    "uci": (1e-7, 0.1, 64, 1024, 1e-3),
    "bitcoin-alpha": (1e-7, 0.1, 128, 1024, 1e-3),
    "bitcoin-otc": (1e-7, 0.1, 64, 1024, 1e-3),
}
_NODE = {
    "wikipedia": (1e-7, 0.1, 128, 256, 1e-4),
    "reddit": (1e-7, 0.1, 128, 256, 8e-3),
    "gdelt": (1e-7, 0.1, 64, 2048, 1e-3),
    "mag": (5e-8, 0.1, 64, 2048, 1e-3),
}
_EVENTS = ("wikipedia", "reddit")  # one event after the other; the others come as snapshots

# What the paper's program does beyond the text of the paper.
_PROGRAM = {"distribution": "uniform", "epochs": 30}
# The events of training from the twentieth snapshot on: its program leaves out the first ones.
_LATE = {"uci": 15_112, "bitcoin-alpha": 16_714, "bitcoin-otc": 27_005}
_PAPER_NODE = {
    "columns": 172,  # where nodes have no features
    "high_pass": False,
    "states": True,
    "products": False,
    "activity": False,
    "known_labels": False,
    "edge_features": False,
    "members": 1,
    "layers": 2,  # and the output layer: three
    "balance": 0.0,
}
_PAPER_BANNED = {  # as its program classifies users of Wikipedia and Reddit
    **_PROGRAM,
    "since_first": True,
    "edge_features": True,
    "ask_after": 1,
    "layers": 1,  # and the output layer: two
    "balance": 1.0,  # it draws as many of either class
}

# The classes of papers are asked for after the edges of their own year.
_OF_DATA = {"pubmed-temporal": {"ask_after": 1}}


def preset_name(given: str | None, *, task: str, protocol: str | None) -> str:
    """Return the preset a model starts from: the one given, or else the task's and protocol's.

    >>> preset_name(None, task="link", protocol="roland")
    'snapshots'
    """
    if given is not None:
        return given
    if protocol == "roland":
        return "snapshots"
    return next((names[0] for known, names in PRESETS_OF.items() if known == task), "default")


def preset(name: str, data: str | None = None) -> dict[str, Any]:
    """Return the settings of this name for a data set, for the model of a task.

    For links: `default`; `snapshots`, where time counts snapshots; `historical`, trained to
    separate what happens now from what happened before; and `paper-lstm`, `paper-gru`,
    `paper-transformer`, optionally followed by `+high-pass` or `-high-pass`, `+time` or `-time`.
    Without these, there are high-pass channels where the paper has them (data in snapshots), and
    times are not encoded. For nodes: `node`, the defaults with what the data set needs, and
    `paper-node`. For events: `events`, the defaults.

    The paper's are those of its tables, and where its text says nothing those of its program;
    without `data` those for Wikipedia. The paper counts `r_max` in L1 norms, without a factor for
    degrees. What remains different:

    - A pair is asked about from what was strictly before it, and both nodes are read. The program
      writes the window of the destination over that of the source, where they overlap.
    - Edges count both ways, and a change is read as its direction and size. In snapshots the
      program's commands leave the reverse edges out, and it reads changes as they are. Either gives
      a higher validation loss here.
    - The program records every change of a node, here one of 0.01 % (`epsilon`), and counts the
      first state as a change. Windows are cut to what is known instead of padded with zeros.
    - The Transformer encodes each node, not both windows side by side. Batches in snapshots hold
      1,024 examples, not the events of one snapshot. Adam follows a rising and falling rate; the
      program takes RMSprop for snapshots, at one rate.
    - Training stops after five epochs without a lower validation loss; the program runs all
      epochs, and takes the one with the highest average precision (of classes, AUC).
    - Users who get banned are few. The program draws as many others for every epoch, and for the
      test; here all count, in training with weights. Inputs are standardised.

    >>> preset("paper-gru+time", data="uci")["hidden"]
    64
    """
    found = _NAME.fullmatch(name)
    base = found["base"] if found else name
    variants = re.findall(r"([+-])(high-pass|time)", found["variants"]) if found else []
    if base not in PRESETS or len({what for _, what in variants}) < len(variants):
        raise ParameterError(
            f"there is no preset {name!r}; give one of {', '.join(PRESETS)};"
            " the paper's for links may be followed by +high-pass or -high-pass, +time or -time"
        )
    wanted = {what: sign == "+" for sign, what in variants}
    if variants and base not in _PAPER_LINK:
        raise ParameterError(f"{base!r} has no variants; leave {name[len(base) :]!r} out")
    if base in _PLAIN:
        return dict(_PLAIN[base])
    if base == "node":
        return dict(_OF_DATA.get(data or "", {}))
    table = _NODE if base == "paper-node" else _LINK
    row = table.get(data or "wikipedia")
    if row is None:
        raise ParameterError(
            f"the paper has no settings of {name!r} for {data!r}; it has them for"
            f" {', '.join(table)}"
        )
    r_max, dropout, hidden, batch_size, learning_rate = row
    shared = {
        "alpha": 0.2,
        "beta": 0.5,
        "half_lives": (),
        "r_max": r_max,
        "r_max_unit": "l1",
        "scale_by_degree": False,
        "dtype": "float32",
        "dropout": dropout,
        "hidden": hidden,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
    }
    in_snapshots = (data or "wikipedia") not in _EVENTS
    if base == "paper-node":
        return {**shared, **_PAPER_NODE, **({} if in_snapshots else _PAPER_BANNED)}
    encoder = base.removeprefix("paper-")
    options: dict[str, Any] = {"layers": 2, "time_encoding": wanted.get("time", False)}
    if encoder == "transformer":
        options |= {"heads": 4, "layers": 4}
    return {
        **shared,
        **_PROGRAM,
        "columns": 128 if in_snapshots else 172,
        "high_pass": wanted.get("high-pass", in_snapshots),
        "epsilon": 1e-4,  # it records every change, however small
        "window": 20,
        **({"max_examples": _LATE[data]} if data in _LATE else {}),
        "in_order": in_snapshots,
        "encoder": encoder,
        "encoder_options": options,
        "decoder": "concatenation",
        "width": hidden,
        "layers": 1,  # and the output layer: two
        "patience": 10,
        "random_negatives": 1,
        "past_negatives": 0,
        "any_node": True,  # as the paper's program draws them
    }


def preset_for(task: str, name: str, data: str | None = None) -> dict[str, Any]:
    """Return the settings of a preset, or raise ParameterError where it is another task's."""
    settings = preset(name, data)
    own = PRESETS_OF[task]
    if not name.startswith(own):
        model = model_settings_of(task).model
        raise ParameterError(f"{name!r} is no preset of {model}; give one of {', '.join(own)}")
    return settings


def model_settings(
    given: Mapping[str, Any] | None,
    *,
    task: str,
    protocol: str,
    named: str | None = None,
    data: str | None = None,
) -> dict[str, Any]:
    """Return all settings of a model: those given, and else those of its preset for the data.

    named: the preset; by default the one that comes with the task and the protocol.
    Seed and path belong to the run, and are included only where somebody gave them.
    """
    from tidegraph.events.datasets import DATA_SETS

    base = preset_name(named, task=task, protocol=protocol)
    changes = preset_for(task, base, data if data in DATA_SETS else None)
    known = declared(model_settings_of(task))
    defaults = {name: each.default for name, each in known.items() if not each.by_run}
    return {**defaults, **changes, **(given or {})}

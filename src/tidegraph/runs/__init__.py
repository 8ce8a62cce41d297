"""Whole experiments: settings, training and evaluation by a protocol, sweeps, runs in directories.

It may import from every package but `bench`, `reproduce` and `cli`. The names below are looked up
when first used, because training needs torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegraph.runs.config import Settings, resolve
    from tidegraph.runs.experiment import Protocol, evaluate, train, validate
    from tidegraph.runs.run import (
        Run,
        check,
        compare,
        place,
        read_metrics,
        read_settings,
        write_comparison,
    )

__all__ = [
    "Protocol",
    "Run",
    "Settings",
    "check",
    "compare",
    "evaluate",
    "place",
    "read_metrics",
    "read_settings",
    "resolve",
    "train",
    "validate",
    "write_comparison",
]

_HOMES = {
    "config": ("Settings", "resolve"),
    "experiment": ("Protocol", "evaluate", "train", "validate"),
    "run": (
        *("Run", "check", "compare", "place"),
        *("read_metrics", "read_settings", "write_comparison"),
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"tidegraph.runs.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'tidegraph.runs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

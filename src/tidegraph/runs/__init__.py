"""Whole experiments: settings, training and evaluation by a protocol, sweeps, runs in directories.

It may import from every package except `bench`, `reproduce` and `cli`. Names are looked up when
first used, because training needs torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegraph.runs.config import Settings, resolve
    from tidegraph.runs.directory import compare, read_metrics, read_settings, run_directory
    from tidegraph.runs.evaluating import evaluate, validate
    from tidegraph.runs.forgetting import Forgotten, audit_forgetting, forget
    from tidegraph.runs.protocol import Protocol
    from tidegraph.runs.run import Run, check
    from tidegraph.runs.training import train

__all__ = [
    "Forgotten",
    "Protocol",
    "Run",
    "Settings",
    "audit_forgetting",
    "check",
    "compare",
    "evaluate",
    "forget",
    "read_metrics",
    "read_settings",
    "resolve",
    "run_directory",
    "train",
    "validate",
]

_HOMES = {
    "config": ("Settings", "resolve"),
    "directory": ("compare", "read_metrics", "read_settings", "run_directory"),
    "evaluating": ("evaluate", "validate"),
    "forgetting": ("Forgotten", "audit_forgetting", "forget"),
    "protocol": ("Protocol",),
    "run": ("Run", "check"),
    "training": ("train",),
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

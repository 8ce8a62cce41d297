"""Neural networks over trajectories: encoders of windows, decoders of pairs. Needs torch."""

from __future__ import annotations

from tidegraph.models.decoders import DECODERS, Concatenation, Hadamard, Pair, mlp
from tidegraph.models.encoders import (
    ENCODERS,
    Encoder,
    Gru,
    Lstm,
    StateOnly,
    TimeEncoding,
    Transformer,
    Window,
)

__all__ = [
    "DECODERS",
    "ENCODERS",
    "Concatenation",
    "Encoder",
    "Gru",
    "Hadamard",
    "Lstm",
    "Pair",
    "StateOnly",
    "TimeEncoding",
    "Transformer",
    "Window",
    "mlp",
]

"""Neural networks over trajectories: encoders of windows, decoders of pairs. Needs torch."""

from __future__ import annotations

from tidegraph.learning.models.decoders import (
    DECODERS,
    Concatenation,
    Hadamard,
    Pair,
    make_decoder,
    mlp,
)
from tidegraph.learning.models.encoders import (
    ENCODERS,
    Encoder,
    Gru,
    Lstm,
    StateOnly,
    TimeEncoding,
    Transformer,
    Window,
    make_encoder,
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
    "make_decoder",
    "make_encoder",
    "mlp",
]

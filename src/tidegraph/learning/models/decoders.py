"""Decoders: from what is known of two nodes to one logit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tidegraph.core.errors import ParameterError
from tidegraph.learning.settings import DecoderName

__all__ = [
    "DECODERS",
    "Concatenation",
    "Hadamard",
    "Pair",
    "make_decoder",
    "mlp",
]


def mlp(columns: int, hidden: int, layers: int, out: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Return a network of `layers` hidden layers of `hidden` units, and an output layer."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(columns, hidden), nn.ReLU(), nn.Dropout(dropout)]
        columns = hidden
    return nn.Sequential(*parts, nn.Linear(columns, out))


class _Decoder(nn.Module):
    """`forward(src, dst, pair)`: encoded nodes `[B, width]` each (or None), pair features."""

    def __init__(self, columns: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.net = mlp(columns, hidden, layers, 1, dropout=dropout)

    def logits(self, *parts: Tensor) -> Tensor:
        out: Tensor = self.net(torch.cat(parts, dim=-1))
        return out[:, 0]


class Concatenation(_Decoder):
    """The paper's decoder: both vectors side by side."""

    reads_pairs = False

    def __init__(
        self, width: int, pair: int, *, hidden: int = 128, layers: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__(2 * width, hidden, layers, dropout)

    def forward(self, src: Tensor, dst: Tensor, pair: Tensor | None = None) -> Tensor:
        return self.logits(src, dst)


class Hadamard(_Decoder):
    """The product of both vectors, entry by entry."""

    reads_pairs = False

    def __init__(
        self, width: int, pair: int, *, hidden: int = 128, layers: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__(width, hidden, layers, dropout)

    def forward(self, src: Tensor, dst: Tensor, pair: Tensor | None = None) -> Tensor:
        return self.logits(src * dst)


class Pair(_Decoder):
    """Pair features; with an encoder also both vectors and their product."""

    reads_pairs = True

    def __init__(
        self, width: int, pair: int, *, hidden: int = 128, layers: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__(pair + 3 * width, hidden, layers, dropout)

    def forward(self, src: Tensor | None, dst: Tensor | None, pair: Tensor) -> Tensor:
        if src is None or dst is None:
            return self.logits(pair)
        return self.logits(pair, src, dst, src * dst)


DECODERS: dict[DecoderName, type[Concatenation] | type[Hadamard] | type[Pair]] = {
    "concatenation": Concatenation,
    "hadamard": Hadamard,
    "pair": Pair,
}


def make_decoder(
    decoder: DecoderName | Callable[..., nn.Module],
    width: int,
    pair: int,
    *,
    hidden: int,
    layers: int,
    dropout: float,
) -> nn.Module:
    """Return the decoder of this name, or the one that this class or function makes.

    width: of the encoded nodes; 0 where there is no encoder and both nodes are None.
    """
    make = decoder if callable(decoder) else DECODERS.get(decoder)
    if make is None:
        raise ParameterError(
            f"decoder is {decoder!r}; give one of {', '.join(DECODERS)}, or a callable that makes"
            " an nn.Module from (width, pair, hidden=, layers=, dropout=)"
        )
    return make(width, pair, hidden=hidden, layers=layers, dropout=dropout)

"""From what is known of two nodes to one logit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tidegraph.core.errors import ParameterError

__all__ = [
    "DECODERS",
    "Concatenation",
    "Hadamard",
    "Pair",
    "check_decoder",
    "make_decoder",
    "mlp",
]


def mlp(columns: int, hidden: int, layers: int, out: int, *, dropout: float = 0.0) -> nn.Sequential:
    """`layers` hidden layers of `hidden` units, and an output layer."""
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
    """Pair features, and beside them both vectors and their product where there is an encoder."""

    reads_pairs = True

    def __init__(
        self, width: int, pair: int, *, hidden: int = 128, layers: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__(pair + 3 * width, hidden, layers, dropout)

    def forward(self, src: Tensor | None, dst: Tensor | None, pair: Tensor) -> Tensor:
        if src is None or dst is None:
            return self.logits(pair)
        return self.logits(pair, src, dst, src * dst)


DECODERS: dict[str, type[Concatenation] | type[Hadamard] | type[Pair]] = {
    "concatenation": Concatenation,
    "hadamard": Hadamard,
    "pair": Pair,
}


def check_decoder(decoder: str | Callable[..., nn.Module]) -> None:
    """Refuses what is neither the name of a decoder nor something to make one."""
    if not callable(decoder) and decoder not in DECODERS:
        raise ParameterError(
            f"decoder is {decoder!r}; give one of {', '.join(DECODERS)}, or what makes an nn.Module"
            " from (width, pair, hidden=, layers=, dropout=)"
        )


def make_decoder(
    decoder: str | Callable[..., nn.Module],
    width: int,
    pair: int,
    *,
    hidden: int,
    layers: int,
    dropout: float,
) -> nn.Module:
    """The decoder of this name, or the one this class or function makes.

    width: of the encoded nodes, 0 where there is no encoder and it is called with None for both.
    """
    check_decoder(decoder)
    make = DECODERS[decoder] if isinstance(decoder, str) else decoder
    return make(width, pair, hidden=hidden, layers=layers, dropout=dropout)

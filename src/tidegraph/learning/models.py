"""Networks over trajectories: encoders of latest changes, decoders of pairs. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tidegraph.core.errors import ParameterError
from tidegraph.learning.inference import CLIP, FloatArray, standardise
from tidegraph.learning.settings import (
    ClassSettings,
    DecoderName,
    EncoderName,
    LinkSettings,
    NetworkSettings,
)

_LEAST_SIZE = 1e-6  # of a change; smaller ones are rounding
_NARROWEST = 64  # units; of few, all may be 0 for good
_SIZE_SCALE = 4.0  # logarithms of sizes lie between -7 and 2

# Encoders -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """The latest changes of `B` nodes before a time, newest last, and their states then."""

    change: Tensor  # [B, k, width]
    elapsed: Tensor  # [B, k]: logarithm of the time from the change to the question
    known: Tensor  # [B, k]: false where the node has moved less often than that
    state: Tensor  # [B, width]

    def trimmed(self) -> Window:
        """Return the window without leading positions at which no node has a change, but not empty.

        Known changes come after all unknown ones.
        """
        some = self.known.any(dim=0).nonzero()
        last = slice(int(some[0]) if len(some) else self.known.shape[1] - 1, None)
        return Window(self.change[:, last], self.elapsed[:, last], self.known[:, last], self.state)


class TimeEncoding(nn.Module):
    """Cosines of an elapsed time, with learned frequencies and phases."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.logspace(0, -3, width))
        self.phase = nn.Parameter(torch.zeros(width))

    def forward(self, elapsed: Tensor) -> Tensor:
        return torch.cos(elapsed[..., None] * self.frequency + self.phase)


class Encoder(nn.Module):
    """Base class of the encoders: `forward(window)` returns `[B, self.width]`.

    Any `nn.Module` with that call, made from `(columns, width)`, can take its place.
    """

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        if columns < 1 or width < 1:
            raise ParameterError(f"columns is {columns}, width is {width}; both are at least 1")
        self.columns = columns
        self.width = width


class StateOnly(Encoder):
    """No sequence model: a layer on the state itself."""

    def __init__(self, columns: int, width: int) -> None:
        super().__init__(columns, width)
        self.project = nn.Linear(columns, width)

    def forward(self, window: Window) -> Tensor:
        return torch.relu(self.project(window.state))


class _Sequence(Encoder):
    """Base class of the sequence models: changes, and optionally times, as one input per step.

    A node's first change is a thousand times as large as one among many neighbours. A change is
    therefore split into its direction, with entries of about one, and the logarithm of its size.
    """

    def __init__(self, columns: int, width: int, *, time_encoding: bool) -> None:
        super().__init__(columns, width)
        self.time = TimeEncoding(width) if time_encoding else None
        self.project = nn.Linear(columns + 1 + (width if time_encoding else 0), width)

    def steps(self, window: Window) -> Tensor:
        size = window.change.norm(dim=-1, keepdim=True).clamp_min(_LEAST_SIZE)
        read = [window.change * (math.sqrt(self.columns) / size), size.log() / _SIZE_SCALE]
        if self.time is not None:
            read.append(self.time(window.elapsed))
        projected: Tensor = self.project(torch.cat(read, dim=-1))
        return projected * window.known[..., None]


class _Recurrent(_Sequence):
    cell: type[nn.LSTM] | type[nn.GRU]

    def __init__(
        self, columns: int, width: int, *, layers: int = 2, time_encoding: bool = False
    ) -> None:
        super().__init__(columns, width, time_encoding=time_encoding)
        self.recurrent = self.cell(width, width, num_layers=layers, batch_first=True)

    def forward(self, window: Window) -> Tensor:
        # Unknown changes come first. Move them behind the known ones, so that the output at the
        # last known change has not seen them.
        window = window.trimmed()
        steps = self.steps(window)
        length = steps.shape[1]
        count = window.known.sum(dim=1)
        place = torch.arange(length, device=count.device) + (length - count)[:, None]
        place = place.clamp(max=length - 1)[..., None].expand(-1, -1, self.width)
        out, _ = self.recurrent(steps.gather(1, place))  # [B, length, width]
        last = (count - 1).clamp(min=0)[:, None, None].expand(-1, 1, self.width)
        answer: Tensor = out.gather(1, last)[:, 0]
        return answer * (count > 0)[:, None]


class Lstm(_Recurrent):
    """The paper's encoder: a long short-term memory over the changes."""

    cell = nn.LSTM


class Gru(_Recurrent):
    """Gated recurrent units over the changes."""

    cell = nn.GRU


class Transformer(_Sequence):
    """Self-attention over the changes; the newest one's output is the answer.

    window: how many of the latest changes have their own position; older ones share one.
    """

    def __init__(
        self,
        columns: int,
        width: int,
        *,
        layers: int = 2,
        heads: int = 4,
        time_encoding: bool = False,
        window: int = 64,
    ) -> None:
        super().__init__(columns, width, time_encoding=time_encoding)
        if width % heads:
            raise ParameterError(f"width {width} is not a multiple of {heads} heads")
        if window < 1:
            raise ParameterError(f"window is {window}; give a whole number from 1 on")
        layer = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=0.0, batch_first=True
        )
        self.attention = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.position = nn.Parameter(torch.randn(window, width) / math.sqrt(width))
        self.nothing = nn.Parameter(torch.zeros(width))  # stands for a node that has never moved

    def forward(self, window: Window) -> Tensor:
        window = window.trimmed()
        steps = self.steps(window)
        age = torch.arange(steps.shape[1] - 1, -1, -1, device=steps.device)
        steps = steps + self.position[-1 - age.clamp(max=len(self.position) - 1)]
        first = self.nothing.expand(len(steps), 1, -1)
        hidden = torch.cat(
            [torch.zeros_like(window.known[:, :1]), ~window.known], dim=1
        )  # the first position is always there to attend to
        out = self.attention(torch.cat([first, steps], dim=1), src_key_padding_mask=hidden)
        answer: Tensor = out[:, -1]
        moved = window.known[:, -1:]
        return torch.where(moved, answer, out[:, 0])


ENCODERS: dict[EncoderName, type[Encoder]] = {
    "state": StateOnly,
    "lstm": Lstm,
    "gru": Gru,
    "transformer": Transformer,
}

# Decoders -----------------------------------------------------------------------------------------


class Rectifier(nn.Module):
    """Rectified linear units; in training a share of them, `dropout`, drawn anew, give nothing.

    The same as `nn.ReLU` and `nn.Dropout`, in half the time: torch draws a number per unit, one
    after the other, and here 64 random bits decide about four of them.
    """

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropped = min(round(dropout * 2**16), 2**16 - 1)  # out of 2^16 units

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.dropped):
            return torch.relu(x)
        kept: Tensor = _RectifyAndDrop.apply(x, self.dropped)  # type: ignore[no-untyped-call]
        return kept


class _RectifyAndDrop(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, dropped: int) -> Tensor:
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
        draws = words.random_(-(2**63), None).view(torch.int16)[: x.numel()].view(x.shape)
        context.scale = 2**16 / (2**16 - dropped)  # keeps the mean
        out = torch.relu(x).masked_fill_(draws < dropped - 2**15, 0.0).mul_(context.scale)
        context.save_for_backward(out)
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (out,) = context.saved_tensors
        passed: Tensor = torch.ops.aten.threshold_backward(gradient, out, 0)
        return passed.mul_(context.scale), None


def mlp(
    columns: int,
    hidden: int,
    layers: int,
    out: int,
    *,
    later: int | None = None,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Return a network of `layers` hidden layers of `hidden` units, and an output layer.

    later: the units of all hidden layers but the first; by default `hidden`, too.
    """
    parts: list[nn.Module] = []
    for layer in range(layers):
        width = hidden if layer == 0 or later is None else later
        parts += [nn.Linear(columns, width), Rectifier(dropout)]
        columns = width
    return nn.Sequential(*parts, nn.Linear(columns, out))


class _Decoder(nn.Module):
    """`forward(src, dst, pair)`: encoded nodes `[B, width]` each (or None), pair features."""

    reads_pairs = False
    vectors: ClassVar[int]  # of the width of an encoded node
    narrowing = 1  # how much narrower than the first hidden layer the others are

    def __init__(
        self,
        width: int,
        pair: int,
        *,
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.0,
        questions: int = 1,
    ) -> None:
        super().__init__()
        columns = self.vectors * width + (pair if self.reads_pairs else 0)
        later = min(hidden, max(_NARROWEST, hidden // self.narrowing))
        self.net = mlp(columns, hidden, layers, questions, later=later, dropout=dropout)

    def logits(self, *parts: Tensor) -> Tensor:
        out: Tensor = self.net(torch.cat(parts, dim=-1))
        return out.squeeze(1)  # a single logit has no axis of its own


class Concatenation(_Decoder):
    """The paper's decoder: both vectors side by side."""

    vectors = 2

    def forward(self, src: Tensor, dst: Tensor, pair: Tensor | None = None) -> Tensor:
        return self.logits(src, dst)


class Hadamard(_Decoder):
    """The product of both vectors, entry by entry."""

    vectors = 1

    def forward(self, src: Tensor, dst: Tensor, pair: Tensor | None = None) -> Tensor:
        return self.logits(src * dst)


class Pair(_Decoder):
    """Pair features; with an encoder also both vectors and their product.

    Hidden layers after the first are a quarter as wide, but no narrower than 64 units on that
    account: half the work of a training, and as good.
    """

    reads_pairs = True
    vectors = 3
    narrowing = 4

    def forward(self, src: Tensor | None, dst: Tensor | None, pair: Tensor) -> Tensor:
        if src is None or dst is None:
            return self.logits(pair)
        return self.logits(pair, src, dst, src * dst)


DECODERS: dict[DecoderName, type[_Decoder]] = {
    "concatenation": Concatenation,
    "hadamard": Hadamard,
    "pair": Pair,
}

# By name ------------------------------------------------------------------------------------------


def make_encoder(
    encoder: EncoderName | Callable[..., nn.Module],
    columns: int,
    width: int,
    options: dict[str, Any] | None = None,
) -> nn.Module:
    """Return the encoder of this name, or the one that this class or function makes."""
    return _maker("encoder", encoder, ENCODERS, "columns, width")(columns, width, **(options or {}))


def make_decoder(
    decoder: DecoderName | Callable[..., nn.Module], width: int, pair: int, **shape: Any
) -> nn.Module:
    """Return the decoder of this name, or the one that this class or function makes.

    width: of the encoded nodes; 0 where there is no encoder and both nodes are None.
    shape: `hidden`, `layers` and `dropout`; of a named one, also `questions`, its logits.
    """
    arguments = "width, pair, hidden=, layers=, dropout="
    return _maker("decoder", decoder, DECODERS, arguments)(width, pair, **shape)


def _maker(
    kind: str,
    given: str | Callable[..., nn.Module],
    known: Mapping[Any, Callable[..., nn.Module]],
    arguments: str,
) -> Callable[..., nn.Module]:
    if callable(given):
        return given
    if given not in known:
        raise ParameterError(
            f"{kind} is {given!r}; give one of {', '.join(known)}, or a callable that makes an"
            f" nn.Module from ({arguments})"
        )
    return known[given]


class Network(nn.Module):
    """Base class of the tasks' networks: standardised features, and an encoder if there is one."""

    mean: Tensor
    scale: Tensor

    def __init__(self, settings: NetworkSettings, columns: int, features: int) -> None:
        super().__init__()
        self.encoder: nn.Module | None = None
        self.encoded = 0  # width of an encoded node
        if settings.encoder is not None:
            self.encoded = settings.width
            self.encoder = make_encoder(
                settings.encoder, columns, settings.width, settings.encoder_options
            )
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the weights by name; on a CPU they are those of the network, not copies."""
        return {name: tensor.cpu().numpy() for name, tensor in self.state_dict().items()}

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take over the weights of a network of the same shape."""
        self.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})

    def adjust(self, features: FloatArray) -> None:
        """Standardise like these features from now on."""
        if not features.shape[1]:  # the decoder reads none
            return
        read = torch.from_numpy(features)
        self.mean.copy_(read.mean(0))
        self.scale.copy_(read.std(0) + 1e-3)

    def standardise(self, features: FloatArray) -> FloatArray:
        """Replace features by standardised ones, and return them."""
        return standardise(features, self.mean.cpu().numpy(), self.scale.cpu().numpy())


class LinkNetwork(Network):
    """The network from standardised pair features and both encoded nodes to logits.

    It answers whether a pair meets and, where pairs of the past are among the negatives, also which
    destination a source takes that acts: those pairs say much about who acts, and would distort
    the order of destinations.
    """

    def __init__(self, settings: LinkSettings, columns: int, pair: int) -> None:
        super().__init__(settings, columns, pair)
        shape = {name: getattr(settings, name) for name in ("hidden", "layers", "dropout")}
        if not callable(settings.decoder):
            shape["questions"] = 2 if settings.past_negatives else 1
        self.decoder = make_decoder(settings.decoder, self.encoded, pair, **shape)

    def forward(self, pair: Tensor, src: Tensor | None, dst: Tensor | None) -> Tensor:
        """Return logits from standardised pair features and encoded nodes, None without encoder.

        `[B, 1]` or, where there are two questions, `[B, 2]`.
        """
        logits: Tensor = self.decoder(src, dst, pair)
        return logits[:, None] if logits.ndim == 1 else logits


class ClassNetwork(Network):
    """Several networks of one shape from standardised features and encoded windows to logits.

    windows: how many nodes a question has.
    starts: whether the last features are logits of the classes, which the network corrects.
    """

    log_weight: Tensor  # of each class in the loss

    def __init__(
        self,
        settings: ClassSettings,
        columns: int,
        features: int,
        *,
        classes: int,
        windows: int,
        starts: bool,
    ) -> None:
        super().__init__(settings, columns, features)
        read = features + windows * self.encoded
        shape = read, settings.hidden, settings.layers, classes
        self.members = nn.ModuleList(
            mlp(*shape, dropout=settings.dropout) for _ in range(settings.members)
        )
        self.register_buffer("log_weight", torch.zeros(classes))
        self.starts = starts
        if starts:
            self.trust = nn.Parameter(torch.ones(1))

    def forward(self, features: Tensor, windows: list[Window | None]) -> Tensor:
        """Return the logits of the weighted loss, `[members, B, classes]`."""
        standard = (features - self.mean) / self.scale
        read = [standard.clamp(-CLIP, CLIP)]
        if self.encoder is not None:
            read += [self.encoder(window) for window in windows]
        inputs = torch.cat(read, dim=-1)
        logits = torch.stack([member(inputs) for member in self.members])
        if self.starts:
            logits = logits + self.trust * features[:, -logits.shape[-1] :]
        return logits

    def probabilities(self, features: Tensor, windows: list[Window | None]) -> Tensor:
        """Return the members' mean, `[B, classes]`, for classes as frequent as in training.

        Class weights shift the logits of a fitted network by their logarithms; undo that here.
        """
        logits = self(features, windows) - self.log_weight
        return torch.softmax(logits, dim=-1).mean(dim=0)

"""What a new directory starts from: a run, a model, a stream, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.events.columns import Op
from tidegraph.events.stream import EventStream
from tidegraph.learning.settings import default_half_lives
from tidegraph.learning.tasks.link import LinkPredictor
from tidegraph.live.models import Model
from tidegraph.live.names import Names
from tidegraph.live.order import Rows
from tidegraph.live.settings import LiveSettings
from tidegraph.live.state import About, usual_span
from tidegraph.runs import config
from tidegraph.runs.directory import CONFIG, model_directory

FIRST = "0001"  # the version of a model that a directory starts with


@dataclass(frozen=True)
class Source:
    """Events and a model to start from, either of which may be missing."""

    stream: EventStream | None
    model: Model | None
    about: About

    @property
    def digest(self) -> str | None:
        """The digest of the events; None if there are none."""
        return None if self.stream is None else self.stream.digest()

    def rows(self, names: dict[str, int]) -> Rows:
        """Return the events as the first rows of a log, and put the names of nodes into `names`.

        The graph that a stream starts from is set at its first time.
        """
        stream, nobody = self.stream, Names()
        if stream is None:
            return Rows.of([], [], [], [])
        parts = []
        if stream.initial is not None and len(stream):
            edges = stream.initial
            src, dst = (list(map(str, stream.name(n).tolist())) for n in (edges.src, edges.dst))
            count = len(edges.src)
            weight = np.nan if edges.weight is None else edges.weight
            t = np.full(count, stream.t[0])
            numbers = nobody.numbered(src, dst, names)
            parts.append(Rows.of(t, np.arange(1, count + 1), *numbers, Op.SET, weight))
        read = self.about.reader._stream(stream)
        begin = 1 + sum(map(len, parts))
        weights = np.nan if read.weight is None else np.array(read.weight, dtype=np.float64)
        numbers = nobody.numbered(read.src, read.dst, names)
        seq = np.arange(begin, begin + len(read))
        parts.append(Rows.of(read.t, seq, *numbers, read.op or 0, weights))
        return Rows.merged(parts)


def source_of(given: Any, settings: LiveSettings) -> Source:
    """Return what a user gives to start from."""
    if given is None:
        unit = settings.unit
        about = _about(settings, usual_span(unit), unit, by_side=settings.bipartite)
        return Source(None, None, about)
    if isinstance(given, (str, Path)):
        given = _opened(Path(given))
    predictor = given if isinstance(given, LinkPredictor) else None
    stream = given if predictor is None else predictor.stream
    if not isinstance(stream, EventStream):
        raise ParameterError(
            f"the source is a {type(given).__name__}; give a run or model by its directory, a"
            " LinkPredictor, or an EventStream, such as what tidegraph.read(path) returns"
        )
    names = stream.names
    integers = names is None or names.are_integers
    by_side = names is not None and names.by_side
    span = max(1.0, float(stream.t[-1] - stream.t[0])) if len(stream) else usual_span(stream.unit)
    model = None if predictor is None else Model.of(predictor, FIRST)
    if predictor is None or model is None:
        return Source(stream, None, _about(settings, span, stream.unit, integers, by_side))
    shape: dict[str, Any] = {
        "columns": predictor.columns,
        "alpha": predictor.alpha,
        "high_pass": predictor.high_pass,
        "r_max": predictor.r_max,
        "seed": predictor.seed,
    }
    if predictor.half_lives is not None:
        shape["half_lives"] = tuple(predictor.half_lives)
    about = _about(settings, model.span, stream.unit, integers, by_side, **shape)
    return Source(stream, model, about)


def _about(
    settings: LiveSettings,
    span: float,
    unit: str,
    integers: bool = False,
    by_side: bool = False,
    **shape: Any,
) -> About:
    own = settings.half_lives
    return About(
        **{
            "unit": unit,
            "by_side": by_side,
            "integers": integers,
            "columns": settings.columns,
            "alpha": settings.alpha,
            "half_lives": default_half_lives(span) if own is None else tuple(own),
            "high_pass": True,
            "r_max": settings.r_max,
            "seed": settings.seed,
            "span": span,
            **shape,
        }
    )


def _opened(path: Path) -> LinkPredictor | EventStream:
    """Return the model in the directory of a run or of a model, or a stream that was saved."""
    if (path / CONFIG).is_file():
        seeds = config.read(path / CONFIG).get("seeds") or [0]
        path = model_directory(path, seeds[0])
    if path.is_file():
        return EventStream.load(path)
    if not path.exists():
        raise StateFileError(
            f"{path} does not exist; give a directory of tidegraph run or train, or a table"
        )
    return LinkPredictor.load(path)

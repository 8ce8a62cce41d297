"""Protocols: how events are divided, and what is asked about those of the test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import get_args

from tidegraph import evaluation
from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.words import counted
from tidegraph.evaluation import ROLAND_SETTINGS, Split
from tidegraph.events.moments import moment
from tidegraph.events.stream import EventStream
from tidegraph.learning.settings import PROTOCOLS, Knowledge, model_settings_of, task_name


@dataclass(frozen=True)
class Protocol:
    """How events are divided, and what is asked about those of the test.

    name: `tgn` and `tgb` divide at quantiles of time, `time` at the times given; `roland` ranks all
        nodes for every source of the next snapshot.
    task: `link`, or `node` to predict the labels of nodes after the same times.
    samplers: of negatives; `random-dst` by default. `roland` and nodes have none.
    knowledge: what model and heuristics know when a test event is asked about: all before its time
        (`event`), or all before the first event of its batch of 200 (`batch`).
    rank: also rank every destination for each test event, or for `rank_sample` of them.
    validation_after, test_after: for `time`, in the unit of the events or as ISO dates.
    snapshot_seconds, first_test: for `roland`; None takes those published for the data.
    live: for `roland`: before each task the model also learns from every snapshot that has become
        known since its training.
    """

    name: str = "tgn"
    _: KW_ONLY
    task: str = "link"
    samplers: Sequence[str] | None = None
    knowledge: str = "event"
    rank: bool = False
    rank_sample: int | None = None
    validation_after: float | str | None = None
    test_after: float | str | None = None
    snapshot_seconds: int | None = None
    first_test: int | None = None
    live: bool = False

    def __post_init__(self) -> None:
        if self.name not in PROTOCOLS:
            raise ParameterError(f"protocol is {self.name!r}; give one of {', '.join(PROTOCOLS)}")
        object.__setattr__(self, "task", task_name(self.task))
        model_settings_of(self.task)  # rejects an unknown one
        if self.name == "roland" and self.task != "link":
            raise ParameterError("the protocol roland is about links; give tgn, tgb or time")
        reason = "" if self.task == "link" else f"the task {self.task} has no negatives"
        if self.name == "roland":
            reason = "the protocol roland ranks all nodes"
        if reason and (self.samplers is not None or self.ranks):
            raise ParameterError(f"{reason}; leave out samplers and rank")
        if self.knowledge not in get_args(Knowledge):
            raise ParameterError(f"knowledge is {self.knowledge!r}; give event or batch")
        if self.knowledge == "batch" and (self.name == "roland" or self.task != "link"):
            raise ParameterError(
                "the knowledge 'batch' is about links between events; leave it out for the protocol"
                " roland, which asks snapshot by snapshot, and for classes of nodes or events"
            )
        times = self.validation_after, self.test_after
        if self.name == "time" and None in times:
            raise ParameterError(
                "the protocol 'time' needs the times after which validation and test begin; give"
                " validation_after and test_after"
            )
        if self.name != "time" and times != (None, None):
            raise ParameterError("validation_after and test_after belong to the protocol 'time'")
        if self.live and self.name != "roland":
            raise ParameterError(
                f"live belongs to the protocol roland, and this is {self.name}, whose models stop"
                " learning when the test begins; leave out live, or give roland"
            )

    @classmethod
    def of(cls, protocol: Protocol | str) -> Protocol:
        """Return the protocol itself, or the one of that name with default settings."""
        return cls(protocol) if isinstance(protocol, str) else protocol

    @property
    def title(self) -> str:
        """Its name in results, where models that keep learning are listed apart."""
        return f"{self.name}+live" if self.live else self.name

    @property
    def ranks(self) -> bool:
        """Whether destinations are ranked."""
        return self.rank or self.rank_sample is not None

    def times(self, unit: str) -> tuple[float, float] | tuple[None, None]:
        """Return when validation and test begin, as numbers of the unit; None without times."""
        validation, test = (
            moment(time, unit) if isinstance(time, str) else time
            for time in (self.validation_after, self.test_after)
        )
        return (None, None) if validation is None or test is None else (validation, test)

    def snapshots(self, data: str | None) -> tuple[int, int]:
        """Return the seconds of a snapshot and the first test task, given or as published."""
        known = ROLAND_SETTINGS.get(data or "", {})
        width_s = known.get("width_s") if self.snapshot_seconds is None else self.snapshot_seconds
        first = known.get("first_test") if self.first_test is None else self.first_test
        if width_s is None or first is None:
            raise ParameterError(
                "the protocol 'roland' needs snapshot_seconds, the width of a snapshot, and"
                " first_test, the first test task; they are published for"
                f" {', '.join(ROLAND_SETTINGS)} only"
            )
        return width_s, first


def split_stream(stream: EventStream, protocol: Protocol | None) -> Split:
    """Divide a stream; without a protocol the last 15 % validate and nothing is left for a test."""
    after, later = (None, None) if protocol is None else protocol.times(stream.unit)
    if after is not None and later is not None:
        return evaluation.time_split(stream, validation_time=after, test_time=later)
    if len(stream) == 0 or stream.t[0] == stream.t[-1]:
        raise DataError(
            f"the stream holds {counted(len(stream), 'event')} at one time; a model learns from"
            " events at different times"
        )
    if protocol is None:
        return evaluation.latest_split(stream)
    if protocol.name in ("tgn", "tgb"):
        return {"tgn": evaluation.tgn_split, "tgb": evaluation.tgb_split}[protocol.name](stream)
    raise ParameterError(
        f"the protocol {protocol.name!r} divides snapshots; use it with evaluate, or give tgn, tgb"
        " or time"
    )

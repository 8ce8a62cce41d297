"""Every setting of a live state, declared once. Imports no NumPy: options are read at once."""
# ruff: noqa: RUF009 (a field of a dataclass is declared by a call)

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegraph.core.declarations import setting, validate

Late: TypeAlias = Literal["reject", "now"]


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """How a live state takes events in, keeps them and learns from them."""

    # What a directory is; only a new one takes these, and keeps them.
    unit: str = setting("ms", "unit of the times of a directory that starts empty")
    bipartite: bool = setting(
        False, "whether an id is one node as src and another as dst, where it starts empty"
    )
    columns: int = setting(32, "random feature columns per channel", least=1, most=10_000)
    alpha: float = setting(
        0.2, "how local: the share that stays at a node each hop", above=0, below=1
    )
    half_lives: tuple[float, ...] | None = setting(
        None,
        "half-lives of the channels that forget, in the directory's unit; none: those of the model,"
        " or a day",
        least=1e-3,
    )
    r_max: float = setting(1e-2, "the promised error of representations, of their RMS", above=0)
    seed: int = setting(0, "seed of features, weights and negatives", least=0, most=2**63 - 1)

    # Time and order.
    lateness: str = setting(
        "5s",
        "how long to wait for events that are late, as 5s or 2min, or a number in the directory's"
        " unit; times that count steps or years do not wait",
    )
    ahead: str = setting(
        "1day",
        "how far ahead of the clock the time of an event may be, as after a wrong one all others"
        " would be late; any: as far as it says",
    )
    late: Late = setting("reject", "what happens to events that come later than that")
    idle_s: float = setting(
        1.0, "seconds without events after which those that wait are applied", above=0, most=3600
    )

    # Storage.
    snapshot_every_events: int = setting(200_000, "events after which to save the state", least=1)
    snapshot_every_s: float = setting(600.0, "seconds after which to save it", above=0)
    keep_log: str = setting(
        "all",
        "which events stay in the log: all, or those of a span, as 30day, and all that no snapshot"
        " contains",
    )
    record: bool = setting(
        True,
        "whether to record how nodes move, behind, for questions about the past; such a question"
        " raises an error otherwise",
    )
    queue_events: int = setting(
        100_000, "events that may wait for being stored; more are turned away", least=1
    )
    max_batch: int = setting(100_000, "events of one call", least=1)

    # Learning.
    learn: bool = setting(True, "whether to train models in the background")
    train_after: int = setting(2000, "events before the first training", least=100)
    train_every_events: int | None = setting(
        None, "events after which to train again; none: when there are twice as many", least=100
    )
    train_when_worse: float = setting(
        0.05,
        "train again when the average precision falls by so much below its best bucket",
        above=0,
        most=1,
    )
    max_examples: int = setting(200_000, "events to train on, the latest ones", least=100)
    judged_per_s: float = setting(
        200.0, "events per second that are scored before they are learned from, at most", least=0
    )

    def __post_init__(self) -> None:
        validate(self)

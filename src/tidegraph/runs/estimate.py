"""What a run will take: time, memory and disk, estimated from its events and settings."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from tidegraph.core.errors import ParameterError
from tidegraph.core.words import bytes_in_words
from tidegraph.learning.settings import default_epochs
from tidegraph.report.telemetry import REPLAYED
from tidegraph.runs.config import Settings
from tidegraph.store.recording import SEGMENT_BYTES
from tidegraph.store.segments import Layout

# Recording in CPU seconds of one busy core, on 10^4 to 10^5 events of `generate_communities`, UCI,
# Wikipedia and 3 M flights; that two cores halve it is assumed. Walks in seconds of two cores, on
# 10^5 to 10^7 events of `generate_communities`, Wikipedia and the flights.
# Of both ends, and of neighbours that moved enough: fewer the more events a node has.
_RECORDS_PER_EVENT, _MOVED = 1.5, 27.0
_EVENT_CELL_US = 0.3  # to propagate and record an event, per channel and column
_EVENT_US = 25  # the same whatever the columns, and to save and to describe it
_UNRECORDED_US = 6  # to save, count and describe an event that is not recorded
_PAIR_US = 8  # to read the features of a pair
_SKETCH_COLUMN_US = 0.25  # of its sketches
# Walks to both ends of a pair, of nodes with 100 events or more; slower the more nodes there are,
# as caches hold less of them.
_WALK_US, _WALK_US_PER_DIGIT, _LONG_WALK = -50, 55, 100
_SHARED = 0.6  # of that if one walk serves several pairs of an event
_ANSWERED = 300_000  # pairs that the report asks about
_STEP_US = 4  # of one pair through the network and back; a third of it one way
_HEURISTIC_PAIR_US = 15  # of all heuristics about one pair
_FIXED_S = 5.0
_FEATURE_BYTES = 4 * 150  # of a pair
_FIXED_BYTES = 450_000_000  # torch, mostly
_EVENT_BYTES, _EVENT_FILE_BYTES = 200, 150  # in memory; as events and history on disk
_TESTED = 0.15 * 1.3  # of the events, once as all and once as new nodes


@dataclass(frozen=True)
class Estimate:
    """What a run takes: seconds on two quiet cores (None: unknown), bytes of memory and disk."""

    seconds: float | None
    memory: int
    disk: int

    def __str__(self) -> str:
        """Return the estimate in a line."""
        time = ""
        if self.seconds is not None:
            minutes = self.seconds / 60
            time = f"{self.seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min"
            time += " on two quiet cores, "
        memory, disk = bytes_in_words(self.memory), bytes_in_words(self.disk)
        return f"About {time}{memory} of memory and at most {disk} of disk."

    def check(self, directory: Path) -> None:
        """Raise ParameterError where the disk cannot hold the run, beside what it has already."""
        held = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        place = next(each for each in (directory, *directory.absolute().parents) if each.exists())
        free = shutil.disk_usage(place).free
        if self.disk > free + held:
            raise ParameterError(
                f"the run will need some {bytes_in_words(self.disk)} of disk, and"
                f" {bytes_in_words(free)} are free in {place}; give --out on another disk, --quick,"
                " or fewer columns (--set columns=8)"
            )


def estimate(
    events: int, nodes: int, settings: Settings, *, columns: int | None = None
) -> Estimate:
    """Estimate what a run with these settings takes on a stream of so many events and nodes.

    columns: of the features that nodes have, where these are propagated instead of random ones.
    """
    model, seeds = settings.model, len(settings.seeds)
    half_lives = 1 if model["half_lives"] is None else len(model["half_lives"])
    channels = (1 + half_lives) * (2 if model["high_pass"] else 1)
    columns = model["columns"] if columns is None else columns
    cells, layout = channels * columns, Layout(channels, columns, model["dtype"])
    per_node = max(1.0, events / nodes)
    reads = model.get("pair_features", ("sketches",))  # other tasks read representations
    recorded = model["encoder"] is not None or "sketches" in reads
    records = nodes + events * min(12, _RECORDS_PER_EVENT + _MOVED / math.sqrt(per_node))
    record = int(records * layout.record_bytes) if recorded else 0
    # Segments stay until all of them are merged; the record of an earlier seed until this is done.
    records_kept = 1 + (seeds if settings.keep else min(2, seeds))
    # Pairs to read and to learn from; a label counts once for each network.
    per_event = 1 + model.get("random_negatives", 0) + model.get("past_negatives", 0)
    per_event *= model.get("members", 1)
    pairs = int(min(0.7 * events, model["max_examples"]) * per_event)
    epochs = model["epochs"] or default_epochs(pairs)
    asked = _TESTED * events * (1 + len(settings.evaluation.samplers or ("", "")))
    pair_us = _PAIR_US + (_SKETCH_COLUMN_US * columns if "sketches" in reads else 0)
    walk_us = max(10.0, _WALK_US + _WALK_US_PER_DIGIT * math.log10(nodes))
    walk_us *= min(1.0, per_node / _LONG_WALK) if "local" in reads else 0
    propagated = events if recorded else min(events, REPLAYED) if settings.report.html else 0
    of_seed_us = (propagated * (_EVENT_US + _EVENT_CELL_US * cells) + events * _UNRECORDED_US) / 2
    step_us = _STEP_US * model["hidden"] / 256 / 2
    of_seed_us += pairs * (pair_us + _SHARED * walk_us + epochs * step_us)
    of_seed_us += asked * (pair_us + walk_us + _STEP_US / 3)
    if settings.report.html:
        of_seed_us += min(_ANSWERED, asked * nodes) * (pair_us + _SHARED * walk_us)
    once_us = 0 if "heuristics" in settings.skip else asked * _HEURISTIC_PAIR_US
    return Estimate(
        seconds=None if model["encoder"] else _FIXED_S + (seeds * of_seed_us + once_us) / 1e6,
        memory=int(
            _FIXED_BYTES
            + pairs * _FEATURE_BYTES
            + 8 * cells * nodes
            + min(2.5 * SEGMENT_BYTES, 2.5 * record)
            + events * _EVENT_BYTES
        ),
        disk=records_kept * record + events * _EVENT_FILE_BYTES,
    )

"""Random histories for `tests.fuzz`: the start of a propagator and the calls that follow.

A history is plain data, so that it can be printed, shortened and sent to another process. Some
steps may not fit the graph; `tests.oracle` decides which.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from tests.oracle import Oracle

from tidegraph import Propagator
from tidegraph.engine.channels import Channel, Sketch
from tidegraph.events.batch import Batch, Op

__all__ = ["Fields", "History", "Make", "Step", "write"]

Pair: TypeAlias = tuple[int, int]
Fields: TypeAlias = dict[str, Any]
Make: TypeAlias = Callable[..., Propagator]

MOST_NODES = 14
FINEST = {"float32": 1e-5, "float64": 1e-11}
UNIT = {"float32": 2.0**-22, "float64": 2.0**-51}
ORACLE_OPTIONS = (
    "channels",
    "directed",
    "beta",
    "r_max",
    "r_max_unit",
    "scale_by_degree",
    "self_loop",
)


@dataclass(frozen=True)
class Step:
    """One call with its arguments, in plain types.

    apply: the fields of a batch. apply_steps: the same and `offsets`. apply_snapshot and refine:
    the arguments of the method. repair: none. clone: `by` names the way, `keep` the one to
    continue with.
    wrong: what is meant not to fit, if anything.
    """

    call: str
    arguments: Fields = field(default_factory=dict)
    wrong: str = ""


@dataclass(frozen=True)
class History:
    """The start of a propagator and the steps that follow, in plain types."""

    features: list[list[float]] | Sketch
    nodes: int
    options: Fields
    initial: Fields | None = None
    steps: tuple[Step, ...] = ()
    handed: str = "float64"  # how features are passed: a dtype, "read-only" or "integers"

    def feature_array(self) -> Any:
        """Return the features in the form that is passed to a propagator."""
        if isinstance(self.features, Sketch):
            return self.features
        dtype = {"float32": np.float32, "integers": np.int64}.get(self.handed, np.float64)
        array = np.array(self.features, dtype=dtype).reshape(self.nodes, -1)
        if self.handed == "read-only":
            array.setflags(write=False)
        return array

    def start(self, make: Make) -> Propagator:
        """Return a propagator at the start of this history."""
        initial = None if self.initial is None else Batch(**self.initial)
        return make(self.feature_array(), nodes=self.nodes, initial=initial, **self.options)

    def oracle(self) -> Oracle:
        """Return an oracle at the start of this history."""
        initial = None if self.initial is None else Batch(**self.initial)
        options = {name: self.options[name] for name in ORACLE_OPTIONS if name in self.options}
        return Oracle(self.feature_array(), nodes=self.nodes, initial=initial, **options)


# Writing histories -------------------------------------------------------------------------------


def write(seed: int, number: int, mildness: int = 0) -> History:
    """Return a history; the higher the mildness, the easier its numbers are to hold."""
    return _Writer(random.Random(f"{seed} {number}"), mildness).history()


class _Writer:
    """Draws a history whose steps fit, except those meant not to.

    It follows the user's graph only to draw sensible rows; the oracle decides what they do.
    """

    def __init__(self, rng: random.Random, mildness: int) -> None:
        self.rng, self.mildness = rng, mildness
        calm = mildness >= 3
        self.directed = rng.random() < 0.5
        self.weights = self._one_of("ones integers moderate moderate wide heavy")
        self.values = self._one_of("normal normal integers wide heavy sparse uneven")
        self.self_loop = rng.choice([1.0, 1.0, 1.0, 0.25, 3.0, 1e-6, 1e6, 2.0**40, 0.0, 0.0])
        if self.directed and self.self_loop == 0:
            self.self_loop = 1.0
        if calm:
            self.weights, self.values = "moderate", "normal"
            self.self_loop = 0.0 if self.self_loop == 0 else 1.0
        self.columns = rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 8, 9, 13, 20])
        self.beta = rng.choice([0.5, 0.5, 0.0, 0.3, 1.0])
        self.channels = self._channels()
        self.sketch = self._sketch() if rng.random() < 0.15 else None
        if self.sketch is not None:
            self.values = "sketch"
        self.column_scales = [
            10.0 ** rng.uniform(-6, 6) if self.values == "uneven" else 1.0
            for _ in range(self.columns)
        ]
        self.ceiling: list[float] = []  # no later feature of a column is much larger
        self.nodes = rng.randint(2, 9)
        self.alive = list(range(self.nodes))
        self.graph: dict[Pair, float] = {}
        self.timed = any(channel.timed for channel in self.channels)
        self.dated = 1.0 if self.timed else rng.choice([0.0, 0.5, 1.0])  # share with a time
        self.now: int = rng.choice([0, 0, -5, 10**9])
        self.pace = self._one_of("ties steady mixed mixed idle")
        self.removing, self.setting = rng.choice([(0.0, 0.0), (0.2, 0.1), (0.4, 0.1), (0.3, 0.4)])
        self.repeating = rng.choice([0.1, 0.4, 0.8])
        self.hub = rng.random() < 0.3
        self.node_events = rng.choice([0.0, 0.1, 0.4])
        self.scales = rng.random() < 0.75
        self.r_max = 0.0

    def _one_of(self, words: str) -> str:
        return self.rng.choice(words.split())

    def _channels(self) -> tuple[Channel, ...]:
        rng = self.rng
        half_lives = rng.choice([[1.0, 7.5], [3.0], [0.1, 1000.0], [0.5, 40.0]])
        rules: list[tuple[str, list[Any]]] = [
            ("half_life", [None]),
            ("half_life", half_lives),
            ("window", [1, 2, 8, 100]),
            ("last", [1, 2, 5, 20]),
        ]
        chosen = []
        for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
            rule, values = rng.choice(rules)
            version: Fields = {rule: rng.choice(values)}
            if self.directed:
                version["direction"] = self._one_of("out in both")
            if rng.random() < 0.3:
                version["beta"] = rng.choice([0.0, 0.3, 0.5, 1.0])
            alpha = rng.choice([0.2, 0.2, 0.1, 0.5, 0.9])
            if rng.random() < 0.4:
                chosen.append(Channel.low_pass(alpha, **version))
            elif rng.random() < 0.5:
                chosen.append(Channel.high_pass(alpha, **version))
            else:
                largest = 0.9 if self.mildness >= 3 else 0.99
                gamma = rng.choice([rng.uniform(0.05, largest), 0.05, largest])
                gamma0 = rng.choice([-1.0, 1.0]) * 10 ** rng.uniform(-3, 6)
                chosen.append(Channel(gamma0, rng.choice([-gamma, gamma]), **version))
        return tuple(chosen)

    def _sketch(self) -> Sketch:
        distributions: list[Any] = ["gaussian", "uniform", "sign"]
        return Sketch(
            self.columns,
            seed=self.rng.randrange(2**32),
            distribution=self.rng.choice(distributions),
            first_column=self.rng.choice([0, 0, 8]),
        )

    # Numbers

    def weight(self) -> float:
        rng = self.rng
        if self.weights == "ones":
            return 1.0
        if self.weights == "integers":
            return float(rng.randint(1, 20))
        if self.weights == "moderate":
            return 10 ** rng.uniform(-2, 2)
        if self.weights == "wide":
            return 10 ** rng.uniform(-12, 12)
        return min(max(rng.lognormvariate(0, 3), 1e-9), 1e9)

    def value(self) -> float:
        rng = self.rng
        if self.values == "integers":
            return float(rng.randint(-3, 3))
        if self.values == "wide":
            return rng.choice([-1.0, 1.0]) * 10 ** rng.uniform(-12, 12)
        if self.values == "heavy":
            return rng.choice([-1.0, 1.0]) * rng.lognormvariate(0, 3)
        if self.values == "sparse" and rng.random() < 0.7:
            return 0.0
        return rng.gauss(0, 1)

    def row_of_features(self) -> list[float]:
        row = [scale * self.value() for scale in self.column_scales]
        for column, most in enumerate(self.ceiling):
            if abs(row[column]) > most:
                row[column] = most * self.rng.uniform(-1, 1)
        return row

    def choose_r_max(self, features: list[list[float]], unit: str, dtype: str) -> float:
        """Return an r_max between about the finest that the dtype can hold and a tenth."""
        columns = list(zip(*features, strict=True))
        peaks = [max(map(abs, column)) or 1.0 for column in columns]
        norms = [1.0] * len(columns)
        if unit == "rms":
            norms = [math.sqrt(sum(x * x for x in c) / len(c)) or 1.0 for c in columns]
        elif unit == "l1":
            norms = [sum(map(abs, column)) or 1.0 for column in columns]
        peak = max(peak / norm for peak, norm in zip(peaks, norms, strict=True))
        size = max(peaks) if unit == "absolute" else peak / len(features) if unit == "l1" else 1.0
        lightest = {"wide": 1e-11, "heavy": 1e-3}.get(self.weights, 0.1)
        heaviest = {"wide": 1e12, "heavy": 1e4, "moderate": 500.0}.get(self.weights, 50.0)
        low = 0.5 * self.self_loop if self.self_loop > 0 else lightest
        high = max(heaviest, self.self_loop)
        finest = FINEST[dtype] * size
        for channel in self.channels:
            beta = self.beta if channel.beta is None else channel.beta
            spread = max(low ** (beta - 1), 1.0) if beta < 1 else 1.0
            if not self.scales:
                spread *= high ** (1 - beta)
            if channel.half_life is not None and self.self_loop == 0:
                spread *= 2.0 ** (24 * (1 - beta))
            held = UNIT[dtype] * peak * spread / (1 - abs(channel.gamma))
            finest = max(finest, 4 * held)
        finest *= 30.0**self.mildness
        coarsest = max(0.1 * size, 10 * finest)
        return float(f"{finest * (coarsest / finest) ** self.rng.random():.6g}")

    # Time

    def pause(self) -> int:
        rng = self.rng
        lengths = [c.half_life for c in self.channels if c.half_life is not None]
        lengths += [float(c.window) for c in self.channels if c.window is not None]
        unit = rng.choice(lengths) if lengths else 1.0
        if self.pace == "ties":
            return rng.choice([0, 0, 0, 1])
        if self.pace == "steady":
            return rng.choice([0, 1, 1, max(1, int(0.3 * unit))])
        if self.pace == "idle" and rng.random() < 0.15:
            return int(rng.choice([9, 30, 50, 120, 700]) * unit * rng.uniform(0.8, 1.2)) + 1
        return rng.choice([0, 0, 1, 2, 7, 40, int(unit), int(1.5 * unit)])

    def times(self, rows: int) -> int | list[int] | None:
        """Return the time or times of a batch, or None, and advance the clock."""
        if self.rng.random() >= self.dated:
            return None
        self.now += self.pause()
        if rows == 0 or self.rng.random() < 0.6:
            return self.now
        times = []
        for _ in range(rows):
            times.append(self.now)
            self.now += self.pause() if self.rng.random() < 0.3 else 0
        self.now = times[-1]
        return times

    # Rows

    def pair(self) -> Pair:
        rng = self.rng
        known = [pair for pair in self.graph if pair[0] in self.alive and pair[1] in self.alive]
        if known and rng.random() < self.repeating:
            src, dst = rng.choice(known)
        else:
            src = self.alive[0] if self.hub and rng.random() < 0.6 else rng.choice(self.alive)
            dst = rng.choice(self.alive)
        return (dst, src) if not self.directed and rng.random() < 0.5 else (src, dst)

    def key(self, pair: Pair) -> Pair:
        return pair if self.directed else (min(pair), max(pair))

    def row(self) -> tuple[int, int, int, float]:
        """Return src, dst, op and weight of a row, and apply it to the graph."""
        rng = self.rng
        draw = rng.random()
        known = [pair for pair in self.graph if pair[0] in self.alive and pair[1] in self.alive]
        if draw < self.removing and known:
            src, dst = rng.choice(known)
            return src, dst, int(Op.REMOVE), self.removal((src, dst))
        pair, weight = self.pair(), self.weight()
        key = self.key(pair)
        if draw < self.removing + self.setting:
            self.graph[key] = weight
            return *pair, int(Op.SET), weight
        self.graph[key] = self.graph.get(key, 0.0) + weight
        return *pair, int(Op.ADD), weight

    def removal(self, key: Pair) -> float:
        """Return how much of an edge to remove: all, in one of several ways, a part, nearly all."""
        rng, before = self.rng, self.graph[key]
        kind = self._one_of("whole whole exact about share share tiny")
        amount = before
        if kind == "about":
            amount = before * rng.choice([1 - 2.0**-40, 1 + 1e-8])
        elif kind == "share":
            amount = before * rng.choice([0.25, 0.5, 0.9, rng.random()])
        elif kind == "tiny":
            amount = before * (1 - 2.0 ** -rng.randint(3, 29))
        if kind not in ("share", "tiny") or before - amount < 2.0**-60 or amount < 2.0**-60:
            del self.graph[key]
            return math.inf if kind == "whole" else before
        self.graph[key] = before - amount
        return amount

    def rows(self, count: int) -> Fields:
        """Return the columns of this many rows, sometimes without those that may be omitted."""
        rows = [self.row() for _ in range(count)]
        src, dst, ops, weights = ([row[k] for row in rows] for k in range(4))
        fields: Fields = {"src": src, "dst": dst}
        if not rows:
            return {}
        if any(ops) or self.rng.random() < 0.2:
            fields["op"] = ops
        plain = all(
            weight == (math.inf if op == Op.REMOVE else 1.0)
            for op, weight in zip(ops, weights, strict=True)
        )
        if not plain or self.rng.random() < 0.3:
            fields["weight"] = weights
        return fields

    def some_rows(self) -> int:
        return self.rng.choice([0, 1, 1, 1, 2, 3, 5, 8])

    # Steps

    def history(self) -> History:
        rng = self.rng
        unit = self._one_of("rms rms absolute l1")
        dtype = self._one_of("float32 float64")
        sketch = self.sketch
        if sketch is not None:
            features = sketch.rows(np.arange(self.nodes)).tolist()
        else:
            features = [self.row_of_features() for _ in range(self.nodes)]
        self.ceiling = [4 * max(map(abs, column)) or 1.0 for column in zip(*features, strict=True)]
        self.r_max = self.choose_r_max(features, unit, dtype)
        if dtype == "float32" and self.mildness >= 2:
            dtype = "float64"
        options: Fields = {
            "channels": self.channels,
            "directed": self.directed,
            "beta": self.beta,
            "r_max": self.r_max,
            "r_max_unit": unit,
            "scale_by_degree": self.scales,
            "self_loop": self.self_loop,
            "dtype": dtype,
            "threads": 2 if rng.random() < 0.1 else 1,
        }
        if rng.random() < 0.3:
            options["block_columns"] = 8
        handed = self._one_of("float64 float64 read-only float32")
        if self.values == "integers" and rng.random() < 0.3:
            handed = "integers"
        if handed == "float32" and sketch is None:
            features = np.float32(features).tolist()
        initial: Fields | None = None
        if rng.random() < 0.35:
            initial = self.rows(rng.randint(0, 12))
            times = self.times(len(initial.get("src", ())))
            if times is not None:
                initial["t"] = times
        count = int(5 * 8 ** rng.random())
        steps = [self.step() for _ in range(count)]
        return History(
            features if sketch is None else sketch,
            len(features),
            options,
            initial,
            tuple(steps),
            handed,
        )

    def step(self) -> Step:
        rng = self.rng
        draw = rng.random()
        if draw < 0.02:
            factor = rng.choice([0.1, 0.3, 0.9, 3.0, 10.0])
            if factor > 1 or rng.random() < 0.5:
                self.r_max *= factor
            return Step("refine", {"r_max": self.r_max})
        if draw < 0.035:
            return Step("repair")
        if draw < 0.07:
            keep = rng.choice(["twin", "original"])
            return Step("clone", {"by": self._one_of("copy pickle file"), "keep": keep})
        if draw < 0.10:
            return self.wrong_step()
        if draw < 0.16:
            return self.snapshot()
        if draw < 0.26:
            return self.many_steps()
        return Step("apply", self.batch())

    def batch(self) -> Fields:
        rng = self.rng
        fields: Fields = {}
        if rng.random() < self.node_events:
            changed = rng.sample(self.alive, rng.choice([0, 1, 1, min(2, len(self.alive))]))
            if changed:
                fields["feature_nodes"] = changed
                fields["feature_values"] = [self.row_of_features() for _ in changed]
            count = min(rng.choice([0, 0, 1, 2]), MOST_NODES - self.nodes)
            if count:
                fields["new_nodes"] = count
                if rng.random() < 0.7:
                    fields["new_features"] = [self.row_of_features() for _ in range(count)]
                self.alive += range(self.nodes, self.nodes + count)
                self.nodes += count
        rows = self.some_rows()
        fields |= self.rows(rows)
        if len(self.alive) > 2 and rng.random() < 0.4 * self.node_events:
            gone = rng.sample(self.alive, rng.choice([1, 1, 2]))
            fields["removed_nodes"] = gone
            for node in gone:
                self.forget(node)
        times = self.times(rows)
        if times is not None:
            fields["t"] = times
        return fields

    def forget(self, node: int) -> None:
        self.alive.remove(node)
        self.graph = {pair: w for pair, w in self.graph.items() if node not in pair}

    def many_steps(self) -> Step:
        sizes = [self.some_rows() for _ in range(self.rng.randint(1, 5))]
        fields = self.rows(sum(sizes))
        times = self.times(sum(sizes)) if sum(sizes) else None
        if times is not None:
            fields["t"] = times
        offsets = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
        return Step("apply_steps", {**fields, "offsets": offsets})

    def snapshot(self) -> Step:
        rng = self.rng
        wanted: list[tuple[Pair, float]] = []
        for pair, weight in self.graph.items():
            if rng.random() < 0.7:
                wanted.append((pair, weight if rng.random() < 0.6 else self.weight()))
        wanted += [(self.pair(), self.weight()) for _ in range(rng.randint(0, 3))]
        rng.shuffle(wanted)
        self.graph = {}
        for pair, weight in wanted:
            self.graph[self.key(pair)] = self.graph.get(self.key(pair), 0.0) + weight
        fields: Fields = {"src": [p[0] for p, _ in wanted], "dst": [p[1] for p, _ in wanted]}
        if any(weight != 1 for _, weight in wanted) or rng.random() < 0.5:
            fields["weight"] = [weight for _, weight in wanted]
        if rng.random() < self.dated:
            self.now += self.pause()
            fields["t"] = self.now
        return Step("apply_snapshot", fields)

    def wrong_step(self) -> Step:
        """Return a batch whose last row or field does not fit."""
        rng = self.rng
        before = dict(self.graph), list(self.alive), self.nodes, self.now
        fields = self.batch()
        ops = fields.get("op") or [int(Op.ADD)] * len(fields.get("src", ()))
        weights = fields.get("weight") or [math.inf if op == Op.REMOVE else 1.0 for op in ops]
        src, dst = list(fields.get("src", ())), list(fields.get("dst", ()))
        wrong = self._one_of("missing excess unknown back heavy light sum untimed gone columns")
        known = [pair for pair in self.graph if pair[0] in self.alive and pair[1] in self.alive]
        absent = [
            (a, b) for a in self.alive for b in self.alive if self.key((a, b)) not in self.graph
        ]
        row: tuple[int, int, int, float] = (self.alive[0], self.nodes + 3, int(Op.ADD), 1.0)
        some = rng.choice(self.alive)
        if wrong == "missing" and absent:
            row = (*rng.choice(absent), int(Op.REMOVE), rng.choice([math.inf, 1.0]))
        elif wrong == "excess" and known:
            pair = rng.choice(known)
            row = (*pair, int(Op.REMOVE), self.graph[pair] * rng.choice([1.001, 2.0, 1e6]))
        elif wrong == "heavy":
            row = (some, some, rng.choice([int(Op.ADD), int(Op.SET)]), 2.0**70)
        elif wrong == "light":
            row = (some, some, rng.choice([int(Op.ADD), int(Op.SET)]), 2.0**-70)
        elif wrong == "sum":
            src, dst, ops = [*src, some], [*dst, some], [*ops, int(Op.ADD)]
            weights = [*weights, 0.75 * 2.0**64]
            row = (some, some, int(Op.ADD), 0.75 * 2.0**64)
        elif wrong == "gone" and len(self.alive) < self.nodes:
            gone = rng.choice([node for node in range(self.nodes) if node not in self.alive])
            row = (some, gone, int(Op.ADD), 1.0)
        elif wrong in ("back", "untimed", "columns"):
            row = (some, some, int(Op.ADD), 1.0)
        fields |= {"src": [*src, row[0]], "dst": [*dst, row[1]]}
        fields |= {"op": [*ops, row[2]], "weight": [*weights, row[3]]}
        if isinstance(fields.get("t"), list) or len(fields["src"]) != len(src) + 1:
            fields["t"] = self.now
        if wrong == "back" and self.dated:
            fields["t"] = before[3] - rng.choice([1, 1000])
        elif wrong == "untimed":
            fields.pop("t", None)
        elif wrong == "columns":
            fields |= {"feature_nodes": [some], "feature_values": [[1.0] * (self.columns + 1)]}
        # The oracle decides whether it fits, so the graph it would leave is not followed.
        self.graph, self.alive, self.nodes, self.now = before
        return Step("apply", fields, wrong)

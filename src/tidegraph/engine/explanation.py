"""Which events moved a node's representation in a span of time, and through which nodes."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.core.progress import Progress
from tidegraph.engine.adjoint import FloatArray, IntArray
from tidegraph.engine.attribution import Attribution
from tidegraph.engine.channels import Channel, Sketch, is_number
from tidegraph.events.batch import Op
from tidegraph.events.columns import TIME_LIMIT
from tidegraph.events.moments import dates
from tidegraph.events.names import NodeNames
from tidegraph.events.stream import EventStream

_STILL = 1e-10  # a relative movement that rounding can cause


# The answer ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EventShare:
    """The part of a node's movement that one event caused."""

    position: int  # in the stream
    src: int
    dst: int
    t: int
    op: Op
    weight: float
    share: float  # of the movement; negative: it pulled the other way
    norm: float  # of its contribution, whatever the direction


@dataclass(frozen=True)
class NeighbourShare:
    """The part of a node's movement that came through one other node."""

    node: int
    share: float
    events: int
    direct: int  # how many of the events were with the node itself


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why a node's representation moved from `span[0]` to `span[1]`.

    `direct + elsewhere + time_passing` is 1 up to `unattributed`. If nothing moved, or everything
    cancelled out, `moved` and all shares are 0. `print` it for a report; notebooks show it as
    tables.
    """

    node: int
    span: tuple[int, int]
    movement: FloatArray  # [columns]
    moved: float  # the Euclidean norm of the movement
    relative: float  # the same over the norm of the representation at the beginning
    events: tuple[EventShare, ...]  # the largest shares, by size
    neighbours: tuple[NeighbourShare, ...]  # the largest shares, by size
    events_in_span: int
    direct: float  # share of all events that the node took part in
    elsewhere: float  # share of all other events
    time_passing: float  # share of edges that left a window, faded or were dropped
    unattributed: float  # ‖movement - Σ contributions‖ / ‖movement‖
    names: NodeNames | None
    unit: str

    def name(self, node: int) -> Any:
        """Return the stream's name of a node."""
        return node if self.names is None else self.names[node]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the columns of the movement as JSON types, nodes by their names.

        Infinite values become None: the weight of the removal of a whole edge, and the relative
        movement of a representation that was zero.
        """
        plain = ("moved", "events_in_span", "direct", "elsewhere", "time_passing", "unattributed")
        return {
            "node": self.name(self.node),
            "span": list(self.span),
            "unit": self.unit,
            "relative": _finite(self.relative),
            **{name: getattr(self, name) for name in plain},
            "events": [
                {
                    **asdict(event),
                    "src": self.name(event.src),
                    "dst": self.name(event.dst),
                    "op": event.op.name.lower(),
                    "weight": _finite(event.weight),
                }
                for event in self.events
            ],
            "neighbours": [{**asdict(one), "node": self.name(one.node)} for one in self.neighbours],
        }

    def __repr__(self) -> str:
        begin, end = map(self._moment, self.span)
        return (
            f"Explanation({self.name(self.node)!r} moved by {self.moved:.4g} from {begin} to {end}:"
            f" direct {_percent(self.direct)}, elsewhere {_percent(self.elsewhere)},"
            f" time passing {_percent(self.time_passing)}, {self.events_in_span:,} events)"
        )

    def __str__(self) -> str:
        lines = self._sentences()
        for title, head, rows in self._tables():
            widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
            lines += ["", title]
            for row in [head, *rows]:
                cells = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
                lines.append("  " + "  ".join(cells))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(sentence)}</p>" for sentence in self._sentences()]
        for title, head, rows in self._tables():
            parts.append(f"<table><caption>{html.escape(title)}</caption>")
            for tag, cells in [("th", head), *(("td", row) for row in rows)]:
                inner = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
                parts.append(f"<tr>{inner}</tr>")
            parts.append("</table>")
        return "".join(parts)

    @property
    def _unreached(self) -> bool:
        return self.moved == 0 and not self.events

    def _sentences(self) -> list[str]:
        begin, end = map(self._moment, self.span)
        if self._unreached:
            return [
                f"{self.name(self.node)} did not move from {begin} to {end}:"
                f" none of the {self.events_in_span:,} events in that span reached it."
            ]
        rest = 1 - self.direct - self.elsewhere - self.time_passing
        return [
            f"{self.name(self.node)} moved by {self.moved:.4g} ({self.relative:.1%} of its length)"
            f" from {begin} to {end}.",
            f"Of the movement, {_percent(self.direct)} came from its own events,"
            f" {_percent(self.elsewhere)} from events elsewhere and"
            f" {_percent(self.time_passing)} from time passing; {_percent(rest)} is left over."
            f" The unattributed part has {self.unattributed:.1%} of the movement's length"
            " (a length, not a share: it may point in any direction)."
            if self.moved
            else "It is back where it was: the effects of the events cancelled out.",
        ]

    def _tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """Return title, column heads and rows of the two tables."""
        if self._unreached:
            return []
        events = [
            [
                f"{event.share:+.1%}",
                f"{event.norm:.3g}",
                self._moment(event.t),
                str(self.name(event.src)),
                str(self.name(event.dst)),
                event.op.name.lower(),
                f"{event.weight:g}" if np.isfinite(event.weight) else "all",
                f"{event.position}",
            ]
            for event in self.events
        ]
        neighbours = [
            [f"{one.share:+.1%}", str(self.name(one.node)), f"{one.events:,}", f"{one.direct:,}"]
            for one in self.neighbours
        ]
        listed = f"{len(self.events):,} of {self.events_in_span:,}"
        heads = "share norm when src dst op weight position", "share node events direct"
        return [
            (f"Events ({listed}, largest shares first)", heads[0].split(), events),
            ("Nodes through which it moved", heads[1].split(), neighbours),
        ]

    def _moment(self, t: int) -> str:
        return dates(t, t, self.unit)[0] or f"{t}"


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _percent(share: float) -> str:
    return f"{round(share, 3) + 0.0:.1%}"  # + 0.0: no negative zero


# The question -------------------------------------------------------------------------------------


def explain(
    stream: EventStream,
    node: Any,
    t0: Any,
    t1: Any,
    *,
    channel: Channel | None = None,
    alpha: float = 0.2,
    features: ArrayLike | Sketch | None = None,
    top: int | None = 10,
    r_max: float = 1e-3,
    progress: Progress | None = None,
    **options: Any,
) -> Explanation:
    """Return the events at `t0 <= t < t1`, and the nodes, that moved a representation most.

    The movement is that of the node's exact representation (up to rounding), from the graph after
    all events before t0 to the graph after all events before t1, with time passed up to each. The
    share of an event is the part of the movement that its contribution makes up,
    `⟨contribution, movement⟩ / ‖movement‖²`.

    Events count one after another in the stream's order, even those of one time, and the shares
    depend on this order: the effect of an event depends on the graph it meets. Contributions are
    computed from maintained estimates; `unattributed` measures the resulting gap, and a smaller
    `r_max` narrows it. Edges that leave a window count towards time passing. Under decay, time
    passes at each whole number of half-lives after the first event: all self-loops regain their
    full weight, so that edges fade relative to them; without self-loops, edges that have become too
    light are dropped. In between all weights fade alike, which moves nothing, until an event adds
    weight and renews the self-loops at its ends; that counts towards the event.

    An event with the node itself comes through its other endpoint, any other event through its
    endpoint nearer to the node, the one where a change has more effect.

    node: its number, or its name as text.
    t0, t1: times in the stream's unit, ISO dates or datetimes.
    channel: the filter; by default low-pass with `alpha`.
    features: `[nodes, columns]`; by default a `Sketch` of 64 columns.
    top: how many events and nodes to list; None lists all that contributed.
    options: those of `Propagator`, such as `directed`, `beta` and `self_loop`; float64 by default.

    Run time grows with the events in the span; those far from the node cost little. When edges
    leave a window, and at every half-life, the whole graph is compared with the one before.

    >>> stream = EventStream([0, 1, 3], [1, 2, 4], [10, 20, 30])
    >>> [(event.position, round(event.share, 3)) for event in explain(stream, 2, 15, 40).events]
    [(1, 1.0)]
    """
    node, t0, t1, first, last = _question(stream, node, t0, t1, top)
    features = Sketch(64) if features is None else features
    if not isinstance(features, Sketch) and np.shape(features)[:1] != (stream.nodes,):
        raise ParameterError(
            f"features have shape {np.shape(features)}; the stream has {stream.nodes} nodes, give"
            " [nodes, columns]"
        )
    channel = Channel.low_pass(alpha) if channel is None else channel
    options = {"dtype": "float64", **options, "r_max": r_max}
    rows = slice(first, last)
    attribution = Attribution(stream, node, t0, rows, channel, features, options)
    before = attribution.representation()
    for position in range(first, last):
        if progress is not None:
            progress(position - first, last - first, "events explained")
        attribution.move_clock(int(stream.t[position]))
        attribution.apply(position)
    attribution.move_clock(t1)
    return _explanation(attribution, before, (t0, t1), top)


def _question(stream: EventStream, node: Any, t0: Any, t1: Any, top: Any) -> tuple[int, ...]:
    """Check the arguments; return node number, t0, t1 and the positions of the span."""
    if np.ndim(node):
        raise ParameterError(f"node is {node!r}; give one node, by its number or name")
    node = int(stream.nodes_of(node))
    t0, t1 = stream.time(t0), stream.time(t1)
    if top is not None and (not is_number(top, (int, np.integer)) or top < 1):
        raise ParameterError(f"top is {top!r}; give how many events to list, or None for all")
    if t0 <= -TIME_LIMIT or t1 >= TIME_LIMIT:
        raise ParameterError(f"the span is {t0} to {t1}; times lie between -2**62 and 2**62")
    if t0 >= t1:
        raise ParameterError(f"the span is {t0} to {t1}; t0 must be before t1")
    first, last = np.searchsorted(stream.t, [t0, t1], side="left").tolist()
    own = np.flatnonzero((stream.src == node) | (stream.dst == node))
    edges = stream.initial
    started = edges is not None and bool(((edges.src == node) | (edges.dst == node)).any())
    if not started and not (own.size and own[0] < last):
        when = f"its first is at {stream.t[own[0]]}" if own.size else "nor any later"
        raise DataError(
            f"node {stream.name([node])[0]} has no event before {t1}, {when}: nothing can have"
            " moved it yet; give a span that ends later, or another node"
        )
    return node, t0, t1, first, last


def _explanation(
    attribution: Attribution, before: FloatArray, span: tuple[int, int], top: int | None
) -> Explanation:
    """Return the shares of the parts that were attributed."""
    stream, node, contributions = attribution.stream, attribution.node, attribution.contributions
    after = attribution.representation()
    movement = after - before
    length, moved = float(np.linalg.norm(before)), float(np.linalg.norm(movement))
    if moved <= _STILL * (length + float(np.linalg.norm(after))):
        movement, moved = np.zeros_like(movement), 0.0
    first, last = attribution.rows.start, attribution.rows.stop
    norms = np.linalg.norm(contributions, axis=1)
    shares = contributions @ movement / (moved**2 or 1.0)
    order = np.lexsort([-norms, -np.abs(shares)])
    order = order[norms[order] > 0][:top]
    rest = movement - contributions.sum(axis=0) - attribution.passing
    src, dst = stream.src[first:last], stream.dst[first:last]
    direct = (src == node) | (dst == node)
    return Explanation(
        node=node,
        span=span,
        movement=movement,
        moved=moved,
        relative=moved / length if length else (np.inf if moved else 0.0),
        events=tuple(
            EventShare(
                position=first + at,
                src=int(src[at]),
                dst=int(dst[at]),
                t=int(stream.t[first + at]),
                **_op_and_weight(stream, first + at),
                share=float(shares[at]),
                norm=float(norms[at]),
            )
            for at in order.tolist()
        ),
        neighbours=tuple(_neighbours(attribution.through, shares, direct)[:top]),
        events_in_span=last - first,
        direct=float(shares[direct].sum()),
        elsewhere=float(shares[~direct].sum()),
        time_passing=float(attribution.passing @ movement / (moved**2 or 1.0)),
        unattributed=float(np.linalg.norm(rest)) / moved if moved else 0.0,
        names=stream.names,
        unit=stream.unit,
    )


def _op_and_weight(stream: EventStream, position: int) -> dict[str, Any]:
    """Return operation and weight of one event; the removal of a whole edge has weight inf."""
    op = Op.ADD if stream.op is None else Op(int(stream.op[position]))
    if stream.weight is not None:
        return {"op": op, "weight": float(stream.weight[position])}
    return {"op": op, "weight": np.inf if op is Op.REMOVE else 1.0}


def _neighbours(
    through: IntArray, shares: FloatArray, direct: NDArray[np.bool_]
) -> list[NeighbourShare]:
    """Return the share of each node through which events came, the largest first."""
    came = through >= 0
    nodes, at = np.unique(through[came], return_inverse=True)
    columns = (
        nodes,
        np.bincount(at, shares[came], minlength=len(nodes)),
        np.bincount(at, minlength=len(nodes)),
        np.bincount(at[direct[came]], minlength=len(nodes)),
    )
    found = [NeighbourShare(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
    return sorted(found, key=lambda one: -abs(one.share))

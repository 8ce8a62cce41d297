"""Bodies of requests mean the same whichever way they are decoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from tidegraph.core.errors import EventError
from tidegraph.live.bodies import JSON, NDJSON, decode_events
from tidegraph.live.events import Reader

_READER = Reader(unit="ms", integers=False, by_side=False, columns=2)
_names = st.one_of(st.sampled_from(["a", "b", "é", 'say "a"', "x" * 1025]), st.integers(-3, 3))
_odd: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 1.5, [], {}, "", "add", 10**30, -(2**62), 2.0**60, 1e-300]
)
_times = st.one_of(st.integers(-5, 2**53), st.sampled_from([7.0, "1970-01-02", 2**62 - 1]))
_usual: dict[str, st.SearchStrategy[Any]] = {
    "weight": st.one_of(st.none(), st.integers(1, 9), st.floats(0.1, 9.0)),
    "op": st.sampled_from([None, "add", "remove", "set"]),
    "id": st.one_of(st.none(), st.sampled_from("pqr"), st.integers(0, 3)),
}
_given = {"src": _names, "dst": _names, "t": _times}
_events = st.one_of(
    st.fixed_dictionaries(_given, optional=_usual),
    st.fixed_dictionaries(_given, optional={**_usual, "node": _odd, "features": _odd}),
    st.fixed_dictionaries(
        {"t": _odd.filter(lambda t: t is not None)},  # an event without one happens now
        optional=dict.fromkeys(("src", "dst", *_usual, "node", "srcc"), _odd),
    ),
)


def _meaning(events: Any, line: Callable[[int], int]) -> Any:
    """Return the columns that events make, or which line and field are wrong, and why."""
    try:
        found = _READER.read(events, 1000)
    except EventError as error:
        row = getattr(error, "row", None)
        return None if row is None else line(row), getattr(error, "field", None), str(error)
    t = found.t.tolist()
    return found.op, found.src, list(found.dst), t, found.weight, found.id, found.features


@given(st.lists(st.tuples(_events, st.booleans()), max_size=5))
def test_lines_and_arrays_mean_what_their_objects_mean(given: list[tuple[Any, bool]]) -> None:
    events = [event for event, _ in given]
    lines: list[str] = []
    numbers = []
    for event, gap in given:
        lines += [""] * gap + [json.dumps(event)]
        numbers.append(len(lines))
    decoded = decode_events("\n".join(lines).encode(), NDJSON[0], 1000)
    assert len(decoded) == len(events)
    assert _meaning(decoded.events, decoded.line) == _meaning(events, numbers.__getitem__)
    decoded = decode_events(json.dumps(events).encode(), JSON, 1000)
    assert len(decoded) == len(events)
    assert _meaning(decoded.events, decoded.line) == _meaning(events, lambda row: row + 1)


def test_a_number_that_is_out_of_range_is_found_on_its_line() -> None:
    decoded = decode_events(
        b'{"src":1,"dst":2,"t":3}\n\n{"src":1,"dst":2,"t":-4611686018427387904}\n', NDJSON[0], 1000
    )
    assert _meaning(decoded.events, decoded.line)[:2] == (3, "t")

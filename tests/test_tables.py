"""Tables of any make become the same stream, say how they were understood, or are refused."""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegraph import DataError, EventStream, read_table, scan_table
from tidegraph.core.errors import EventError, ParameterError, TidegraphError
from tidegraph.events.tables import whole_times

HEADER, ROWS = "src,dst,t,weight,note\n", ["ann,bob,1,0.5,x\n", "bob,eve,2,2,y\n"]
TEXT = HEADER + "".join(ROWS)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def notes(stream: EventStream) -> str:
    assert stream.report is not None
    return "\n".join(stream.report.notes)


def names(stream: EventStream) -> list[Any]:
    assert stream.names is not None
    return list(stream.names.values.tolist())


# One stream from every make of table --------------------------------------------------------------


def makes(directory: Path) -> dict[str, Any]:
    """The rows of TEXT in every form that can be read."""
    table = pa.table(
        {"src": ["ann", "bob"], "dst": ["bob", "eve"], "t": [1, 2], "weight": [0.5, 2]}
    )
    pq.write_table(table, directory / "a.parquet")
    pa.feather.write_feather(table, directory / "a.feather")
    with pa.ipc.new_stream(str(directory / "b.arrow"), table.schema) as writer:
        writer.write_table(table)
    (directory / "a.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    rows = [("ann", "bob", 1, 0.5), ("bob", "eve", 2, 2.0)]
    kind = [("src", "U9"), ("dst", "U9"), ("t", "i8"), ("weight", "f8")]

    class Capsule:
        """Nothing but the Arrow interface that data frames share."""

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return table.__arrow_c_stream__(requested_schema)

    class Interchange:
        """Nothing but the older interface."""

        def __dataframe__(self, **options: Any) -> Any:
            return table.__dataframe__(**options)

    lines = [json.dumps(row) for row in table.to_pylist()]
    halves = [write(directory / f"half {k}.csv", f"{HEADER}{row}") for k, row in enumerate(ROWS)]
    with contextlib.closing(sqlite3.connect(directory / "a.db")) as base, base:
        base.execute("create table calls (src, dst, t, weight)")
        base.executemany("insert into calls values (?, ?, ?, ?)", rows)
    (directory / "no suffix").write_bytes(gzip.compress(TEXT.encode()))
    return {
        "lines of JSON": write(directory / "a.jsonl", "\n".join(lines)),
        "lines of JSON with a byte order mark": write(
            directory / "b.log", "\ufeff" + "\n".join(lines)
        ),
        "JSON": write(directory / "a.json", f"[{','.join(lines)}]"),
        "compressed without a suffix": directory / "no suffix",
        "several files": halves,
        "a pattern": f"{directory}/half*.csv",
        "sqlite": directory / "a.db",
        "address of sqlite": f"sqlite:///{directory}/a.db",
        "csv": write(directory / "a.csv", TEXT),
        "csv with blank lines and spaces": write(
            directory / "b.csv", "\nsrc, dst, t, weight\n\nann, bob, 1, 0.5\n\n bob,eve ,2,2"
        ),
        "windows csv": write(directory / "c.csv", "\ufeff" + TEXT.replace("\n", "\r\n")),
        "semicolons": str(write(directory / "d.csv", TEXT.replace(",", ";"))),
        "tsv": write(directory / "a.tsv", TEXT.replace(",", "\t")),
        "white space": write(directory / "a.txt", "# a b\nann bob  1\t0.5\n\n% c\n bob eve 2 2 \n"),
        "headed white space": write(
            directory / "b.txt", "dst src weight t\nbob ann .5 1\neve bob 2 2"
        ),
        "gzip": directory / "a.csv.gz",
        "parquet": directory / "a.parquet",
        "feather": directory / "a.feather",
        "arrow stream": directory / "b.arrow",
        "arrow table": table,
        "record batch": table.to_batches()[0],
        "categories": table.set_column(0, "src", table["src"].dictionary_encode()),
        "large strings": table.set_column(1, "dst", table["dst"].cast(pa.large_string())),
        "arrow capsule": Capsule(),
        "interchange": Interchange(),
        "dict": {name: np.array(table[name].to_pylist()) for name in table.column_names},
        "dict of lists": table.to_pydict(),
        "structured array": np.array(rows, dtype=kind),
    }


def test_every_make_of_table_gives_the_same_stream(tmp_path: Path) -> None:
    for make, source in makes(tmp_path).items():
        # Without a header, nothing says that the fourth number is a weight.
        stream = read_table(source, weight=3 if make == "white space" else None)
        assert names(stream) == ["ann", "bob", "eve"], make
        assert stream.src.tolist() == [0, 1], make
        assert stream.dst.tolist() == [1, 2], make
        assert stream.t.tolist() == [1, 2], make
        assert stream.weight is not None, make
        assert stream.weight.tolist() == [0.5, 2.0], make
        assert stream.report is not None
        assert (stream.report.read, stream.report.kept, stream.report.dropped) == (2, 2, {}), make


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_read_where_their_library_is_there(library: str) -> None:
    frames = pytest.importorskip(library)
    frame = frames.DataFrame(
        {"Sender": ["ann", "bob"], "Receiver": ["bob", "eve"], "Timestamp": [1.5, 2.0]}
    )
    stream = read_table(frame)
    assert names(stream) == ["ann", "bob", "eve"]
    assert (stream.t.tolist(), stream.unit) == ([1500, 2000], "ms")


HEADERS = {
    "src": ["src", "Source", "user_id", "FROM", "u", "sender"],
    "dst": ["dst", "Target", "item_id", "to", "i", "Receiver"],
    "t": ["t", "Time", "TIMESTAMP", "ts", "datetime"],
    "weight": ["weight", "W", "amount"],
    "label": ["label", "state_label", "y"],
}


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_order_and_names_of_columns_do_not_matter(data: st.DataObject, tmp_path: Path) -> None:
    rows = data.draw(st.integers(1, 6))
    cells = st.lists(st.integers(0, 4), min_size=rows, max_size=rows)
    columns = {role: data.draw(cells) for role in HEADERS}
    columns["t"] = sorted(columns["t"])
    columns["weight"] = [value + 1 for value in columns["weight"]]
    expected = read_table(columns).digest()
    order = data.draw(st.permutations(list(HEADERS)))
    renamed = {data.draw(st.sampled_from(HEADERS[role])): columns[role] for role in order}
    assert read_table(renamed, bipartite=False).digest() == expected
    lines = [",".join(renamed), *(",".join(map(str, row)) for row in zip(*renamed.values()))]  # noqa: B905
    path = write(tmp_path / "a.csv", "\n".join(lines))
    assert read_table(path, bipartite=False).digest() == expected
    odd = {f"x{place}": columns[role] for place, role in enumerate(order)}
    given_names: dict[str, Any] = {role: f"x{place}" for place, role in enumerate(order)}
    assert read_table(odd, **given_names).digest() == expected
    places: dict[str, Any] = {role: place for place, role in enumerate(order)}
    assert read_table(odd, **places).digest() == expected


# Ids ----------------------------------------------------------------------------------------------


def test_ids_that_are_a_range_are_kept_and_others_numbered_sources_first() -> None:
    kept = read_table({"src": [2, 1], "dst": [0, 2], "t": [5, 5]})
    assert (kept.src.tolist(), kept.dst.tolist(), kept.names) == ([2, 1], [0, 2], None)
    other = read_table({"src": [70, 80], "dst": [900_000_000_000, 70], "t": [1, 2]})
    assert names(other) == [70, 80, 900_000_000_000]
    assert (other.src.tolist(), other.dst.tolist()) == ([0, 1], [2, 0])


def test_ids_are_numbered_or_kept_on_request() -> None:
    table = {"src": [5, 0], "dst": [1, 5], "t": [1, 2]}
    numbered = read_table(table, ids="number")
    assert names(numbered) == [5, 1, 0]
    kept = read_table(table, ids="keep")
    assert (kept.src.tolist(), kept.nodes, kept.names) == ([5, 0], 6, None)
    with pytest.raises(DataError, match="node id -1; ids='keep' takes"):
        read_table({"src": [0], "dst": [-1], "t": [1]}, ids="keep")
    with pytest.raises(DataError, match="node id a"):
        read_table({"src": ["a"], "dst": ["b"], "t": [1]}, ids="keep")


def test_integers_and_names_may_meet_in_one_file(tmp_path: Path) -> None:
    stream = read_table(write(tmp_path / "a.csv", "src,dst,t\n7,inn,1\n8,inn,2\n"))
    assert names(stream) == ["7", "8", "inn"]
    mixed = read_table({"src": [7, 8], "dst": ["inn", "7"], "t": [1, 2]})
    assert names(mixed) == ["7", "8", "inn"]


def test_a_name_after_a_million_integers_turns_all_into_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegraph.events.tables.text._BLOCK_BYTES", 1000)
    rows = [f"{k % 97},{k % 31},{k}" for k in range(2000)]
    stream = read_table(write(tmp_path / "a.csv", "\n".join(["src,dst,t", *rows, "007,7,2000"])))
    assert stream.names is not None
    assert sorted(names(stream)) == sorted([*map(str, range(97)), "007"])
    assert stream.name(stream.src[-1]) == "007"
    assert stream.name(stream.dst).tolist() == [*(str(k % 31) for k in range(2000)), "7"]


def test_users_and_items_with_the_same_ids_are_different_nodes_on_request() -> None:
    table = {"user": [0, 1, 0], "item": [1, 0, 0], "t": [1, 2, 3]}
    stream = read_table(table, bipartite=True)
    assert stream.bipartite
    assert (stream.src.tolist(), stream.dst.tolist(), stream.nodes) == ([0, 1, 0], [3, 2, 2], 4)
    other = read_table({"user": ["a", "b"], "item": ["a", "c"], "t": [1, 2]}, bipartite=True)
    assert names(other) == ["src a", "src b", "dst a", "dst c"]


# Times --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "expected", "unit"),
    [
        ([3, 4], [3, 4], "s"),
        ([-4, -3], [-4, -3], "s"),
        ([1_700_000_000_123_456_789, 1_700_000_000_123_456_790], None, "ns"),
        ([3.0, 4.0], [3, 4], "s"),
        ([0.5, 4.0], [500, 4000], "ms"),
        ([-0.5, 4.0], [-500, 4000], "ms"),
        ([1289241911.72836, 1289241912.0], [1289241911728360, 1289241912000000], "us"),
        ([1e-9, 2.0], [1, 2_000_000_000], "ns"),
        (np.array([0.25, 100.1], dtype=np.float32), [250, 100_100], "ms"),
        (np.array(["2013-01-01", "2013-01-02"], "M8[D]"), [1356998400, 1357084800], "s"),
        (np.array(["1970-01-01T00:00:00.005"], "M8[ns]"), [5], "ms"),
        (np.array([1_700_000_000_123_456_789], "M8[ns]"), [1_700_000_000_123_456_789], "ns"),
        (np.array([-1], "M8[ns]"), [-1], "ns"),
        (pa.array([0, 3_600_000], pa.timestamp("ms", "Europe/Berlin")), [0, 3600], "s"),
    ],
)
def test_times_lose_nothing_in_the_coarsest_unit(times: Any, expected: Any, unit: str) -> None:
    rows = len(times)
    stream = read_table({"src": [0] * rows, "dst": [1] * rows, "t": times})
    assert stream.t.tolist() == (times if expected is None else expected)
    assert stream.unit == unit


def test_nanoseconds_survive_text_and_parquet_exactly(tmp_path: Path) -> None:
    t = [1_700_000_000_123_456_789, 1_700_000_000_123_456_790, 2**61 + 1]
    text = "".join(f"0,1,{time}\n" for time in t)
    assert read_table(write(tmp_path / "a.csv", text), unit="ns").t.tolist() == t
    pq.write_table(pa.table({"src": [0] * 3, "dst": [1] * 3, "t": t}), tmp_path / "a.parquet")
    stream = read_table(tmp_path / "a.parquet", unit="ns")
    assert (stream.t.tolist(), stream.unit) == (t, "ns")


def test_iso_dates_of_several_zones_meet_in_one_file(tmp_path: Path) -> None:
    dates = [
        "2013-01-01",
        "2013-01-01T01:00:00+01:00",
        "2013-01-01 00:00:01",
        "2013-01-01T00:00:02Z",
        "2012-12-31T19:00:03-0500",
        "2013-01-01T00:00:04.5",
        "2013-01-01T05:30:05.250+05:30",
    ]
    text = "src,dst,date\n" + "".join(f"0,1,{date}\n" for date in dates)
    stream = read_table(write(tmp_path / "a.csv", text))
    begin = 1356998400_000
    assert [int(t) - begin for t in stream.t] == [0, 0, 1000, 2000, 3000, 4500, 5250]
    assert stream.unit == "ms"
    assert "t holds dates" in notes(stream)
    finer = read_table(tmp_path / "a.csv", unit="us")
    assert finer.t.tolist() == [t * 1000 for t in stream.t.tolist()]
    with pytest.raises(DataError, match=r"needs unit ms.* s was given"):
        read_table(tmp_path / "a.csv", unit="s")
    with pytest.raises(ParameterError, match="t holds dates"):
        read_table(tmp_path / "a.csv", unit="day")


def test_a_date_that_does_not_exist_takes_nothing_from_its_neighbours() -> None:
    dates = ["1500-01-01", "2013-02-28T00:00:00.000000001", "2013-02-30", "2013-03-01T00:00:00Z"]
    stream = read_table({"src": [0] * 4, "dst": [1] * 4, "t": dates[1:] + dates[3:]}, on_bad="drop")
    assert stream.unit == "ns"
    assert stream.t.tolist() == [1362009600_000000001, 1362096000_000000000, 1362096000_000000000]
    assert stream.report is not None
    assert stream.report.dropped == {"t is not an ISO date": 1}
    old = read_table({"src": [0] * 2, "dst": [1] * 2, "t": [dates[0], dates[3]]})
    assert old.t.tolist() == [-14831769600, 1362096000]


def test_comments_are_counted_and_hashtags_are_names(tmp_path: Path) -> None:
    text = "# made by hand\n\nsrc,dst,t\n#sun,a,1\n\n%moon,a,2\n#sun,a,x\n"
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(DataError, match="line 7: t is not a number"):
        read_table(path)
    stream = read_table(path, on_bad="drop")
    assert names(stream) == ["#sun", "%moon", "a"]
    assert "1 line beginning with # or %" in notes(stream)
    words = read_table(write(tmp_path / "a.txt", "# x\n0 1 5\n# y\n1 0 6\n#"))
    assert words.t.tolist() == [5, 6]
    assert "3 lines beginning with # or %" in notes(words)


@pytest.mark.parametrize("delimiter", [",", " "])
def test_a_byte_order_mark_before_comments_is_no_cell(tmp_path: Path, delimiter: str) -> None:
    text = "\ufeff# made by hand\n# twice\nsrc,dst,t\na,b,1\na,c,x\n".replace(",", delimiter)
    path = write(tmp_path / "a.csv", text)
    stream = read_table(path, on_bad="drop", header=True)
    assert names(stream) == ["a", "b"]
    assert "2 lines beginning with # or %" in notes(stream)
    with pytest.raises(DataError, match="line 5: t is not a number: 'x'"):
        read_table(path, header=True)


def test_spaces_around_a_name_do_not_hide_a_column(tmp_path: Path) -> None:
    for source in (
        write(tmp_path / "a.csv", " who ,whom, at\na,b,1\n"),
        pa.table({" who ": ["a"], "whom": ["b"], " at": [1]}),
    ):
        stream = read_table(source, src="who", dst=" whom ", t="at")
        assert names(stream) == ["a", "b"]


def test_one_column_cannot_be_both_ends() -> None:
    with pytest.raises(DataError, match=r"column 'a' .*both src and dst"):
        read_table({"a": [1], "b": [2], "t": [3]}, src="a", dst="a")
    with pytest.raises(DataError, match=r"column 'b' .*both dst and t"):
        read_table({"a": [1], "b": [2], "t": [3]}, src="a", dst="b", t="b")


def test_one_of_a_kind_is_reported_in_the_singular() -> None:
    told = str(read_table({"src": [0, 1, 1], "dst": [0, 1, 1], "t": [1, 2, 2]}).report)
    assert "3 events lead from a node to itself" in told
    assert "1 event repeats another" in told
    assert "1 of 1 row kept" in str(read_table({"src": [0], "dst": [1], "t": [1]}).report)


def test_quoted_cells_may_hold_the_delimiter(tmp_path: Path) -> None:
    text = '"src","dst","t","a, b"\n"Doe, J.","x",1,3\n'
    stream = read_table(write(tmp_path / "a.csv", text))
    assert names(stream) == ["Doe, J.", "x"]
    assert "ignored: column 'a, b'" in notes(stream)


def test_fractions_of_coarse_units_become_finer_ones() -> None:
    assert whole_times([0.5, 1.0], "h")[1] == "min"
    assert whole_times([0.25], "day")[0].tolist() == [6]
    with pytest.raises(DataError, match="fractions of a year"):
        whole_times([1999.5], "year")


def test_a_time_beyond_int64_raises_and_does_not_move_into_the_past() -> None:
    with pytest.raises(DataError, match=f"t .*{2**63}"):
        whole_times(np.array([0, 2**63], dtype=np.uint64))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(-(4 * 10**18), 4 * 10**18), st.sampled_from(["", "+", "00"])),
        min_size=1,
    ),
    st.integers(0, 9),
)
def test_every_digit_of_a_decimal_in_text_is_kept(
    tmp_path: Path, times: list[tuple[int, str]], digits: int
) -> None:
    """The oracle is Python's exact arithmetic: a time is so many ns, written with some zeros."""
    step = 10 ** (9 - digits)
    ns = sorted(time // step * step for time, _ in times)
    words = []
    for time, (_, prefix) in zip(ns, times, strict=True):
        whole, fraction = divmod(abs(time), 10**9)
        sign = "-" if time < 0 else ""
        word = f"{sign or prefix}{whole}.{fraction:09d}"
        words.append(word[: len(word) - 9 + digits])
    text = "src,dst,t\n" + "".join(f"0,1,{word}\n" for word in words)
    path = write(tmp_path / "a.csv", text)
    stream = read_table(path)
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    assert [t * 10**9 // per_second[stream.unit] for t in stream.t.tolist()] == ns
    if stream.unit != "s":
        coarser = {"ms": 1, "us": 10**3, "ns": 10**6}[stream.unit]
        assert any(time * coarser % 10**9 for time in ns)
    assert "rounded" not in notes(stream)
    (piece,) = scan_table(path)
    assert (piece.t.tolist(), piece.unit) == (stream.t.tolist(), stream.unit)


def test_decimals_of_other_makes_keep_their_digits_too() -> None:
    from decimal import Decimal

    written = ["-0.000000001", ".5", "1700000000.123456789", "1700000000.123456790"]
    expected = [-1, 500_000_000, 1_700_000_000_123_456_789, 1_700_000_000_123_456_790]
    rows = len(written)
    for t in (written, pa.array([Decimal(word or "0") for word in written], pa.decimal128(38, 12))):
        stream = read_table({"src": [0] * rows, "dst": [1] * rows, "t": t})
        assert (stream.t.tolist(), stream.unit) == (expected, "ns")


def test_days_with_decimals_are_counted_in_the_unit_that_holds_them() -> None:
    days = ["0.5", "1.25", "19000.0416666666666666667"]
    stream = read_table({"src": [0] * 3, "dst": [1] * 3, "t": days}, unit="day")
    assert (stream.t.tolist(), stream.unit) == ([12, 30, 456_001], "h")
    assert "rounded" not in notes(stream)


def test_digits_beyond_nanoseconds_are_rounded_and_counted() -> None:
    times = ["1.0000000004", "1.0000000006", "2.5", "3.00000000049"]
    table = {"src": [0] * 4, "dst": [1] * 4, "t": times}
    stream = read_table(table)
    assert stream.t.tolist() == [1_000_000_000, 1_000_000_001, 2_500_000_000, 3_000_000_000]
    assert "3 times are finer than ns" in notes(stream)
    scan = scan_table(table)
    assert [piece.t.tolist() for piece in scan] == [stream.t.tolist()]
    assert "3 times are finer than ns" in str(scan.report)
    # So far from 1970 a nanosecond has no room in 62 bits.
    far = read_table({"src": [0], "dst": [1], "t": ["5000000000.123456789"]})
    assert (far.t.tolist(), far.unit) == ([5_000_000_000_123_457], "us")
    assert "1 time is finer than us" in notes(far)


def test_an_exponent_is_a_floats_way_to_be_written() -> None:
    times = ["1e-3", "1.700000000099999905e+09", "1700000000.25"]
    stream = read_table({"src": [0] * 3, "dst": [1] * 3, "t": times})
    assert (stream.t.tolist(), stream.unit) == ([1, 1_700_000_000_100, 1_700_000_000_250], "ms")
    for word in ("1e300", "123456789012345678901.5"):
        with pytest.raises(DataError, match="beyond 62-bit integers"):
            read_table({"src": [0], "dst": [1], "t": [word]})
    with pytest.raises(DataError, match="t is not finite"):
        read_table({"src": [0, 0], "dst": [1, 1], "t": ["0.5", "-inf"]})


@settings(deadline=None)
@given(st.lists(st.integers(-(10**15), 10**15), min_size=1), st.sampled_from(["ms", "us"]))
def test_decimal_seconds_come_back_exactly(ticks: list[int], unit: str) -> None:
    per_second = {"ms": 10**3, "us": 10**6}[unit]
    ticks = [tick % (2**31 * per_second) for tick in ticks]
    t, found = whole_times([tick / per_second for tick in ticks])
    factor = per_second // {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[found]
    assert (t * factor).tolist() == ticks


# What the report says -----------------------------------------------------------------------------


def test_every_guess_is_noted_and_can_be_overridden(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "user,item,ts,amount,label,age\n0,1,5,2,1,30\n1,0,6,3,,31\n")
    stream = read_table(path)
    for sentence in (
        "src is column 'user', by its name",
        "dst is column 'item', by its name",
        "t is column 'ts', by its name",
        "weight is column 'amount', by its name",
        "label is column 'label', by its name",
        "ignored: column 'age'",
        "t counts s",
        "1 row without a label, read as -1",
    ):
        assert sentence in notes(stream)
    assert stream.labels is not None
    assert stream.labels.tolist() == [1, -1]
    other = read_table(path, src="item", dst=0, weight="age", label=False, edge_features="amount")
    assert other.src.tolist() == [1, 0]
    assert other.weight is not None
    assert other.weight.tolist() == [30, 31]
    assert other.labels is None
    assert other.edge_features is not None
    assert other.edge_features.tolist() == [[2], [3]]
    rest = read_table(path, weight=False, edge_features="rest")
    assert rest.weight is None
    assert rest.edge_features is not None
    assert rest.edge_features.tolist() == [[2, 30], [3, 31]]


def test_columns_without_a_header_are_known_by_their_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "0 1 5 2.5\n1 2 6 3\n")
    stream = read_table(path)
    assert stream.t.tolist() == [5, 6]
    assert stream.weight is None  # a number in the fourth place may be anything
    assert "ignored: column 'column 3'" in notes(stream)
    weighted = read_table(path, weight="column 3")
    assert weighted.weight is not None
    assert weighted.weight.tolist() == [2.5, 3]
    ratings = write(tmp_path / "b.csv", "6,2,4,1289241911\n6,5,-2,1289241941\n")
    stream = read_table(ratings, t=3, edge_features=[2])
    assert stream.t.tolist() == [1289241911, 1289241941]
    assert stream.weight is None
    text = read_table(write(tmp_path / "c.txt", "0 1 5 good\n"))
    assert text.weight is None


def test_weights_that_are_not_positive_become_the_last_edge_feature() -> None:
    table = {"src": [0, 1], "dst": [1, 0], "t": [1, 2], "weight": [3, -2], "x": [0.5, 0.25]}
    stream = read_table(table, edge_features=["x"])
    assert stream.weight is None
    assert stream.edge_features is not None
    assert stream.edge_features.tolist() == [[0.5, 3.0], [0.25, -2.0]]
    assert "column 'weight' is <= 0 in 1 rows" in notes(stream)
    with pytest.raises(DataError, match=r"row 1 .*weight is not positive: -2; .*edge_features"):
        read_table(table, weight="weight")
    with pytest.raises(DataError, match="weight is not positive"):
        list(scan_table(table))


def test_loops_and_repeated_events_are_kept_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    src, dst = random.integers(0, 4, (2, 500))
    t = np.sort(random.integers(0, 20, 500))
    rows = list(zip(src.tolist(), dst.tolist(), t.tolist(), strict=True))
    repeats = len(rows) - len(set(rows))
    loops = int((src == dst).sum())
    for size in (1, 7, 100, 1000):  # runs of one time may end anywhere in a batch
        monkeypatch.setattr("tidegraph.events.tables.sources.BATCH_ROWS", size)
        stream = read_table({"src": src, "dst": dst, "t": t})
        assert len(stream) == 500
        assert f"{loops:,} events lead from a node to itself" in notes(stream)
        assert f"{repeats:,} events repeat another of the same time" in notes(stream)


def test_operations_are_read_from_words_and_numbers() -> None:
    for ops in (["add", "Set", "remove"], [0, 2, 1], ["+", "=", "-"]):
        table = {"src": [0] * 3, "dst": [1] * 3, "t": [1, 2, 3], "op": ops}
        stream = read_table({**table, "weight": [1.0, 2.0, np.inf]})
        assert stream.op is not None
        assert stream.op.tolist() == [0, 2, 1]
        with pytest.raises(DataError, match="weight is not finite"):
            read_table({**table, "weight": [1.0, np.inf, 1.0]})
    with pytest.raises(DataError, match="op is none of add, remove, set: 'grow'"):
        read_table({"src": [0], "dst": [1], "t": [1], "op": ["grow"]})


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("src,dst,t\n0,1,5\n1,0,4\n", "not in time order: t is 4 in line 3, after 5; sort"),
        ("src,dst,t\n0,1,5.5\n1,0,5.25\n", r"t is 5.25\d* in line 3, after 5.5"),
        ("src,dst\n0,1\n", "has columns 'src', 'dst'; .* column of t"),
        ("a,b,t\n0,1,1\n", "column of src and dst"),
        ("0,1\n", "column of t"),
        ("src,dst,t\n", "holds no events"),
        ("", "holds no events"),
        ("# nothing\n\n", "holds no events"),
        ("src,dst,t\n0,1,1\n0,1\n", "line 3 has 2 cells where 3 are expected: '0,1'"),
        ("src,dst,t\n0,1,1\n0,,2\n", "line 3: dst is missing; .*on_bad='drop'"),
        ("src,dst,t\n,1,1\n", "line 2: src is missing"),
        ("src,dst,t\n0,1,\n", "line 2: t is missing"),
        ("src,dst,t\n0,1,NaN\n", "line 2: t is missing: 'NaN'"),
        ("src,dst,t\n0,1,3\n\n0,1,soon\n", "line 4: t is not a number: 'soon'"),
        ("src,dst,t\n0,1,2013-01-01\n0,1,later\n", "line 3: t is not an ISO date: 'later'"),
        ("src,dst,t\n0,1,2013-01-01\n0,1,2013-02-30\n", "line 3: t is not an ISO date"),
        ("src,dst,t\n0,1,2013-01-01\n0,1,NaT\n", "line 3: t is missing: 'NaT'"),
        ("src,dst,t\n0,1,1.5\n0,1,inf\n", "line 3: t is not finite: 'inf'"),
        ("src,dst,t\n0,1,1e19\n", "coarser unit"),
        ("src,dst,t\n0.5,1,1\n", "src holds fractions like 0.5; node ids are integers or names"),
        ("src,dst,t,weight\n0,1,1,2\n0,1,1,heavy\n", "line 3: weight is not a number: 'heavy'"),
        ("src,dst,t,weight\n0,1,1,inf\n", "line 2: weight is not finite"),
        ("src,dst,t,label\n0,1,1,0.5\n", "line 2: label is not an integer: '0.5'.*label=False"),
        ("src,dst,dst,t\n0,1,1,1\n", "two columns called 'dst'"),
    ],
)
def test_a_bad_text_raises_and_the_error_names_its_line(
    text: str, advice: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=advice):
        read_table(write(tmp_path / "bad.csv", text))


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"src": [0.5, 1.0]}, "src has type double; node ids are integers or names"),
        ({"src": [None, 1]}, r"row 0 \(counted from 0\): src is missing"),
        ({"dst": ["a", None]}, "row 1 .*: dst is missing"),
        ({"t": [1, None]}, "row 1 .*: t is missing"),
        ({"t": [1.0, np.nan]}, "row 1 .*: t is missing"),
        ({"t": np.array(["2013-01-01", "NaT"], "M8[s]")}, "row 1 .*: t is missing"),
        ({"t": [True, [1]]}, "column 't'"),
        ({"t": np.zeros((2, 2))}, r"column 't' has shape \(2, 2\)"),
        ({"src": np.array([0, 2**63], dtype=np.uint64)}, "give them as text"),
    ],
)
def test_a_bad_table_raises_and_the_error_names_its_row(
    change: dict[str, Any], advice: str
) -> None:
    with pytest.raises(DataError, match=advice):
        read_table({"src": [0, 1], "dst": [1, 0], "t": [1, 2], **change})


def test_what_is_no_table_raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read as parquet"):
        read_table(write(tmp_path / "bad.parquet", "not parquet"))
    with pytest.raises(DataError, match="cannot be read as Arrow"):
        read_table(write(tmp_path / "bad.arrow", "not arrow"))
    with pytest.raises(DataError, match="there is no file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="has no columns"):
        read_table(np.zeros((3, 3)))
    with pytest.raises(DataError, match="int"):
        read_table(5)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(DataError, match="UTF-8"):
        read_table(tmp_path / "b.csv")


def test_settings_that_do_not_exist_raise() -> None:
    table = {"src": [0], "dst": [1], "t": [1]}
    wrong: list[dict[str, Any]] = [{"ids": "all"}, {"on_bad": "keep"}, {"unit": "week"}]
    for option in wrong:
        with pytest.raises(ParameterError, match=next(iter(option))):
            read_table(table, **option)
    with pytest.raises(DataError, match=r"t .*column 'when'; the table has columns"):
        read_table(table, t="when")
    with pytest.raises(ParameterError, match="a scan takes"):
        scan_table(table, ids="auto")


def test_bad_rows_are_dropped_and_counted_on_request(tmp_path: Path) -> None:
    text = "src,dst,t,weight\n0,1,1,1\n,1,2,1\n0,,2,1\n0,1,x,1\n0,1\n0,1,,1\n0,1,3,nan\n1,0,4,2\n"
    stream = read_table(write(tmp_path / "a.csv", text), on_bad="drop")
    assert stream.t.tolist() == [1, 4]
    assert stream.report is not None
    assert (stream.report.read, stream.report.kept) == (8, 2)
    assert stream.report.dropped == {
        "src is missing": 1,
        "dst is missing": 1,
        "t is not a number": 1,
        "t is missing": 1,
        "weight is missing": 1,
        "wrong number of cells": 1,
    }
    with pytest.raises(DataError, match="the only row was dropped, 1 because t is missing"):
        read_table({"src": [0], "dst": [1], "t": [None]}, on_bad="drop", t="t")


def test_an_unsorted_table_is_sorted_on_request() -> None:
    table = {"src": [0, 1, 2], "dst": [1, 2, 0], "t": [2.5, 1.0, 2.5], "label": [7, 8, 9]}
    stream = read_table(table, sort=True)
    assert stream.report is not None
    assert "1 row is earlier than the row before; all were sorted by time" in stream.report.notes
    assert stream.t.tolist() == [1000, 2500, 2500]
    assert stream.labels is not None
    assert [stream.vocabulary.labels[k] for k in stream.labels] == ["8", "7", "9"]


def test_a_table_in_order_is_not_said_to_be_sorted() -> None:
    stream = read_table({"src": [0, 1], "dst": [1, 0], "t": [1, 1]}, sort=True)
    assert stream.report is not None
    assert not any("sorted" in note for note in stream.report.notes)


def test_one_event_is_a_stream() -> None:
    stream = read_table({"src": ["a"], "dst": ["a"], "t": [3]})
    assert (len(stream), stream.nodes) == (1, 1)


# Scans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["integers", "names"])
def test_a_scan_says_the_same_as_reading_at_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    ids: Any = random.integers(0, 10**12, 60)
    if kind == "names":
        ids = np.array([f"node {value}" for value in ids])
    src, dst = ids[random.integers(0, 60, (2, 1000))]
    table = pa.table(
        {"src": src, "dst": dst, "t": np.cumsum(random.random(1000)).round(3), "label": src == dst}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    whole = read_table(tmp_path / "a.parquet", ids="number")
    for size in (64, 1 << 18):
        monkeypatch.setattr("tidegraph.events.tables.sources.BATCH_ROWS", size)
        scan = scan_table(tmp_path / "a.parquet")
        for _ in range(2):  # a scan can be repeated
            with pytest.raises(DataError, match="iterate"):
                _ = scan_table(tmp_path / "a.parquet").report
            chunks = list(scan)
            for name in ("src", "dst", "t", "labels"):
                joined = np.concatenate([getattr(chunk, name) for chunk in chunks])
                assert np.array_equal(joined, getattr(whole, name))
            assert {chunk.unit for chunk in chunks} == {whole.unit} == {"ms"}
            assert scan.names == whole.names
            assert scan.nodes == whole.nodes == chunks[-1].nodes
            assert scan.report == whole.report


@pytest.mark.parametrize("words", [False, True])
def test_a_scan_tells_users_from_items_as_reading_at_once_does(
    words: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, item = np.random.default_rng(4).integers(0, 30, (2, 400))
    ids: Any = (user, [f"i{each}" if each > 25 else str(each) for each in item] if words else item)
    table = {"user": ids[0], "item": ids[1], "t": range(400)}
    whole = read_table(table)
    assert whole.names is not None
    numbers = []
    for size in (7, 64, 1 << 18):
        monkeypatch.setattr("tidegraph.events.tables.sources.BATCH_ROWS", size)
        scan = scan_table(table)
        chunks = list(scan)
        src, dst, t = (
            np.concatenate([getattr(chunk, name) for chunk in chunks])
            for name in ("src", "dst", "t")
        )
        found = EventStream(src, dst, t, names=scan.names)
        for end in ("src", "dst"):
            expected = whole.name(getattr(whole, end))
            np.testing.assert_array_equal(found.name(getattr(found, end)), expected)
        assert scan.nodes == whole.nodes
        assert scan.names is not None
        assert scan.names.by_side
        numbers.append(found.digest())
    assert len(set(numbers)) == 1
    merged = scan_table(table, bipartite=False)
    assert len(list(merged)) > 0
    assert merged.nodes == read_table(table, bipartite=False).nodes
    with pytest.raises(ParameterError, match="'number'"):
        scan_table({"user": user, "item": item, "t": range(400)}, ids="keep", bipartite=True)


def test_a_scan_sees_disorder_between_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegraph.events.tables.sources.BATCH_ROWS", 2)
    with pytest.raises(DataError, match=r"t is 1 in row 2 .*after 5"):
        list(scan_table({"src": [0] * 4, "dst": [1] * 4, "t": [4, 5, 1, 2]}))


def test_kept_ids_need_no_numbering() -> None:
    scan = scan_table({"src": [7, 3], "dst": [2**31 - 1, 0], "t": [1, 2]}, ids="keep")
    assert [chunk.src.tolist() for chunk in scan] == [[7, 3]]
    assert (scan.nodes, scan.names) == (2**31, None)
    with pytest.raises(TidegraphError, match="2\\*\\*31"):
        list(scan_table({"src": [0], "dst": [2**31], "t": [1]}, ids="keep"))


def test_chunks_are_checked_as_streams_are() -> None:
    with pytest.raises(EventError, match="weight of row 0 is 1e-40"):
        list(scan_table({"src": [0], "dst": [1], "t": [1], "weight": [1e-40]}))


@pytest.mark.slow
def test_twenty_million_rows_are_scanned_in_bounded_memory(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "scan_memory.py"
    arguments = ["--rows", "20000000", "--nodes", "2000000", "--directory", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(script), *arguments], check=True, capture_output=True, text=True
    )
    result = json.loads(done.stdout)
    assert [scan["rows"] for scan in result["scans"]] == [20_000_000] * 2
    columns_mb = 20_000_000 * 3 * 8 / 2**20
    for scan in result["scans"]:
        assert scan["peak_rss_mb"] < columns_mb, scan  # less than the events alone would take


def test_a_quotation_mark_between_white_space_is_part_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text('ann bob 1\n"x bob 2\ny" bob 3\nz bob 4\n')
    stream = read_table(path)
    assert stream.report is not None
    assert (stream.report.read, stream.report.kept, len(stream)) == (4, 4, 4)
    assert stream.name(stream.src[1:3]).tolist() == ['"x', 'y"']


# What strangers bring -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "sender,recipient,sent_at",
        "sender_id,receiver_id,timestamp",
        "from,to,date",
        "buyer,seller,created",
        "payer,payee,paid_at",
        "User ID,Target,When",
        "Absender,Empfänger,Datum",
        "absender,empfaenger,zeit",
        "from_account,to_account,booked_at",
        "IBAN sender,IBAN receiver,date",
        "origin-airport,dest-airport,when",
    ],
)
def test_columns_are_known_by_many_names(header: str, tmp_path: Path) -> None:
    names = header.split(",")
    orders = [(0, 1, 2), (2, 1, 0), (1, 2, 0)]
    for order in orders:
        rows = [names, ["a", "b", "2024-03-01"], ["b", "c", "2024-03-02"]]
        text = "".join(",".join(row[k] for k in order) + "\n" for row in rows)
        stream = read_table(write(tmp_path / "a.csv", text))
        assert stream.names is not None
        assert [stream.names[int(node)] for node in stream.dst] == ["b", "c"]


def test_two_columns_of_times_are_not_chosen_between(tmp_path: Path) -> None:
    text = "src,dst,sent_at,read_at\n0,1,5,6\n"
    with pytest.raises(DataError, match="column of t"):
        read_table(write(tmp_path / "a.csv", text))


def test_ports_beside_addresses_are_not_chosen_between(tmp_path: Path) -> None:
    text = "src_ip,src_port,dst_ip,dst_port,ts\na,1,b,2,5\n"
    with pytest.raises(DataError, match="column of src and dst"):
        read_table(write(tmp_path / "a.csv", text))


def test_columns_that_share_their_cells_are_proposed_as_nodes(tmp_path: Path) -> None:
    rows = "".join(
        f"n{k % 2},{'abc'[k % 3]},{'bcd'[k % 3]},2024-03-{k:02d}\n" for k in range(1, 21)
    )
    text = f"memo,wer,wen,wann\n{rows}"
    with pytest.raises(DataError, match=r"perhaps src='wer', dst='wen', t='wann'$"):
        read_table(write(tmp_path / "a.csv", text))


def test_the_proposal_is_whole_and_no_numbered_row_is_in_it(tmp_path: Path) -> None:
    rows = "".join(f"{k},{k % 3 + 0.5},x{k % 4},y{k % 5},2024-03-{k:02d}\n" for k in range(1, 21))
    text = f"row,sum,wer,wen,wann\n{rows}"
    with pytest.raises(DataError, match=r"perhaps src='wer', dst='wen', t='wann'$"):
        read_table(write(tmp_path / "a.csv", text))
    with pytest.raises(DataError, match=r"perhaps src='wen', dst='wer', t='wann'$"):
        read_table(write(tmp_path / "a.csv", text), src="wen")


def test_what_cannot_be_a_time_is_not_proposed_as_one(tmp_path: Path) -> None:
    rows = "".join(f"x{k % 4},y{k % 5},{7 * k % 20 + 0.5}\n" for k in range(1, 21))
    with pytest.raises(DataError, match=r"perhaps src='von', dst='nach'; none looks like a time"):
        read_table(write(tmp_path / "a.csv", f"von,nach,betrag\n{rows}"))


def test_a_column_in_the_wrong_case_is_proposed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "Caller,Callee,t\na,b,1\n")
    with pytest.raises(DataError, match=r"src .*column 'caller'.*mean 'Caller'\?$"):
        read_table(path, src="caller", dst="Callee")


def test_the_error_for_another_encoding_names_the_line_and_the_conversion(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "".join(f"a{k},b,{k}\n" for k in range(200_000))  # more than is looked at first
    for text, line in (
        ("Empfänger,dst,t\na,b,1\n", 1),
        ("src,dst,t\na,b,1\nä,b,2\n", 3),
        (f"src,dst,t\n{rows}ü,b,999999\n", 200_002),
    ):
        path.write_bytes(text.encode("latin1"))
        with pytest.raises(DataError, match=rf"is not UTF-8: line {line} .*iconv -f latin1"):
            read_table(path)
    path.write_bytes("src,dst,t\na,b,1\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"line 1 holds the byte 0xff; .*iconv -f utf-16"):
        read_table(path)


def test_what_is_not_read_may_have_any_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("src,dst,t,note\na,b,1,schön\n".encode("latin1"))
    assert len(read_table(path)) == 1


def test_the_error_for_foreign_dates_and_decimals_names_the_option(tmp_path: Path) -> None:
    dates = write(tmp_path / "a.csv", "src,dst,t\na,b,1 March 24\nb,c,2 March 24\n")
    says = r"'1 March 24'.* dates like 2024-03-01 10:01.*date_format="
    with pytest.raises(DataError, match=f"line 2: t is not a number: {says}"):
        read_table(dates)
    with pytest.raises(DataError, match=f"all 2 rows were dropped, 2 because .*{says}"):
        read_table(dates, on_bad="drop")
    assert read_table(dates, date_format="%d %B %y").time("2024-03-01") == 1_709_251_200
    commas = write(tmp_path / "b.csv", 'src,dst,t,weight\na,b,1,"1,5"\n')
    with pytest.raises(DataError, match=r"'1,5'; .*decimal=','"):
        read_table(commas)

"""Files as strangers have them are understood, and what was assumed is said; or they are rejected.

Dates and decimals of other countries, epochs in any unit, users and items with the same ids, wrong
columns, and tables in other makes than text.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegraph import DataError, EventStream, read, read_table, scan_table
from tidegraph.cli import main
from tidegraph.core.errors import ParameterError, UnknownNodeError

LOG: dict[str, Any] = {"src": "who", "dst": "to.whom", "t": "ts"}
UTC = datetime.timezone.utc


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def notes(stream: EventStream) -> str:
    assert stream.report is not None
    return "\n".join(stream.report.notes)


def command(*words: object, text: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], input=text)


def table(path: Path, header: str, rows: list[str]) -> Path:
    return write(path, "\n".join([header, *rows]) + "\n")


# Dates --------------------------------------------------------------------------------------------

MOMENTS = st.lists(
    st.datetimes(datetime.datetime(1971, 1, 1), datetime.datetime(2200, 1, 1)).map(
        lambda when: when.replace(microsecond=0)
    ),
    min_size=1,
    max_size=8,
)
FORMATS = [
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%Y%m%d", "%d %b %Y", "%B %d, %Y"),
]
CLOCKS = ["", " %H:%M", " %H:%M:%S", " %I:%M:%S %p", " %I:%M %p", "T%H:%M:%SZ", ", %H:%M:%S"]


def read_dates(cells: list[str], **options: Any) -> EventStream:
    columns = {"src": ["a"] * len(cells), "dst": ["b"] * len(cells), "t": cells}
    return read_table(columns, sort=True, **options)


def seconds(cells: list[str], form: str) -> list[int]:
    """What Python's strptime says."""
    found = (datetime.datetime.strptime(cell, form) for cell in cells)
    return sorted(int(when.replace(tzinfo=UTC).timestamp()) for when in found)


@given(MOMENTS, st.sampled_from(FORMATS), st.sampled_from(CLOCKS))
@settings(max_examples=150, deadline=None)
def test_dates_come_back_in_every_format(
    moments: list[datetime.datetime], form: str, clock: str
) -> None:
    cells = [when.strftime(form + clock) for when in moments]
    expected = seconds(cells, form + clock)
    # The time of day may be left out of the format, if it is written as usual.
    for given_form in (form, form + clock):
        stream = read_dates(cells, date_format=given_form)
        assert (stream.t.tolist(), stream.unit) == (expected, "s")


@given(MOMENTS, st.sampled_from(["%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y"]))
@settings(max_examples=100, deadline=None)
def test_the_order_of_day_and_month_is_seen_or_asked_for(
    moments: list[datetime.datetime], form: str
) -> None:
    """Never guessed: the file shows it, or convention (points), or it makes no difference."""
    cells = [when.strftime(form + " %H:%M") for when in moments]
    expected = seconds(cells, form + " %H:%M")
    if (
        any(when.day > 12 for when in moments)
        or all(when.day == when.month for when in moments)
        or "." in form
    ):
        assert read_dates(cells).t.tolist() == expected
        return
    with pytest.raises(DataError) as error:
        read_dates(cells)
    unlike = next(when for when in moments if when.day != when.month)
    assert f"{unlike:%Y-%m-%d}" in str(error.value)
    assert f"{unlike:%Y-%d-%m}" in str(error.value)
    assert f"date_format={form!r}" in str(error.value)


def test_dates_of_both_orders_in_one_file_are_rejected() -> None:
    with pytest.raises(DataError, match=r"'31/01/2024' and '01/31/2024'.*date_format"):
        read_dates(["05/04/2024", "31/01/2024", "01/31/2024"])
    found = read_dates(["31/01/2024", "01/31/2024"], date_format="%d/%m/%Y", on_bad="drop")
    assert found.report is not None
    assert found.report.dropped == {"t is not a date like %d/%m/%Y": 1}
    for odd in ("yesterday", "2024-01-31", "1706659200", "31.01.2024"):
        with pytest.raises(DataError, match=rf"row 1 .*{odd}"):
            read_dates(["31/01/2024", odd])


@pytest.mark.parametrize("form", ["%d.%m.%Q", "%d.%m", "%d.%d.%Y", "%M %Y", "%"])
def test_a_format_that_cannot_be_read_is_rejected(form: str) -> None:
    with pytest.raises(ParameterError, match="date_format"):
        read_dates(["1.2.2024"], date_format=form)


def test_a_format_says_that_numbers_are_dates() -> None:
    numbers = {"src": [0, 1], "dst": [1, 0], "t": [20240131, 20240201]}
    stream = read_table(numbers, date_format="%Y%m%d")
    assert stream.t.tolist() == [stream.time("2024-01-31"), stream.time("2024-02-01")]
    with pytest.raises(ParameterError, match="leave it out"):
        read_table({**numbers, "t": np.array([1, 2], "M8[s]")}, date_format="%Y")


@pytest.mark.parametrize("kind", [int, str])
def test_integers_that_may_be_dates_are_asked_about(kind: type) -> None:
    def of(*times: int) -> dict[str, Any]:
        ends = {"src": [0] * len(times), "dst": [1] * len(times)}
        return {**ends, "t": [kind(time) for time in times]}

    for reads in (read_table, lambda table: list(scan_table(table))):
        with pytest.raises(DataError, match=r"2024-01-31 or .* date_format='%Y%m%d'.*unit='s'"):
            reads(of(20240131, 20240201))
    assert read_table(of(20240131, 20240201), unit="s").t.tolist() == [20240131, 20240201]
    for times in ((20240131, 20240132), (20240131, 20241301), (20240131, 30000101)):
        assert read_table(of(*times)).t.tolist() == list(times)


@pytest.mark.parametrize("kind", [int, str])
@pytest.mark.parametrize(
    ("form", "first", "last"),
    [("%Y%m%d%H%M%S", 20240131235959, 20240201000001), ("%Y%m%d%H%M", 202401312359, 202402010000)],
)
def test_integers_that_are_dates_with_a_time_of_day_are_read_as_dates(
    kind: type, form: str, first: int, last: int
) -> None:
    table = {"src": [0, 1], "dst": [1, 0], "t": [kind(first), kind(last)]}
    expected = [
        int(datetime.datetime.strptime(str(each), form).replace(tzinfo=UTC).timestamp())
        for each in (first, last)
    ]
    stream = read_table(table)
    assert (stream.t.tolist(), stream.unit) == (expected, "s")
    assert f"dates like {form}" in notes(stream)
    assert read_table(table, unit="ns").t.tolist() == [first, last]


def test_fractions_zones_and_short_years_are_read() -> None:
    cells = ["31.12.2023 23:00:00,5 -0100", "31.12.2023 23:00:00 UTC"]
    stream = read_dates(cells)
    assert (stream.t.tolist(), stream.unit) == ([1_704_063_600_000, 1_704_067_200_500], "ms")
    short = read_dates(["1/2/68", "1/2/69"], date_format="%m/%d/%y")
    assert short.t.tolist() == [short.time("1969-01-02"), short.time("2068-01-02")]


# Epochs -------------------------------------------------------------------------------------------

PER = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
AGE = st.integers(631_152_000, 4_102_444_799)


@given(st.lists(AGE, min_size=1, max_size=5), st.sampled_from(list(PER)), st.booleans())
@settings(max_examples=80, deadline=None)
def test_the_size_of_epochs_says_their_unit(times: list[int], unit: str, text: bool) -> None:
    ticks = sorted(time * PER[unit] for time in times)
    cells: Any = [str(tick) for tick in ticks] if text else ticks
    columns = {"src": [0] * len(ticks), "dst": [1] * len(ticks), "t": cells}
    stream = read_table(columns)
    assert (stream.t.tolist(), stream.unit) == (ticks, unit)
    assert [chunk.unit for chunk in scan_table(columns)] == [unit]
    given_unit = read_table(columns, unit="step")
    assert (given_unit.t.tolist(), given_unit.unit) == (ticks, "step")


def test_small_numbers_stay_counts_and_a_mixture_of_units_is_rejected() -> None:
    def of(*times: float) -> EventStream:
        return read_table({"src": [0] * len(times), "dst": [1] * len(times), "t": times})

    assert of(1, 10**6, 10**8).unit == "s"
    assert of(0, 1_704_067_444_000).unit == "s"  # not all are of our age
    half = of(1_704_067_444_000.5)
    assert (half.t.tolist(), half.unit) == ([1_704_067_444_000_500], "us")
    assert "ms since 1970, by its size: 2024-01-01 00:04:04" in notes(of(1_704_067_444_000))
    with pytest.raises(DataError, match=r"like s .*like ms.*unit='s' or unit='ms'"):
        of(1_704_067_444, 1_704_067_444_000)


# Two kinds of nodes -------------------------------------------------------------------------------

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=20)


@given(PAIRS, st.booleans())
@settings(max_examples=80, deadline=None)
def test_users_are_never_merged_with_items(pairs: list[tuple[int, int]], text: bool) -> None:
    def kind(values: list[int]) -> list[Any]:
        return [f"x{value}" for value in values] if text else values

    src, dst = (kind([pair[side] for pair in pairs]) for side in (0, 1))
    columns = {"user_id": src, "item_id": dst, "t": list(range(len(pairs)))}
    stream = read_table(columns)
    assert stream.bipartite
    assert len(set(src)) + len(set(dst)) == len(np.unique([stream.src, stream.dst]))
    # The ids of the file, on either side, are those of the stream.
    assert stream.number([str(each) for each in src], "src").tolist() == stream.src.tolist()
    assert stream.number([str(each) for each in dst], "dst").tolist() == stream.dst.tolist()
    shared = set(src) & set(dst)
    assert ("bipartite" in notes(stream)) == bool(shared)
    if not shared:  # then nothing had to be decided
        same = read_table({"src": src, "dst": dst, "t": columns["t"]})
        assert stream.digest() == same.digest()
    merged = read_table(columns, bipartite=False)
    assert (
        merged.digest()
        == read_table({"a": src, "b": dst, "t": columns["t"]}, src=0, dst=1).digest()
    )


@pytest.mark.parametrize(
    ("names", "apart"),
    [
        (("user", "item"), True),
        (("Customer ID", "Product"), True),
        (("readerId", "article_slug"), True),
        (("Kunde", "Artikel"), True),
        (("movie", "viewer"), True),
        (("src", "dst"), False),
        (("from_user", "to_user"), False),
        (("user", "friend"), False),
        (("buyer", "seller"), False),
    ],
)
def test_the_names_of_columns_say_whether_nodes_are_of_two_kinds(
    names: tuple[str, str], apart: bool
) -> None:
    ids = [3, 4, 9, 7], [4, 7, 3, 30]
    columns = {names[0]: ids[0], names[1]: ids[1], "t": [1, 2, 3, 4]}
    stream = read_table(columns, src=names[0], dst=names[1])
    assert stream.nodes == (8 if apart else 5)
    for choice, nodes in ((True, 8), (False, 5)):
        assert read_table(columns, src=names[0], dst=names[1], bipartite=choice).nodes == nodes


def test_buyers_and_sellers_that_are_each_counted_from_one_are_two_kinds() -> None:
    random = np.random.default_rng(0)
    buyers = np.concatenate([np.arange(1, 201), random.integers(1, 201, 300)])
    sellers = np.concatenate([np.arange(1, 21), random.integers(1, 21, 480)])
    stream = read_table({"buyer": buyers, "seller": sellers, "t": np.arange(500)})
    assert stream.nodes == 220
    assert "the names and ids" in notes(stream)
    people = read_table({"buyer": buyers, "seller": buyers[::-1], "t": np.arange(500)})
    assert people.nodes == 200
    assert "200 ids in both 'buyer' and 'seller' taken for the same nodes" in notes(people)


def test_an_id_of_one_side_needs_no_side_and_one_of_both_does() -> None:
    stream = read_table({"user": [1, 2], "item": [2, 3], "t": [1, 2]})
    assert stream.nodes_of(["1", "3", "src 2", "dst 2"]).tolist() == [0, 3, 1, 2]
    with pytest.raises(UnknownNodeError, match="give 'src 2' or 'dst 2'"):
        stream.nodes_of(["2"])
    with pytest.raises(UnknownNodeError):
        stream.nodes_of(["4"])


def test_ids_stay_what_the_file_says_in_commands(tmp_path: Path) -> None:
    rows = [f"{k},{k % 5 + 1},{k % 3 + 4},{k * 10}.0,0.0,{k + 1}" for k in range(30)]
    path = table(tmp_path / "ml_toy.csv", ",u,i,ts,label,idx", rows)
    stream = read(path)
    assert stream.name(stream.src).tolist() == [k % 5 + 1 for k in range(30)]
    assert stream.number([4]).tolist() == [3]
    words = ("--from", 0, "--to", 300, "--columns", 4, "--json")
    done = command("explain", "--data", path, "--node", 6, *words)
    assert done.exit_code == 0, done.output
    # Only every third event is one of node 6, and the file says which.
    first = json.loads(done.output.splitlines()[-1])["events"][0]
    assert 6 in (int(first["src"]), int(first["dst"]))
    assert command("explain", "--data", path, "--node", 7, *words).exit_code == 2


# Files --------------------------------------------------------------------------------------------


def test_an_export_of_a_german_spreadsheet_is_read_as_it_is(tmp_path: Path) -> None:
    text = "\ufeffKunde;Artikel;Datum;Menge;Betrag\r\n" + "".join(
        f"{k % 4 + 1};{k % 6 + 1};{k + 1:02}.02.2024 09:{k:02};{k + 1};1.{k:03},50\r\n"
        for k in range(20)
    )
    path = write(tmp_path / "Export.csv", text)
    stream = read_table(path, weight="Betrag", edge_features=["Menge"])
    assert stream.nodes == 4 + 6
    assert stream.weight is not None
    assert stream.weight.tolist() == [1000 + k + 0.5 for k in range(20)]
    assert stream.t[1] - stream.t[0] == 86_460
    assert stream.report is not None
    assert "decimals are written with a comma" in notes(stream)
    assert (
        read_table(path, weight="Betrag", decimal=",").digest()
        == read_table(path, weight="Betrag").digest()
    )
    with pytest.raises(DataError, match=r"line 2: weight is not a number: '1.000,50'"):
        read_table(path, weight="Betrag", decimal=".")


def test_a_number_with_a_point_is_none_among_decimals_with_a_comma(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "src;dst;t;weight", ["a;b;1;0,5", "a;b;2;1.234"])
    assert read_table(path).weight.tolist() == [0.5, 1234]  # type: ignore[union-attr]
    path = table(tmp_path / "b.csv", "src\tdst\tt\tweight", ["a\tb\t1,25\t0,5", "a\tb\t2\t1.5"])
    with pytest.raises(DataError, match=r"weight is not a number: '1\.5'"):
        read_table(path, decimal=",")
    with pytest.raises(ParameterError, match="decimal"):
        read_table(path, decimal=";")


def test_the_index_column_of_pandas_is_ignored(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", ",src,dst,t", ["0,ann,bob,5", "1,bob,eve,6"])
    stream = read_table(path)
    assert stream.report is not None
    assert stream.report.ignored == ("column 0",)
    assert stream.name(stream.src).tolist() == ["ann", "bob"]


def test_an_export_of_payments_is_understood(tmp_path: Path) -> None:
    header = "id,Created (UTC),Amount,Currency,Customer ID,Merchant ID,Status"
    rows = [
        f'ch_{k},2024-01-{k + 1:02} 14:03,"{k}.50",usd,cus_{k % 3},acct_{k % 2},Paid'
        for k in range(9)
    ]
    stream = read_table(table(tmp_path / "payments.csv", header, rows))
    assert stream.report is not None
    uses = {role: use.column for role, use in stream.report.columns.items()}
    assert uses == {
        "src": "Customer ID",
        "dst": "Merchant ID",
        "t": "Created (UTC)",
        "weight": "Amount",
    }
    assert set(stream.report.ignored) == {"id", "Currency", "Status"}
    assert stream.name(stream.dst[:1]).tolist() == ["acct_0"]


def test_lines_of_a_log_are_read_with_their_nested_fields(tmp_path: Path) -> None:
    lines = [
        json.dumps(
            {"ts": f"2024-01-01T10:00:{k:02}.250Z", "actor": {"id": k % 3}, "to": f"x{k % 4}"}
        )
        for k in range(8)
    ]
    path = write(tmp_path / "app.log", "\n".join(lines))
    stream = read_table(path, src="actor.id")
    assert (stream.unit, len(stream), stream.nodes) == ("ms", 8, 7)
    with pytest.raises(DataError, match="line 2 is not an object of JSON"):
        read_table(write(tmp_path / "bad.jsonl", lines[0] + '\n{"ts": \n'), src="actor.id")


def test_a_line_that_is_no_json_is_an_error_or_dropped(tmp_path: Path) -> None:
    rows = [{"who": f"p{k}", "to": {"whom": f"p{k + 1}"}, "ts": k} for k in range(40)]
    lines = [json.dumps(row) for row in rows]
    whole = read_table(write(tmp_path / "whole.jsonl", "\n".join(lines)), **LOG)
    lines.insert(3, '{"who": "p3", "to"')
    lines.insert(9, "[1, 2]")
    path = write(tmp_path / "torn.jsonl", "\n" + "\n".join(lines) + '\n{"who": "p')
    with pytest.raises(DataError, match=r"line 5 is not an object.*p3.*on_bad='drop'"):
        read_table(path, **LOG)
    found = read_table(path, **LOG, on_bad="drop")
    assert found.digest() == whole.digest()
    assert found.report is not None
    assert found.report.dropped == {"not an object of JSON": 3}
    twice = read_table([path, path], **LOG, on_bad="drop", sort=True).report
    assert twice is not None
    assert twice.dropped == {"not an object of JSON": 6}
    write(tmp_path / "few.jsonl", "\n".join([*lines[:4], *["torn"] * 20]))
    with pytest.raises(DataError, match="drop-many"):
        read_table(tmp_path / "few.jsonl", **LOG, on_bad="drop")
    with pytest.raises(DataError, match="cannot be read as lines of JSON"):
        read_table(write(tmp_path / "none.jsonl", '{"who": \n{\n'), **LOG, on_bad="drop")


def test_a_value_of_another_kind_is_a_bad_cell_and_not_a_bad_file(tmp_path: Path) -> None:
    rows = [{"who": k, "to": {"whom": k + 1}, "ts": "never" if k == 7 else k} for k in range(30)]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match=r"line 8: t is not a number: 'never'"):
        read_table(path, **LOG)
    found = read_table(path, **LOG, on_bad="drop")
    assert found.t.tolist() == [k for k in range(30) if k != 7]


# Other makes --------------------------------------------------------------------------------------


def test_several_files_are_one_table_and_an_error_names_the_right_one(tmp_path: Path) -> None:
    for k in range(3):
        order = ("src,dst,t", "{a},{b},{t}") if k != 1 else ("t,src,dst", "{t},{a},{b}")
        rows = [order[1].format(a=f"a{r}", b=f"b{k}", t=10 * k + r) for r in range(4)]
        table(tmp_path / f"{k}.csv", order[0], rows)
    stream = read(f"{tmp_path}/*.csv")
    assert stream.t.tolist() == [10 * k + r for k in range(3) for r in range(4)]
    assert "3 tables" in notes(stream)
    assert read([tmp_path / f"{k}.csv" for k in range(3)]).digest() == stream.digest()
    write(tmp_path / "2.csv", "src,dst,t\na,b,20\na,,21\n")
    with pytest.raises(DataError, match=r"2\.csv, line 3: dst is missing"):
        read(f"{tmp_path}/*.csv")
    write(tmp_path / "2.csv", "who,whom,t\na,b,20\n")
    with pytest.raises(DataError, match="the same columns"):
        read(f"{tmp_path}/*.csv")
    with pytest.raises(DataError, match="there is no file"):
        read_table(f"{tmp_path}/*.txt")
    tables = [
        pa.table({"src": ["a"], "dst": ["b"], "t": times})
        for times in ([1], [2.5], np.array([3], "M8[s]"))
    ]
    assert read(tables[:2]).t.tolist() == [1000, 2500]
    with pytest.raises(DataError, match="'t' has several types"):
        read(tables)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_standard_input_may_be_any_make(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = pa.table({"src": ["a", "b"], "dst": ["b", "c"], "t": [1, 2]})
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        table(path, "src,dst,t", ["a,b,1", "b,c,2"])
    else:
        pq.write_table(columns, path)
    piped = io.TextIOWrapper(io.BytesIO(path.read_bytes()))
    monkeypatch.setattr(sys, "stdin", piped)
    stream = read("-")
    assert stream.digest() == read(path).digest()
    assert stream.title == "standard input"


def test_a_database_is_asked_with_a_query_and_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        base.execute("create table calls (caller text, callee text, at text, note)")
        rows = [("ann", "bob", "2024-01-01", 1), ("bob", "eve", "2024-01-02", "x")]
        base.executemany("insert into calls values (?, ?, ?, ?)", rows)
        base.execute("create table other (x)")
    with pytest.raises(DataError, match=r"2 tables: calls, other.*query="):
        read(path)
    query = "select caller, callee, at as t from calls where callee <> 'bob'"
    for source in (path, f"sqlite:///{path}"):
        assert len(read(source, query="calls", t="at")) == 2
        stream = read(source, query=query)
        assert (len(stream), stream.name(stream.dst).tolist()) == (1, ["eve"])
        for wrong in ("select nothing from calls", "drop table calls", "missing"):
            with pytest.raises(DataError, match=wrong):
                read(source, query=wrong)
    done = command("data", "info", path, "--query", query, "--json")
    assert json.loads(done.output.splitlines()[-1])["events"] == 1
    with pytest.raises(ParameterError, match="query"):
        read_table(table(tmp_path / "a.csv", "src,dst,t", ["a,b,1"]), query="calls")
    with pytest.raises(DataError, match="there is no file"):
        read("sqlite:///absent.db")
    with pytest.raises(DataError, match="PGPASSWORD") as error:
        read("postgresql://me:secret@localhost/shop")
    assert "secret" not in str(error.value)


def test_types_of_sqlite_may_change_from_row_to_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegraph.events.tables.whole._ROWS", 2)
    path = tmp_path / "a.db"
    rows = [(1, 2, 1, None), (2, 3, 2, 1), (3, "x", 2.5, None), (1, 1, 4, 0.5), (5, "y", 5, None)]
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        base.execute("create table e (src, dst, t, note)")
        base.executemany("insert into e values (?, ?, ?, ?)", rows)
    stream = read(path)
    assert stream.name(stream.dst).tolist() == ["2", "3", "x", "1", "y"]
    assert (stream.t.tolist(), stream.unit) == ([1000, 2000, 2500, 4000, 5000], "ms")
    with pytest.raises(DataError, match="holds no events"):
        read(path, query="select * from e where t > 9")


def test_duckdb_is_asked_with_a_query(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as base:
        base.execute("create table calls as select 'a' as src, 'b' as dst, date '2024-01-01' as t")
    for source in (path, f"duckdb:///{path}"):
        assert read(source).t.tolist() == [1_704_067_200]
        assert len(read(source, query="select * from calls union all from calls")) == 2
        with pytest.raises(DataError, match="nowhere"):
            read(source, query="select * from nowhere")


def test_a_workbook_is_read_by_sheet(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["not", "this"])
    book.active.append([1, 2])
    sheet = book.create_sheet("Orders")
    sheet.append(["Customer", "Product", "Ordered at", "Amount"])
    for k in range(4):
        sheet.append([k + 1, 1, datetime.datetime(2024, 1, 1, k), 0.5 + k])
    book.save(tmp_path / "a.xlsx")
    stream = read(tmp_path / "a.xlsx", query="Orders")
    assert (stream.nodes, stream.t[0]) == (5, 1_704_067_200)
    assert stream.weight is not None
    assert stream.weight.tolist() == [0.5, 1.5, 2.5, 3.5]
    assert "the sheet is 'Orders'" in notes(stream)
    with pytest.raises(DataError, match="'Sheet', 'Orders'"):
        read(tmp_path / "a.xlsx", query="Absent")


def test_a_package_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match="pip install python-calamine"):
        read(tmp_path / "a.xlsx")


# Wrong columns ------------------------------------------------------------------------------------


def test_columns_that_would_work_are_proposed_and_do(tmp_path: Path) -> None:
    rows = [f"2024-01-{k % 28 + 1:02},a{k % 5},b{k % 7},{k}" for k in range(60)]
    path = write(tmp_path / "a.csv", "\n".join(rows))
    for on_bad in ("error", "drop"):
        done = command("data", "info", path, "--on-bad", on_bad)
        assert done.exit_code == 2
        assert "--time 'column 0' --src 'column 1' --dst 'column 2'" in done.output
    named = command("data", "info", path, "--time", "column 0", "--src", 1, "--dst", -2, "--json")
    assert named.exit_code == 0, named.output
    assert json.loads(named.output.splitlines()[-1])["destinations"] == 7


def test_a_rating_in_the_place_of_the_time_is_not_taken_for_one(tmp_path: Path) -> None:
    rows = [f"{k % 7},{k % 5},{k % 21 - 10},{1_289_241_911 + 50 * k}" for k in range(40)]
    path = write(tmp_path / "soc.csv", "\n".join(rows))
    with pytest.raises(DataError, match="t='column 3'"):
        read_table(path, sort=True)
    stream = read_table(path, t=3)
    assert stream.dst.tolist() == [k % 5 for k in range(40)]
    assert read_table(path, t=2, sort=True).unit == "s"  # as said
    times = [f"{1_289_241_911 + 50 * k} {k % 7} {k % 5}" for k in range(40)]
    first = read_table(write(tmp_path / "first.txt", "\n".join(times)), t=0)
    assert first.src.tolist() == [k % 7 for k in range(40)]


def test_more_than_a_few_percent_are_not_dropped(tmp_path: Path) -> None:
    def with_bad(bad: int, rows: int = 400) -> Path:
        cells = [f"a{k % 5},{'' if k < bad else 'b'},{k}" for k in range(rows)]
        return table(tmp_path / "a.csv", "src,dst,t", cells)

    assert len(read_table(with_bad(20), on_bad="drop")) == 380
    assert len(read_table(with_bad(8, 12), on_bad="drop")) == 4  # a small table
    with pytest.raises(DataError, match=r"21 of 400 rows .*dst is missing.*on_bad='drop-many'"):
        read_table(with_bad(21), on_bad="drop")
    many = read_table(with_bad(300), on_bad="drop-many")
    assert many.report is not None
    assert many.report.dropped == {"dst is missing": 300}


def test_a_bad_row_does_not_make_other_columns_likely(tmp_path: Path) -> None:
    rows = [f"{k},a{k % 5},b,{'soon' if k == 30 else 1000 + k}" for k in range(60)]
    path = table(tmp_path / "a.csv", "row,src,dst,t", rows)
    with pytest.raises(DataError, match="'soon'") as error:
        read_table(path)
    assert "other columns" not in str(error.value)


# What is shown ------------------------------------------------------------------------------------


def test_the_page_shows_columns_and_what_was_dropped(tmp_path: Path) -> None:
    rows = [f"{k % 5},{k % 4},{1_704_067_200_000 + k},x<y" for k in range(200)]
    path = table(tmp_path / "a.csv", "user,item,ts,remark", [*rows, ",1,1704067300000,z"])
    page = tmp_path / "a.html"
    done = command("data", "info", path, "--on-bad", "drop", "--html", page, "--json")
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    for shown in (
        "user",
        "who acts",
        "by its name",
        "remark",
        "ignored",
        "dropped: src is missing",
    ):
        assert shown in text
    assert "ms since 1970" in text
    found = json.loads(done.output.splitlines()[-1])["report"]
    assert found["ignored"] == ["remark"]
    assert found["dropped"] == {"src is missing": 1}
    saved = tmp_path / "a.tide"
    read_table(path, on_bad="drop").save(saved)
    again = EventStream.load(saved)
    assert again.report is not None
    assert again.report.ignored == ("remark",)
    assert again.report == read_table(path, on_bad="drop").report


# Quotes -------------------------------------------------------------------------------------------


def test_a_quote_that_is_not_closed_does_not_swallow_rows_silently(tmp_path: Path) -> None:
    rows = [f"n{k % 9},m{k % 7},{k}" for k in range(2000)]
    rows[101], rows[1501] = f'"{rows[101]}', f'"{rows[1501]}'
    path = write(tmp_path / "a.csv", "\n".join(["src,dst,t", *rows]))
    with pytest.raises(DataError, match="quote"):
        read(path)
    rows[1501] = rows[1501].removeprefix('"')
    path = write(tmp_path / "b.csv", "\n".join(["src,dst,t", *rows]))
    with pytest.raises(DataError, match="cells where 3"):
        read(path)
    with pytest.raises(DataError):  # nearly all of them
        read(path, on_bad="drop")
    named = write(tmp_path / "c.csv", 'src,dst,t\n"Ann\nB",x,1\nx,y,2\n')
    assert "Ann\nB" in read(named).name(range(3)).tolist()

"""Later tables are read as the table of a stream was, whatever they look like by themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tidegraph.core.errors import DataError
from tidegraph.events import formats
from tidegraph.events.alike import read_like
from tidegraph.events.read_report import ReadReport
from tidegraph.events.stream import EventStream
from tidegraph.events.tables import TableError, read_table

EPOCH = 1_700_000_000


def content(stream: EventStream) -> dict[str, Any]:
    """All that a stream says of its events, in words of its table."""
    found: dict[str, Any] = {
        "ends": list(
            zip(*(map(str, stream.name(e)) for e in (stream.src, stream.dst)), strict=True)
        ),
        "t": (stream.t.tolist(), stream.unit),
        "weight": None if stream.weight is None else stream.weight.tolist(),
        "labels": None if stream.labels is None else stream.labels.tolist(),
    }
    for k, name in enumerate(stream.vocabulary.features):
        found[name] = stream.edge_features[:, k].tolist()  # type: ignore[index]
    for k, (name, words) in enumerate(stream.vocabulary.categories.items()):
        codes = stream.categories[:, k]  # type: ignore[index]
        found[name] = [None if code < 0 else words[code] for code in codes.tolist()]
    return found


# Text of a table whose second part, by itself, would be read differently, and how to read it.
TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "dates with the day first": (
        "src,dst,t\na,b,13/05/2024\nb,c,14/05/2024\n|a,c,01/06/2024\nc,b,02/06/2024\n",
        {},
    ),
    "dates as the format says": (
        "src,dst,t\na,b,01/05/24\nb,c,02/05/24\n|a,c,01/06/24\nc,b,02/06/24\n",
        {"date_format": "%d/%m/%y"},
    ),
    "dates without marks": (
        "src,dst,t\na,b,20240513\nb,c,20240514\n|a,c,20240601\n",
        {"date_format": "%Y%m%d"},
    ),
    "decimals with a comma": (
        "src\tdst\tt\tweight\na\tb\t1\t1,5\nb\tc\t2\t2,5\n|a\tc\t3\t1.250,25\n",
        {"decimal": ","},
    ),
    "fractions of seconds in the first part": (
        "src,dst,t\na,b,0.5\nb,c,1\n|a,c,2\nc,b,3\n",
        {},
    ),
    "a unit as given": ("src,dst,t\na,b,1\nb,c,2\n|a,c,3\n", {"unit": "h"}),
    "fractions of a unit as given": ("src,dst,t\na,b,1.5\nb,c,2\n|a,c,3\n", {"unit": "h"}),
    "words that look like numbers": (
        "src,dst,t,kind\na,b,1,x1\nb,c,2,17\n|a,c,3,17\nc,a,4,18\n",
        {"edge_features": "kind", "words": ["kind"]},
    ),
    "numbers that are missing": (
        "src,dst,t,size\na,b,1,\nb,c,2,17\n|a,c,3,NA\nc,a,4,NA\n",
        {"edge_features": "size"},
    ),
    "labels that look like numbers": (
        "src,dst,t,label\na,b,1,ok\nb,c,2,17\nb,c,2,ok\n|a,c,3,17\n",
        {"words": ["label"]},
    ),
    "ids that look like numbers": ("src,dst,t\na,7,1\n7,8,2\n|7,8,3\n9,7,4\n", {}),
    "numbers from zero on": ("src,dst,t\n0,1,1\n1,2,2\n|7,2,3\n2,7,4\n", {}),
    "users and items": ("user,item,t\n1,1,1\n2,1,2\n|3,1,3\n1,3,4\n", {}),
    "columns by place": ("a b 1\nb c 2\n|c a 3\n", {}),
    "columns as given": (
        "x,y,z,amount\na,b,1,-5\nb,c,2,5\n|a,c,3,5\n",
        {"src": "x", "dst": "y", "t": "z"},
    ),
    "a weight that is a feature": ("src,dst,t,weight\na,b,1,-5\nb,c,2,5\n|a,c,3,5\n", {}),
}


@pytest.mark.parametrize("case", TABLES)
@pytest.mark.parametrize("saved", [False, True])
def test_two_parts_of_a_table_are_read_as_the_whole(case: str, saved: bool, tmp_path: Path) -> None:
    text, options = TABLES[case]
    first, _, second = text.partition("|")
    header = first.partition("\n")[0] + "\n" if case != "columns by place" else ""
    for name, part in (("whole", first + second), ("a", first), ("b", header + second)):
        (tmp_path / f"{name}.csv").write_text(part)
    whole = read_table(tmp_path / "whole.csv", **options)
    earlier = read_table(tmp_path / "a.csv", **options)
    if saved:
        earlier.save(tmp_path / "a")
        earlier = EventStream.load(tmp_path / "a")
    later = read_like(earlier, tmp_path / "b.csv")
    expected, found = content(whole), content(earlier.joined(later))
    if case == "labels that look like numbers":  # numbered by their frequency in the first part
        words = earlier.joined(later).vocabulary.labels
        assert [words[k] for k in found.pop("labels")] == ["ok", "17", "ok", "17"]
        del expected["labels"]
    assert found == expected


def test_a_published_format_is_continued_in_that_format(tmp_path: Path) -> None:
    header = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
    rows = ["0,0,0.5,0,1.5,2.5\n", "1,0,1.0,1,1.5,2.5\n", "1,1,2.0,0,3.5,4.5\n"]
    (tmp_path / "whole.csv").write_text(header + "".join(rows))
    (tmp_path / "a.csv").write_text(header + "".join(rows[:2]))
    (tmp_path / "b.csv").write_text(header + rows[2])
    earlier = formats.read(tmp_path / "a.csv")
    later = read_like(earlier, tmp_path / "b.csv")
    assert content(earlier.joined(later)) == content(formats.read(tmp_path / "whole.csv"))
    later.save(tmp_path / "later")
    again = read_like(earlier, tmp_path / "later", sort=True, on_bad="error")
    assert content(again) == content(later)


def test_a_missing_column_of_labels_leaves_them_unknown_and_other_columns_are_needed() -> None:
    table = {"src": ["a", "b"], "dst": ["b", "c"], "t": [1, 2], "label": [0, 1], "weight": [1, 2]}
    earlier = read_table(table)
    asked = {name: column for name, column in table.items() if name != "label"} | {"t": [3, 4]}
    assert read_like(earlier, asked).labels.tolist() == [-1, -1]  # type: ignore[union-attr]
    del asked["weight"]
    with pytest.raises(DataError, match="'weight'"):
        read_like(earlier, asked)


# Times --------------------------------------------------------------------------------------------


def later(times: list[Any], *, of: list[Any], **options: Any) -> EventStream:
    ends = {"src": ["a", "b"], "dst": ["b", "c"]}
    earlier = read_table({**ends, "t": of})
    return read_like(earlier, {**ends, "t": times}, **options)


@pytest.mark.parametrize("of", [[EPOCH + 0.5, EPOCH + 9.0], [1000 * EPOCH, 1000 * EPOCH + 9500]])
@pytest.mark.parametrize(
    "times",
    [
        [EPOCH + 10, EPOCH + 20],
        [EPOCH + 10.0, EPOCH + 20.0],
        [1000 * (EPOCH + 10), 1000 * (EPOCH + 20)],
        [10**9 * (EPOCH + 10), 10**9 * (EPOCH + 20)],
        ["2023-11-14T22:13:30", "2023-11-14T22:13:40"],
    ],
)
def test_times_since_1970_show_their_unit_by_their_size(of: list[Any], times: list[Any]) -> None:
    found = later(times, of=of)
    assert (found.t.tolist(), found.unit) == ([1000 * (EPOCH + 10), 1000 * (EPOCH + 20)], "ms")


@pytest.mark.parametrize(
    ("of", "times"),
    [
        ([EPOCH, EPOCH + 100], [7, 8]),  # they count from another beginning
        ([EPOCH, EPOCH + 100], [19_000, 19_001]),  # days
        ([0, 86_400], [1000 * 86_500, 1000 * 86_600]),  # ms after s
        ([0, 86_400], [EPOCH, EPOCH + 1]),
        ([0, 86_400], ["2024-05-01", "2024-05-02"]),
    ],
)
def test_times_far_from_the_earlier_ones_are_rejected_unless_a_unit_is_given(
    of: list[Any], times: list[Any]
) -> None:
    with pytest.raises(TableError, match="far from") as error:
        later(times, of=of)
    assert "unit='s'" in str(error.value)
    assert later(times, of=of, unit="s").unit == "s"


def test_a_unit_that_the_stream_cannot_hold_is_rejected() -> None:
    # It does not advise unit='s': that would read milliseconds as seconds.
    with pytest.raises(DataError, match=r"whole s, or train on all events together$"):
        later([EPOCH + 10.5, EPOCH + 11], of=[EPOCH, EPOCH + 9])
    with pytest.raises(TableError, match="unit='s'"):
        later([1, 2], of=[1, 2], unit="step")


# Ids ----------------------------------------------------------------------------------------------


def test_a_user_is_not_merged_with_an_item_that_has_its_id() -> None:
    earlier = read_table({"user": [1, 2], "item": [8, 9], "t": [1, 2]})
    same = {"user": [3, 1], "item": [8, 7], "t": [3, 4]}
    assert read_like(earlier, same).name([4, 5]).tolist() == [3, 7]
    for table in (
        {"user": [8, 1], "item": [9, 9], "t": [3, 4]},  # a new user with the id of an item
        {"user": [1, 2], "item": [8, 2], "t": [3, 4]},
        {"user": [5, 6], "item": [6, 9], "t": [3, 4]},  # both are new
    ):
        with pytest.raises(TableError, match="in both 'user' and 'item'"):
            read_like(earlier, table)
        assert len(read_like(earlier, table, bipartite=False)) == 2
    told = read_table({"user": [1, 2], "item": [8, 9], "t": [1, 2]}, bipartite=False)
    assert len(read_like(told, {"user": [8], "item": [9], "t": [3]})) == 1


def test_words_are_no_ids_of_a_stream_of_integers() -> None:
    for ids in ([0, 1], [10, 20]):
        earlier = read_table({"src": ids, "dst": ids[::-1], "t": [1, 2]})
        for word in ("ann", "007", "9" * 20, "1.5"):
            with pytest.raises(DataError, match=f"such as {word};"):
                read_like(earlier, {"src": ["10", word], "dst": ["10", "20"], "t": [3, 4]})


# Older streams ------------------------------------------------------------------------------------


def test_a_stream_that_an_older_version_saved_is_continued() -> None:
    table = pd.DataFrame({"who": ["a", "b"], "whom": ["b", "c"], "when": [0.5, 1.5]})
    stream = read_table(table, src="who", dst="whom", t="when")
    assert stream.report is not None
    known = stream.report.to_dict()
    del known["conventions"]
    report = ReadReport.from_dict(known)
    assert report.conventions is None
    table["when"] = [2, 3]
    found = read_like(replace(stream, report=report), table)
    assert (found.t.tolist(), found.unit) == ([2000, 3000], "ms")
    np.testing.assert_array_equal(found.name(found.src), ["a", "b"])


def test_a_report_returns_from_plain_values() -> None:
    report = read_table({"user": [1], "item": [2], "t": ["31.12.2024"]}).report
    assert report is not None
    assert ReadReport.from_dict(report.to_dict()) == report
    assert report.conventions is not None
    assert (report.conventions.date_format, report.conventions.bipartite) == ("%d.%m.%Y", None)

"""Data sets load as sorted columns over contiguous ids, and bad files are refused with advice."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegraph import datasets
from tidegraph.errors import DataError, TidegraphError

# name -> (events, nodes)
SIZES = {
    "nyc-flights": (328_521, 4_141),
    "wikipedia": (157_474, 9_227),
    "uci": (59_835, 1_899),
    "bitcoin-otc": (35_592, 5_881),
    "bitcoin-alpha": (24_186, 3_783),
    "flights-3m": (3_000_000, 229),
    "pubmed-temporal": (44_335, 19_717),
}
SHARED = Path(__file__).parents[2] / "shared" / "data"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_every_name_is_measured_below() -> None:
    assert set(SIZES) == set(datasets.NAMES)


@pytest.mark.parametrize("name", SIZES)
def test_a_named_data_set_is_sorted_and_uses_every_id(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGRAPH_DATA", str(SHARED))
    if name != "nyc-flights" and not (SHARED / f"{name}.csv.gz").is_file():
        pytest.skip(f"{name} is not in {SHARED}")
    events = datasets.load(name)
    assert (len(events), events.nodes) == SIZES[name]
    for column in (events.src, events.dst, events.t):
        assert column.dtype == np.int64
        assert column.shape == (len(events),)
    assert (np.diff(events.t) >= 0).all()
    ids = np.unique(np.concatenate([events.src, events.dst]))
    assert np.array_equal(ids, np.arange(events.nodes))
    assert events.weight is None
    assert events.names is None or len(events.names) == events.nodes
    expected_unit = {"bitcoin-otc": "us", "flights-3m": "min", "pubmed-temporal": "year"}
    assert events.unit == expected_unit.get(name, "s")


def test_planes_come_before_airports_in_the_shipped_flights() -> None:
    flights = datasets.load("nyc-flights")
    assert flights.src.max() < flights.dst.min()
    assert flights.names is not None
    # The first departure of the year: N14228 to Houston at 5:17 in New York, 10:17 UTC.
    assert (flights.names[flights.src[0]], flights.names[flights.dst[0]]) == ("N14228", "IAH")
    assert flights.t[0] == np.datetime64("2013-01-01T10:17", "s").astype(np.int64)


def test_every_shipped_flight_arrives_after_it_left_or_was_diverted() -> None:
    path = Path(datasets.__file__).parent / "data" / "nyc-flights.parquet"
    assert path.stat().st_size < 2_500_000
    table = pq.read_table(path)
    arrived = table["arrived"].to_numpy(zero_copy_only=False)
    elapsed_min = (arrived - table["t"].to_numpy()) / 60
    diverted = np.isnan(elapsed_min)
    assert diverted.sum() == table["late"].null_count == 1_175
    assert elapsed_min[~diverted].min() > 20
    assert elapsed_min[~diverted].max() < 15 * 60
    assert table.schema.metadata[b"licence"] == b"CC0-1.0"


def test_integer_ids_that_are_already_contiguous_are_kept(tmp_path: Path) -> None:
    events = datasets.load(write(tmp_path / "a.csv", "src,dst,t\n2,0,5\n1,2,5\n"))
    assert events.src.tolist() == [2, 1]
    assert events.dst.tolist() == [0, 2]
    assert events.names is None
    assert events.nodes == 3


def test_other_ids_are_renumbered_and_remembered(tmp_path: Path) -> None:
    events = datasets.load(write(tmp_path / "a.csv", "src,dst,t\n70,900000000000,1\n80,70,2\n"))
    assert events.names == ("70", "80", "900000000000")
    assert events.src.tolist() == [0, 1]
    assert events.dst.tolist() == [2, 0]


def test_integers_and_names_may_meet_in_one_file(tmp_path: Path) -> None:
    events = datasets.load(write(tmp_path / "a.csv", "src,dst,t\n7,inn,1\n8,inn,2\n"))
    assert events.names == ("7", "8", "inn")


def test_times_with_fractions_become_microseconds(tmp_path: Path) -> None:
    events = datasets.load(
        write(tmp_path / "a.csv", "src,dst,time\n0,1,1289241911.72836\n1,0,1289241912\n")
    )
    assert events.t.tolist() == [1289241911728360, 1289241912000000]
    assert events.unit == "us"


def test_whole_times_written_as_floats_stay_in_their_unit(tmp_path: Path) -> None:
    events = datasets.load(write(tmp_path / "a.csv", "src,dst,time\n0,1,3.0\n1,0,4.0\n"))
    assert events.t.tolist() == [3, 4]
    assert events.unit == "s"


def test_parquet_and_gzip_hold_the_same_events_as_csv(tmp_path: Path) -> None:
    text = "src,dst,t,weight,note\na,b,1,0.5,x\nb,c,2,2,y\n"
    write(tmp_path / "a.csv", text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    columns = {"src": ["a", "b"], "dst": ["b", "c"], "t": [1, 2], "weight": [0.5, 2.0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    for name in ("a.csv", "a.csv.gz", "a.parquet"):
        events = datasets.load(tmp_path / name)
        assert events.names == ("a", "b", "c")
        assert events.weight is not None
        assert events.weight.tolist() == [0.5, 2.0]
        assert (events.src.tolist(), events.dst.tolist(), events.t.tolist()) == (
            [0, 1],
            [1, 2],
            [1, 2],
        )


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("src,dst,t\n0,1,5\n1,0,4\n", "t is 4 in row 1 .* after 5; sort"),
        ("src,dst\n0,1\n", "rename or add t"),
        ("from,dst,t\n0,1,1\n", "has columns from, dst, t; .* add src"),
        ("src,dst,t\n", "no events"),
        ("", "cannot be read as csv"),
        ("src,dst,t\n0,1,1\n0,1\n", "cannot be read as csv"),
        ("src,dst,t\n0,1,1\n0,,2\n", "no dst in row 1"),
        ("src,dst,t\n0,1,soon\n", "t has type string"),
        ("src,dst,t\n0,1,1.5\n0,1,inf\n", "t is inf in row 1"),
        ("src,dst,t\n0,1,1e19\n", "coarser unit"),
        ("src,dst,t\n0.5,1,1\n", "node ids have type double"),
        ("src,dst,t,weight\n0,1,1,2\n0,1,1,-3\n", "weight is -3 in row 1 .* rename it"),
        ("src,dst,t,weight\n0,1,1,heavy\n", "weight has type string"),
    ],
)
def test_a_bad_file_is_refused_with_advice(text: str, advice: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=advice):
        datasets.load(write(tmp_path / "bad.csv", text))


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read as parquet"):
        datasets.load(write(tmp_path / "bad.parquet", "not parquet"))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(TidegraphError, match=r"'wikipedai'.*wikipedia.*\.parquet"):
        datasets.load("wikipedai")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="convert it"):
        datasets.load(write(tmp_path / "a.txt", "src,dst,t\n0,1,1\n"))


def test_an_absent_data_set_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGRAPH_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"uci\.csv\.gz.*set TIDEGRAPH_DATA"):
        datasets.load("uci")

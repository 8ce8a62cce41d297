"""Data sets are found, fetched, checked and read as streams; what is absent says how to get it."""

from __future__ import annotations

import functools
import gzip
import hashlib
import os
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import tidegraph
from tidegraph.core.errors import DataError, TidegraphError
from tidegraph.core.words import bytes_in_words
from tidegraph.events import datasets
from tidegraph.events.datasets import registry
from tidegraph.events.stream import EventStream

SHARED = Path(os.environ.get("TIDEGRAPH_DATA") or Path(__file__).parents[2] / "shared" / "data")
LOCAL = [name for name, data_set in datasets.DATA_SETS.items() if data_set.compact]
NAMED = ("nyc-flights", "movielens-100k")  # whose nodes have names
UNITS = {"bitcoin-otc": "us"}  # where the times of the file have fractions


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data is looked for in empty places unless a test says otherwise."""
    monkeypatch.setenv("TIDEGRAPH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@functools.cache  # streams are read-only, and the largest takes seconds to read
def shared(name: str) -> EventStream:
    if datasets.find(datasets.DATA_SETS[name], SHARED) is None:
        pytest.skip(f"{name} is not in {SHARED}")
    return datasets.load_dataset(name, directory=SHARED)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


# The data sets themselves -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMED, *LOCAL])
def test_a_named_data_set_is_as_large_as_the_registry_says(name: str) -> None:
    known = datasets.DATA_SETS[name]
    stream = datasets.load_dataset(name) if known.shipped else shared(name)
    assert (len(stream), stream.nodes) == (known.events, known.nodes)
    assert (np.diff(stream.t) >= 0).all()
    ids = np.unique(np.concatenate([stream.src, stream.dst]))
    assert np.array_equal(ids, np.arange(stream.nodes))
    assert stream.weight is None
    assert (stream.names is None) == (name not in NAMED)
    assert stream.title == known.title
    assert stream.unit == UNITS.get(name, known.unit)


def test_planes_come_before_airports_in_the_shipped_flights() -> None:
    flights = tidegraph.load_dataset("nyc-flights")
    assert flights.src.max() < flights.dst.min()
    assert flights.names is not None
    # The first departure of the year: N14228 to Houston at 5:17 in New York, 10:17 UTC.
    assert flights.names[int(flights.src[0])] == "N14228"
    assert flights.names[int(flights.dst[0])] == "IAH"
    assert flights.t[0] == np.datetime64("2013-01-01T10:17", "s").astype(np.int64)


def test_a_flight_is_known_to_be_late_only_when_it_has_arrived() -> None:
    flights = datasets.load_dataset("nyc-flights")
    assert flights.labels is not None
    assert flights.node_labels is not None
    diverted = flights.labels == -1
    assert diverted.sum() == 1_175
    known = flights.node_labels
    assert len(known.t) == len(flights) - 1_175
    assert (np.diff(known.t) >= 0).all()
    assert known.label.sum() == (flights.labels == 1).sum()
    table = pq.read_table(Path(datasets.__file__).parent / "data" / "nyc-flights.parquet")
    elapsed_min = (table["arrived"].drop_null().to_numpy() - flights.t[~diverted]) / 60
    assert elapsed_min.min() > 20
    assert elapsed_min.max() < 15 * 60
    assert known.t.sum() == table["arrived"].drop_null().to_numpy().sum()
    assert table.schema.metadata[b"licence"] == b"CC0-1.0"


def test_the_delay_of_a_flight_is_no_input_and_its_label_is_known_a_day_later() -> None:
    flights = shared("flights-3m")
    assert flights.edge_features is None
    assert flights.labels is not None
    assert flights.node_labels is not None
    assert np.array_equal(flights.node_labels.t, flights.t + 24 * 60)
    assert np.array_equal(flights.node_labels.node, flights.src)
    assert np.array_equal(flights.node_labels.label, flights.labels)


def test_a_paper_has_its_class_from_the_year_in_which_it_cites() -> None:
    papers = shared("pubmed-temporal")
    known = papers.node_labels
    assert known is not None
    assert np.array_equal(np.sort(known.node), np.arange(papers.nodes))
    year = np.zeros(papers.nodes, dtype=np.int64)
    year[known.node] = known.t
    assert np.array_equal(year[papers.src], papers.t)
    never_cites = np.setdiff1d(np.arange(papers.nodes), papers.src)
    for node in never_cites[:20].tolist():
        assert year[node] == papers.t[papers.dst == node].min()
    assert np.array_equal(np.unique(known.label), [1, 2, 3])


def test_wikipedia_has_its_labels_and_pages_after_users() -> None:
    wikipedia = shared("wikipedia")
    assert wikipedia.labels is not None
    assert wikipedia.labels.sum() == 217
    assert wikipedia.src.max() == 8_226
    assert wikipedia.dst.min() == 8_227


def test_ratings_are_features_and_not_weights() -> None:
    bitcoin = shared("bitcoin-alpha")
    assert bitcoin.edge_features is not None
    assert bitcoin.edge_features.shape == (len(bitcoin), 1)
    assert (bitcoin.edge_features.min(), bitcoin.edge_features.max()) == (-10, 10)


def test_movielens_has_943_users_and_their_films_with_one_to_five_stars() -> None:
    ratings = shared("movielens-100k")
    assert (ratings.src.max(), ratings.dst.min()) == (942, 943)
    assert ratings.edge_features is not None
    assert np.unique(ratings.edge_features).tolist() == [1, 2, 3, 4, 5]
    pairs = ratings.src * ratings.nodes + ratings.dst
    assert len(np.unique(pairs)) == len(ratings)  # nobody rates a film twice


# Published files ----------------------------------------------------------------------------------


def test_jodie_files_are_read_as_published(tmp_path: Path) -> None:
    header = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
    rows = "0,0,0.0,0,-0.5,0.25\n1,1,36.0,0,1.0,2.0\n0,1,77.0,1,0.0,3.0\n"
    write(tmp_path / "reddit.csv", header + rows)
    stream = datasets.load_dataset("reddit", directory=tmp_path)
    assert stream.src.tolist() == [0, 1, 0]
    assert stream.dst.tolist() == [2, 3, 3]
    assert stream.t.tolist() == [0, 36, 77]
    assert stream.labels is not None
    assert stream.labels.tolist() == [0, 0, 1]
    assert stream.edge_features is not None
    assert stream.edge_features.tolist() == [[-0.5, 0.25], [1.0, 2.0], [0.0, 3.0]]
    assert (stream.unit, stream.title) == ("s", "Posts on Reddit, user to subreddit")


def test_messages_are_read_as_published(tmp_path: Path) -> None:
    write(tmp_path / "CollegeMsg.txt.gz", "1 2 1082040961\n3 4 1082155839\n5 2 1082414391\n")
    stream = datasets.load_dataset("uci", directory=tmp_path)
    assert (len(stream), stream.nodes) == (3, 5)
    assert stream.names is not None
    assert [stream.names[int(node)] for node in stream.src] == [1, 3, 5]
    assert [stream.names[int(node)] for node in stream.dst] == [2, 4, 2]
    assert stream.t.tolist() == [1082040961, 1082155839, 1082414391]


def test_ratings_are_read_as_published_and_sorted(tmp_path: Path) -> None:
    write(
        tmp_path / "soc-sign-bitcoinalpha.csv.gz",
        "7188,1,10,1407470400\n430,1,-3,1376539200\n1,430,2,1400000000\n",
    )
    stream = datasets.load_dataset("bitcoin-alpha", directory=tmp_path)
    assert stream.t.tolist() == [1376539200, 1400000000, 1407470400]
    assert stream.edge_features is not None
    assert stream.edge_features.tolist() == [[-3], [2], [10]]
    assert stream.weight is None
    write(tmp_path / "soc-sign-bitcoinalpha.csv.gz", "7188,1,10\n")
    with pytest.raises(DataError, match=r"lines of src,dst,rating,time.*fetch"):
        datasets.load_dataset("bitcoin-alpha", directory=tmp_path)


FILMS = "196\t242\t3\t881250949\n186\t302\t4\t881250940\n196\t186\t1\t881250941\n"
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + FILMS


@pytest.mark.parametrize(
    ("path", "text"), [("u.data", FILMS), ("ml-100k/u.data", FILMS), ("ml-100k.inter", INTER)]
)
def test_ratings_of_films_are_read_in_all_their_forms(path: str, text: str, tmp_path: Path) -> None:
    write(tmp_path / path, text)
    stream = datasets.load_dataset("movielens-100k", directory=tmp_path)
    assert stream.names is not None
    # 186 is a user, and another node as a film.
    assert stream.names.values.tolist() == ["src 196", "src 186", "dst 242", "dst 302", "dst 186"]
    assert stream.src.tolist() == [1, 0, 0]
    assert stream.dst.tolist() == [3, 4, 2]
    assert stream.t.tolist() == [881250940, 881250941, 881250949]
    assert stream.edge_features is not None
    assert stream.edge_features.tolist() == [[4], [1], [3]]
    assert (stream.weight, stream.unit) == (None, "s")


def test_tgl_files_are_read_as_published(tmp_path: Path) -> None:
    write(tmp_path / "GDELT/edges.csv", ",src,dst,time,ext_roll\n0,0,1,0,0\n1,2,1,3,0\n2,0,2,3,2\n")
    write(tmp_path / "GDELT/labels.csv", ",node,time,label,ext_roll\n0,0,0,7,0\n1,2,3,9,2\n")
    stream = datasets.load_dataset("gdelt", directory=tmp_path)
    assert stream.src.tolist() == [0, 2, 0]
    assert stream.dst.tolist() == [1, 1, 2]
    assert stream.t.tolist() == [0, 3, 3]
    assert stream.unit == "step"
    known = stream.node_labels
    assert known is not None
    assert known.part is not None
    assert (known.node.tolist(), known.t.tolist()) == ([0, 2], [0, 3])
    assert (known.label.tolist(), known.part.tolist()) == ([7, 9], [0, 2])


# Where data is looked for -------------------------------------------------------------------------


def test_an_absent_data_set_says_where_it_was_looked_for_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        datasets.load_dataset("uci", directory=tmp_path / "given")
    message = str(refused.value)
    for words in (
        "uci.csv.gz or CollegeMsg.txt.gz",
        str(tmp_path / "given"),
        str(tmp_path / "data"),
        str(tmp_path / "cache"),
        "set TIDEGRAPH_DATA",
        "tidegraph data fetch uci",
        "https://snap.stanford.edu/data/CollegeMsg.txt.gz",
        "400 kB",
    ):
        assert words in message
    with pytest.raises(DataError, match="set TIDEGRAPH_DATA") as refused:
        datasets.load_dataset("flights-3m")
    assert "fetch" not in str(refused.value)


def test_the_directory_given_comes_before_the_environment_and_the_cache(tmp_path: Path) -> None:
    for place, node in (("cache/tidegraph", 3), ("data", 4), ("given", 5)):
        write(tmp_path / place / "CollegeMsg.txt.gz", f"1 2 10\n{node} 2 20\n")
        stream = datasets.load_dataset("uci", directory=tmp_path / "given")
        assert stream.names is not None
        assert node in stream.names.values


def test_an_altered_compact_file_raises(tmp_path: Path) -> None:
    write(tmp_path / "uci.csv.gz", "src,dst,time\n0,1,1\n")
    with pytest.raises(DataError, match=r"uci\.csv\.gz has SHA-256 .*that of the registry"):
        datasets.load_dataset("uci", directory=tmp_path)
    assert len(datasets.load_dataset(tmp_path / "uci.csv.gz")) == 1


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(TidegraphError, match=r"'wikipedai'.*wikipedia.*\.parquet"):
        datasets.load_dataset("wikipedai")


def test_the_registry_agrees_with_the_published_checksums() -> None:
    listing = SHARED / "SHA256SUMS"
    if not listing.is_file():
        pytest.skip(f"{listing} is absent")
    lines = [line.split() for line in listing.read_text().splitlines()]
    sums = {name: checksum for checksum, name in lines}
    known = dict(pair for data_set in datasets.DATA_SETS.values() for pair in data_set.compact)
    assert known == sums


# Fetching -----------------------------------------------------------------------------------------

MESSAGES = gzip.compress(b"1 2 1082040961\n3 4 1082155839\n", mtime=0)


@dataclass
class Server:
    """A server on this machine that gives the same answer to every request."""

    url: str = ""
    body: bytes = MESSAGES
    announced: int | None = None  # bytes, where not those of the body
    status: int = 200
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.path)
            self.send_response(state.status)
            length = len(state.body) if state.announced is None else state.announced
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(state.body)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        state.url = f"http://127.0.0.1:{httpd.server_port}/CollegeMsg.txt.gz"
        publish(monkeypatch, state.url)
        yield state
        httpd.shutdown()
        thread.join()


def publish(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Has UCI's messages published at another address."""
    uci = datasets.DATA_SETS["uci"]
    file = replace(uci.published[0], url=url)
    monkeypatch.setitem(registry.DATA_SETS, "uci", replace(uci, published=(file,)))


def test_a_download_lands_in_the_cache_with_its_checksum_and_is_read(
    server: Server, tmp_path: Path
) -> None:
    said: list[tuple[int, int, str]] = []
    stream = datasets.load_dataset("uci", download=True, progress=lambda *words: said.append(words))
    assert len(stream) == 2
    path = tmp_path / "cache/tidegraph/CollegeMsg.txt.gz"
    assert path.read_bytes() == MESSAGES
    record = path.with_name("CollegeMsg.txt.gz.sha256").read_text()
    assert record == f"{hashlib.sha256(MESSAGES).hexdigest()}  CollegeMsg.txt.gz\n"
    assert said[-1][:2] == (len(MESSAGES), len(MESSAGES))
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}.sha256"}
    assert len(datasets.load_dataset("uci", download=True)) == 2
    assert datasets.fetch("uci") == (path,)
    assert len(server.requests) == 1


def test_a_file_that_changed_since_it_was_fetched_raises(server: Server, tmp_path: Path) -> None:
    (path,) = datasets.fetch("uci", directory=tmp_path)
    path.write_bytes(gzip.compress(b"9 9 9\n"))
    for attempt in (
        lambda: datasets.load_dataset("uci", directory=tmp_path),
        lambda: datasets.fetch("uci", directory=tmp_path),
    ):
        with pytest.raises(DataError, match=r"CollegeMsg\.txt\.gz has SHA-256 .*delete"):
            attempt()
    path.unlink()
    server.body = gzip.compress(b"8 8 8\n")
    with pytest.raises(DataError, match=r"recorded in .* when it was first fetched"):
        datasets.fetch("uci", directory=tmp_path)
    assert not path.exists()


def test_a_download_that_breaks_off_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.announced = len(MESSAGES) + 10
    with pytest.raises(DataError, match=f"after {len(MESSAGES)} of {len(MESSAGES) + 10} bytes"):
        datasets.fetch("uci", directory=tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []


def test_the_answer_of_a_failing_server_is_quoted(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DataError, match=r"could not be fetched to .*: Not Found; .* put it there"):
        datasets.fetch("uci", directory=tmp_path / "here")
    assert list((tmp_path / "here").iterdir()) == []


def test_what_cannot_be_fetched_says_why(tmp_path: Path) -> None:
    for name, advice in (
        ("nyc-flights", "nyc-flights"),
        ("flights-3m", r"flights-3m\.csv\.gz"),
        ("nope", "one of nyc-flights"),
    ):
        with pytest.raises(DataError, match=advice):
            datasets.fetch(name, directory=tmp_path)


def test_files_with_a_path_of_their_own_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "there/edges.csv", ",src,dst,time,ext_roll\n0,0,1,5,0\n")
    write(tmp_path / "there/labels.csv", ",node,time,label,ext_roll\n0,0,5,1,0\n")
    mag = datasets.DATA_SETS["mag"]
    files = tuple(
        replace(file, url=(tmp_path / "there" / Path(file.path).name).as_uri())
        for file in mag.published
    )
    monkeypatch.setitem(registry.DATA_SETS, "mag", replace(mag, published=files))
    paths = datasets.fetch("mag", directory=tmp_path / "here")
    assert [path.relative_to(tmp_path / "here").as_posix() for path in paths] == [
        "MAG/edges.csv",
        "MAG/labels.csv",
    ]


def archived(path: Path, member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has MovieLens published as an archive at this path."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-100k/README", "read me")
        archive.writestr(member, FILMS)
    films = datasets.DATA_SETS["movielens-100k"]
    file = replace(films.published[0], url=path.as_uri())
    monkeypatch.setitem(registry.DATA_SETS, "movielens-100k", replace(films, published=(file,)))


def test_of_an_archive_only_the_file_that_is_read_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(tmp_path / "ml-100k.zip", "ml-100k/u.data", monkeypatch)
    (path,) = datasets.fetch("movielens-100k", directory=tmp_path / "here")
    assert path == tmp_path / "here/ml-100k/u.data"
    assert path.read_text() == FILMS
    record = path.with_name("u.data.sha256").read_text()
    assert record == f"{hashlib.sha256(FILMS.encode()).hexdigest()}  u.data\n"
    assert sorted(each.name for each in path.parent.iterdir()) == ["u.data", "u.data.sha256"]
    assert len(datasets.load_dataset("movielens-100k", directory=tmp_path / "here")) == 3


def test_an_archive_without_the_file_raises_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(tmp_path / "ml-100k.zip", "elsewhere/u.data", monkeypatch)
    with pytest.raises(DataError, match=r"ml-100k\.zip is not .* that holds ml-100k/u\.data"):
        datasets.fetch("movielens-100k", directory=tmp_path / "here")
    (tmp_path / "ml-100k.zip").write_text("no archive")
    with pytest.raises(DataError, match=r"ml-100k\.zip is not a zip archive"):
        datasets.fetch("movielens-100k", directory=tmp_path / "here")
    assert list((tmp_path / "here/ml-100k").iterdir()) == []


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1 kB"), (45 * 10**9, "45 GB")]
)
def test_sizes_are_said_in_words(size: int, words: str) -> None:
    assert bytes_in_words(size) == words


# Directories --------------------------------------------------------------------------------------


def test_a_damaged_directory_raises(tmp_path: Path) -> None:
    path = datasets.generate_mag_like(tmp_path / "a", nodes=50, edges=100, years=5)
    (path / "labels.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match=r"labels\.parquet cannot be read"):
        datasets.load_dataset(path)
    (path / "edges.parquet").unlink()
    with pytest.raises(DataError, match=r"edges\.parquet cannot be read"):
        datasets.load_dataset(path)
    write(path / "dataset.json", '{"nodes": 1, "title": "", "unit": "s"}')
    with pytest.raises(DataError, match="does not describe a data set"):
        datasets.load_dataset(path)

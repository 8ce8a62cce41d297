"""The known data sets, where their files are, and how to fetch them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from tidegraph.core.durable import put_in_place, sync
from tidegraph.core.errors import DataError
from tidegraph.core.progress import Progress
from tidegraph.core.words import bytes_in_words

__all__ = [
    "DATA_SETS",
    "NAMES",
    "DataSet",
    "Found",
    "PublishedFile",
    "absent",
    "cache_directory",
    "check",
    "data_directories",
    "data_directory",
    "fetch",
    "find",
]


_PIECE = 1 << 20
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file as its authors publish it."""

    path: str  # relative to a directory of data sets, with / as separator
    url: str
    about_bytes: int  # rounded, for display only


@dataclass(frozen=True, slots=True)
class DataSet:
    """What is known about a data set before it is read."""

    name: str
    title: str
    unit: str  # of its times; fractional times are read as microseconds
    events: int
    nodes: int
    citation: str
    compact: tuple[tuple[str, str], ...] = ()  # (file, SHA-256): src,dst,time and further columns
    published: tuple[PublishedFile, ...] = ()  # all are needed
    layout: str = ""  # of the published files: jodie, messages, ratings, tgl
    labelled: bool = False  # whether the compact file has a label per event
    shipped: bool = False

    @property
    def about_bytes(self) -> int:
        """The approximate size of a download."""
        return sum(file.about_bytes for file in self.published)


@dataclass(frozen=True, slots=True)
class Found:
    """A data set found on this machine, its files in the order of the registry."""

    form: str  # shipped, compact or published
    paths: tuple[Path, ...]


_JODIE = (
    "S. Kumar, X. Zhang, J. Leskovec: Predicting Dynamic Embedding Trajectory in Temporal"
    " Interaction Networks. KDD 2019"
)
_BITCOIN = (
    "S. Kumar, F. Spezzano, V. S. Subrahmanian, C. Faloutsos: Edge Weight Prediction in Weighted"
    " Signed Networks. ICDM 2016"
)
_TGL = (
    "H. Zhou, D. Zheng, I. Nisa, V. Ioannidis, X. Song, G. Karypis: TGL: A General Framework for"
    " Temporal GNN Training on Billion-Scale Graphs. VLDB 2022"
)


def _tgl(folder: str, edges_bytes: int, labels_bytes: int) -> tuple[PublishedFile, ...]:
    base = f"https://s3.us-west-2.amazonaws.com/dgl-data/dataset/tgl/{folder}"
    return (
        PublishedFile(f"{folder}/edges.csv", f"{base}/edges.csv", edges_bytes),
        PublishedFile(f"{folder}/labels.csv", f"{base}/labels.csv", labels_bytes),
    )


DATA_SETS: dict[str, DataSet] = {
    data_set.name: data_set
    for data_set in (
        DataSet(
            name="nyc-flights",
            title="Departures from New York's airports in 2013, plane to destination",
            unit="s",
            events=328_521,
            nodes=4_141,
            citation="H. Wickham: nycflights13, from the US Bureau of Transportation Statistics",
            shipped=True,
        ),
        DataSet(
            name="wikipedia",
            title="Edits of Wikipedia pages, user to page",
            unit="s",
            events=157_474,
            nodes=9_227,
            citation=_JODIE,
            compact=(
                (
                    "wikipedia.csv.gz",
                    "9f344cb6de68d72081690e8fae5ac691b99ca7611bb92a1c629f27ea774214de",
                ),
            ),
            published=(
                PublishedFile(
                    "wikipedia.csv", "http://snap.stanford.edu/jodie/wikipedia.csv", 534_000_000
                ),
            ),
            layout="jodie",
            labelled=True,
        ),
        DataSet(
            name="reddit",
            title="Posts on Reddit, user to subreddit",
            unit="s",
            events=672_447,
            nodes=10_984,
            citation=_JODIE,
            published=(
                PublishedFile(
                    "reddit.csv", "http://snap.stanford.edu/jodie/reddit.csv", 2_200_000_000
                ),
            ),
            layout="jodie",
        ),
        DataSet(
            name="uci",
            title="Messages between students (CollegeMsg)",
            unit="s",
            events=59_835,
            nodes=1_899,
            citation=(
                "P. Panzarasa, T. Opsahl, K. M. Carley: Patterns and Dynamics of Users' Behavior"
                " and Interaction. JASIST 60(5), 2009"
            ),
            compact=(
                (
                    "uci.csv.gz",
                    "d1ade75c4aeb403fb927582c34f2d55e0c446cf2ea058e265136401b703ce6d6",
                ),
            ),
            published=(
                PublishedFile(
                    "CollegeMsg.txt.gz",
                    "https://snap.stanford.edu/data/CollegeMsg.txt.gz",
                    400_000,
                ),
            ),
            layout="messages",
        ),
        DataSet(
            name="bitcoin-otc",
            title="Trust ratings on Bitcoin OTC",
            unit="s",
            events=35_592,
            nodes=5_881,
            citation=_BITCOIN,
            compact=(
                (
                    "bitcoin-otc.csv.gz",
                    "840a3bb6d657c708ea1ed566552ed2b88198561e3a9dc17d9639535796088d39",
                ),
            ),
            published=(
                PublishedFile(
                    "soc-sign-bitcoinotc.csv.gz",
                    "https://snap.stanford.edu/data/soc-sign-bitcoinotc.csv.gz",
                    1_000_000,
                ),
            ),
            layout="ratings",
        ),
        DataSet(
            name="bitcoin-alpha",
            title="Trust ratings on Bitcoin Alpha",
            unit="s",
            events=24_186,
            nodes=3_783,
            citation=_BITCOIN,
            compact=(
                (
                    "bitcoin-alpha.csv.gz",
                    "992999c265fdcabd2a13e20185fff2ceb5289881250f38d670c8b82218571087",
                ),
            ),
            published=(
                PublishedFile(
                    "soc-sign-bitcoinalpha.csv.gz",
                    "https://snap.stanford.edu/data/soc-sign-bitcoinalpha.csv.gz",
                    500_000,
                ),
            ),
            layout="ratings",
        ),
        DataSet(
            name="gdelt",
            title="Events in the news between actors (GDELT), steps of 15 minutes",
            unit="step",
            events=191_290_882,
            nodes=16_682,
            citation=_TGL,
            published=_tgl("GDELT", 6_000_000_000, 1_000_000_000),
            layout="tgl",
        ),
        DataSet(
            name="mag",
            title="Citations between papers (Microsoft Academic Graph), by year",
            unit="year",
            events=1_297_748_926,
            nodes=121_751_665,
            citation=_TGL,
            published=_tgl("MAG", 45_000_000_000, 50_000_000),
            layout="tgl",
        ),
        DataSet(
            name="flights-3m",
            title="Flights between US airports in 2001, minutes since 1 January",
            unit="min",
            events=3_000_000,
            nodes=229,
            citation="vega-datasets, from the US Bureau of Transportation Statistics",
            compact=(
                (
                    "flights-3m.csv.gz",
                    "2e5600730366e7533116ed96a673347b233fbddfb94f23e4a7c2d961e31daab3",
                ),
            ),
            labelled=True,
        ),
        DataSet(
            name="pubmed-temporal",
            title="Citations between papers on diabetes, by year",
            unit="year",
            events=44_335,
            nodes=19_717,
            citation=(
                "P. Sen, G. Namata, M. Bilgic, L. Getoor, B. Gallagher, T. Eliassi-Rad: Collective"
                " Classification in Network Data. AI Magazine 29(3), 2008"
            ),
            compact=(
                (
                    "pubmed-temporal.csv.gz",
                    "963174f959c4caa5d18c8891a985e93b964eeda8f1d802e327388d7ac5090747",
                ),
                (
                    "pubmed-temporal_nodelabels.csv.gz",
                    "54f5fd9c43aa5657dccc7c264f58f00a1c0bd1f17b513fb49830aa2218974591",
                ),
            ),
        ),
    )
}
NAMES = tuple(DATA_SETS)


# Where files lie ----------------------------------------------------------------------------------


def data_directory() -> Path | None:
    """Return the directory of data sets that the user names: $TIDEGRAPH_DATA, None if unset."""
    named = os.environ.get("TIDEGRAPH_DATA")
    return Path(named) if named else None


def cache_directory() -> Path:
    """Return where downloads go by default: tidegraph/ in $XDG_CACHE_HOME or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tidegraph"


def data_directories(directory: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Return the directories in which data sets are looked for, in this order."""
    given = None if directory is None else Path(directory)
    return tuple(place for place in (given, data_directory(), cache_directory()) if place)


def find(data_set: DataSet, directory: str | os.PathLike[str] | None = None) -> Found | None:
    """Return the files of a data set in the first directory that has them all, or None."""
    if data_set.shipped:
        path = Path(__file__).parent / "data" / f"{data_set.name}.parquet"
        return Found("shipped", (path,))
    forms = {
        "compact": [name for name, _ in data_set.compact],
        "published": [file.path for file in data_set.published],
    }
    for place in data_directories(directory):
        for form, names in forms.items():
            paths = tuple(place / name for name in names)
            if paths and all(path.is_file() for path in paths):
                return Found(form, paths)
    return None


def absent(data_set: DataSet, directory: str | os.PathLike[str] | None) -> DataError:
    """Return the error that says where a data set was looked for and how to get it."""
    wanted = [", ".join(name for name, _ in data_set.compact)] if data_set.compact else []
    if data_set.published:
        wanted.append(", ".join(file.path for file in data_set.published))
    places = ", ".join(str(place.absolute()) for place in data_directories(directory))
    message = (
        f"data set {data_set.name!r} was not found: looked for {' or '.join(wanted)} in {places};"
        " set TIDEGRAPH_DATA to the directory that holds it"
    )
    if data_set.published:
        addresses = ", ".join(file.url for file in data_set.published)
        message += (
            f", or run `tidegraph data fetch {data_set.name}` (about"
            f" {bytes_in_words(data_set.about_bytes)} from {addresses})"
        )
    return DataError(message)


# Checksums ----------------------------------------------------------------------------------------


def check(data_set: DataSet, found: Found) -> None:
    """Raise DataError if a file differs from its known checksum.

    The registry holds the checksums of compact files. For published files the authors give none:
    `fetch` records the checksum of the first download, and later reads are compared with it.
    """
    if found.form == "compact":
        for path, (_, expected) in zip(found.paths, data_set.compact, strict=True):
            _compare(path, expected, "that of the registry", "give its path to read it anyway")
    elif found.form == "published":
        for path in found.paths:
            if (recorded := _recorded(path)) is not None:
                _compare(
                    path, recorded, f"that in {_record(path).name}", "delete it and fetch it again"
                )


def _compare(path: Path, expected: str, whose: str, advice: str) -> None:
    actual = _sha256(path)
    if actual != expected:
        raise DataError(
            f"{path} has SHA-256 {actual}, but {whose} is {expected}: the file was changed or"
            f" truncated; {advice}"
        )


def _sha256(path: Path) -> str:
    state = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            state.update(piece)
    return state.hexdigest()


def _record(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _recorded(path: Path) -> str | None:
    record = _record(path)
    if not record.is_file():
        return None
    words = record.read_text(encoding="ascii", errors="replace").split()
    if not words or len(words[0]) != 64:
        raise DataError(
            f"{record} holds no SHA-256; delete it, or write the output of sha256sum to it"
        )
    return words[0]


# Fetching -----------------------------------------------------------------------------------------


def fetch(
    name: str,
    *,
    directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Download the published files of a data set and return their paths.

    They go to `directory`, by default `cache_directory()`. A file that exists already is checked
    and not fetched again. A download gets its final name only once it is complete: of the length
    that the server announced, and with the checksum of the first download if there was one.
    """
    data_set = DATA_SETS.get(name)
    if data_set is None:
        raise DataError(f"no data set is called {name!r}; give one of {', '.join(NAMES)}")
    if data_set.shipped:
        raise DataError(f"{name} comes with the package; there is nothing to fetch")
    if not data_set.published:
        files = ", ".join(file for file, _ in data_set.compact)
        raise DataError(
            f"{name} is not published in this form; put {files} into a directory and set"
            " TIDEGRAPH_DATA to it"
        )
    place = cache_directory() if directory is None else Path(directory)
    paths = tuple(place / file.path for file in data_set.published)
    for path, file in zip(paths, data_set.published, strict=True):
        if path.is_file():
            check(data_set, Found("published", (path,)))
        else:
            _download(file, path, progress)
    return paths


def _download(file: PublishedFile, path: Path, progress: Progress | None) -> None:
    import http.client
    import urllib.error
    import urllib.request

    partial = path.with_name(path.name + ".part")
    state = hashlib.sha256()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(file.url, timeout=_TIMEOUT_S) as response,
            partial.open("wb") as target,
        ):
            announced = response.headers.get("Content-Length")
            total = file.about_bytes if announced is None else int(announced)
            received = 0
            while piece := response.read(_PIECE):
                target.write(piece)
                state.update(piece)
                received += len(piece)
                if progress is not None:
                    done = f"{path.name}, {bytes_in_words(received)} of {bytes_in_words(total)}"
                    progress(received, total, done)
            sync(target)
        if announced is not None and received != int(announced):
            raise DataError(
                f"{file.url} ended after {received:,} of {int(announced):,} bytes; try again"
            )
        expected = _recorded(path)
        if expected is not None and expected != state.hexdigest():
            raise DataError(
                f"{file.url} now has SHA-256 {state.hexdigest()}, but {expected} was recorded in"
                f" {_record(path)} when it was first fetched; if the change is intended, delete"
                " that file and fetch again"
            )
        put_in_place(partial, path)
        _record(path).write_text(f"{state.hexdigest()}  {path.name}\n", encoding="ascii")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{file.url} could not be fetched to {path}: {reason}; download it by other means"
            f" (about {bytes_in_words(file.about_bytes)}) and put it there"
        ) from error
    finally:
        partial.unlink(missing_ok=True)

"""The data sets of `datasets.toml`: what is known of them, where their files lie, fetching them."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tidegraph.core.durable import put_in_place, sync
from tidegraph.core.errors import DataError
from tidegraph.core.progress import Progress
from tidegraph.core.words import bytes_in_words

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_PIECE = 1 << 20
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file as its authors publish it."""

    path: str  # relative to a directory of data sets, with / as separator
    url: str
    about_bytes: int  # of the download; rounded, for display only
    member: str = ""  # the path of the file inside the zip archive at `url`, if that is one


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
    copies: tuple[str, ...] = ()  # other names of the published file, or its rows in other files
    layout: str = ""  # of the published files: jodie, messages, movielens, ratings, tgl
    labelled: bool = False  # whether the compact file has a label per event
    shipped: bool = False

    @property
    def files(self) -> list[tuple[str, list[str]]]:
        """The forms that are read and the files of each, relative to a directory of data sets."""
        forms = [
            ("compact", [name for name, _ in self.compact]),
            ("published", [file.path for file in self.published]),
            *(("published", [name]) for name in self.copies),
        ]
        return [(form, names) for form, names in forms if names]

    @property
    def about_bytes(self) -> int:
        """The approximate size of a download."""
        return sum(file.about_bytes for file in self.published)


@dataclass(frozen=True, slots=True)
class Found:
    """A data set found on this machine, its files in the order of the registry."""

    form: str  # shipped, compact or published
    paths: tuple[Path, ...]


def _data_sets() -> dict[str, DataSet]:
    known = tomllib.loads(Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8"))
    found = {}
    for name, fields in known["data_sets"].items():
        fields["citation"] = known["citations"][fields["citation"]]
        fields["compact"] = tuple(fields.get("compact", {}).items())
        fields["copies"] = tuple(fields.get("copies", ()))
        fields["published"] = tuple(PublishedFile(**file) for file in fields.get("published", ()))
        found[name] = DataSet(name, **fields)
    return found


DATA_SETS = _data_sets()
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
    for place in data_directories(directory):
        for form, names in data_set.files:
            paths = tuple(place / name for name in names)
            if all(path.is_file() for path in paths):
                return Found(form, paths)
    return None


def absent(data_set: DataSet, directory: str | os.PathLike[str] | None) -> DataError:
    """Return the error that says where a data set was looked for and how to get it."""
    wanted = [", ".join(names) for _, names in data_set.files]
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
    name: str, *, directory: str | os.PathLike[str] | None = None, progress: Progress | None = None
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
        files = ", ".join(name for name, _ in data_set.compact)
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
        checksum = _extract(partial, file) if file.member else state.hexdigest()
        expected = _recorded(path)
        if expected is not None and expected != checksum:
            raise DataError(
                f"{file.url} now has SHA-256 {checksum}, but {expected} was recorded in"
                f" {_record(path)} when it was first fetched; if the change is intended, delete"
                " that file and fetch again"
            )
        put_in_place(partial, path)
        _record(path).write_text(f"{checksum}  {path.name}\n", encoding="ascii")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        what = f"{file.member} from it" if file.member else "it"
        raise DataError(
            f"{file.url} could not be fetched to {path}: {reason}; download it by other means"
            f" (about {bytes_in_words(file.about_bytes)}) and put {what} there"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _extract(archive: Path, file: PublishedFile) -> str:
    """Replace a downloaded archive by the file wanted from it; return the checksum of that file."""
    import zipfile

    try:
        with zipfile.ZipFile(archive) as found:
            content = found.read(file.member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(
            f"{file.url} is not a zip archive that holds {file.member} ({error}); try again"
        ) from error
    with archive.open("wb") as target:
        target.write(content)
        sync(target)
    return hashlib.sha256(content).hexdigest()

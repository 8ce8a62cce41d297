"""A disk that loses what was not synced: recorded file operations, and what a crash leaves of them.

Only fsync of a file keeps its content, and only fsync of a directory the names in it. What was
written since may be there or not, in any order, and the last write in part.
"""

from __future__ import annotations

import copy
import os
import shutil
import struct
import subprocess
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tidegraph.core.errors import DataError
from tidegraph.core.statefile import digest

WAYS = ("nothing", "names", "contents", "some", "torn")
_HEAD = struct.Struct("<ciqII")
_EXCHANGE = 2
_SKIPPED = "-shm"  # shared memory of SQLite, which a start after a crash makes anew


@dataclass(frozen=True)
class Operation:
    """One call that succeeded: the kind by the letter of recorder.c."""

    kind: str
    descriptor: int
    position: int
    first: bytes
    second: bytes


def recorder(directory: Path) -> Path:
    """Compile the recorder into a directory, and return it; raise if there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sysconfig.get_platform().startswith("linux"):
        raise DataError("recording file operations needs Linux and a C compiler; install gcc")
    library = directory / "recorder.so"
    source = Path(__file__).with_name("recorder.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True
    )
    return library


def recorded(command: Sequence[str], directory: Path, work: Path) -> list[Operation]:
    """Run a command, and return what it did to the files in a directory, which it finds empty."""
    record = work / "operations"
    record.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": str(recorder(work)),
        "TIDEGRAPH_RECORD": str(record),
        "TIDEGRAPH_RECORDED": str(directory.resolve()),
    }
    subprocess.run(command, env=environment, check=True)
    return list(_operations(record.read_bytes()))


def _operations(content: bytes) -> Iterator[Operation]:
    at = 0
    while at < len(content):
        kind, descriptor, position, *sizes = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        texts = []
        for size in sizes:
            texts.append(content[at : at + size])
            at += size
        yield Operation(kind.decode(), descriptor, position, *texts)


@dataclass(eq=False)
class _File:
    """What was written to a file, and how much of it is safe."""

    safe: bytearray = field(default_factory=bytearray)
    later: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut there

    def content(self, kept: Sequence[bool] | None = None) -> bytes:
        """Return what is safe, with those of the later writes that are kept: by default all."""
        found = bytearray(self.safe)
        for place, (position, written) in enumerate(self.later):
            if kept is None or kept[place]:
                _write(found, position, written)
        return bytes(found)

    def sync(self) -> None:
        for position, written in self.later:
            _write(self.safe, position, written)
        self.later.clear()


def _write(content: bytearray, position: int, written: bytes | None) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if written is None:
        del content[position:]
    else:
        content[position : position + len(written)] = written


@dataclass(eq=False)
class _Directory:
    """The names in a directory, now and as they are safe."""

    now: dict[str, _File | _Directory] = field(default_factory=dict)
    safe: dict[str, _File | _Directory] = field(default_factory=dict)


# Names that change together: directory, name, and what it names from then on.
_Change = list[tuple[_Directory, str, "_File | _Directory | None"]]


class Disk:
    """What operations on a directory lead to, and what is left of it where the machine stops."""

    def __init__(self, root: Path) -> None:
        self._root = _Directory()
        self._prefix = str(root.resolve())
        self._open: dict[int, _File | _Directory] = {}
        self._later: list[_Change] = []  # names that are not safe
        self._last: tuple[_File, int] | None = None  # the last write, and its place

    def _found(self, path: bytes) -> tuple[_Directory, str]:
        """Return the directory of a path, and its name in it."""
        parts = [each for each in os.fsdecode(path)[len(self._prefix) :].split("/") if each]
        at = self._root
        for part in parts[:-1]:
            below = at.now[part]
            assert isinstance(below, _Directory)
            at = below
        return at, parts[-1] if parts else ""

    def _rename(self, change: _Change) -> None:
        for directory, name, what in change:
            if what is None:
                directory.now.pop(name, None)
            else:
                directory.now[name] = what
        self._later.append(change)

    def apply(self, operation: Operation) -> None:
        """Do what a process did."""
        kind, descriptor = operation.kind, operation.descriptor
        if kind == "o":
            at, name = self._found(operation.first)
            if name and name not in at.now:
                self._rename([(at, name, _File())])
            self._open[descriptor] = at.now[name] if name else at
            opened = self._open[descriptor]
            if operation.position & os.O_TRUNC and isinstance(opened, _File):
                opened.later.append((0, None))
        elif kind == "c":
            del self._open[descriptor]
        elif kind in "wt":
            file = self._open[descriptor]
            assert isinstance(file, _File)
            file.later.append((operation.position, operation.first if kind == "w" else None))
            if kind == "t" and len(file.content()) < operation.position:
                file.later[-1] = (operation.position, b"")
            self._last = (file, len(file.later) - 1)
        elif kind == "s":
            self._sync(self._open[descriptor])
        elif kind == "d":
            at, name = self._found(operation.first)
            self._rename([(at, name, _Directory())])
        elif kind == "u":
            at, name = self._found(operation.first)
            self._rename([(at, name, None)])
        else:
            (of_a, a), (of_b, b) = self._found(operation.first), self._found(operation.second)
            left = of_b.now[b] if operation.position & _EXCHANGE else None
            if kind == "l":
                self._rename([(of_b, b, of_a.now[a])])
            else:
                self._rename([(of_b, b, of_a.now[a]), (of_a, a, left)])

    def _sync(self, what: _File | _Directory) -> None:
        if isinstance(what, _File):
            what.sync()
            return
        waiting = []
        for change in self._later:
            if any(directory is what for directory, _, _ in change):
                _keep(change)
            else:
                waiting.append(change)
        self._later = waiting

    def now(self) -> dict[str, bytes | None]:
        """Return what every path holds if nothing is lost; None for a directory."""
        return _paths(self._root, lambda at: at.now, lambda file: file.content())

    def left(self, way: str, generator: np.random.Generator) -> dict[str, bytes | None]:
        """Return what every path holds after a crash in one of the `WAYS`.

        These say what is kept of what was not synced: nothing, names or contents alone, some of
        both, or all but the end of the last write.
        """
        disk = copy.deepcopy(self)
        kept = len(disk._later)
        if way in ("nothing", "contents"):
            kept = 0
        elif way == "some":
            kept = int(generator.integers(0, kept + 1))
        for change in disk._later[:kept]:
            _keep(change)

        def content(file: _File) -> bytes:
            if way in ("nothing", "names"):
                return bytes(file.safe)
            if way == "some":
                return file.content((generator.random(len(file.later)) < 0.5).tolist())
            if way == "torn" and disk._last is not None and disk._last[0] is file:
                place = disk._last[1]
                if place < len(file.later):
                    position, written = file.later[place]
                    if written:
                        cut = int(generator.integers(0, len(written)))
                        file.later[place] = (position, written[:cut])
            return file.content()

        return _paths(disk._root, lambda at: at.safe, content)


def _keep(change: _Change) -> None:
    for directory, name, what in change:
        if what is None:
            directory.safe.pop(name, None)
        else:
            directory.safe[name] = what


def _paths(
    root: _Directory,
    names: Callable[[_Directory], dict[str, _File | _Directory]],
    content: Callable[[_File], bytes],
) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    waiting = [("", root)]
    while waiting:
        prefix, at = waiting.pop()
        for name, what in sorted(names(at).items()):
            if isinstance(what, _Directory):
                found[prefix + name] = None
                waiting.append((f"{prefix}{name}/", what))
            elif not name.endswith(_SKIPPED):
                found[prefix + name] = content(what)
    return found


def write_paths(paths: dict[str, bytes | None], root: Path) -> None:
    """Make what a crash has left."""
    for name, content in sorted(paths.items()):
        if content is None:
            (root / name).mkdir(parents=True)
        else:
            (root / name).write_bytes(content)


def read_paths(root: Path) -> dict[str, bytes | None]:
    """Return what every path in a directory holds, as `Disk.now` does."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if not path.name.endswith(_SKIPPED)
    }


def digest_of(paths: dict[str, bytes | None]) -> str:
    """Return a digest by which equal remains are recognised."""
    parts = []
    for name, content in sorted(paths.items()):
        parts += [name.encode(), b"\0/" if content is None else b"\0" + content, b"\0\0"]
    return digest(parts)

"""The file of a history: named arrays that are mapped, written atomically, checksummed.

Layout: a prefix, the arrays, each aligned, and a header in JSON, which is written last, since it
lists the place, size and digest of every array. The prefix says where the header is, and holds its
digest.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.durable import link_or_copy, not_written, put_in_place, replace_file
from tidegraph.core.errors import StateFileError

__all__ = ["HistoryFile", "Take"]

Bytes: TypeAlias = NDArray[np.uint8]
Take: TypeAlias = Callable[[str, Bytes], None]

_MAGIC = b"tidegraph hist.\n"
_VERSION = 2
_PREFIX = struct.Struct("<16sIIQ16s")  # magic, version, header bytes, place and digest of header
_ALIGNMENT = 64
_COPY_AGAIN = "copy it again from the original, or record again"


class HistoryFile:
    """The arrays of a history, mapped from its file, and their description.

    path: where it was; None for a file without a name, which exists for as long as this object.
    """

    def __init__(self, file: BinaryIO, path: Path | None) -> None:
        self.path = path
        source = "the history" if path is None else str(path)
        self._stat = os.fstat(file.fileno())
        size = self._stat.st_size
        file.seek(0)
        prefix = file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size or prefix[:16] != _MAGIC:
            raise StateFileError(f"{source} is not the history of a stream; {_COPY_AGAIN}")
        _, self.version, length, place, digest = _PREFIX.unpack(prefix)
        if self.version != _VERSION:
            raise StateFileError(
                f"{source} has format version {self.version}; this release reads version"
                f" {_VERSION}: open it with the release that wrote it, or train or record again"
            )
        if size != place + length:
            raise StateFileError(
                f"{source} is damaged: it holds {size} bytes, {place + length} were written;"
                f" {_COPY_AGAIN}"
            )
        file.seek(place)
        header = file.read(length)
        if _digest(header) != digest:
            raise StateFileError(
                f"{source} was altered: its header does not match its digest; {_COPY_AGAIN}"
            )
        about = json.loads(header)
        self.description: dict[str, Any] = about["description"]
        memory = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        self.arrays: dict[str, Bytes] = {}
        self._digests: dict[str, str] = {}
        for name, (first, count, expected) in about["arrays"].items():
            self.arrays[name] = memory[first : first + count]
            self._digests[name] = expected

    @classmethod
    def open(cls, path: Path) -> HistoryFile:
        """Map a file. Sizes and the header are checked; `verify` compares everything."""
        try:
            with open(path, "rb") as file:
                return cls(file, path)
        except OSError as error:
            raise StateFileError(f"cannot read {path}: {error.strerror or error}") from error

    @classmethod
    def create(
        cls,
        path: Path | None,
        near: Path | None,
        description: dict[str, Any],
        produce: Callable[[Take], object],
    ) -> HistoryFile:
        """Write a file atomically and map it. No other process may write it meanwhile.

        path: None for one without a name, in the directory `near`; if that is None or cannot be
            written to, in the system's temporary directory.
        produce: called with the function that takes the arrays, one after the other.
        """

        def write(file: BinaryIO) -> None:
            _write(file, description, produce)

        if path is not None:
            replace_file(path, write, only_writer=True)
            return cls.open(path)
        directory = near if near is not None and os.access(near, os.W_OK) else None
        try:
            with tempfile.TemporaryFile(dir=directory) as file:
                write(file)
                file.flush()
                return cls(file, None)
        except OSError as error:
            raise not_written(Path(directory or tempfile.gettempdir()), error) from error

    def save(self, path: Path) -> None:
        """Give the file another name, replacing what is there; copy it if it has lost its own."""
        if self._is_at(path):  # renaming a file to another name of its own does nothing
            return
        if self.path is not None and self._is_at(self.path):
            aside = path.with_name(f"{path.name}.new")
            aside.unlink(missing_ok=True)
            link_or_copy(self.path, aside)
            put_in_place(aside, path)
            return

        def produce(take: Take) -> None:
            for name, array in self.arrays.items():
                take(name, array)

        replace_file(path, lambda file: _write(file, self.description, produce), only_writer=True)

    def _is_at(self, path: Path) -> bool:
        """Return whether the file has this name; it may have been moved or replaced."""
        try:
            return os.path.samestat(path.stat(), self._stat)
        except OSError:
            return False

    def verify(self) -> None:
        """Compare every byte with its digest."""
        for name, array in self.arrays.items():
            if _digest(array).hex() != self._digests[name]:
                raise StateFileError(
                    f"{self.path} was altered: {name} does not match its digest; {_COPY_AGAIN}"
                )


def _write(file: BinaryIO, description: dict[str, Any], produce: Callable[[Take], object]) -> None:
    arrays: dict[str, tuple[int, int, str]] = {}
    file.write(bytes(_PREFIX.size))

    def take(name: str, array: Bytes) -> None:
        file.write(bytes(-file.tell() % _ALIGNMENT))
        arrays[name] = file.tell(), len(array), _digest(array).hex()
        file.write(array.data)

    produce(take)
    header = json.dumps({"description": description, "arrays": arrays}).encode()
    place = file.tell()
    file.write(header)
    file.seek(0)
    file.write(_PREFIX.pack(_MAGIC, _VERSION, len(header), place, _digest(header)))


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()

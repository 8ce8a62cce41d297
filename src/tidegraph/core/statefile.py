"""One file of named arrays and a description: written atomically, versioned, checksummed.

Layout: a magic line, the length and digest of a JSON header, the header, then the arrays in
sequence. The header lists the type, shape, offset and digest of every array. Reading executes no
code from the file and verifies every digest before it uses the content.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.durable import replace_file
from tidegraph.core.errors import StateFileError

MAGIC = b"tidegraph state\n"
_VERSION = 1
_PREFIX = struct.Struct("<16sIQ16s")  # magic, version, header bytes, header digest
_TYPES = {"uint8", "uint32", "uint64", "int64", "float32", "float64"}
_CHUNK = 1 << 24


def digest(parts: Iterable[Any]) -> str:
    """Return the BLAKE2 digest of bytes and arrays, one part after the other."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(as_bytes(part) if isinstance(part, np.ndarray) else part)
    return state.hexdigest()


def as_bytes(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array, in the order of its rows."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _write_to(file: BinaryIO, description: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    entries, offset = [], 0
    for name, array in arrays.items():
        if array.dtype.name not in _TYPES:
            raise TypeError(f"{name} has dtype {array.dtype}, which a state file does not hold")
        entries.append(
            {
                "name": name,
                "dtype": array.dtype.name,
                "shape": list(array.shape),
                "offset": offset,
                "digest": digest([array]),
            }
        )
        offset += array.nbytes
    header = json.dumps({"description": description, "arrays": entries, "bytes": offset}).encode()
    file.write(_PREFIX.pack(MAGIC, _VERSION, len(header), bytes.fromhex(digest([header]))))
    file.write(header)
    for array in arrays.values():
        file.write(as_bytes(array))


def _damaged(source: str, problem: str) -> StateFileError:
    advice = "copy it again from the original, or save the state again"
    return StateFileError(f"{source} {problem}; {advice}")


def _read_header(file: BinaryIO, source: str) -> dict[str, Any]:
    """Return the header, and leave the file where the arrays begin."""
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size or prefix[:16] != MAGIC:
        raise StateFileError(f"{source} is not a tidegraph state file")
    _, version, length, expected = _PREFIX.unpack(prefix)
    if version != _VERSION:
        raise StateFileError(
            f"{source} has format version {version}; this release reads version {_VERSION}: "
            "load it with the release that saved it"
        )
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    if length > size:
        raise _damaged(source, "is truncated inside its header")
    header_bytes = file.read(length)
    if digest([header_bytes]) != expected.hex():
        raise _damaged(source, "was altered: its header does not match its digest")
    header: dict[str, Any] = json.loads(header_bytes)
    held, saved = size - length, header["bytes"]
    if held != saved:
        raise _damaged(source, f"holds {held} bytes of arrays where {saved} were saved")
    return header


def read_from(file: BinaryIO, source: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return what `read` does from an open file; `source` is what errors call it."""
    header = _read_header(file, source)
    arrays: dict[str, NDArray[Any]] = {}
    for entry in header["arrays"]:
        array = np.empty(entry["shape"], dtype=entry["dtype"])
        view = as_bytes(array)
        for at in range(0, len(view), _CHUNK):
            view[at : at + _CHUNK] = file.read(min(_CHUNK, len(view) - at))
        if digest([view]) != entry["digest"]:
            raise _damaged(source, f"was altered: {entry['name']} does not match its digest")
        arrays[entry["name"]] = array
    return header["description"], arrays


def write(path: str | Path, description: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write the file atomically: an existing file of that name stays until the new one is safe."""
    replace_file(Path(path), lambda file: _write_to(file, description, arrays))


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the description and the arrays after verifying every digest."""
    try:
        with open(path, "rb") as file:
            return read_from(file, str(path))
    except OSError as error:
        raise StateFileError(f"cannot read {path}: {error.strerror or error}") from error


def describe(path: str | Path) -> dict[str, Any]:
    """Return the description in a file, without reading its arrays."""
    try:
        with open(path, "rb") as file:
            description: dict[str, Any] = _read_header(file, str(path))["description"]
            return description
    except OSError as error:
        raise StateFileError(f"cannot read {path}: {error.strerror or error}") from error


def pack(description: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Return the bytes that `write` would put into a file."""
    buffer = io.BytesIO()
    _write_to(buffer, description, arrays)
    return buffer.getvalue()


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the description and the arrays that `pack` was given."""
    return read_from(io.BytesIO(data), "the saved state")

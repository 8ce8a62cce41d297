"""Atomic, durable file replacement and directories with a single writer."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import get_native_id
from typing import Any

from tidegraph.core.errors import StorageError

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def replace_file(
    path: Path, content: str | Callable[[Any], object], *, only_writer: bool = False
) -> None:
    """Replace a file atomically and durably: after a crash it is either complete or unchanged.

    content: a string, or a function that writes to the open file. If several threads or processes
        write the same file, the last one wins.
    only_writer: whether no other process writes it meanwhile. A temporary file left by a killed
        process, which may be large, is then overwritten instead of left behind.
    """
    aside = path.with_name(f"{path.name}.{'new' if only_writer else f'part{get_native_id()}'}")
    try:
        with open(aside, "wb") as file:
            if isinstance(content, str):
                file.write(content.encode())
            else:
                content(file)
            sync(file)
        put_in_place(aside, path)
    except OSError as error:
        raise not_written(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()  # present only after an error


def put_in_place(aside: Path, path: Path) -> None:
    """Rename a file or directory to its final name, replacing what was there, durably.

    Sync the content first: after a power failure either name may exist, but the new name must never
    exist without its content.
    """
    os.replace(aside, path)
    sync_names(path.parent)


def exchange(aside: Path, path: Path) -> None:
    """Exchange two directories durably: at every moment `path` is one of them.

    Only where the system cannot (Linux can), there is a moment without `path`; the one that was
    there then is next to it, with `.replaced` after its name.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    at_once = getattr(libc, "renameat2", None)
    both = os.fsencode(aside.absolute()), os.fsencode(path.absolute())
    if at_once is None or at_once(_HERE, both[0], _HERE, both[1], _EXCHANGE) != 0:
        between = path.with_name(f".{path.name}.replaced")
        os.replace(path, between)
        os.replace(aside, path)
        os.replace(between, aside)
    sync_names(path.parent)


def sync_names(directory: Path) -> None:
    """Let the names in a directory survive a power failure, and the deletion of others."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)  # the name is part of the directory, which needs its own sync
    finally:
        os.close(handle)


def sync_tree(directory: Path) -> None:
    """Let a directory survive a power failure with all that is inside."""
    for path in (directory, *directory.rglob("*")):
        if path.is_dir() or path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def link_or_copy(source: str | Path, target: str | Path) -> str:
    """Give a file that nobody changes a second name; copy it where the file system cannot."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
    return str(target)


def sync(*files: Any) -> None:
    """Flush open files to disk."""
    for file in files:
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Lock a directory against other writers; the lock ends with the process, however it ends."""
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(
                error.errno, f"{directory} is locked by another writer; wait until it has finished"
            ) from None
        except OSError as error:
            raise StorageError(
                error.errno,
                f"{directory} cannot be locked ({error.strerror}); use a file system that supports"
                " flock",
            ) from error
        yield
    finally:
        os.close(handle)


def not_written(path: Path, error: OSError) -> StorageError:
    """Return the error for a file that could not be written."""
    return StorageError(
        error.errno,
        f"cannot write ({error.strerror}); data stored before is intact: make room and call"
        " again to continue from there",
        str(path),
    )

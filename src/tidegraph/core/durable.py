"""Files that are whole or as they were, also after a crash, and directories with one writer."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidegraph.core.errors import StorageError

__all__ = [
    "link_or_copy",
    "not_written",
    "only_writer",
    "put_in_place",
    "replace_file",
    "sync",
]


def replace_file(
    path: Path, content: str | Callable[[Any], object], *, only_writer: bool = False
) -> None:
    """Writes a file aside, makes it durable and puts it in place: it is whole or as it was.

    content: a text, or what writes to the open file. Other processes may write the same file; the
        last one stays.
    only_writer: whether nobody else writes it meanwhile. What a killed process has left aside,
        which may be large, is then written over instead of being left.
    """
    aside = path.with_name(f"{path.name}.{'new' if only_writer else f'part{os.getpid()}'}")
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
            aside.unlink()  # what an error has left of it


def put_in_place(aside: Path, path: Path) -> None:
    """Gives a file, or a directory, its final name; what was in its place is gone.

    Its content has to be safe before: after a power failure either name may be there, and never
    the new one without what it stands for.
    """
    os.replace(aside, path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)  # a new name is part of its directory, which is written like any file
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
    """Returns when all that was written to open files is on the disk."""
    for file in files:
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Holds a directory against other writers; ends with the process, whatever ends it."""
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(
                error.errno, f"{directory} is being written to already; wait until that has ended"
            ) from None
        except OSError as error:
            raise StorageError(
                error.errno,
                f"{directory} cannot be held against other writers ({error.strerror}); give one on"
                " a file system that knows flock",
            ) from error
        yield
    finally:
        os.close(handle)


def not_written(path: Path, error: OSError) -> StorageError:
    return StorageError(
        error.errno,
        f"cannot write ({error.strerror}); what was recorded before is intact: make room and call"
        " again to go on from there",
        str(path),
    )

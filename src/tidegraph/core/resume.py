"""Resume interrupted work: its inputs decide whether it is reused, continued or rejected.

The inputs are all that the outcome depends on, in plain types. Work with the same inputs continues
what an earlier process left; work with other inputs is redone or rejected, never mixed with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegraph.core.durable import not_written, replace_file, sync_names
from tidegraph.core.errors import StateFileError, StorageError, TidegraphError

_BEING_WRITTEN = re.compile(r".*\.part\d*")


def fingerprint(**inputs: Any) -> str:
    """Return a digest of the inputs that does not depend on their order."""
    text = json.dumps(inputs, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def resume_or_create(
    directory: Path,
    inputs: Mapping[str, Any],
    *,
    file: str,
    kind: str,
    advice: str,
    result: Path | None = None,
) -> bool:
    """Return whether `directory` holds work with these inputs; make it the place for it otherwise.

    The inputs are stored in `file`. Raise StateFileError if the directory holds work with other
    inputs, or something else.

    kind: what the work is, as in "a sweep". advice: what to do about other work.
    result: exists once work has produced something worth keeping; before that other inputs simply
        replace those in the file. None: the inputs are never replaced.
    """
    path = directory / file
    now: dict[str, Any] = json.loads(json.dumps(inputs))
    if path.exists():
        before = read_json(path)
        if _first_difference(before, now) is None:
            return True
        if result is None or result.exists():
            require_same(directory, before, now, kind=kind, advice=advice)
    else:
        make_directory(directory)
        require_free(directory, kind)
    write_json(path, now)
    return False


def require_same(
    directory: Path,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    *,
    kind: str,
    advice: str,
    error: type[TidegraphError] = StateFileError,
) -> None:
    """Raise `error`, naming the first input that differs, unless `before` has all of `now`."""
    found = _first_difference(before, now)
    if found is not None:
        name, old, new = found
        raise error(
            f"{directory} holds {kind} with {name} {old!r}, and this one has {new!r}; {advice}"
        )


def _first_difference(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[str, Any, Any] | None:
    """Return name, old and new value of the first input that differs; inner ones as `a.b`."""
    for name, value in now.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            inner = _first_difference(old, {**dict.fromkeys(old), **value})
            if inner is not None:
                return f"{name}.{inner[0]}", *inner[1:]
        elif old != value:
            return name, old, value
    return None


def make_directory(directory: Path) -> None:
    """Create a directory and its parents, durably, unless it exists."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for each in missing:
            sync_names(each.parent)
    except FileExistsError:
        raise StorageError(f"{directory} is a file; give a new directory") from None
    except OSError as error:
        raise not_written(directory, error) from error


def require_free(
    directory: Path,
    kind: str,
    *,
    own: re.Pattern[str] = _BEING_WRITTEN,
    error: type[TidegraphError] = StateFileError,
) -> None:
    """Raise `error` if a directory holds more than files that a killed write left, named `own`."""
    for found in directory.iterdir():
        if not own.fullmatch(found.name):
            raise error(
                f"{directory} is not {kind}: it holds {found.name}; give an empty or a new"
                " directory"
            )


def write_json(path: Path, content: Any) -> None:
    """Replace a file by `content` as JSON, at once."""
    replace_file(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise StateFileError if it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        raise StateFileError(f"{path} is damaged; delete it to have it computed again") from None

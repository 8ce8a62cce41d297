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

from tidegraph.core.durable import not_written, replace_file
from tidegraph.core.errors import StateFileError

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
    inputs, and name the first that differs, or if it holds something else.

    kind: what the work is, as in "a sweep". advice: what to do about other work.
    result: exists once work has produced something worth keeping; before that other inputs simply
        replace those in the file. None: the inputs are never replaced.
    """
    path = directory / file
    now: dict[str, Any] = json.loads(json.dumps(inputs))
    if path.exists():
        before = read_json(path)
        differing = [name for name, value in now.items() if before.get(name) != value]
        if not differing:
            return True
        if result is None or result.exists():
            name = differing[0]
            raise StateFileError(
                f"{directory} holds {kind} with {name} {before.get(name)!r}, and this one has"
                f" {now[name]!r}; {advice}"
            )
    elif directory.exists() and not all(
        _BEING_WRITTEN.fullmatch(found.name) for found in directory.iterdir()
    ):
        raise StateFileError(f"{directory} is not {kind}; move it away, or give another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(directory, error) from error
    write_json(path, now)
    return False


def write_json(path: Path, content: Any) -> None:
    """Replace a file by `content` as JSON, at once."""
    replace_file(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise StateFileError if it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        raise StateFileError(f"{path} is damaged; delete it to have it computed again") from None

"""The digest of the code that computed a result."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# User interface: no computed number depends on it.
_FACES = ("__main__.py", "cli", "core/display.py")


@cache
def code_digest() -> str:
    """Return a digest of the package's sources and its native module, as they are on disk.

    The code changes between releases while the version does not. Cached results are keyed by this
    digest, so that results of different code are never mixed up. The command line is left out.
    """
    files = [
        path
        for path in sorted(_PACKAGE.rglob("*.py"))
        if not any(path.is_relative_to(_PACKAGE / face) for face in _FACES)
    ]
    native = find_spec("tidegraph._native")
    if native is not None and native.origin is not None:
        files.append(Path(native.origin))
    state = hashlib.blake2b(digest_size=16)
    for path in files:
        content = path.read_bytes()
        name = path.relative_to(_PACKAGE) if path.is_relative_to(_PACKAGE) else path.name
        state.update(f"{name} {len(content)}\n".encode())
        state.update(content)
    return state.hexdigest()

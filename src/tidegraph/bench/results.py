"""What every result is stored with: the command, machine, version and commit it comes from."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tidegraph.core import machine
from tidegraph.core.durable import replace_file


def circumstances(command: str) -> dict[str, Any]:
    """Return how a result was made: the command, the machine, the version and the commit."""
    return {
        "command": without_paths(command),
        "machine": machine.describe(),
        "version": version("tidegraph"),
        **_commit(),
    }


def script_command() -> str:
    """Return the command line of a running script."""
    return shlex.join(["python", *sys.argv])


def without_paths(command: str) -> str:
    """Return a command with absolute paths shortened to their last part.

    Where somebody keeps data and results is nobody else's business.

    >>> without_paths("python bench.py --output /home/ann/out.json --data=/mnt/data --fast")
    'python bench.py --output out.json --data=data --fast'
    """

    def shortened(word: str) -> str:
        option, equals, value = word.partition("=")
        if equals and option.startswith("-"):
            return option + equals + shortened(value)
        return Path(word).name if Path(word).is_absolute() else word

    return shlex.join(map(shortened, shlex.split(command)))


def write_json(results: Mapping[str, Any], path: Path) -> None:
    """Write results atomically."""
    replace_file(path, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def _commit() -> dict[str, Any]:
    """Return the commit of the source tree this package runs from, and whether it was changed."""
    package = Path(__file__).parents[1]
    root = package.parents[1]
    if not (root / ".git").exists() or package != root / "src" / "tidegraph":
        return {"commit": None}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "src", "native", "CMakeLists.txt")
        return {"commit": git("rev-parse", "HEAD"), "changed_since_commit": bool(changed)}
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None}

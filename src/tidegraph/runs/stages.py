"""Stages: the pieces of a run, each reused, resumed or redone by a fingerprint of its inputs.

`stages.json` says which stages were begun and finished with which fingerprint. What a stage leaves
is removed only after `stages.json` has ceased to vouch for it, and all of it at once, so that a
process can be killed at any moment.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tidegraph.core import resume
from tidegraph.core.durable import put_in_place
from tidegraph.core.errors import StateFileError
from tidegraph.core.provenance import code_digest
from tidegraph.core.resume import write_json

FILE = "stages.json"
OF_SEEDS = ("record", "train", "score")  # stages that every seed of a run has
# What is being written, or was when the process was killed.
UNFINISHED = re.compile(
    r"(config\.toml|command\.txt|report\.html|\w+\.json|trajectories|model)\.part\d*"
)
_REMOVED = ".removed"  # where directories wait to be deleted
_log = logging.getLogger(__name__)


def fingerprint(**inputs: Any) -> str:
    """Return a digest of the inputs of a stage and of the code that computes it."""
    return resume.fingerprint(version=version("tidegraph"), code=code_digest(), **inputs)


@dataclass
class Spent:
    """The seconds a stage has taken so far, and the run that spent them if it was another one."""

    elapsed_s: float
    taken_from: str | None = None


class Stages:
    """Which stages were begun and finished in a directory, with which inputs, in what time."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._path = directory, directory / FILE
        self._entries = read_stages(directory)
        self._done: set[str] = set()  # by this process
        self.reused: list[str] = []
        if not self._path.exists():
            # Written first: this file tells a run from any other directory.
            write_json(self._path, self._entries)
        for leftover in self._leftovers():
            delete(leftover)

    def seeds(self) -> list[int]:
        """Return the seeds of which some stage was begun, by this run or an earlier one here."""
        names = rf"({'|'.join(OF_SEEDS)})/(\d+)"
        found = (re.fullmatch(names, name) for name in self._entries)
        return sorted({int(match[2]) for match in found if match})

    def _leftovers(self) -> Iterator[Path]:
        """Yield what a process that was killed was removing or writing."""
        yield self._directory / _REMOVED
        for place in (self._directory, *(self._directory / f"seed-{n}" for n in self.seeds())):
            if place.is_dir():
                yield from (path for path in place.iterdir() if UNFINISHED.fullmatch(path.name))

    def finished(self, name: str, fingerprint: str, *outputs: Path) -> bool:
        """Return whether the stage was finished with these inputs and its outputs are there."""
        entry = self._entries.get(name, {})
        done = entry.get("finished") == fingerprint and all(path.exists() for path in outputs)
        if done and name not in self._done:
            self._done.add(name)
            self.reused.append(name)
            _log.info("%s: reused", name)
        return done

    @contextlib.contextmanager
    def stage(self, name: str, fingerprint: str, *outputs: Path) -> Iterator[Spent]:
        """Mark a stage as begun and then as finished; first remove outputs of other inputs."""
        entry = self._entries.get(name, {})
        if entry.get("begun") != fingerprint:
            # Withdrawn as a whole: after a kill, nothing may continue from half-removed outputs.
            self._withdraw([name], *outputs)
            entry = {}
        begun_at, finished = time.perf_counter(), False
        spent = Spent(entry.get("elapsed_s", 0.0), entry.get("taken_from"))
        self._note(name, fingerprint, None, spent)
        _log.info("%s: begun", name)
        try:
            yield spent
            finished = True
            self._done.add(name)
        finally:
            spent.elapsed_s += time.perf_counter() - begun_at
            how = "finished" if finished else "interrupted"
            _log.info("%s: %s (%.1f s)", name, how, spent.elapsed_s)
            self._note(name, fingerprint, fingerprint if finished else None, spent)

    def forget_output(self, name: str, output: Path) -> None:
        """Remove an output of a stage, which may be redone later; the time it took stays known."""
        entry = self._entries.get(name)
        if entry is not None and entry["finished"] is not None:
            entry["finished"] = None
            write_json(self._path, self._entries)
        self._remove(output)

    def forget_seed(self, seed: int) -> None:
        """Remove everything that belongs to a seed."""
        self._withdraw([f"{kind}/{seed}" for kind in OF_SEEDS], self._directory / f"seed-{seed}")

    def _withdraw(self, names: Sequence[str], *outputs: Path) -> None:
        known = [name for name in names if self._entries.pop(name, None) is not None]
        if known:
            write_json(self._path, self._entries)
        for path in outputs:
            self._remove(path)

    def _remove(self, path: Path) -> None:
        """Remove a file or a directory at once: a kill leaves it whole or not at all."""
        if path.is_dir():
            removed = self._directory / _REMOVED
            delete(removed)
            put_in_place(path, removed)
            path = removed
        delete(path)

    def _note(self, name: str, begun: str, finished: str | None, spent: Spent) -> None:
        entry = {"begun": begun, "finished": finished, "elapsed_s": spent.elapsed_s}
        if spent.taken_from is not None:
            entry["taken_from"] = spent.taken_from
        self._entries[name] = entry
        write_json(self._path, self._entries)

    def taken_from(self, names: Iterable[str]) -> dict[str, str]:
        """Return which of these stages came from other runs, and the directories of those."""
        found = {name: self._entries.get(name, {}).get("taken_from") for name in names}
        return {name: whose for name, whose in found.items() if whose is not None}

    def elapsed_s(self, names: Iterable[str]) -> dict[str, float]:
        """Return seconds by kind of stage, summed over seeds and over all processes."""
        spent: dict[str, float] = {}
        for name in names:
            kind = name.partition("/")[0]
            spent[kind] = spent.get(kind, 0.0) + self._entries.get(name, {}).get("elapsed_s", 0.0)
        spent["total"] = sum(spent.values())
        return {kind: round(seconds, 3) for kind, seconds in spent.items()}


def read_stages(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of `stages.json`, none where there is no such file."""
    path, names = directory / FILE, {"begun", "finished", "elapsed_s"}
    try:
        entries: dict[str, dict[str, Any]] = resume.read_json(path)
        if all(names <= entry.keys() for entry in entries.values()):
            return entries
    except FileNotFoundError:
        return {}
    except (StateFileError, AttributeError):
        pass  # it holds something else
    raise StateFileError(
        f"{path} does not hold the stages of a run; give another name, or move it away"
    )


def delete(path: Path) -> None:
    """Delete a file or, piece by piece, a directory that nothing vouches for."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

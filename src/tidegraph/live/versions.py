"""Models as versions: files in the directory, trained by a process of their own, never changed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegraph.core.durable import put_in_place
from tidegraph.core.errors import ParameterError, StateFileError, StorageError
from tidegraph.core.machine import disk_bytes
from tidegraph.core.resume import make_directory
from tidegraph.events.stream import EventStream
from tidegraph.learning.tasks.link import LinkPredictor
from tidegraph.live.failpoints import reach
from tidegraph.live.models import Model

DIRECTORY = "models"
_NAME = re.compile(r"([0-9]{4,})\.tide")
_TRAINING = "training"  # a directory for what a training reads and writes
_POLLED_S = 0.2


class Versions:
    """The models of a directory, numbered from 0001."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / DIRECTORY
        make_directory(self.directory)
        for path in self.directory.iterdir():  # what a killed process left
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif not _NAME.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()

    def all(self) -> list[str]:
        """Return the versions, oldest first."""
        found = (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
        return sorted((match[1] for match in found if match), key=int)

    def path(self, version: str) -> Path:
        """Return the file of a version."""
        return self.directory / f"{version}.tide"

    def read(self, version: str) -> Model:
        """Return a version."""
        if version not in self.all():
            known = ", ".join(self.all()) or "none yet"
            raise ParameterError(f"there is no version {version!r}; there are {known}")
        return Model.read(self.path(version))

    def restart(self, model: Model) -> None:
        """Write the model that a new directory starts with as its only version."""
        for version in self.all():  # of a start that was killed
            self.path(version).unlink()
        self.add(model)

    def add(self, model: Model) -> Model:
        """Write a model as the next version, and return it as that."""
        version = f"{1 + max(map(int, self.all()), default=0):04}"
        aside = self.directory / f"{version}.new"
        reach("version.write.before")
        model.write(aside, version)
        reach("version.rename.before")
        put_in_place(aside, self.path(version))
        return Model.read(self.path(version))

    def train(
        self, stream: EventStream, settings: dict[str, Any], stopped: Callable[[], bool]
    ) -> Model | None:
        """Return a model trained on a stream by another process, of low priority; None if `stopped`
        said so meanwhile.
        """
        work = self.directory / _TRAINING
        shutil.rmtree(work, ignore_errors=True)
        make_directory(work)
        try:
            stream.save(work / "events")
            command = [sys.executable, "-m", __name__, str(work), repr(settings)]
            with open(work / "errors", "w+b") as errors:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
                )
                try:
                    while child.poll() is None:
                        if stopped():
                            return None
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            child.wait(_POLLED_S)
                finally:
                    child.kill()
                    child.wait()
                if child.returncode != 0:
                    errors.seek(0)
                    last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
                    raise StateFileError(f"training failed: {(last or ['killed'])[0]}")
            return Model.read(work / "model.tide")
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(error.errno, f"training failed: {error.strerror}") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return disk_bytes(self.directory.iterdir())


def _trained(work: Path, settings: dict[str, Any]) -> None:
    """Train on the stream in a directory, and write the model there: the work of a process."""
    os.nice(10)
    with contextlib.suppress(OSError, AttributeError):  # only Linux can: end with the parent
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    predictor = LinkPredictor(**settings).fit(EventStream.load(work / "events"))
    Model.of(predictor, _TRAINING).write(work / "model.tide", _TRAINING)


if __name__ == "__main__":
    import ast

    _trained(Path(sys.argv[1]), ast.literal_eval(sys.argv[2]))

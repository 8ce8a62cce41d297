"""Representations of all nodes written to Parquet now and then."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidegraph.core.durable import put_in_place
from tidegraph.core.errors import BusyError, TidegraphError

if TYPE_CHECKING:
    from tidegraph.live.live import Live

_AT_ONCE = 1 << 14  # nodes, so that events are applied in between
_NAME = re.compile(r"embeddings-\d{16}\.parquet")


def export(live: Live, directory: Path, keep: int = 3) -> Path | None:
    """Write `embeddings-SEQ.parquet` with a row per node, and keep the newest so many files.

    Each row names the sequence number it stands at and its certified error. The file appears when
    it is complete; one that is there already is not written again. Return None before the first
    event.
    """
    import pyarrow as pa
    from pyarrow import parquet

    before = live.stats()
    seq, numbers = before["applied_seq"], live.numbers().tolist()
    if not numbers:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"embeddings-{seq:016}.parquet"
    if path.exists():
        return path
    aside = directory / f".{path.name}.part"
    writer = None
    try:
        for first in range(0, len(numbers), _AT_ONCE):
            some = numbers[first : first + _AT_ONCE]
            answer = live.embedding_of(some)
            values = np.asarray(answer.data["embedding"], dtype=np.float32).reshape(len(some), -1)
            table = pa.table(
                {
                    "node": pa.array(map(str, answer.data["names"]), pa.string()),
                    "as_of_seq": pa.array([answer.as_of_seq] * len(some), pa.int64()),
                    "error": pa.array(answer.error, pa.float64()),
                    "embedding": pa.FixedSizeListArray.from_arrays(
                        pa.array(values.reshape(-1)), values.shape[1]
                    ),
                }
            )
            if writer is None:
                writer = parquet.ParquetWriter(aside, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
        writer = None
        if live.stats()["forgotten"] != before["forgotten"]:
            raise BusyError("a node was forgotten meanwhile; export again", retry_after_s=1.0)
        put_in_place(aside, path)
    finally:
        if writer is not None:
            writer.close()
        aside.unlink(missing_ok=True)  # present only after an error
    written = sorted(each for each in directory.iterdir() if _NAME.fullmatch(each.name))
    for old in written[:-keep]:
        old.unlink(missing_ok=True)
    return path


class Exporter:
    """A thread that exports every so many seconds while something has changed."""

    def __init__(self, live: Live, directory: Path, every_s: float) -> None:
        self._live, self._directory, self._every_s = live, directory, every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="tidegraph-export")
        self.problem: str | None = None
        self.written: Path | None = None

    def __enter__(self) -> Exporter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def plain(self) -> dict[str, str | None]:
        """Return the last file and the last problem."""
        last = None if self.written is None else str(self.written)
        return {"export": last, "problem": self.problem}

    def _work(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self.written, self.problem = export(self._live, self._directory), None
            except (OSError, TidegraphError) as error:  # a full disk: the next one may succeed
                self.problem = str(error)

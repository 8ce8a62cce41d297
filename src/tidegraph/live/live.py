"""`Live`: the verbs of a durable live state."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

from tidegraph.core.progress import Progress
from tidegraph.live.answers import Answer, Receipt
from tidegraph.live.settings import LiveSettings

Wait: TypeAlias = Literal["durable", "applied"]


class Live:
    """A graph that is fed and asked at the same time, in a directory that survives crashes."""

    unit: str

    @classmethod
    def open(
        cls,
        directory: str | Path,
        source: Any = None,
        *,
        settings: LiveSettings | None = None,
        progress: Progress | None = None,
    ) -> Live:
        """Continue what a directory holds, or start a new one, empty or from a source."""
        raise NotImplementedError

    def ingest(
        self,
        events: Any,
        *,
        key: str | None = None,
        wait: Wait = "durable",
        timeout_s: float | None = None,
    ) -> Receipt:
        """Store events, and return once they are on disk, or applied."""
        raise NotImplementedError

    def score(self, src: Any, dst: Any, at: Any = None) -> Answer:
        """Return `probability` [n] of pairs."""
        raise NotImplementedError

    def top(self, node: Any, k: int = 10, at: Any = None) -> Answer:
        """Return `names` and `probability` of the likeliest next destinations."""
        raise NotImplementedError

    def similar(self, node: Any, k: int = 10) -> Answer:
        """Return `names` and `similarity` of the nodes nearest by representation."""
        raise NotImplementedError

    def embedding(self, nodes: Any, at: Any = None) -> Answer:
        """Return `names` and `embedding` [n, channels, columns]."""
        raise NotImplementedError

    def node(self, name: Any, side: str | None = None) -> Answer:
        """Return who a node is: counts, first and last event, newest partners."""
        raise NotImplementedError

    def history(self, name: Any, points: int = 200) -> Answer:
        """Return how a node moved: `times`, `moved`, `similarity` to now."""
        raise NotImplementedError

    def explain(self, src: Any, dst: Any, at: Any = None) -> Answer:
        """Return the probability of a pair and what drives it."""
        raise NotImplementedError

    def forget(self, name: Any, *, refit: bool = False) -> Answer:
        """Remove a node from memory and from every file."""
        raise NotImplementedError

    def snapshot(self) -> int:
        """Save the state now; return its sequence number."""
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        """Return counts, times and sizes in plain types."""
        raise NotImplementedError

    def quality(self) -> dict[str, Any]:
        """Return how well events were predicted before they were known, by bucket of time."""
        raise NotImplementedError

    def versions(self) -> list[dict[str, Any]]:
        """Return the models there are, oldest first."""
        raise NotImplementedError

    def train(self, *, wait: bool = False, timeout_s: float | None = None) -> str | None:
        """Train a model on the events so far; return its version if `wait`."""
        raise NotImplementedError

    def rollback(self, version: str) -> None:
        """Answer with an earlier version from now on."""
        raise NotImplementedError

    def recent(self, after_seq: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Return what was applied last, oldest first."""
        raise NotImplementedError

    def digest(self) -> str:
        """Return a digest of everything that answers depend on."""
        raise NotImplementedError

    def close(self) -> None:
        """Save the state and stop."""
        raise NotImplementedError

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""A live state in memory with the verbs of `Live`, for tests of what is built on top of it.

It keeps events in a list, applies them at once and answers with simple counts, so a test can tell
what an answer has to be. It never waits, learns or touches a disk.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from typing import Any

import numpy as np

from tidegraph.core.errors import (
    BusyError,
    ParameterError,
    RowError,
    StorageError,
    UnknownNodeError,
)
from tidegraph.live.answers import Answer, Receipt
from tidegraph.live.live import Live

_KNOWN = {"src", "dst", "t", "id", "op", "weight", "node", "features"}


class MemoryLive(Live):
    """Events in a list; the likeliest destination is the one met most often."""

    def __init__(self, unit: str = "ms") -> None:
        self.unit = unit
        self.events: list[dict[str, Any]] = []
        self.by_id: dict[str, int] = {}
        self.by_key: dict[str, Receipt] = {}
        self.duplicates = self.late = 0
        self.lateness = 10**9
        self.busy = self.full = False  # what a test wants to see
        self.gate = threading.Event()  # commits wait for it
        self.gate.set()
        self.closed = False
        self.version = "0001"
        self._lock = threading.Lock()

    # Taking in

    def ingest(
        self,
        events: Any,
        *,
        key: str | None = None,
        wait: Any = "durable",
        timeout_s: float | None = None,
    ) -> Receipt:
        if isinstance(events, dict):  # columns
            names = list(events)
            events = [dict(zip(names, row, strict=True)) for row in zip(*events.values(), strict=True)]
        checked = [self._checked(row, event) for row, event in enumerate(events)]
        self.gate.wait()
        if self.busy:
            raise BusyError("100,000 events wait to be stored", 2.0)
        if self.full:
            raise StorageError("the disk is full; make room: what was acknowledged is intact")
        with self._lock:
            if key is not None and key in self.by_key:
                return self.by_key[key]
            first, known, late = len(self.events) + 1, 0, 0
            for event in checked:
                if event["id"] is not None and event["id"] in self.by_id:
                    known += 1
                elif self.events and event["t"] < self.watermark:
                    late += 1
                else:
                    event["seq"] = len(self.events) + 1
                    self.events.append(event)
                    if event["id"] is not None:
                        self.by_id[event["id"]] = event["seq"]
            self.duplicates += known
            self.late += late
            receipt = Receipt(
                seq=len(self.events),
                first_seq=first,
                accepted=len(checked) - known - late,
                duplicate=known,
                late=late,
                watermark=self.watermark if self.events else None,
                applied=wait == "applied",
                unit=self.unit,
            )
            if key is not None:
                self.by_key[key] = receipt
            return receipt

    def _checked(self, row: int, event: dict[str, Any]) -> dict[str, Any]:
        for field in event.keys() - _KNOWN:
            raise RowError(f"an event has no field {field!r}", row, field)
        for field in ("src", "dst"):
            if not isinstance(event.get(field), (str, int)) or isinstance(event[field], bool):
                raise RowError(f"{field} is {event.get(field)!r}; give a name", row, field)
        t = event.get("t", int(time.time() * 1000))
        if not isinstance(t, (int, np.integer)) or isinstance(t, bool) or abs(int(t)) >= 2**62:
            raise RowError(f"t is {t!r}; give a whole number of {self.unit}", row, "t")
        known = event.get("id")
        if known is not None and not isinstance(known, (str, int)):
            raise RowError(f"id is {known!r}; give a string", row, "id")
        src, dst = str(event["src"]), str(event["dst"])
        identity = None if known is None else str(known)
        return {"src": src, "dst": dst, "t": int(t), "id": identity, "op": "add", "weight": 1.0}

    @property
    def watermark(self) -> int:
        return max(event["t"] for event in self.events) - self.lateness

    # Answers

    def _answer(self, error: Any = None, **data: Any) -> Answer:
        newest = max((event["t"] for event in self.events), default=None)
        return Answer(
            data=data,
            as_of_seq=len(self.events),
            as_of_time=newest,
            error=error,
            version=self.version,
        )

    def _names(self) -> list[str]:
        return list(dict.fromkeys(e[end] for e in self.events for end in ("src", "dst")))

    def _known(self, *names: Any) -> None:
        for name in names:
            if str(name) not in self._names():
                raise UnknownNodeError(f"there is no node {name!r}")

    def _share(self, src: Any) -> Counter[str]:
        return Counter(event["dst"] for event in self.events if event["src"] == str(src))

    def score(self, src: Any, dst: Any, at: Any = None) -> Answer:
        self._known(*src, *dst)
        shares = [self._share(s)[str(d)] / max(1, len(self.events)) for s, d in zip(src, dst, strict=True)]
        return self._answer(probability=np.array(shares))

    def top(self, node: Any, k: int = 10, at: Any = None) -> Answer:
        self._known(node)
        found = self._share(node).most_common(k)
        total = sum(self._share(node).values())
        shares = np.array([count / total for _, count in found])
        return self._answer(names=[name for name, _ in found], probability=shares)

    def similar(self, node: Any, k: int = 10) -> Answer:
        self._known(node)
        names = [name for name in self._names() if name != node][:k]
        return self._answer(np.full(1, 1e-3), names=names, similarity=np.linspace(1, 0, len(names)))

    def embedding(self, nodes: Any, at: Any = None) -> Answer:
        self._known(*nodes)
        zeros = np.zeros((len(nodes), 1, 4))
        return self._answer(np.full(len(nodes), 1e-3), names=list(nodes), embedding=zeros)

    def node(self, name: Any, side: str | None = None) -> Answer:
        self._known(name)
        met = [e for e in self.events if name in (e["src"], e["dst"])]
        partners = [
            {"name": e["dst"] if e["src"] == name else e["src"], "t": e["t"]} for e in met[::-1]
        ]
        return self._answer(
            name=name,
            as_src=sum(e["src"] == name for e in met),
            as_dst=sum(e["dst"] == name for e in met),
            first=met[0]["t"],
            last=met[-1]["t"],
            partners=partners[:10],
        )

    def history(self, name: Any, points: int = 200) -> Answer:
        self._known(name)
        times = [e["t"] for e in self.events if name in (e["src"], e["dst"])][-points:]
        count = len(times)
        return self._answer(
            np.full(1, 1e-3), times=times, moved=np.ones(count), similarity=np.linspace(0, 1, count)
        )

    def explain(self, src: Any, dst: Any, at: Any = None) -> Answer:
        self._known(src, dst)
        count = self._share(src)[str(dst)]
        inputs = [{"name": "meetings", "value": count, "effect": 0.5, "words": "met before"}]
        return self._answer(probability=count / max(1, len(self.events)), inputs=inputs)

    def forget(self, name: Any, *, refit: bool = False) -> Answer:
        self._known(name)
        kept = [e for e in self.events if str(name) not in (e["src"], e["dst"])]
        gone = len(self.events) - len(kept)
        self.events = kept
        return self._answer(forgotten=str(name), events=gone)

    # About itself

    def stats(self) -> dict[str, Any]:
        return {
            "events": len(self.events),
            "seq": len(self.events),
            "applied_seq": len(self.events),
            "as_of_time": max((e["t"] for e in self.events), default=None),
            "watermark": self.watermark if self.events else None,
            "lateness": self.lateness,
            "unit": self.unit,
            "late": self.late,
            "duplicates": self.duplicates,
            "queue": 0,
            "nodes": len(self._names()),
            "memory_bytes": 123 << 20,
            "disk_bytes": 4 << 20,
            "events_per_s": 12.5,
            "certified_error": 1e-3,
            "version": self.version,
        }

    def quality(self) -> dict[str, Any]:
        return {"buckets": [], "judged": 0}

    def versions(self) -> list[dict[str, Any]]:
        return [{"version": "0001", "answers": True}]

    def train(self, *, wait: bool = False, timeout_s: float | None = None) -> str | None:
        return "0002" if wait else None

    def rollback(self, version: str) -> None:
        if version != "0001":
            raise ParameterError(f"there is no version {version!r}; there is 0001")

    def recent(self, after_seq: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        newer = [{**e, "score": 0.5} for e in self.events if e["seq"] > after_seq]
        return newer[-limit:]

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.events).encode()).hexdigest()

    def snapshot(self) -> int:
        return len(self.events)

    def close(self) -> None:
        self.closed = True

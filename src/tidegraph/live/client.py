"""`Client`: the verbs of a live state, asked of a server."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import msgspec
import numpy as np

from tidegraph.core.errors import (
    BusyError,
    DataError,
    EventError,
    ParameterError,
    RowError,
    ServerError,
    StorageError,
    TidegraphError,
    UnknownNodeError,
)
from tidegraph.live.answers import Answer, Receipt, plain_types

_NDJSON = "application/x-ndjson"
_ARROW = "application/vnd.apache.arrow.stream"
_PASSING = (429, 502, 503, 504)  # worth another try
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_RECEIPT = tuple(Receipt.__dataclass_fields__)


class Client:
    """The verbs of `Live`, asked of a server that `tidegraph serve` started.

    A request that fails on its way, or that the server turns away for now, is repeated until
    `patience_s` is over. Events keep their key meanwhile, so they are taken once, whatever got
    lost. Any number of threads may use one client.

    url: where the server is, as `http://127.0.0.1:8000`.
    token: what the server was started with.
    timeout_s: for one try, except that `forget`, `train` and `rollback` take as long as the server.
    patience_s: for all tries of one call; 0 tries once.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ParameterError(f"url is {url!r}; give one such as http://127.0.0.1:8000")
        self.url, self._timeout_s, self._patience_s = url.rstrip("/"), timeout_s, patience_s
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s)
        except (UnicodeEncodeError, httpx.InvalidURL) as error:
            raise ParameterError(f"url or token cannot be sent: {error}") from None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Events ---------------------------------------------------------------------------------------

    def ingest(
        self,
        events: Any,
        *,
        key: str | None = None,
        wait: Literal["durable", "applied"] = "durable",
    ) -> Receipt:
        """Send events, and return once they are on the server's disk.

        events: objects with `src` and `dst`, one or a list; columns of these; or an Arrow table.
        key, wait: as for `Live.ingest`.
        """
        return self.send(*_body(events), key=key, wait=wait)

    def send(
        self, body: bytes, kind: str = _NDJSON, *, key: str | None = None, wait: str = "durable"
    ) -> Receipt:
        """Send events as they are written in a body of this content type."""
        headers = {"Content-Type": kind, "Idempotency-Key": key or uuid.uuid4().hex}
        found = self._ask("POST", "/v1/events", headers=headers, content=body, query={"wait": wait})
        return Receipt(**{name: found[name] for name in _RECEIPT})

    def position(self, source: str) -> str | None:
        """Return how far the server has a source, as `Live.position` does."""
        found = self._ask("GET", "/v1/position", query={"source": source})["position"]
        return None if found is None else str(found)

    # Questions ------------------------------------------------------------------------------------

    def score(self, src: Any, dst: Any, at: Any = None) -> Answer:
        """Return the `probability` of links between `src` and `dst`, one or many of each."""
        return self._post(
            "/v1/score", {"src": plain_types(src), "dst": plain_types(dst), "at": plain_types(at)}
        )

    def top(self, node: Any, k: int = 10, at: Any = None) -> Answer:
        """Return the `k` likeliest next destinations of a node: `names` and `probability`."""
        return self._get("/v1/top", node=node, k=k, at=at)

    def similar(self, node: Any, k: int = 10) -> Answer:
        """Return the `k` nodes nearest to one by representation: `names` and `similarity`."""
        return self._get("/v1/similar", node=node, k=k)

    def embedding(self, nodes: Any, at: Any = None) -> Answer:
        """Return representations: `names`, and `embedding` [n, channels, columns] as an array."""
        found = self._get("/v1/embedding", node=plain_types(nodes), at=at)
        data = {**found.data, "embedding": np.array(found.data["embedding"], dtype=np.float32)}
        return Answer(
            data=data,
            as_of_seq=found.as_of_seq,
            as_of_time=found.as_of_time,
            error=found.error,
            version=found.version,
        )

    def node(self, name: Any) -> Answer:
        """Return who a node is: when it was seen, how often, and whom it met lately."""
        return self._get("/v1/nodes", node=name)

    def history(self, name: Any, points: int = 200) -> Answer:
        """Return how a node moved: `times`, how far it `moved`, and its `similarity` to now."""
        return self._get("/v1/history", node=name, points=points)

    def explain(self, src: Any, dst: Any, at: Any = None) -> Answer:
        """Return the `probability` of a pair, `facts` about it, and the `reasons` that drive it."""
        return self._post("/v1/explain", {"src": src, "dst": dst, "at": plain_types(at)})

    def forget(self, name: Any, *, refit: bool = False) -> Answer:
        """Remove a node from the server's memory and from every file."""
        found = self._ask("POST", "/v1/forget", json={"node": name, "refit": refit}, long=True)
        return _answer(found)

    def stats(self) -> dict[str, Any]:
        """Return counts, times and sizes."""
        return self._ask("GET", "/v1/stats")

    def quality(self) -> dict[str, Any]:
        """Return how good predictions were before their events, by time, next to heuristics."""
        return self._ask("GET", "/v1/quality")

    def versions(self) -> Any:
        """Return the models that were trained, and which one answers."""
        return self._ask("GET", "/v1/versions")["versions"]

    def train(self, wait: bool = False) -> Any:
        """Train a new version on the events so far."""
        asked = {"wait": wait}
        return self._ask("POST", "/v1/versions/train", json=asked, long=True)["version"]

    def rollback(self, version: Any) -> Any:
        """Go back to an earlier version."""
        asked = {"version": version}
        return self._ask("POST", "/v1/versions/rollback", json=asked, long=True)["version"]

    # Requests -------------------------------------------------------------------------------------

    def _get(self, path: str, **query: Any) -> Answer:
        given = {name: value for name, value in query.items() if value is not None}
        return _answer(self._ask("GET", path, query=given))

    def _post(self, path: str, body: dict[str, Any]) -> Answer:
        given = {name: value for name, value in body.items() if value is not None}
        return _answer(self._ask("POST", path, json=given))

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        long: bool = False,
        **more: Any,
    ) -> dict[str, Any]:
        """Return the answer to a request, which is repeated while that may help.

        long: whether to wait for the answer for as long as it takes, as after minutes of work.
        """
        if long:
            more["timeout"] = httpx.Timeout(self._timeout_s, read=None)
        until, pause = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            error: TidegraphError
            try:
                answer = self._http.request(method, path, params=query, **more)
            except httpx.TransportError as failed:
                reason = str(failed) or type(failed).__name__
                error = ServerError(f"{self.url} does not answer ({reason}); is it running?")
                wanted = 0.0
            else:
                if answer.status_code == 200:
                    return _decoded(answer)
                error = _error(answer)
                if answer.status_code not in _PASSING and not _is_of_a_proxy(answer):
                    raise error
                after = answer.headers.get("retry-after", "")
                wanted = float(after) if after.isdecimal() else 0.0
            # By chance a little longer or shorter, so that clients do not all return at once.
            pause_s = max(wanted, pause) * random.uniform(0.75, 1.25)
            if time.monotonic() + pause_s > until:
                raise error from None
            time.sleep(pause_s)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def _body(events: Any) -> tuple[bytes, str]:
    """Return events as the body of a request, and its content type."""
    if hasattr(events, "schema") and hasattr(events, "to_batches"):  # a table of Arrow
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, events.schema) as writer:
            writer.write_table(events)
        return sink.getvalue().to_pybytes(), _ARROW
    plain = plain_types(events)
    if isinstance(plain, dict):
        columns = {name: each for name, each in plain.items() if isinstance(each, list)}
        if columns.keys() - {"features"}:
            rows = zip(*columns.values(), strict=True)
            plain = [{**plain, **dict(zip(columns, row, strict=True))} for row in rows]
        else:
            plain = [plain]
    if not isinstance(plain, list):
        raise EventError(
            f"events are a {type(events).__name__}; give objects with src and dst, columns of"
            " these, or an Arrow table"
        )
    try:
        return b"".join(msgspec.json.encode(event) + b"\n" for event in plain), _NDJSON
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise EventError(f"an event cannot be written as JSON: {error}") from None


def _decoded(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        raise ServerError(f"{answer.url.host} answers, but not as tidegraph serve does")
    return found


def _answer(found: dict[str, Any]) -> Answer:
    return Answer(
        data=found["data"],
        as_of_seq=found["as_of_seq"],
        as_of_time=found["as_of_time"],
        error=None if found["error"] is None else np.array(found["error"]),
        version=found["version"],
    )


def _is_of_a_proxy(answer: httpx.Response) -> bool:
    """Return whether a proxy lost the server that was to answer, as when a replica dies."""
    return answer.status_code == 500 and "json" not in answer.headers.get("content-type", "")


def _error(answer: httpx.Response) -> TidegraphError:
    """Return the error that `Live` would have raised."""
    status = answer.status_code
    try:
        problem = msgspec.json.decode(answer.content)["error"]
        code, message = problem["code"], problem["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ServerError(f"{answer.url.host} answers {status}, and not as tidegraph serve does")
    if code in ("bad_event", "bad_json"):
        line = problem.get("line")
        if line is None:
            return EventError(message)
        return RowError(message, line - 1, problem.get("field"))
    if status == 429:
        return BusyError(message, float(answer.headers.get("retry-after", 1)))
    kinds: dict[str, type[TidegraphError]] = {
        "unknown_node": UnknownNodeError,
        "no_room": StorageError,
        "bad_request": ParameterError,
        "too_large": DataError,
    }
    return kinds.get(code, ServerError)(message)

"""The HTTP service over a `Live`: routes, status codes and the description of both."""

from __future__ import annotations

import asyncio
import copy
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, Protocol, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode

import anyio.to_thread
import msgspec
from fastapi import FastAPI, Query, Request, Response
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import StreamingResponse

from tidegraph.core.errors import (
    BusyError,
    EventError,
)
from tidegraph.core.palette import SCHEMES, SERIES_CLASSES
from tidegraph.live import bodies, schemas
from tidegraph.live.api_page import api_page
from tidegraph.live.bodies import RequestError
from tidegraph.live.failures import RETRY_S, add_handlers
from tidegraph.live.feed import Asked, Feed
from tidegraph.live.forwarding import Forwarded
from tidegraph.live.guard import Guard
from tidegraph.live.metrics import Metrics, Timed
from tidegraph.live.questions import Questions
from tidegraph.live.replica import Replica

if TYPE_CHECKING:
    from tidegraph.live.live import Live

_PAGE = Path(__file__).with_name("page")
_STREAM_EVERY_S = 0.25
_BEAT_S = 15.0  # proxies close connections that are silent for longer
_FOLLOWERS = 64  # replicas that are answered at the same time
_LONGEST_POLL_S = 60.0
_FORGETTING_S = 10.0  # for replicas to drop what was forgotten
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_VERBS = ("top", "similar", "embedding", "history")  # questions about one node
_FAILURES = {
    400: "Malformed",
    401: "The token is missing or wrong",
    404: "Not found, or an unknown node",
    413: "Too large",
    415: "Not a content type that is accepted",
    422: "A value that cannot be, with its line and field",
    429: "Too much at once; repeat after Retry-After seconds",
    503: "No room on the disk, stopping, or the writer is away; repeat after Retry-After seconds",
}

_PAST = 2  # questions about the past at a time
_STREAMED = 100  # events at a time, of those that happened since the last look

_Node = Annotated[str, Query(description="the name of a node")]
_Nodes = Annotated[
    list[str], Query(min_length=1, max_length=schemas.MOST_NODES, description="names of nodes")
]
_Source = Annotated[str, Query(min_length=1, max_length=200, description="the name of a source")]
_Place = Annotated[int, Query(ge=0, le=2**62, description="the place of the last one seen")]
_Count = Annotated[int, Query(ge=1, le=1000, description="how many")]
_Points = Annotated[int, Query(ge=2, le=2000, description="of the curve, at most")]
_At = Annotated[
    str | None, Query(description="as of this time, a number or an ISO date; none: now")
]


@dataclass(frozen=True)
class ServiceSettings:
    """Limits of the service, and who may use it.

    token: what requests carry in `Authorization: Bearer ...`; None: nothing.
    origins: other sites whose pages may ask.
    max_body_bytes, max_events: of one request with events.
    writers, readers: requests worked on at the same time. Further writers get 429, readers wait.
    streams: clients that follow what happens.
    feeds: whether replicas may follow, which read everything.
    """

    token: str | None = None
    origins: tuple[str, ...] = ()
    max_body_bytes: int = 32 << 20
    max_events: int = 100_000
    writers: int = 64
    readers: int = 8
    streams: int = 32
    feeds: bool = False


class Described(Protocol):
    """Something that works beside the service and can say how it is doing."""

    def plain(self) -> dict[str, Any]:
        """Return that in plain types."""


def create_app(
    live: Live | Replica,
    settings: ServiceSettings | None = None,
    more: Sequence[Described] = (),
) -> FastAPI:
    """Return the service as an ASGI application; whoever opened `live` closes it.

    live: of a replica, the requests that are its writer's are passed on.
    more: sources and exports whose state `/v1/stats` shows.
    """
    return _Service(live, settings or ServiceSettings(), more).app


def stop_streams(app: FastAPI) -> None:
    """End what clients follow, and let `/readyz` report that the server is stopping."""
    app.state.stopping = True


class _Service:
    """The application and what its routes share."""

    def __init__(
        self, live: Live | Replica, settings: ServiceSettings, more: Sequence[Described]
    ) -> None:
        self._settings, self._more = settings, more
        self._asked: Questions = live
        # What a replica does not do itself is passed on before it gets here.
        self._live = cast("Live", live)
        self._feed = None if isinstance(live, Replica) or not settings.feeds else Feed(live)
        self._writing = self._streaming = 0
        # Writers wait for a disk; readers must not wait for them.
        self._writers = anyio.CapacityLimiter(settings.writers)
        self._readers = anyio.CapacityLimiter(settings.readers)
        self._followers = anyio.CapacityLimiter(_FOLLOWERS)
        # Questions about the past wait until it is recorded; others must not wait for them.
        self._askers = anyio.CapacityLimiter(_PAST)
        self._metrics = Metrics(live)
        self.app = FastAPI(
            title="tidegraph",
            summary="Answers about a graph while its edges come and go",
            version=_version(),
            docs_url=None,  # it would load scripts from elsewhere
            redoc_url=None,
            responses={
                code: {"model": schemas.Failed, "description": text}
                for code, text in _FAILURES.items()
            },
        )
        self.app.state.stopping = False
        self.app.router.redirect_slashes = False
        self._add_routes()
        add_handlers(self.app)
        described = self.app.openapi
        self.app.openapi = lambda: _with_paths_by_node(described())  # type: ignore[method-assign]
        # The last one added is passed first.
        if isinstance(live, Replica):
            self.app.add_middleware(
                Forwarded, replica=live, most=settings.max_body_bytes, at_once=settings.writers
            )
        if settings.origins:
            self.app.add_middleware(
                CORSMiddleware,
                allow_origins=list(settings.origins),
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type", "Idempotency-Key"],
            )
        self.app.add_middleware(Timed, metrics=self._metrics)
        self.app.add_middleware(_NodePaths)
        self.app.add_middleware(Guard, token=settings.token, origins=settings.origins)

    # Work -----------------------------------------------------------------------------------------

    async def _read(self, question: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return await anyio.to_thread.run_sync(
            lambda: question(*given, **named), limiter=self._readers
        )

    async def _read_past(self, question: Callable[..., Any], *given: Any, **named: Any) -> Response:
        asked = anyio.to_thread.run_sync(
            lambda: _json(question(*given, **named).plain()), limiter=self._askers
        )
        return await asked

    async def _write(self, verb: Callable[[], Any]) -> Any:
        if self._writing >= self._settings.writers:
            raise BusyError(f"{self._writing} requests are being written already", RETRY_S)
        self._writing += 1
        try:
            return await anyio.to_thread.run_sync(verb, limiter=self._writers)
        finally:
            self._writing -= 1

    async def _answer(self, question: Callable[..., Any], *given: Any, **named: Any) -> Response:
        asked = self._read(lambda: _json(question(*given, **named).plain()))
        return cast(Response, await asked)

    async def _figures(self, question: Callable[[], Any], name: str | None = None) -> Response:
        def asked() -> Response:
            found = question()
            if name is not None:
                found = {name: found}
            return _json({**self._moment(), **found})

        return cast(Response, await self._read(asked))

    def _moment(self) -> dict[str, Any]:
        stats = self._asked.stats()
        return {
            "as_of_seq": stats["applied_seq"],
            "as_of_time": stats["watermark"],
            "error": stats.get("certified_error"),
        }

    async def _body(self, request: Request, most: int) -> bytes:
        length = request.headers.get("content-length")
        return await bodies.received(request.stream(), length, most)

    async def _parsed(self, request: Request, model: Any) -> Any:
        headers = request.headers
        if headers.get("content-length") == "0" and not model.model_json_schema().get("required"):
            return model()
        bodies.media_type(
            headers.get("content-type"), headers.get("content-encoding"), (bodies.JSON,)
        )
        return bodies.parse_json(await self._body(request, 1 << 20), model)

    # Routes ---------------------------------------------------------------------------------------

    def _add_routes(self) -> None:
        add = self._add
        add("POST /v1/events", self.events, schemas.Receipt, body=_EVENT_BODIES)
        add("GET /v1/position", self.position, schemas.Figures)
        add("POST /v1/score", self.score, body=schemas.ScoreBody)
        add("POST /v1/explain", self.explain, body=schemas.PairBody)
        add("POST /v1/forget", self.forget, body=schemas.ForgetBody)
        add("GET /v1/nodes", self.nodes)
        add("GET /v1/top", self.top)
        add("GET /v1/similar", self.similar)
        add("GET /v1/embedding", self.embedding)
        add("GET /v1/history", self.history)
        add("GET /v1/stats", self.stats, schemas.Figures)
        add("GET /v1/quality", self.quality, schemas.Figures)
        add("GET /v1/versions", self.versions, schemas.Figures)
        add("POST /v1/versions/train", self.train, schemas.Figures, body=schemas.TrainBody)
        add("POST /v1/versions/rollback", self.rollback, schemas.Figures, body=schemas.RollbackBody)
        add("GET /v1/stream", self.stream, "text/event-stream")
        add("GET /livez", self.livez, schemas.State)
        add("GET /readyz", self.readyz, schemas.State)
        add("GET /metrics", self.metrics, "text/plain")
        if self._feed is not None:
            self.app.add_api_route("/v1/follow", self.follow, include_in_schema=False)
            self.app.add_api_route("/v1/snapshot", self.snapshot, include_in_schema=False)
            path = "/v1/versions/{version}/file"
            self.app.add_api_route(path, self.version_file, include_in_schema=False)
        for name in ("index.html", "icon.svg", "page.js", "page.css"):
            path = f"/{name.replace('index.html', '')}"
            self.app.add_api_route(path, _page_file(name), include_in_schema=False)
        self.app.add_api_route("/docs", self.docs, include_in_schema=False)

    def _add(
        self, route: str, handler: Any, answer: Any = schemas.Answer, body: Any = None
    ) -> None:
        """Add a route, described by its docstring, its body and its answer."""
        method, path = route.split()
        content = body if isinstance(body, dict) or body is None else {bodies.JSON: _schema(body)}
        extra = None if content is None else {"requestBody": {"required": True, "content": content}}
        found: dict[str, Any] = {"description": "The answer"}
        if isinstance(answer, str):
            found["content"] = {answer: {"schema": {"type": "string"}}}
        else:
            found["model"] = answer
        self.app.add_api_route(
            path,
            handler,
            methods=[method],
            responses={200: found},
            response_class=Response,
            openapi_extra=extra,
            operation_id=handler.__name__,
        )

    async def events(
        self, request: Request, wait: Literal["durable", "applied"] = "durable"
    ) -> Response:
        """Take events in: one object or an array, NDJSON, or a stream of Arrow batches.

        The answer comes when the events are on disk, or, with `wait=applied`, when answers reflect
        them. A request with the `Idempotency-Key` of an earlier one changes nothing and gets the
        answer of that one.
        """
        headers = request.headers
        kind = bodies.media_type(
            headers.get("content-type"), headers.get("content-encoding"), bodies.EVENT_TYPES
        )
        key = headers.get("idempotency-key")
        if key is not None and not _KEY.fullmatch(key):
            raise RequestError(
                *(400, "bad_key"),
                "the Idempotency-Key is 1 to 255 visible ASCII characters",
                field="Idempotency-Key",
            )
        body = await self._body(request, self._settings.max_body_bytes)

        def ingested() -> Response:
            decoded = bodies.decode_events(body, kind, self._settings.max_events)
            bodies.check_count(len(decoded), self._settings.max_events)
            try:
                receipt = self._live.ingest(decoded.events, key=key, wait=wait).plain()
            except EventError as error:
                row, field = getattr(error, "row", None), getattr(error, "field", None)
                line = None if row is None else decoded.line(row)
                message = str(error)
                raise RequestError(422, "bad_event", message, line=line, field=field) from None
            moment = {"as_of_seq": receipt["seq"], "as_of_time": receipt["watermark"]}
            return _json({**moment, "error": None, **receipt})

        return cast(Response, await self._write(ingested))

    async def position(self, source: _Source) -> Response:
        """Return how far a source has been read: of keys SOURCE@POSITION, the last POSITION."""
        return await self._figures(lambda: self._live.position(source), "position")

    async def score(self, request: Request) -> Response:
        """Return how likely pairs are: `{"src": "ann", "dst": ["bob", "eve"]}`."""
        asked: schemas.ScoreBody = await self._parsed(request, schemas.ScoreBody)
        src, dst = _pairs(asked)
        return await self._answer(self._asked.score, src, dst, at=asked.at)

    async def explain(self, request: Request) -> Response:
        """Return why a pair is likely or not: the inputs that count most, in words."""
        asked: schemas.PairBody = await self._parsed(request, schemas.PairBody)
        return await self._answer(self._asked.explain, asked.src, asked.dst, at=asked.at)

    async def forget(self, request: Request) -> Response:
        """Forget a node exactly: its events, names, features and log entries, on disk too."""
        asked: schemas.ForgetBody = await self._parsed(request, schemas.ForgetBody)

        def forgotten() -> Response:
            answer = self._live.forget(asked.node, refit=asked.refit).plain()
            if self._feed is not None:
                answer["data"]["remains"]["replicas"] = self._feed.still_know(_FORGETTING_S)
            return _json(answer)

        return cast(Response, await self._write(forgotten))

    async def nodes(self, node: _Node) -> Response:
        """Return who a node is: when it was seen, how often, and whom it met lately."""
        return await self._answer(self._asked.node, node)

    async def top(self, node: _Node, k: _Count = 10, at: _At = None) -> Response:
        """Return the likeliest next destinations of a node."""
        return await self._answer(self._asked.top, node, k=k, at=_moment(at))

    async def similar(self, node: _Node, k: _Count = 10) -> Response:
        """Return the nodes whose representations are nearest to that of a node."""
        return await self._answer(self._asked.similar, node, k=k)

    async def embedding(self, node: _Nodes, at: _At = None) -> Response:
        """Return the representations of nodes, each with its certified error."""
        asked = self._answer if at is None else self._read_past
        return await asked(self._asked.embedding, node, at=_moment(at))

    async def history(self, node: _Node, points: _Points = 200) -> Response:
        """Return where a node has moved: times, distances, and the similarity to now."""
        return await self._read_past(self._live.history, node, points=points)

    async def stats(self) -> Response:
        """Return counts, the watermark, and the use of memory and disk."""
        return await self._figures(
            lambda: {
                **self._asked.stats(),
                "beside": [each.plain() for each in self._more],
                **({} if self._feed is None else self._feed.plain()),
            }
        )

    async def quality(self) -> Response:
        """Return how good predictions were before their events, by time, next to heuristics."""
        return await self._figures(self._live.quality)

    async def versions(self) -> Response:
        """Return the models that were trained, and which one answers."""
        return await self._figures(self._live.versions, "versions")

    async def train(self, request: Request) -> Response:
        """Train a new version on the events so far; it answers once it is complete."""
        asked: schemas.TrainBody = await self._parsed(request, schemas.TrainBody)
        if asked.wait:  # as those who write do, so that questions are answered meanwhile
            await self._write(lambda: self._live.train(wait=True))
            return await self._figures(lambda: None, "version")
        return await self._figures(self._live.train, "version")

    async def rollback(self, request: Request) -> Response:
        """Go back to an earlier version."""
        asked: schemas.RollbackBody = await self._parsed(request, schemas.RollbackBody)
        return await self._figures(lambda: self._live.rollback(asked.version), "version")

    async def stream(self, request: Request, after: _Place = 0) -> Response:
        """Follow what happens, as server-sent events; `Last-Event-ID`, or `after`, resumes."""
        if self._streaming >= self._settings.streams:
            raise BusyError(f"{self._streaming} clients follow the stream already", RETRY_S)
        given = request.headers.get("last-event-id", "")
        after = int(given) if _INTEGER.fullmatch(given) else after
        headers = {"X-Accel-Buffering": "no"}  # a proxy is to pass on what there is
        return StreamingResponse(
            self._happening(after), media_type="text/event-stream", headers=headers
        )

    async def _happening(self, after: int) -> AsyncIterator[bytes]:
        self._streaming += 1
        try:
            yield b"retry: 1000\n\n"
            beat = time.monotonic()
            while not self.app.state.stopping:
                found = await self._read(self._asked.recent, after, _STREAMED)
                for happened in found:
                    after = happened["place"]
                    data = msgspec.json.encode(happened)
                    yield b"id: %d\nevent: applied\ndata: %s\n\n" % (after, data)
                if found:
                    beat = time.monotonic()
                elif time.monotonic() - beat > _BEAT_S:
                    yield b": still here\n\n"
                    beat = time.monotonic()
                await asyncio.sleep(_STREAM_EVERY_S)
        finally:
            self._streaming -= 1

    async def follow(
        self,
        after: _Place,
        names: _Place,
        forgotten: _Place,
        replica: _Source,
        version: str | None = None,
        stands: int | None = None,
        dropped: int = 0,
        wait_s: float = 0.0,
    ) -> Response:
        """Tell a replica what is new, once something is or `wait_s` is over; see `Told`."""
        feed = cast(Feed, self._feed)
        asked = Asked(after, names, forgotten, version, replica, stands, dropped)
        until = time.monotonic() + min(wait_s, _LONGEST_POLL_S)
        while True:
            rest = max(0.0, until - time.monotonic())
            anyway = rest == 0 or self.app.state.stopping

            def told(rest: float = rest, anyway: bool = anyway) -> bytes | None:
                found = feed.told(asked, min(rest, 1.0), anyway=anyway)
                return None if found is None else msgspec.msgpack.encode(found)

            content = await anyio.to_thread.run_sync(told, limiter=self._followers)
            if content is not None:
                return Response(content, media_type="application/vnd.msgpack")

    async def snapshot(self) -> Response:
        """Return the newest snapshot."""
        return await self._file(cast(Feed, self._feed).snapshot)

    async def version_file(self, version: str) -> Response:
        """Return the file of a model."""
        return await self._file(lambda: cast(Feed, self._feed).version(version))

    async def _file(self, opened: Callable[[], BinaryIO]) -> Response:
        file = await anyio.to_thread.run_sync(opened, limiter=self._followers)
        headers = {"Tidegraph-Log": cast(Feed, self._feed).log}

        async def parts() -> AsyncIterator[bytes]:
            with file:  # deleted or not meanwhile
                while part := await anyio.to_thread.run_sync(
                    file.read, 1 << 20, limiter=self._followers
                ):
                    yield part

        return StreamingResponse(parts(), media_type="application/octet-stream", headers=headers)

    async def livez(self) -> Response:
        """Return 200 as long as the process answers."""
        return _json({"status": "ok"})

    async def readyz(self) -> Response:
        """Return 200 while requests are served: from a replica once it has caught up, and not after
        the first sign of a stop or of a failure.
        """
        if self.app.state.stopping:
            raise RequestError(503, "stopping", "the server is stopping", retry_after_s=RETRY_S)
        self._asked.check_ready()
        return _json({"status": "ok"})

    async def metrics(self) -> Response:
        """Return figures in the text format of Prometheus."""
        text, kind = await self._read(self._metrics.text)
        return Response(text, media_type=kind)

    async def docs(self) -> Response:
        return Response(api_page(self.app.openapi()), media_type="text/html")


# Parameters and answers ---------------------------------------------------------------------------


def _json(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type=bodies.JSON)


def _moment(text: str | None) -> int | str | None:
    return int(text) if text is not None and _INTEGER.fullmatch(text) else text


def _pairs(asked: schemas.ScoreBody) -> tuple[list[Any], list[Any]]:
    """Return the sources and destinations of a question; one of them may stand for all."""
    if asked.pairs is not None:
        if asked.src is not None or asked.dst is not None:
            raise RequestError(422, "bad_request", "give src and dst, or pairs", field="pairs")
        return [src for src, _ in asked.pairs], [dst for _, dst in asked.pairs]
    for field in ("src", "dst"):
        if getattr(asked, field) is None:
            raise RequestError(
                422, "bad_request", f"{field} is missing; give src and dst, or pairs", field=field
            )
    src = asked.src if isinstance(asked.src, list) else [asked.src]
    dst = asked.dst if isinstance(asked.dst, list) else [asked.dst]
    count = max(len(src), len(dst))
    if len(src) != len(dst) and 1 not in (len(src), len(dst)):
        raise RequestError(
            *(422, "bad_request"),
            f"there are {len(src)} src and {len(dst)} dst; give as many of both, or one of either",
            field="dst",
        )
    if count > schemas.MOST_PAIRS:
        raise RequestError(
            *(422, "bad_request"),
            f"there are {count:,} pairs; ask for at most {schemas.MOST_PAIRS:,} at a time",
            field="dst",
        )
    return src, dst


def _page_file(name: str) -> Callable[[], Awaitable[Response]]:
    kinds = {
        ".html": "text/html",
        ".js": "text/javascript",
        ".css": "text/css",
        ".svg": "image/svg+xml",
    }
    text = (_PAGE / name).read_text(encoding="utf-8")
    if name.endswith(".css"):
        text = f"{SCHEMES}{SERIES_CLASSES}\n{text}"

    async def served() -> Response:
        return Response(text, media_type=kinds[Path(name).suffix])

    return served


# Names in paths -----------------------------------------------------------------------------------


class _NodePaths:
    """An ASGI application that turns `/v1/nodes/NAME/top` into `/v1/top?node=NAME` for another.

    It reads the path before percent signs are decoded, so that a name may hold slashes: %2F is
    part of a name, and / is too unless a question about the node follows it.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        prefix = "/v1/nodes/"
        if scope["type"] == "http" and scope["path"].startswith(prefix):
            raw = scope.get("raw_path") or quote(scope["path"]).encode()
            rest = raw.decode("latin-1").partition("?")[0].removeprefix(prefix)
            name, _, last = rest.rpartition("/")
            path = f"/v1/{last}" if name and last in _VERBS else "/v1/nodes"
            node = unquote(rest if path == "/v1/nodes" else name)
            given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            query = [("node", node), *(pair for pair in given if pair[0] != "node")]
            scope = {
                **scope,
                "path": path,
                "raw_path": path.encode(),
                "query_string": urlencode(query).encode(),
            }
        await self._app(scope, receive, send)


def _with_paths_by_node(description: dict[str, Any]) -> dict[str, Any]:
    """Add the paths that `_NodePaths` accepts to the description of all routes."""
    paths = description["paths"]
    if "/v1/nodes/{node}" in paths:
        return description
    for verb in ("", *_VERBS):
        asked = copy.deepcopy(paths[f"/v1/{verb or 'nodes'}"])
        operation = asked["get"]
        operation["operationId"] += "_of"
        for parameter in operation["parameters"]:
            if parameter["name"] == "node":
                parameter |= {"in": "path", "required": True, "schema": {"type": "string"}}
        paths[f"/v1/nodes/{{node}}{'/' * bool(verb)}{verb}"] = asked
    return description


# Descriptions -------------------------------------------------------------------------------------


def _schema(model: Any) -> dict[str, Any]:
    return {"schema": model.model_json_schema()}


_EVENT = schemas.Event.model_json_schema()
_EVENT_BODIES = {
    bodies.JSON: {"schema": {"anyOf": [_EVENT, {"type": "array", "items": _EVENT}]}},
    **{
        kind: {"schema": {"type": "string", "description": "one event per line"}}
        for kind in bodies.NDJSON
    },
    bodies.ARROW: {"schema": {"type": "string", "format": "binary"}},
}


def _version() -> str:
    from importlib.metadata import version

    return version("tidegraph")

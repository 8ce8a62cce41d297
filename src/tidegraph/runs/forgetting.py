"""Forget a node in the directory of a run or a model, and prove that it was.

The directory without the node is made next to the old one, as `.NAME.forgetting`, and then takes
its place. So a process that is killed leaves one of the two, each whole.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tidegraph.core.certificate import Certificate, files_with
from tidegraph.core.durable import exchange, link_or_copy, only_writer, sync_tree
from tidegraph.core.errors import DataError, StateFileError, UnknownNodeError
from tidegraph.core.progress import Progress, prefixed, silent
from tidegraph.events.stream import EventStream
from tidegraph.learning.tasks import MODELS
from tidegraph.learning.tasks.recorded import STORE
from tidegraph.runs import stages
from tidegraph.runs.config import Settings
from tidegraph.runs.directory import CONFIG
from tidegraph.runs.protocol import split_stream
from tidegraph.runs.run import Run
from tidegraph.runs.training import is_unfinished, unfinished
from tidegraph.runs.trials import Model
from tidegraph.store.manifest import MANIFEST

_WEIGHTS, _EVENTS = "model.safetensors", "events"  # of a model
_OF_MODEL = re.compile(rf"{re.escape(_WEIGHTS)}|{_EVENTS}|settings\.json|{STORE}")
_OF_RUN = re.compile(
    r"(config\.toml|metrics\.json|report\.html|log\.txt|events\.tide|command\.txt|stages\.json"
    rf"|heuristics\.json|observations|tensorboard|seed-\d+|\.removed|{stages.UNFINISHED.pattern})"
)
_AT_ONCE = 1 << 14  # nodes or events compared at once
_MOMENTS = (0.25, 0.5, 0.75)  # of the events, at which representations are compared, and the end


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """What forgetting a node did, and what it could not do.

    events: how many were about it. again: what is made anew; estimate: what that takes.
    outside: where the events were read from, which has the node as long as its owner does not
        remove it. words: columns in which events of others carry the name as a word.
    remains: models whose weights were learned from its events.
    """

    node: str
    kind: str  # "run" or "model"
    events: int
    again: list[str]
    estimate: str | None = None
    outside: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    remains: dict[str, list[str]] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return it in plain types."""
        return asdict(self)


def forget(
    directory: str | Path,
    node: str,
    *,
    refit: bool = False,
    finish: bool = True,
    progress: Progress | None = None,
) -> Forgotten:
    """Remove a node from every file in the directory of a run or a model.

    Events, history, records and all results are made anew from the events of the others, which keep
    their numbers. The weights of a model stay as they are without `refit`, which trains it anew
    with the same settings and seed, the last 15 % of the events deciding when to stop. A run trains
    again in any case.

    finish: whether to execute a run again. Otherwise it is left as one that was interrupted right
        after its events had been saved, without the node, and `tidegraph resume` finishes it.
    """
    path = Path(directory)
    kind = _kind(path)
    with only_writer(path):
        for leftover in _leftovers(path):  # of a process that was killed
            shutil.rmtree(leftover)
        aside = _beside(path, "forgetting")
        try:
            make = _run_without if kind == "run" else _model_without
            done, made = make(path, aside, node, refit, progress or silent)
            sync_tree(made)
            exchange(made, path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    if kind == "run" and finish:
        Run.resumed(path).execute(progress=progress)
    return done


def _kind(path: Path) -> str:
    """Return whether a directory is that of a run or of a model; raise an error for others."""
    if (path / _WEIGHTS).is_file():
        run = path.absolute().parent.parent
        if (run / stages.FILE).is_file() and (run / CONFIG).is_file():
            raise StateFileError(f"{path} belongs to a run; forget the node in {run}")
        return "model"
    if (path / CONFIG).is_file() and (path / stages.FILE).is_file():
        return "run"
    if (path / MANIFEST).is_file():
        raise StateFileError(
            f"{path} is a store of trajectories, which has no events to be made anew from; remove"
            " the node's rows from the table, record again and delete this one"
        )
    raise StateFileError(
        f"{path} holds no run, no model and no live state; give a directory that tidegraph run,"
        " train or serve wrote"
    )


def _beside(path: Path, what: str) -> Path:
    whole = path.absolute()
    return whole.with_name(f".{whole.name}.{what}")


def _leftovers(path: Path) -> list[Path]:
    """Return what processes that were killed have left beside a directory."""
    found = [_beside(path, what) for what in ("forgetting", "saving", "replaced")]
    found += [unfinished(path)] if (path / _WEIGHTS).is_file() and is_unfinished(path) else []
    return [each for each in found if each.is_dir()]


def _run_without(
    path: Path, aside: Path, node: str, refit: bool, progress: Progress
) -> tuple[Forgotten, Path]:
    """Make a run that was interrupted right after its events had been saved."""
    old = Run.resumed(path)
    rest = _without(old.stream, node)
    strangers = _strangers(path, _OF_RUN, old.stream, node)
    command = old.command
    if command is not None and node in command and node not in str(_read_from(old.settings)):
        command = None
    new = Run(aside, old.settings, rest, command=command)
    new.prepare()
    _carry(strangers, aside)
    about = Forgotten(
        node=node,
        kind="run",
        events=len(old.stream) - len(rest),
        again=["heuristics", "records", "training", "scores", "report"],
        estimate=str(new.estimate()),
        outside=_outside(path, _read_from(old.settings)),
        words=_words(rest, node),
        remains={"models": []},
    )
    return about, aside


def _model_without(
    path: Path, aside: Path, node: str, refit: bool, progress: Progress
) -> tuple[Forgotten, Path]:
    """Make a model of the other events, with the weights of the old one or new ones."""
    model = _load(path)
    rest = _without(model.stream, node)
    strangers = _strangers(path, _OF_MODEL, model.stream, node)
    aside.mkdir()
    fresh: Model
    if refit:
        fresh = type(model)(**{**model.get_params(), "path": str(aside / STORE)})
        fresh.fit(rest, split_stream(rest, None), progress=progress)
    else:
        fresh = model.without(_number(model.stream, node), path=aside / STORE, progress=progress)
    made = aside / "model"
    fresh.save(made)
    _carry(strangers, made)
    report = model.stream.report
    about = Forgotten(
        node=node,
        kind="model",
        events=len(model.stream) - len(rest),
        again=["events", "history", *(["records"] if fresh.reads_record else [])]
        + (["weights"] if refit else []),
        outside=_outside(path, [] if report is None else [report.source]),
        words=_words(rest, node),
        remains={"models": [] if refit else [path.absolute().name]},
    )
    return about, made


def _load(path: Path) -> Model:
    """Return a saved model of any task."""
    task = json.loads((path / "settings.json").read_bytes())["task"]
    kinds = {kind.__name__: kind for kind in MODELS.values()}
    return kinds.get(task, MODELS["link"]).load(path)  # which rejects what it is not


def _number(stream: EventStream, node: str) -> int:
    """Return the number of a node; raise UnknownNodeError for one that was forgotten, too."""
    number = int(stream.number(node))
    if stream.names is not None and number not in stream.names.forgotten():
        return number
    if stream.names is None and _mentions(stream, number):
        return number
    raise UnknownNodeError(f"node {node!r} is unknown; it was forgotten, or never had an event")


def _mentions(stream: EventStream, number: int) -> bool:
    """Return whether an edge or a label of a stream is about a node."""
    initial, labels = stream.initial, stream.node_labels
    columns = [stream.src, stream.dst]
    columns += [] if initial is None else [initial.src, initial.dst]
    columns += [] if labels is None else [labels.node]
    return any(bool((column == number).any()) for column in columns)


def _without(stream: EventStream, node: str) -> EventStream:
    rest = stream.without(_number(stream, node))
    if not len(rest):
        raise DataError(f"all events are about {node!r}; delete the directory instead")
    return rest


def _read_from(settings: Settings) -> list[str]:
    """Return the tables that a run was read from, as its settings name them."""
    data = settings.data
    return [each for each in (data.name, data.labels, *data.node_features) if each]


def _outside(path: Path, sources: list[str]) -> list[str]:
    inside = path.resolve()
    pipe = "-"  # standard input keeps nothing
    return [each for each in sources if each != pipe and inside not in Path(each).resolve().parents]


def _words(stream: EventStream, node: str) -> list[str]:
    """Return the columns in which events carry the name of a node as a word."""
    words = {**stream.vocabulary.categories, "labels": stream.vocabulary.labels}
    return [name for name, known in words.items() if _searched(stream, node) in known]


def _strangers(path: Path, own: re.Pattern[str], stream: EventStream, node: str) -> list[Path]:
    """Return what somebody put into a directory; raise StateFileError if it has the name."""
    found = [each for each in path.iterdir() if not own.fullmatch(each.name)]
    files = (file for each in found for file in _files(each))
    text = _searched(stream, node)
    named = files_with(files, text, whole=_is_part(stream, text))
    if named:
        raise StateFileError(
            f"{named[0]} has the name {node!r} and is no file of tidegraph's; delete it, or move it"
            " away"
        )
    return found


def _carry(strangers: list[Path], target: Path) -> None:
    for each in strangers:
        if each.is_dir():
            shutil.copytree(each, target / each.name, copy_function=link_or_copy)
        else:
            link_or_copy(each, target / each.name)


def _files(path: Path) -> Iterator[Path]:
    yield from sorted(each for each in (path, *path.rglob("*")) if each.is_file())


def _searched(stream: EventStream, node: str) -> str:
    """Return the text to search for: an id without its side, where no node of the other has it."""
    names, side = stream.names, node[:4]
    others = {"src ": "dst ", "dst ": "src "}
    if names is None or not names.by_side or side not in others:
        return node
    return node if names.find([others[side] + node[4:]])[0] >= 0 else node[4:]


def _is_part(stream: EventStream, text: str) -> bool:
    """Return whether the names of others contain a text, alone or one after the other."""
    names = stream.names
    if names is None or names.are_integers:
        return True
    own = {text, f"src {text}", f"dst {text}"} if names.by_side else {text}
    return text in "".join(name for name in names.values.tolist() if name not in own)


# The proof ----------------------------------------------------------------------------------------


def audit_forgetting(
    directory: str | Path, node: str, *, progress: Progress | None = None
) -> Certificate:
    """Search the directory of a run or a model for a node, make all models anew from the events
    without it, and return what was found.
    """
    path, report = Path(directory), progress or silent
    kind = _kind(path)
    with only_writer(path):
        of_seeds = (each.parent for each in sorted(path.glob(f"seed-*/model/{_WEIGHTS}")))
        models = {each: _load(each) for each in ([path] if kind == "model" else of_seeds)}
        streams = [model.stream for model in models.values()]
        if kind == "run":
            streams.insert(0, Run.resumed(path).stream)
        known = any(_is_known(stream, node) for stream in streams)
        nameless = sum(map(_nameless_events, streams))
        ratio, distance = 0.0, 0.0
        for model in models.values():
            nameless += _nameless_records(model)
            compared = _compared(model, node, prefixed(report, "computing anew, "))
            ratio, distance = max(ratio, compared[0]), max(distance, compared[1])
        files = [file for each in (path, *_leftovers(path)) for file in _files(each)]
        text = _searched(streams[0], node)
        whole = _is_part(streams[0], text)
        # Names in tables follow each other; these were read and looked up.
        tables = {"events.tide", _EVENTS, "names.json"} if whole else set()
        report(0, 1, "searching every byte")
        found = files_with((each for each in files if each.name not in tables), text, whole=whole)
    stream, total = streams[0], sum(file.stat().st_size for file in files)
    forgotten = 0 if stream.names is None else len(stream.names.forgotten())
    return Certificate(
        node=node,
        directory=path.absolute().name,
        audited=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        tidegraph=version("tidegraph"),
        files=len(files),
        bytes=total,
        found=[str(file.absolute().relative_to(path.absolute().parent)) for file in found],
        by_chance=total * 256.0 ** -len(text.encode()),
        known=known,
        nameless_rows=nameless,
        events=len(stream),
        nodes=stream.nodes - forgotten,
        rebuilt_from="those in the directory" if models else "of which there is no model yet",
        ratio=ratio,
        largest_distance=distance,
        forgotten=forgotten,
        remains={
            "models": [
                str(each.relative_to(path)) if each != path else path.absolute().name
                for each, model in models.items()
                if model.forgotten_since_
            ]
        },
    )


def _is_known(stream: EventStream, node: str) -> bool:
    try:
        _number(stream, node)
    except UnknownNodeError:
        return False
    return True


def _nameless_events(stream: EventStream) -> int:
    """Return how many events are about nodes that were forgotten."""
    if stream.names is None:
        return 0
    gone = stream.names.forgotten()
    return int((np.isin(stream.src, gone) | np.isin(stream.dst, gone)).sum())


def _nameless_records(model: Model) -> int:
    """Return how many states are stored of nodes that were forgotten, after their first."""
    names, record = model.stream.names, model._record
    if names is None or record is None:
        return 0
    return sum(len(record.changes(node)[0]) - 1 for node in names.forgotten().tolist())


def _compared(model: Model, node: str, progress: Progress) -> tuple[float, float]:
    """Return how far a model is from one made anew without the node, in terms of the bounds and as
    it is; infinitely far where it counts other events.
    """
    stream, unlike = model.stream, (float("inf"), float("inf"))
    if _is_known(stream, node):
        stream = stream.without(_number(stream, node))
    with tempfile.TemporaryDirectory(prefix="tidegraph-") as place:
        fresh = model.rebuilt(stream, path=Path(place) / STORE, progress=progress)
        own, other = model._history, fresh._history
        newest = stream[-_AT_ONCE:]
        pairs = newest.src, newest.dst, newest.t
        if not np.array_equal(own.of_links(*pairs), other.of_links(*pairs)):
            return unlike
        times = {*np.quantile(stream.t, _MOMENTS).astype(np.int64).tolist(), int(stream.t[-1]) + 1}
        ratio, distance = 0.0, 0.0
        for t, first in itertools.product(times, range(0, stream.nodes, _AT_ONCE)):
            nodes = np.arange(first, min(first + _AT_ONCE, stream.nodes))
            asked = nodes, np.full(len(nodes), t)
            if not np.array_equal(own.of_nodes(*asked), other.of_nodes(*asked)):
                return unlike
            if model._record is not None and fresh._record is not None:
                records = model._record, fresh._record
                states = [each.state(*asked).astype(np.float64) for each in records]
                far = np.linalg.norm(states[0] - states[1], axis=2)
                allowed = records[0].bound(*asked) + records[1].bound(*asked)
                ratio = max(ratio, float((far / allowed).max()))
                distance = max(distance, float(far.max()))
    return ratio, distance

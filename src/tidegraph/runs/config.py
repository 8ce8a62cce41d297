"""What a run is told: one tree of settings with types and defaults, from TOML and to TOML.

Nothing is imported that takes long before model settings are looked at, so that a mistyped word is
refused at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tidegraph.core.errors import ParameterError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "Data",
    "Evaluation",
    "Report",
    "Settings",
    "assignments",
    "defaults",
    "differences",
    "leaves",
    "parse",
    "read",
    "settle",
    "value_of",
]

Tree = Mapping[str, Any]  # of settings by name, those of a section in a tree of their own

_BY_RUN = ("seed", "path")  # settings of a model that the run decides
_NO_NUMBERS = ("keep", "report.html", "report.tensorboard", "model.threads")  # change none
_LEAST_LIKE = 0.5  # how alike two names are at least to be proposed for each other


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which events, and how a file of them is to be understood."""

    name: str  # of a data set, or the path of a file
    format: Literal["auto", "table", "jodie", "tgn", "tgl", "snap"] = "auto"
    src: str | None = None  # columns; None: guessed
    dst: str | None = None
    time: str | None = None
    weight: str | None = None
    label: str | None = None
    edge_features: tuple[str, ...] = ()
    bipartite: bool = False
    unit: str | None = None
    sort: bool = True
    on_bad: Literal["error", "drop"] = "error"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How events are divided, and what is asked about those kept for the test."""

    protocol: Literal["tgn", "tgb", "time", "roland"] = "tgn"
    # Of negatives. None: random-dst and historical, or none where the protocol has none.
    samplers: tuple[Literal["random-dst", "random-all", "historical", "inductive"], ...] | None = (
        None
    )
    rank: bool = False  # also ranks all destinations
    rank_sample: int | None = None  # for so many test events only
    validation_after: int | float | str | None = None  # of the protocol time
    test_after: int | float | str | None = None
    snapshot_seconds: int | None = None  # of the protocol roland
    first_test: int | None = None
    live: bool = False  # whether it goes on learning, snapshot by snapshot


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is written beside the numbers."""

    html: bool = True
    tensorboard: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides on the outcome of a run.

    What `given` does not say of the model follows from preset, protocol and data. A file keeps
    `given` alone, so that with another of these the rest follows anew.
    """

    task: Literal["link", "node"] = "link"
    seeds: tuple[int, ...] = (0,)  # one training each
    preset: str | None = None  # of the model; None: that of the task
    keep: bool = False  # the models of all seeds, not of the first alone
    data: Data
    evaluation: Evaluation = field(default_factory=Evaluation)
    model: Mapping[str, Any] = field(default_factory=dict)  # all settings of the task's model
    report: Report = field(default_factory=Report)
    given: Mapping[str, Any] = field(default_factory=dict)  # those of the model that were set

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds) or min(self.seeds) < 0:
            raise ParameterError(
                f"seeds are {list(self.seeds)}; give at least one, each once, none below 0"
            )

    def to_dict(self) -> dict[str, Any]:
        """The whole tree in the types of JSON, with all settings of the model."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        del plain["given"]
        return plain

    def to_toml(self) -> str:
        """What was given, as `settle` takes it again; the model's other settings as comments."""
        tree = self.to_dict()
        given = {name: value for name, value in tree["model"].items() if name in self.given}
        others = {name: value for name, value in tree["model"].items() if name not in given}
        notes = ["What follows from preset, protocol and data:", *_lines(others)]
        return _toml({**tree, "model": given}, {"model": notes if others else []})


# Into the tree ------------------------------------------------------------------------------------


def read(path: str | Path) -> dict[str, Any]:
    """The settings in a TOML file, as they are written; `settle` judges them."""
    try:
        return parse(Path(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ParameterError(f"{path} is not text in UTF-8: {error}") from error


def parse(text: str, source: str = "the text") -> dict[str, Any]:
    """The settings in a text in TOML, as they are written."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(
            f'{source} is not TOML ({error}); a line is like task = "link", a section like [model]'
        ) from error


def assignments(words: Iterable[str], task: str = "link") -> dict[str, Any]:
    """`KEY=VALUE` words as a tree; values are of the type that the key's setting has.

    A key is dotted, as in `model.epochs`. One that only one section knows needs no dot.
    """
    tree: dict[str, Any] = {}
    words = list(words)
    task = next((word[len("task=") :] for word in words if word.startswith("task=")), task)
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise ParameterError(f"{word!r} is not KEY=VALUE, such as model.epochs=4")
        *sections, name = _full_key(key, task).split(".")
        hints = _hints(sections[0] if sections else "", task)
        place = tree
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value_of(".".join([*sections, name]), text, hints[name])
    return tree


def settle(*layers: Tree) -> Settings:
    """The settings of several trees, where a later one overrides the earlier ones.

    What none of them sets has its default; for the model that is what its preset says, the one that
    is named or else that of the task and the protocol. A layer that names another task or preset
    begins the model anew: what earlier ones say of it is dropped. Unknown names and wrong types are
    refused.
    """
    given: dict[str, Any] = {}
    for layer in layers:
        if "model" in given and _begins_anew(given, layer):
            del given["model"]
        _overlay(given, layer)
    task = _checked("task", given.get("task", "link"), _hints("", "link")["task"])
    _check(given, task)
    if "name" not in given.get("data", {}):
        raise ParameterError(
            "no data is named; give the name of a data set or a file of events: DATA on the command"
            " line, or name under [data]"
        )
    plain: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {name: {} for name in (*_SECTIONS, "model")}
    for name, value in given.items():
        if name in sections:
            hints = _hints(name, task)
            sections[name] = {
                key: _checked(f"{name}.{key}", each, hints[key]) for key, each in value.items()
            }
        else:
            plain[name] = _checked(name, value, _hints("", task)[name])
    typed = {name: kind(**sections[name]) for name, kind in _SECTIONS.items()}
    settled = Settings(**plain, **typed, given=sections["model"])
    return dataclasses.replace(settled, model=_model(settled))


def _begins_anew(given: Tree, layer: Tree) -> bool:
    """Whether a layer names another task or preset than the one that is in force without it."""
    if "task" not in layer and "preset" not in layer:
        return False
    after = dict(given)
    _overlay(after, layer)
    before = {**after, "task": given.get("task"), "preset": given.get("preset")}
    return _task_and_preset(before) != _task_and_preset(after)


def _task_and_preset(tree: Tree) -> tuple[Any, str]:
    from tidegraph.learning.tasks import preset_name

    task, named, evaluation = (tree.get(name) for name in ("task", "preset", "evaluation"))
    protocol = evaluation.get("protocol") if isinstance(evaluation, Mapping) else None
    task = "link" if task is None else task
    return task, preset_name(None if named == "none" else named, task=task, protocol=protocol)


def _model(settings: Settings) -> dict[str, Any]:
    """All settings of the model but those that the run decides."""
    from tidegraph.runs.trials import model_settings

    known = model_settings(
        settings.given,
        task=settings.task,
        protocol=settings.evaluation.protocol,
        preset=settings.preset,
        name=settings.data.name,
    )
    _model_type(settings.task)(**known)  # judges them
    return known


def defaults(task: str = "link") -> dict[str, Any]:
    """All settings by their dotted keys, with what they are where nothing is given."""
    tree = settle({"task": task, "data": {"name": ""}}).to_dict()
    return dict(leaves(tree))


def differences(a: Settings, b: Settings) -> list[str]:
    """The dotted keys of settings that differ and may change a number."""
    one, other = (dict(leaves(settings.to_dict())) for settings in (a, b))
    keys = [key for key in {**one, **other} if key not in _NO_NUMBERS]
    return [key for key in keys if one.get(key) != other.get(key)]


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of a tree as `Settings.to_dict` gives it."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and not prefix:
            yield from leaves(value, f"{name}.")
        else:
            yield prefix + name, value


def _overlay(tree: dict[str, Any], layer: Tree) -> None:
    for name, value in layer.items():
        if isinstance(value, Mapping) and isinstance(tree.get(name, {}), Mapping):
            tree[name] = {**tree.get(name, {}), **value}
        else:
            tree[name] = value


# Names --------------------------------------------------------------------------------------------

_SECTIONS: dict[str, Any] = {"data": Data, "evaluation": Evaluation, "report": Report}


def _model_type(task: str) -> Any:
    from tidegraph.learning.tasks import LinkPredictor, NodeClassifier

    return NodeClassifier if task == "node" else LinkPredictor


@cache
def _hints(section: str, task: str) -> dict[str, Any]:
    """The types of the settings of a section, or of those outside all sections."""
    kind = _model_type(task) if section == "model" else _SECTIONS.get(section, Settings)
    hints = get_type_hints(kind)
    names = [each.name for each in dataclasses.fields(kind)]
    hidden = _BY_RUN if section == "model" else ("given",)
    return {name: hints[name] for name in names if name not in hidden}


def _check(tree: Tree, task: str) -> None:
    """Refuses names that no setting has."""
    top = _hints("", task)
    sections = (*_SECTIONS, "model")
    for name, value in tree.items():
        if name not in top:
            raise _unknown(name, task)
        if name in sections and not isinstance(value, Mapping):
            raise ParameterError(f"{name} is {value!r}; it is a section: write [{name}] and lines")
        if name in sections:
            for key in value:
                if key not in _hints(name, task):
                    raise _unknown(f"{name}.{key}", task)


def _full_key(key: str, task: str) -> str:
    """The dotted key that a user means."""
    sections = (*_SECTIONS, "model")
    section, dot, name = key.partition(".")
    if dot and section in sections and name in _hints(section, task):
        return key
    if not dot and key in _hints("", task) and key not in sections:
        return key
    if not dot:
        found = [section for section in sections if key in _hints(section, task)]
        if len(found) == 1:
            return f"{found[0]}.{key}"
    raise _unknown(key, task)


def _unknown(key: str, task: str) -> ParameterError:
    """An error that proposes the nearest name there is."""
    *_, name = key.split(".")
    if name in _BY_RUN:
        return ParameterError(f"the setting {key!r} is decided by the run; leave it out")
    sections = (*_SECTIONS, "model")
    known = [name for name in _hints("", task) if name not in sections]
    known += [f"{section}.{name}" for section in sections for name in _hints(section, task)]
    # By the last word first: a right name in the wrong section is a likely mistake.
    last = {full.rpartition(".")[2]: full for full in (*sections, *known)}
    near = difflib.get_close_matches(name, last, n=1, cutoff=_LEAST_LIKE)
    proposed = last[near[0]] if near else ""
    if not near:
        proposed = next(iter(difflib.get_close_matches(key, known, n=1, cutoff=_LEAST_LIKE)), "")
    advice = f"did you mean {proposed!r}? " if proposed else ""
    return ParameterError(
        f"there is no setting {key!r}; {advice}`tidegraph run --set help` lists what there is"
    )


# Values -------------------------------------------------------------------------------------------

_IN_WORDS = {int: "a whole number", float: "a number", str: "a word", NoneType: "none"}
_IN_WORDS |= {bool: "true or false", dict: 'an object like {"heads": 4}'}


def value_of(name: str, text: str, hint: Any) -> Any:
    """The value that a user means by `text` where one of type `hint` is expected."""
    try:
        value = json.loads("null" if text in ("none", "None") else text)
    except json.JSONDecodeError:
        value = text
    fitting = _fitting(value, hint)
    if fitting is _NOTHING and isinstance(value, (bool, int, float)):
        fitting = _fitting(text, hint)  # a word that happens to look like a number
    if fitting is _NOTHING and not isinstance(value, list):
        # Words parted by commas, where a list of words or of whole numbers is expected.
        fitting = _fitting([_word(word) for word in text.split(",")], hint, only=tuple)
    if fitting is _NOTHING:
        raise _misfit(name, text, hint)
    return fitting


def _word(text: str) -> Any:
    return int(text) if text.strip().isdecimal() else text.strip()


def _checked(name: str, value: Any, hint: Any) -> Any:
    """A value of a TOML file as the type has it; what TOML cannot say, "none" says."""
    fitting = _fitting(None, hint) if value == "none" else _NOTHING
    if fitting is _NOTHING:
        fitting = _fitting(value, hint)
    if fitting is _NOTHING:
        raise _misfit(name, value, hint)
    return fitting


_NOTHING = object()


def _fitting(value: Any, hint: Any, only: Any = None) -> Any:
    """The value as the type has it, or `_NOTHING` where it has none like it."""
    for kind in _alternatives(hint):
        origin = get_origin(kind) or kind
        if only is not None and origin is not only:
            continue
        if origin is Literal:
            if value in get_args(kind) and not isinstance(value, bool):
                return value
        elif isinstance(value, bool) or origin is bool:
            if isinstance(value, bool) and origin is bool:
                return value
        elif isinstance(value, (list, tuple)):
            if origin is tuple or (isinstance(origin, type) and issubclass(list, origin)):
                fitting = [_fitting(each, get_args(kind)[0]) for each in value]
                if _NOTHING not in fitting:
                    return tuple(fitting) if origin is tuple else fitting
        elif origin is float:
            if isinstance(value, (int, float)):
                return float(value)
        elif isinstance(origin, type) and origin in _IN_WORDS and isinstance(value, origin):
            return value
    return _NOTHING


def _alternatives(hint: Any) -> Sequence[Any]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _misfit(name: str, value: Any, hint: Any) -> ParameterError:
    shown = value if isinstance(value, str) else json.dumps(value, default=str)
    kinds = [kind for kind in _alternatives(hint) if get_origin(kind) is not Callable]
    wanted = " or ".join(dict.fromkeys(map(_in_words, kinds)))
    return ParameterError(f"the setting {name} is {shown!r}; give {wanted}")


def _in_words(kind: Any) -> str:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return "one of " + ", ".join(get_args(kind))
    if origin is tuple:
        each = get_args(kind)[0]
        if get_origin(each) is Literal:
            return "a list of " + ", ".join(get_args(each))
        return "a list like [0, 1, 2]" if each is int else "a list of words"
    return _IN_WORDS.get(origin, "a list like [60,3600]")


# Out of the tree ----------------------------------------------------------------------------------


def _toml(tree: Tree, notes: Mapping[str, Sequence[str]]) -> str:
    """A tree of one level of sections in TOML, with comments by section; None is the word none."""
    lines = _lines({name: value for name, value in tree.items() if not isinstance(value, Mapping)})
    for name, section in tree.items():
        if isinstance(section, Mapping):
            lines += ["", f"[{name}]", *_lines(section)]
            lines += [f"# {note}" for note in notes.get(name, ())]
    return "\n".join(lines) + "\n"


def _lines(section: Tree) -> list[str]:
    return [f"{name} = {_as_toml(value)}" for name, value in section.items()]


def _as_toml(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{_key(key)} = {_as_toml(each)}" for key, each in value.items()) + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_as_toml, value)) + "]"
    if isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(value)  # inf and nan are words of TOML too
    # The escapes of JSON are escapes of TOML, but JSON leaves one control character as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else _as_toml(name)

"""The settings of a run: resolved from layers of TOML, options and `KEY=VALUE` words, and to TOML.

`learning.settings` declares each of them. Imports no torch, so that mistakes are found at once.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tidegraph.core.declarations import Setting, assignment, declared, nearest
from tidegraph.core.errors import ParameterError
from tidegraph.learning.presets import QUICK, model_settings, preset_name
from tidegraph.learning.settings import (
    SECTIONS,
    Data,
    Evaluation,
    Report,
    RunSettings,
    model_settings_of,
    task_name,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Tree = Mapping[str, Any]  # settings by name, those of a section in a tree of their own


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings):
    """All settings that decide the outcome of a run.

    `given` holds the model's settings that were set; the others follow from preset, protocol and
    data. A file keeps `given` alone, so that they follow again where one of these changes.
    """

    data: Data
    evaluation: Evaluation = field(default_factory=Evaluation)
    report: Report = field(default_factory=Report)
    model: Mapping[str, Any] = field(default_factory=dict)  # all settings of the task's model
    given: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ParameterError(f"seeds are {list(self.seeds)}; give at least one, each once")

    def to_dict(self) -> dict[str, Any]:
        """Return the whole tree in the types of JSON, with all settings of the model."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        del plain["given"]
        return plain

    def to_toml(self) -> str:
        """Return what was given, for `resolve`, with the model's other settings as comments."""
        import tomli_w

        tree = _without_none(self.to_dict())
        others = {name: tree["model"].pop(name) for name in self.model if name not in self.given}
        _, *lines = tomli_w.dumps({"model": others}).splitlines()
        comments = ["From preset, protocol and data:", *lines]
        return tomli_w.dumps(tree) + "".join(f"# {line}".rstrip() + "\n" for line in comments)


def _without_none(value: Any) -> Any:
    """Return a tree with the word none for None, which TOML lacks."""
    if isinstance(value, Mapping):
        return {name: _without_none(each) for name, each in value.items()}
    return "none" if value is None else value


def read(path: str | Path) -> dict[str, Any]:
    """Return the settings in a TOML file as they are written; `resolve` checks them."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ParameterError(f"{path} is not text in UTF-8: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(
            f'{path} is not TOML ({error}); a line is like task = "link", a section like [model]'
        ) from error


def assignments(words: Iterable[str], task: str = "link") -> dict[str, Any]:
    """Return `KEY=VALUE` words as a tree, each value of its setting's type.

    A key is dotted, as in `model.epochs`; the dot may be left out where one section alone knows the
    name.
    """
    tree: dict[str, Any] = {}
    words = list(words)
    task = next((word[len("task=") :] for word in words if word.startswith("task=")), task)
    task = task_name(task)
    for key, text in map(assignment, words):
        full = _full_key(key, task)
        text = task_name(text) if full == "task" else text
        section, _, name = full.rpartition(".")
        place = tree.setdefault(section, {}) if section else tree
        place[name] = settings_by_key(task)[full].parse(text, full)
    return tree


def resolve(*layers: Tree) -> Settings:
    """Return the settings of several trees, in which a later one overrides the earlier ones.

    A setting in none of them has its default; for the model that is the preset's, the one named or
    else that of the task and the protocol. A layer with another task or preset starts the model
    afresh, without the model settings of earlier layers. Raise ParameterError for unknown names and
    wrong values.
    """
    given: dict[str, Any] = {}
    for layer in layers:
        if isinstance(layer.get("task"), str):
            layer = {**layer, "task": task_name(layer["task"])}
        if "model" in given and _restarts_model(given, layer):
            del given["model"]
        _overlay(given, layer)
    task = declared(RunSettings)["task"].convert(given.get("task", "link"))
    sections: dict[str, dict[str, Any]] = {"": {}, "model": {}, **{name: {} for name in SECTIONS}}
    for key, value in _checked(given, task):
        section, _, name = key.rpartition(".")
        sections[section][name] = settings_by_key(task)[key].convert(value, key)
    if "name" not in sections["data"]:
        raise ParameterError(
            "no data is named; give the name of a data set or a file of events: DATA on the command"
            " line, or name under [data]"
        )
    typed = {name: kind(**sections[name]) for name, kind in SECTIONS.items()}
    settings = Settings(**sections[""], **typed, given=sections["model"])
    model = model_settings(
        {**(QUICK if settings.quick else {}), **settings.given},
        task=task,
        protocol=settings.evaluation.protocol,
        named=settings.preset,
        data=settings.data.name,
    )
    model_settings_of(task)(**model)  # checks how they fit together
    return dataclasses.replace(settings, model=model)


def _restarts_model(given: Tree, layer: Tree) -> bool:
    """Whether a layer names another task or preset than the one in force without it."""
    after = dict(given)
    _overlay(after, layer)
    before = {**after, "task": given.get("task"), "preset": given.get("preset")}
    named = "task" in layer or "preset" in layer
    return named and _task_and_preset(before) != _task_and_preset(after)


def _task_and_preset(tree: Tree) -> tuple[Any, str]:
    task, named, evaluation = (tree.get(name) for name in ("task", "preset", "evaluation"))
    protocol = evaluation.get("protocol") if isinstance(evaluation, Mapping) else None
    task = "link" if task is None else task
    return task, preset_name(None if named == "none" else named, task=task, protocol=protocol)


def _overlay(tree: dict[str, Any], layer: Tree) -> None:
    for name, value in layer.items():
        if isinstance(value, Mapping) and isinstance(tree.get(name, {}), Mapping):
            tree[name] = {**tree.get(name, {}), **value}
        else:
            tree[name] = value


def differences(a: Settings, b: Settings) -> list[str]:
    """Return the dotted keys of settings that differ and may change a number."""
    one, other = (dict(leaves(settings.to_dict())) for settings in (a, b))
    inert = {key for key, each in settings_by_key(a.task).items() if each.inert}
    keys = [key for key in {**one, **other} if key not in inert]
    return [key for key in keys if one.get(key) != other.get(key)]


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of a tree."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and not prefix:
            yield from leaves(value, f"{name}.")
        else:
            yield prefix + name, value


@cache
def settings_by_key(task: str) -> dict[str, Setting]:
    """Return the declarations of all settings of a run, by their dotted keys."""
    known = dict(declared(RunSettings))
    for section, kind in {**SECTIONS, "model": model_settings_of(task)}.items():
        own = declared(kind).items()
        known |= {f"{section}.{name}": each for name, each in own if not each.by_run}
    return known


def _checked(tree: Tree, task: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of a tree; raise ParameterError for an unknown one."""
    for name, value in tree.items():
        is_section = name in (*SECTIONS, "model")
        if is_section and not isinstance(value, Mapping):
            raise ParameterError(
                f"{name} is {value!r}, and it is a section: write [{name}] and lines below it"
            )
        for key, each in leaves({name: value}) if is_section else [(name, value)]:
            if key not in settings_by_key(task):
                raise _unknown(key, task)
            yield key, each


def _full_key(key: str, task: str) -> str:
    """Return the dotted key that a user means."""
    known = settings_by_key(task)
    found = [full for full in known if full.partition(".")[2] == key]
    if key not in known and len(found) != 1:
        raise _unknown(key, task)
    return key if key in known else found[0]


def _unknown(key: str, task: str) -> ParameterError:
    """Return an error that suggests the nearest name."""
    known = settings_by_key(task)
    *_, name = key.split(".")
    model = declared(model_settings_of(task))
    if name in model and model[name].by_run:
        return ParameterError(f"the run decides the setting {key!r}; leave it out")
    # By the last word first: a right name in the wrong section is a likely mistake.
    last = {full.rpartition(".")[2]: full for full in (*SECTIONS, "model", *known)}
    near = nearest(name, last)
    suggested = nearest(key, known) if near is None else last[near]
    advice = f"did you mean {suggested!r}? " if suggested else ""
    return ParameterError(
        f"there is no setting {key!r}; {advice}`tidegraph run --set help` lists what there is"
    )

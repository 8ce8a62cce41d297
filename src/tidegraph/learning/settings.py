"""Every setting of a run, declared once: type, default, choices, range and meaning.

The estimators inherit their settings from the classes here. The command line, `--set`, TOML files,
sweeps, presets and the tables in docs/parameters.md read the same declarations through `declared`.
Imports neither NumPy nor torch, so that a mistyped setting is rejected at once.
"""
# ruff: noqa: RUF009 (a field of a dataclass is declared by a call)

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from tidegraph.core.errors import ParameterError

__all__ = [
    "PROTOCOLS",
    "RECORD_SETTINGS",
    "SAMPLERS",
    "SECTIONS",
    "Data",
    "Evaluation",
    "LinkSettings",
    "NodeSettings",
    "Report",
    "RunSettings",
    "Setting",
    "TrainingSettings",
    "activity_half_lives",
    "assignment",
    "assignments",
    "declared",
    "default_half_lives",
    "model_settings_of",
    "nearest",
    "validate",
]

Task: TypeAlias = Literal["link", "node"]
Protocol: TypeAlias = Literal["tgn", "tgb", "time", "roland"]
Sampler: TypeAlias = Literal["random-dst", "random-all", "historical", "inductive"]
Format: TypeAlias = Literal["auto", "table", "jodie", "tgn", "tgl", "snap"]
OnBad: TypeAlias = Literal["error", "drop"]
EncoderName: TypeAlias = Literal["state", "lstm", "gru", "transformer"]
DecoderName: TypeAlias = Literal["pair", "concatenation", "hadamard"]

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)

_SIMILAR = 0.5  # how alike two names are at least for one to be suggested for the other


# Half-lives ---------------------------------------------------------------------------------------


def default_half_lives(span: float) -> tuple[float, ...]:
    """Return the half-lives of the channels that forget, for a training period of this length.

    >>> default_half_lives(60.0)
    (2.0,)
    """
    return (span / 30,)


def activity_half_lives(span: float) -> tuple[float, ...]:
    """Return the half-lives over which recent activity is counted, for this training period."""
    return tuple(span / part for part in (3000, 300, 30, 3))


# Declaring ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What is known of one setting; `convert` and `parse` accept its values and reject others.

    A range holds for a number, and for each number of a list.
    """

    name: str
    hint: Any
    default: Any
    meaning: str
    advice: str = ""  # when to change it
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    by_run: bool = False  # the run decides it, so that users of `run` cannot
    inert: bool = False  # no number depends on it

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it accepts, where it accepts only some."""
        kinds = [kind for each in _alternatives(self.hint) for kind in (each, *get_args(each))]
        return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())

    @property
    def described(self) -> str:
        """Its meaning, and its choices where it has some."""
        return self.meaning + (f" ({', '.join(self.choices)})" if self.choices else "")

    @property
    def accepted(self) -> str:
        """What it accepts, in words."""
        kinds = [each for each in _alternatives(self.hint) if get_origin(each) is not Callable]
        return " or ".join(dict.fromkeys(self._in_words(kind) for kind in kinds))

    def convert(self, value: Any, name: str | None = None) -> Any:
        """Return the value as the setting's type has it, or raise ParameterError.

        In TOML, which has no null, the word "none" stands for it. `name` is the name to use in
        the error, where that is not the setting's own.
        """
        converted = _fitted(None, self.hint) if value == "none" else _MISFIT
        if converted is _MISFIT:
            converted = _fitted(value, self.hint)
        if converted is _MISFIT or not self._in_range(converted):
            raise self._rejected(value, name)
        return converted

    def parse(self, text: str, name: str | None = None) -> Any:
        """Return the value that a user means by `text`, or raise ParameterError."""
        try:
            value = json.loads("null" if text in ("none", "None") else text)
        except json.JSONDecodeError:
            value = text
        converted = _fitted(value, self.hint)
        if converted is _MISFIT and isinstance(value, (bool, int, float)):
            converted = _fitted(text, self.hint)  # a word that happens to look like a number
        if converted is _MISFIT and not isinstance(value, list):
            words = [word.strip() for word in text.split(",")]
            items = [int(word) if word.isdecimal() else word for word in words]
            converted = _fitted(items, self.hint, only=tuple)
        if converted is _MISFIT or not self._in_range(converted):
            raise self._rejected(value, name)
        return converted

    def check(self, value: Any) -> None:
        """Raise ParameterError unless the setting accepts the value; callables are as given."""
        if callable(value) and any(get_origin(k) is Callable for k in _alternatives(self.hint)):
            return
        fitted = _fitted(value, self.hint)
        if fitted is _MISFIT or not self._in_range(fitted):
            raise self._rejected(value, None)

    def _rejected(self, value: Any, name: str | None) -> ParameterError:
        return ParameterError(f"{name or self.name} is {value!r}; give {self.accepted}")

    def _in_range(self, value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return all(map(self._in_range, value))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    @property
    def _range(self) -> str:
        if self.above is not None:
            between = self.below is not None
            return f" between {self.above} and {self.below}" if between else f" above {self.above}"
        if self.least is None:
            return ""
        end = "on" if self.most is None else f"to {self.most}"
        end = end if self.below is None else f"to below {self.below}"
        return f" from {self.least} {end}"

    def _in_words(self, kind: Any) -> str:
        origin = get_origin(kind) or kind
        if origin is Literal:
            return "one of " + ", ".join(get_args(kind))
        if origin in (int, float):
            return f"a {'whole ' if origin is int else ''}number{self._range}"
        if origin is tuple:
            (each, *_) = get_args(kind)
            if get_origin(each) is Literal:
                return "a list of " + ", ".join(get_args(each))
            return f"a list like [0, 1, 2]{self._range}" if each is int else "a list of words"
        return _IN_WORDS.get(origin, "a list like [60,3600]")


_IN_WORDS = {str: "a word", NoneType: "none", bool: "true or false", PathLike: "a path"}
_IN_WORDS |= {dict: 'an object like {"heads": 4}'}
_MISFIT = object()


def _alternatives(hint: Any) -> Sequence[Any]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _fitted(value: Any, hint: Any, only: Any = None) -> Any:
    """Return the value as the type has it, or `_MISFIT` where the type has no such value."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of NumPy
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
                items = [_fitted(each, get_args(kind)[0]) for each in value]
                if _MISFIT not in items:
                    return tuple(items) if origin is tuple else items
        elif origin is float:
            if isinstance(value, (int, float)):
                return float(value)
        elif origin in (int, *_IN_WORDS) and isinstance(value, origin):
            return value
    return _MISFIT


def _setting(default: Any, meaning: str, advice: str = "", **more: Any) -> Any:
    """Return the field of a setting, to stand after its type."""
    return field(default=default, metadata={"meaning": meaning, "advice": advice, **more})


def _inherited(kind: Any, name: str, default: Any) -> Any:
    """Return the field of a setting that differs from the parent's only in its default."""
    (known,) = (each for each in dataclasses.fields(kind) if each.name == name)
    return field(default=default, metadata=known.metadata)


def declared(kind: Any) -> dict[str, Setting]:
    """Return the settings that a class declares or inherits, by name."""
    return _declared(kind)


@cache
def _declared(kind: Any) -> dict[str, Setting]:
    hints = get_type_hints(kind)
    return {
        each.name: Setting(each.name, hints[each.name], each.default, **each.metadata)
        for each in dataclasses.fields(kind)
        if each.metadata
    }


def validate(settings: Any) -> None:
    """Raise ParameterError where a value is not one that its setting accepts."""
    for name, setting in declared(type(settings)).items():
        setting.check(getattr(settings, name))


# Asking for settings by name ----------------------------------------------------------------------


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like this one, if any is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=_SIMILAR)), None)


def assignment(word: str, example: str = "model.epochs=4") -> tuple[str, str]:
    """Return both sides of a `NAME=VALUE` word."""
    name, equals, text = word.partition("=")
    if not equals:
        raise ParameterError(f"{word!r} is not NAME=VALUE, such as {example}")
    return name, text


def assignments(kind: type, words: Iterable[str]) -> dict[str, Any]:
    """Return the settings that `NAME=VALUE` words assign, each of its setting's type.

    >>> assignments(LinkSettings, ["epochs=4", "half_lives=[60]"])
    {'epochs': 4, 'half_lives': [60.0]}
    """
    known, chosen = declared(kind), {}
    for name, text in (assignment(word, "epochs=4") for word in words):
        if name not in known:
            near = nearest(name, known)
            advice = f"did you mean {near!r}? " if near else ""
            raise ParameterError(
                f"there is no setting {name!r}; {advice}`--set help` lists what there is"
            )
        chosen[name] = known[name].parse(text)
    return chosen


# A run --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Data:
    """Which events to read, and how to understand a file of them."""

    name: str = _setting("", "the name of a data set, or the path of a file")
    format: Format = _setting("auto", "format of the file")
    src: str | None = _setting(None, "the column that says who acts; none: guessed")
    dst: str | None = _setting(None, "the column that says on whom; none: guessed")
    time: str | None = _setting(None, "the column that says when; none: guessed")
    weight: str | None = _setting(None, "the column that says how much, above 0")
    label: str | None = _setting(None, "the column with the state of the source at the event")
    edge_features: tuple[str, ...] = _setting((), "columns of numbers that describe events")
    bipartite: bool = _setting(False, "whether an id is one node as src and another as dst")
    unit: str | None = _setting(None, "unit of the times, such as s or day")
    sort: bool = _setting(True, "whether to sort rows by time instead of rejecting unsorted ones")
    on_bad: OnBad = _setting("error", "what to do with a row that cannot be used")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How to divide events, and what to ask about those held out for the test."""

    protocol: Protocol = _setting("tgn", "how to divide events")
    samplers: tuple[Sampler, ...] | None = _setting(
        None,
        "samplers of negatives, such as random-dst,historical; none: these two, or no negatives"
        " where the protocol has none",
    )
    rank: bool = _setting(False, "whether to rank all destinations too")
    rank_sample: int | None = _setting(None, "rank for so many test events only", least=1)
    validation_after: int | float | str | None = _setting(
        None, "when validation begins, for the protocol time: a number or an ISO date"
    )
    test_after: int | float | str | None = _setting(
        None, "when the test begins, for the protocol time: a number or an ISO date"
    )
    snapshot_seconds: int | None = _setting(
        None, "width of a snapshot, for the protocol roland; none: as published", least=1
    )
    first_test: int | None = _setting(
        None, "the first test task of the protocol roland; none: as published", least=1
    )
    live: bool = _setting(
        False, "whether the model goes on learning from snapshots once they are known"
    )


@dataclass(frozen=True, kw_only=True)
class Report:
    """What to write besides the numbers."""

    html: bool = _setting(True, "whether to write report.html", inert=True)
    tensorboard: bool = _setting(False, "whether to write curves for TensorBoard", inert=True)


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings of a run that belong to no section."""

    task: Task = _setting("link", "link: which pairs meet; node: the classes of nodes")
    seeds: tuple[int, ...] = _setting((0,), "one training per seed, such as 0,1,2", least=0)
    preset: str | None = _setting(
        None, "settings of the model by name, such as historical; none: those of the task"
    )
    keep: bool = _setting(
        False, "whether to keep the models of all seeds, not just of the first", inert=True
    )


# A model ------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)
class RecordSettings:
    """Propagation and its record; models with the same of these can share a record."""

    columns: int = _setting(
        128,
        "random feature columns per channel: more is finer and slower",
        "more where scores of look-alike nodes are too noisy; time and disk grow with it",
        least=1,
    )
    alpha: float = _setting(
        0.2,
        "how local: the share that stays at a node each hop; 0.9 hardly looks beyond the node, 0.05"
        " looks far",
        above=0,
        below=1,
    )
    half_lives: Sequence[float] | None = _setting(
        None,
        "half-lives of the channels that forget, as [60,3600] in the data's unit; none: one, a"
        " thirtieth of the training period",
        "where you know how long an event matters",
        least=1e-3,
    )
    high_pass: bool = _setting(
        True, "whether to add filters that contrast neighbours to those that average them"
    )
    beta: float = _setting(
        0.5,
        "how the degrees of both ends share the normalisation; 0.5 is symmetric",
        least=0,
        most=1,
    )
    r_max: float = _setting(1e-2, "the promised error of representations, in r_max_unit", above=0)
    r_max_unit: Literal["rms", "absolute", "l1"] = _setting(
        "rms", "unit of r_max: rms and l1 are those of a feature column"
    )
    scale_by_degree: bool = _setting(
        True, "whether nodes with many edges are allowed a larger error"
    )
    epsilon: float = _setting(
        0.05,
        "how far a node moves, as a share of its norm, before it is recorded again",
        least=0,
        below=1,
    )


RECORD_SETTINGS = tuple(each.name for each in dataclasses.fields(RecordSettings))


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkSettings:
    """What a model reads, and its network."""

    edge_features: bool = _setting(
        True,
        "whether to read the features of the latest events, where the data has any",
        "false where they will not be there when you ask",
    )
    encoder: EncoderName | Callable[..., Any] | None = _setting(
        None,
        "a sequence model over a node's latest changes; in Python also a callable that makes an"
        " nn.Module from (columns, width)",
        "see whether validation gains; costs most of the training time",
    )
    encoder_options: dict[str, Any] | None = _setting(
        None, 'options of the encoder, as {"heads": 4}'
    )
    window: int = _setting(8, "how many of the latest changes an encoder sees", least=1)
    width: int = _setting(64, "width of an encoder's output", least=1)
    hidden: int = _setting(256, "width of the network's layers", "less for small data", least=1)
    layers: int = _setting(2, "hidden layers of the network", least=1)
    dropout: float = _setting(
        0.1, "share of its inputs that a layer drops in training", least=0, below=1
    )


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingSettings:
    """How to fit the network: Adam, with a learning rate that rises and then falls."""

    epochs: int = _setting(
        10,
        "passes over the examples, at most",
        "more where the curves still fall at the end",
        least=1,
    )
    batch_size: int = _setting(2000, "examples per step of training", least=1)
    learning_rate: float = _setting(3e-3, "the highest learning rate of the training", above=0)
    patience: int = _setting(
        5, "epochs without a better validation score after which to stop", least=1
    )
    seed: int = _setting(
        0,
        "seed of features, weights and negatives",
        "several, to see the spread",
        least=0,
        by_run=True,
    )
    device: str = _setting("cpu", "where to train the network, such as cpu or cuda")


@dataclass(kw_only=True, eq=False, repr=False)
class ModelSettings(TrainingSettings, NetworkSettings, RecordSettings):
    """The settings that all models share."""

    max_examples: int = _setting(
        200_000,
        "how many events or labels to train on, the latest ones",
        "memory and time grow with it",
        least=1,
    )
    threads: int | None = _setting(
        None, "threads of the propagation; none: all cores", least=1, inert=True
    )
    path: str | PathLike[str] | None = _setting(
        None,
        "where to keep the record; none: in a temporary directory",
        "to keep it",
        by_run=True,
        inert=True,
    )

    def __post_init__(self) -> None:
        validate(self)


@dataclass(kw_only=True, eq=False, repr=False)
class LinkSettings(ModelSettings):
    """The settings of `LinkPredictor`."""

    decoder: DecoderName | Callable[..., Any] = _setting(
        "pair",
        "how to combine two nodes, where all but pair need an encoder; in Python also a callable"
        " that makes an nn.Module from (width, pair, hidden=, layers=, dropout=)",
        "the others do worse",
    )
    random_negatives: int = _setting(
        6,
        "negatives per event with the same source and a random destination",
        "more helps ranking",
        least=0,
    )
    past_negatives: int = _setting(
        1,
        "negatives per event that are pairs which met before",
        "more to predict *when* (historical negatives), at the price of *who*",
        least=0,
    )
    past_weight: float = _setting(0.2, "weight of each of those in the loss", least=0)
    any_node: bool = _setting(
        False, "whether random negatives come from all nodes, not just from destinations"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder is None and self.decoder in ("concatenation", "hadamard"):
            raise ParameterError(f"decoder {self.decoder!r} needs an encoder; 'pair' does not")
        if not self.random_negatives + self.past_negatives:
            raise ParameterError(
                "random_negatives and past_negatives are 0; at least one negative per event is"
                " needed"
            )


@dataclass(kw_only=True, eq=False, repr=False)
class NodeSettings(ModelSettings):
    """The settings of `NodeClassifier`; labels are fewer than events, so its networks are small."""

    columns: int = _inherited(RecordSettings, "columns", 64)
    hidden: int = _inherited(NetworkSettings, "hidden", 64)
    epochs: int = _inherited(TrainingSettings, "epochs", 12)
    batch_size: int | None = _setting(  # type: ignore[assignment]
        None,
        "labels per step of training; none: a fiftieth of the labels, from 64 to 2,000",
        least=1,
    )
    states: bool | None = _setting(
        None, "whether to read representations themselves; none: where nodes have features"
    )
    activity: bool = _setting(
        True, "whether to read how often and when the node and its last partner met others"
    )
    known_labels: bool = _setting(
        True,
        "whether to read labels of the node and of those it met, as far as known by then",
        "false where labels will not be there when you ask",
    )
    ask_after: int = _setting(
        0,
        "how long after the time of a node label it is asked for",
        "1 where the events of the same step may be known",
        least=0,
    )
    members: int = _setting(
        4,
        "networks whose answers are averaged",
        "1 is faster, with more spread between seeds",
        least=1,
    )
    weight_decay: float = _setting(
        1e-4,
        "how strongly weights are drawn towards zero",
        "more where training and validation part early",
        least=0,
    )
    balance: float = _setting(
        0.5,
        "the power of its rarity that a class weighs: 0 as frequent as in the data, 1 all alike",
        "0 for probabilities as frequent as the data; 1 where only the rare class counts",
        least=0,
        most=1,
    )


def model_settings_of(task: str) -> type[LinkSettings] | type[NodeSettings]:
    """Return the class that declares the settings of a task's model."""
    return NodeSettings if task == "node" else LinkSettings


SECTIONS: Mapping[str, type] = {"data": Data, "evaluation": Evaluation, "report": Report}

"""Declared settings: what one is, how its values are converted and checked, how it is named.

A class of settings is a dataclass whose fields are made by `setting`; `declared` returns what they
declare. `learning.settings` holds the declarations themselves.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tidegraph.core.errors import ParameterError

_NUMBER = re.compile(r"[+-]?(\d+\.\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)  # .2, unlike in JSON


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
        return self._checked(converted, value, name)

    def parse(self, text: str, name: str | None = None) -> Any:
        """Return the value that a user means by `text`, or raise ParameterError."""
        try:
            value = json.loads("null" if text in ("none", "None") else text)
        except json.JSONDecodeError:
            value = float(text) if _NUMBER.fullmatch(text) else text
        converted = _fitted(value, self.hint)
        if converted is _MISFIT and isinstance(value, (bool, int, float)):
            converted = _fitted(text, self.hint)  # a word that happens to look like a number
        if converted is _MISFIT and not isinstance(value, list):
            words = [word.strip() for word in text.split(",")]
            items = [int(word) if word.isdecimal() else word for word in words]
            converted = _fitted(items, self.hint, only=tuple)
        return self._checked(converted, value, name)

    def check(self, value: Any) -> None:
        """Raise ParameterError unless the setting accepts the value; callables are as given."""
        if callable(value) and any(get_origin(k) is Callable for k in _alternatives(self.hint)):
            return
        self._checked(_fitted(value, self.hint), value, None)

    def _checked(self, converted: Any, value: Any, name: str | None) -> Any:
        if converted is _MISFIT or not self._in_range(converted):
            raise ParameterError(f"{name or self.name} is {value!r}; give {self.accepted}")
        return converted

    def _in_range(self, value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return all(map(self._in_range, value))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        return (
            -math.inf < value < math.inf  # also for integers that no float holds
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
            if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**1023):
                return float(value)
        elif origin in (int, *_IN_WORDS) and isinstance(value, origin):
            return value
    return _MISFIT


def setting(default: Any, meaning: str, advice: str = "", **more: Any) -> Any:
    """Return the field of a setting, to stand after its type."""
    return field(default=default, metadata={"meaning": meaning, "advice": advice, **more})


def inherited(kind: Any, name: str, default: Any) -> Any:
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
    for name, each in declared(type(settings)).items():
        each.check(getattr(settings, name))


# Asking for settings by name ----------------------------------------------------------------------


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like this one, if any is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def assignment(word: str, example: str = "model.epochs=4") -> tuple[str, str]:
    """Return both sides of a `NAME=VALUE` word."""
    name, equals, text = word.partition("=")
    if not equals:
        raise ParameterError(f"{word!r} is not NAME=VALUE, such as {example}")
    return name, text


def assignments(kind: type, words: Iterable[str]) -> dict[str, Any]:
    """Return the settings that `NAME=VALUE` words assign, each of its setting's type.

    >>> from tidegraph.learning.settings import LinkSettings
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

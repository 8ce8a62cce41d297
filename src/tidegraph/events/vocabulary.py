"""`Vocabulary`: the names of the columns that events carry, and the words behind their codes."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import EventError
from tidegraph.events.columns import IntArray

IS_MISSING = " is missing"  # after the name of a column, that of the column that flags it


def hashed(words: Sequence[str], buckets: int) -> list[int]:
    """Return a column for each word, the same wherever it occurs."""
    return [zlib.crc32(word.encode()) % buckets for word in words]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names of the columns that events carry, and the words that codes stand for.

    Where numbers of a column are missing they are 0, and a column `NAME is missing` holds 1.
    """

    features: tuple[str, ...] = ()  # the columns of edge_features; (): they have no names
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)  # words by code
    labels: tuple[str, ...] = ()  # words by label; (): labels are what the table has

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Vocabulary:
        """Return the vocabulary that `dataclasses.asdict` turned into plain types."""
        words = {name: tuple(each) for name, each in plain.get("categories", {}).items()}
        return cls(tuple(plain.get("features", ())), words, tuple(plain.get("labels", ())))

    def extends(self, earlier: Vocabulary) -> bool:
        """Return whether what is coded by an earlier vocabulary means the same in this one."""
        pairs = [
            (self.labels, earlier.labels),
            (self.features or earlier.features, earlier.features),
        ]
        pairs += zip(self.categories.values(), earlier.categories.values(), strict=False)
        return list(self.categories) == list(earlier.categories) and all(
            words[: len(known)] == known for words, known in pairs
        )

    def without_unused(self, before: NDArray[Any] | None, after: NDArray[Any] | None) -> Vocabulary:
        """Return it without the words that categories held before and do not hold after.

        All others keep their codes.
        """
        if before is None or after is None:
            return self
        kept = {}
        for column, (name, words) in enumerate(self.categories.items()):
            gone = set(np.setdiff1d(before[:, column], after[:, column]).tolist())
            kept[name] = tuple(
                f"(forgotten {code})" if code in gone else word for code, word in enumerate(words)
            )
        return Vocabulary(self.features, kept, self.labels)

    def check(self, rows: Mapping[str, Any]) -> None:
        """Raise EventError unless every code stands for a word, and every column has a name."""
        codes, labels, features = (rows[name] for name in ("categories", "labels", "edge_features"))
        columns = 0 if codes is None else codes.shape[1]
        if len(self.categories) != columns:
            raise EventError(
                f"categories have {columns} columns and the vocabulary {len(self.categories)}; give"
                " the words of every column"
            )
        if self.features and features.shape[1] != len(self.features):
            raise EventError(
                f"edge_features have {features.shape[1]} columns, and the vocabulary names"
                f" {len(self.features)}; name each of them, or none"
            )
        coded = [(*each, codes[:, k]) for k, each in enumerate(self.categories.items())]
        if self.labels and labels is not None:
            coded.append(("labels", self.labels, labels))
        for name, words, column in coded:
            if column.size and not -1 <= int(column.min()) <= int(column.max()) < len(words):
                raise EventError(
                    f"{name} holds codes from {column.min()} to {column.max()} for"
                    f" {len(words)} words; give -1 for no word, and positions of words"
                )

    def continuing(
        self, earlier: Vocabulary, rows: Mapping[str, Any], *, labelled: bool
    ) -> dict[str, Any]:
        """Return columns and a vocabulary in which all has the place it has in an earlier one.

        rows: `labels`, `categories` and `edge_features`. labelled: whether earlier events are.
        """
        changes: dict[str, Any] = {}
        labels, features, categories = self.labels or earlier.labels, self.features, {}
        known = rows["labels"] is not None and labelled and (rows["labels"] >= 0).any()
        if known and self.labels != earlier.labels:
            changes["labels"], labels = self._labels_like(earlier, rows["labels"])
        if rows["categories"] is not None:
            coded = {}
            for column, (name, words) in zip(
                rows["categories"].T, self.categories.items(), strict=True
            ):
                coded[name], categories[name] = _recoded(
                    column, words, earlier.categories.get(name, ())
                )
            order = [name for name in earlier.categories if name in coded]
            order += [name for name in coded if name not in order]
            categories = {name: categories[name] for name in order}
            changes["categories"] = np.column_stack([coded[name] for name in order])
        if features and earlier.features and features != earlier.features:
            lacking = [name for name in earlier.features if name not in features]
            if any(not name.endswith(IS_MISSING) for name in lacking):
                raise EventError(
                    f"the events lack the column {lacking[0]!r} that earlier ones have; give it to"
                    " both"
                )
            more = [name for name in features if name not in earlier.features]
            features = (*earlier.features, *more)
            wide = padded(rows["edge_features"], len(self.features) + 1)  # the last: none missing
            place = {name: k for k, name in enumerate(self.features)}
            changes["edge_features"] = wide[:, [place.get(name, -1) for name in features]]
        return changes | {"vocabulary": Vocabulary(features, categories, labels)}

    def _labels_like(
        self, earlier: Vocabulary, codes: IntArray
    ) -> tuple[IntArray, tuple[str, ...]]:
        """Return labels as an earlier vocabulary has them, and their words; () are integers."""
        own = self.labels or tuple(map(str, range(int(codes.max()) + 1)))
        if not (self.labels and earlier.labels) and not are_integers(self.labels or earlier.labels):
            raise EventError("one stream has words as labels, the other numbers; use one kind")
        if earlier.labels:
            return _recoded(codes, own, earlier.labels)
        return np.array([*map(int, own), -1])[codes], ()


def are_integers(words: Sequence[str]) -> bool:
    """Return whether all words are integers as Python writes them."""
    return all(re.fullmatch("0|-?[1-9][0-9]*", word) for word in words)


def _recoded(
    codes: IntArray, words: tuple[str, ...], known: tuple[str, ...]
) -> tuple[IntArray, tuple[str, ...]]:
    """Return codes in which known words come first, and all words by code."""
    place = {word: code for code, word in enumerate(known)}
    code = np.array([place.setdefault(word, len(place)) for word in words] + [-1], dtype=np.int64)
    return code[codes], tuple(place)


def padded(features: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """Return features with columns of zeros after them, as many as there are to be in all."""
    zeros = np.zeros((len(features), max(0, columns - features.shape[1])), dtype=np.float32)
    return np.concatenate([features, zeros], axis=1) if zeros.shape[1] else features

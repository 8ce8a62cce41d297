"""What both tasks about classes share: their networks, and weights of rare classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.errors import DataError, ParameterError
from tidegraph.events.columns import IntArray
from tidegraph.events.stream import EventStream
from tidegraph.events.vocabulary import Vocabulary, are_integers
from tidegraph.learning.settings import ClassSettings
from tidegraph.learning.tasks.estimator import Estimator, pieces
from tidegraph.learning.training import Training

if TYPE_CHECKING:
    from torch import Tensor

    from tidegraph.learning.models import ClassNetwork, Window

FloatArray = NDArray[np.float32]

TRAIN, VALIDATION = 0, 1  # of parts
_AT_ONCE = 1 << 15


def learnable_classes(label: IntArray, part: NDArray[np.uint8] | None) -> IntArray:
    """Return the classes of the training labels; raise DataError where they teach nothing."""
    classes = np.unique(label[part == TRAIN])
    if len(classes) < 2:
        seen = f"only class {classes[0]} occurs" if len(classes) else "there is no label"
        raise DataError(
            f"{seen} in the training period, and two classes are needed; give a longer stream"
            " or another split"
        )
    if not np.isin(label[part == VALIDATION], classes).any():
        raise DataError(
            "there is no label of a known class in the validation period; give a longer stream"
            " or another split"
        )
    return classes


class Classifier(ClassSettings, Estimator):
    """Base class of the tasks about classes."""

    classes_: IntArray

    _ends = 1  # nodes of a question

    @property
    def starts_from_shares(self) -> bool:
        """Whether the last features are logits of the classes, which the network corrects."""
        return False

    @property
    def class_names(self) -> list[str]:
        """The classes as the data writes them."""
        words = self._stream.vocabulary.labels
        return [words[label] if words else str(label) for label in self.classes_.tolist()]

    def _likeliest(self, probability: FloatArray) -> NDArray[Any]:
        """Return the likeliest class of each row, as the data writes it."""
        names = self.class_names
        classes: NDArray[Any] = np.array(list(map(int, names)) if are_integers(names) else names)
        likeliest: NDArray[Any] = classes[probability.argmax(axis=1)]
        return likeliest

    def _like_own(self, events: EventStream) -> EventStream:
        own = self._stream
        return events if events.vocabulary == own.vocabulary else events.continuing(own)

    def _taught(self, lessons: Any) -> IntArray:
        """Return the labels to learn from lessons."""
        raise NotImplementedError

    def _check_lessons(self, lessons: Any, vocabulary: Vocabulary) -> None:
        unknown = np.setdiff1d(self._taught(lessons), self.classes_).tolist()
        if unknown:
            words = dict(enumerate(vocabulary.labels))
            raise DataError(
                f"class {words.get(unknown[0], unknown[0])} was not among the classes of the"
                f" training ({', '.join(self.class_names)}); call fit on all events to learn it"
            )

    def _training(self, examples: int, **more: Any) -> Training:
        size = self.batch_size or min(max(examples // 50, 64), 2000)
        return super()._training(examples, batch_size=size, weight_decay=self.weight_decay, **more)

    def _wanted(self, examples: Any) -> IntArray:
        """Return the labels of examples."""
        raise NotImplementedError

    def _windows(self, examples: Any, rows: IntArray) -> list[Window | None]:
        """Return what the encoder reads of each node of some examples."""
        raise NotImplementedError

    def _adjust(self, examples: Any, features: FloatArray) -> None:
        import torch

        super()._adjust(examples, features)
        index = np.searchsorted(self.classes_, self._wanted(examples))
        count = np.maximum(np.bincount(index, minlength=len(self.classes_)), 1)
        weight = (len(index) / (len(count) * count)) ** self.balance
        weight *= len(index) / (weight * count).sum()  # 1 on average
        self._network.log_weight.copy_(torch.from_numpy(np.log(weight)))

    def _new_network(self, columns: int, features: int) -> ClassNetwork:
        from tidegraph.learning.models import ClassNetwork

        if not features and self.encoder is None:
            raise ParameterError(
                "the settings leave nothing to read about a node; give an encoder, or set states,"
                " products, activity or known_labels to true"
            )
        return ClassNetwork(
            self,
            columns,
            features,
            classes=len(self.classes_),
            windows=self._ends,
            starts=self.starts_from_shares,
        )

    def _loss(self, examples: Any, features: FloatArray, rows: IntArray) -> Tensor:
        import torch
        from torch import nn

        read = torch.from_numpy(features[rows]).to(self.device)
        logits = self._network(read, self._windows(examples, rows))
        index = np.searchsorted(self.classes_, self._wanted(examples)[rows])
        wanted = torch.from_numpy(index).to(self.device)
        each = nn.functional.cross_entropy(
            logits.flatten(0, 1), wanted.repeat(len(logits)), reduction="none"
        )
        weight = self._network.log_weight.exp()[wanted]
        loss: Tensor = (each.view(len(logits), -1) * weight).mean()
        return loss

    def _probabilities(self, examples: Any, features: FloatArray) -> FloatArray:
        """Return the probability of each class for examples, `[n, classes]`, given features."""
        import torch

        out = np.empty((len(features), len(self.classes_)), dtype=np.float32)
        for rows in pieces(len(features), _AT_ONCE):
            asked = torch.from_numpy(features[rows]).to(self.device)
            with torch.no_grad():
                windows = self._windows(examples, rows)
                out[rows] = self._network.probabilities(asked, windows).cpu()
        return out

    def _answers(self, count: int, part: Callable[[slice], Any]) -> FloatArray:
        """Return the probabilities of so many examples, which are made a part at a time."""
        out = np.empty((count, len(self.classes_)), dtype=np.float32)
        for first in range(0, count, _AT_ONCE):
            rows = slice(first, first + _AT_ONCE)
            examples = part(rows)
            out[rows] = self._probabilities(examples, self._read(examples))
        return out

    def _learned(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist()}

    def _restore(self, about: dict[str, Any]) -> None:
        self.classes_ = np.array(about["classes"], dtype=np.int64)

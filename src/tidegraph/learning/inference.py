"""The network of pair features in NumPy: it answers questions where torch is not needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

CLIP = 8.0  # standard deviations; values beyond were not seen in training
_AT_ONCE = 1 << 12  # rows whose hidden units stay in a cache
_LAYER = re.compile(r"decoder\.net\.(\d+)\.weight")


def standardise(features: FloatArray, mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Replace features by standardised ones, and return them."""
    features -= mean
    features /= scale
    return np.clip(features, -CLIP, CLIP, out=features)


def sigmoid(logit: FloatArray) -> FloatArray:
    """Return the probabilities of logits."""
    probability: FloatArray = np.exp(-np.logaddexp(np.float32(0), -logit))
    return probability


class PairNetwork:
    """The weights of a `models.LinkNetwork` that reads nothing but pair features, and its answers.

    Equal to that network's except for rounding. Raises KeyError or ValueError for weights of
    another network.
    """

    def __init__(self, weights: Mapping[str, NDArray[Any]]) -> None:
        self._mean, self._scale = weights["mean"], weights["scale"]
        found = (int(match[1]) for match in map(_LAYER.fullmatch, weights) if match)
        names = [f"decoder.net.{number}" for number in sorted(found)]
        self._layers = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]
        widths = [len(self._mean), *(weight.shape[0] for weight, _ in self._layers)]
        read = [weight.shape[1] for weight, _ in self._layers]
        others = len(weights) - 2 * len(self._layers) - 2
        if widths[:-1] != read or widths[-1] not in (1, 2) or others:
            raise ValueError(f"layers give {widths} numbers and read {read}")

    def __call__(self, features: FloatArray, *_: Any, given_src: bool = False) -> FloatArray:
        """Return the logit of each row of features, `[n]`, which are overwritten.

        given_src: of the destination, given that the source acts; otherwise of the pair.
        """
        out = np.empty(len(features), dtype=np.float32)
        weight, bias = (last[-1 if given_src else 0] for last in self._layers[-1])
        for first in range(0, len(features), _AT_ONCE):
            rows = slice(first, first + _AT_ONCE)
            hidden = standardise(features[rows], self._mean, self._scale)
            for layer_weight, layer_bias in self._layers[:-1]:
                hidden = hidden @ layer_weight.T
                hidden += layer_bias
                np.maximum(hidden, 0, out=hidden)
            out[rows] = hidden @ weight + bias
        return out

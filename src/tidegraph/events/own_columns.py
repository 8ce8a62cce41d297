"""The columns that events carry: what is known of an event by itself, without its past."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegraph.events.stream import EventStream
from tidegraph.events.vocabulary import IS_MISSING


def carried_columns(stream: EventStream) -> list[str]:
    """Return the names of the columns of a table that its events carry, besides the weight."""
    numbers = [name for name in stream.vocabulary.features if not name.endswith(IS_MISSING)]
    return [*numbers, *stream.vocabulary.categories]


def own_numbers(stream: EventStream) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the names and values `[events, columns]` of numbers, NaN where one is missing.

    The weight comes first, where events have one; columns without names are numbered.
    """
    names, columns = [], []
    if stream.weight is not None:
        uses = {} if stream.report is None else stream.report.columns
        names.append(uses["weight"].column if "weight" in uses else "weight")
        columns.append(stream.weight)
    features = np.zeros((len(stream), 0)) if stream.edge_features is None else stream.edge_features
    called = stream.vocabulary.features or [f"feature {k}" for k in range(features.shape[1])]
    flags = {name: k for k, name in enumerate(called) if name.removesuffix(IS_MISSING) in called}
    for k, name in enumerate(called):
        if name.endswith(IS_MISSING) and name in flags:
            continue
        values = features[:, k].astype(np.float64)
        if name + IS_MISSING in called:
            values[features[:, flags[name + IS_MISSING]] > 0] = np.nan
        names.append(name)
        columns.append(values)
    return tuple(names), np.array(columns, dtype=np.float64).reshape(len(names), len(stream)).T

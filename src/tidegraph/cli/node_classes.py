"""The part of `tidegraph predict` that is about the classes of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegraph.cli.results import moment_text, names_by_side, note_far
from tidegraph.cli.terminal import echo_json
from tidegraph.cli.writing import write_answers
from tidegraph.core.errors import DataError
from tidegraph.core.words import counted

if TYPE_CHECKING:
    from tidegraph.events.columns import IntArray
    from tidegraph.events.stream import EventStream


def predict_nodes(
    model: Path,
    directory: Path,
    names: Sequence[str],
    *,
    unlabelled: bool,
    when: str | None,
    output: Path | None,
) -> None:
    """Write the class of each node and the probability of every class, as CSV or Parquet.

    names: of the nodes; none: all nodes of the kind that has labels.
    """
    from tidegraph.learning.tasks import NodeClassifier

    classifier = NodeClassifier.load(directory)
    stream = classifier.stream
    now = int(stream.t[-1]) + 1 if when is None else stream.time(when)
    note_far(stream, [now])
    labels = _labels(stream)
    asked, side = _asked(stream, names, labels)
    if unlabelled:
        asked = asked[[node not in labels for node in asked.tolist()]]
        if not len(asked):
            raise DataError(f"every node of {model} has a label; leave out --unlabelled")
    found = classifier.predict_proba(asked, now)
    classes, words = classifier.class_names, stream.vocabulary.labels
    known = [labels.get(node) for node in asked.tolist()]
    columns: dict[str, list[Any]] = {
        "node": [str(name).removeprefix(side) for name in stream.name(asked)],
        "label": [k if k is None else words[k] if words else str(k) for k in known],
        "class": [classes[k] for k in found.argmax(axis=1).tolist()],
    }
    for name, column in zip(classes, found.T, strict=True):
        columns[f"probability of {name}"] = [float(f"{each:.6g}") for each in column.tolist()]
    write_answers(output, columns)
    if output is not None:
        without = known.count(None)
        click.echo(
            f"Wrote {output}: {counted(len(asked), 'node')}, {without:,} of them without a label,"
            f" as of {moment_text(now, stream.unit)}",
            err=True,
        )
    answers = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    echo_json({"model": str(model), "t": now, "unit": stream.unit, "answers": answers})


def _labels(stream: EventStream) -> dict[int, int]:
    """Return the latest label of each node that has one."""
    given = stream.node_labels
    labels = (stream.src, stream.t, stream.labels)
    node, t, label = labels if given is None else (given.node, given.t, given.label)
    assert label is not None  # the model learned from some
    order = t.argsort(kind="stable")
    order = order[label[order] >= 0]
    return dict(zip(node[order].tolist(), label[order].tolist(), strict=True))


def _asked(
    stream: EventStream, names: Sequence[str], labels: dict[int, int]
) -> tuple[IntArray, str]:
    """Return the numbers of the nodes, and what their names begin with besides their ids."""
    import numpy as np

    by_side = names_by_side(stream)
    sides = {side: np.unique(getattr(stream, side)) for side in ("src", "dst")}
    # Users have labels, and the items they meet have none to be predicted.
    only = [side for side, nodes in sides.items() if np.isin(list(labels), nodes).all()]
    side = only[0] if stream.bipartite and only else None
    if names:
        prefix = f"{side} " if by_side and side else ""
        whole = [n if n.startswith(("src ", "dst ")) else prefix + n for n in names]
        return np.atleast_1d(stream.number(whole)), prefix
    if side is None:
        return np.arange(stream.nodes), ""
    click.echo(f"Note: only nodes in the role of {side} have labels; others are left out", err=True)
    return sides[side], f"{side} " if by_side else ""

"""How the model learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidegraph.core.words import counted
from tidegraph.report.axes import linear, whole_numbers
from tidegraph.report.figures import Curve, Rule, chart
from tidegraph.report.markup import Html, element, figures, section
from tidegraph.report.observations import Observations

__all__ = ["learning", "loss_chart", "validation_curve"]


def learning(seen: Observations) -> Html | None:
    """Return the section, or None if no epoch was observed."""
    history = seen.about["history"]
    if not history:
        return None
    validation = validation_curve(seen, "validation", 1)
    epoch = [entry["epoch"] for entry in history]
    loss = [entry["loss"] for entry in history]
    best = int(np.argmin(validation.y))
    seconds = sum(entry["seconds"] for entry in history)
    rows = [
        [f"{number}", f"{a:.4f}", f"{b:.4f}", f"{entry['seconds']:.1f}"]
        for number, a, b, entry in zip(
            epoch, loss, np.asarray(validation.y).tolist(), history, strict=True
        )
    ]
    return section(
        "How it learned",
        element(
            "p",
            f"{counted(len(history), 'epoch')} in {seconds:,.0f} s; the model has the weights of"
            f" epoch {epoch[best]}, the best on validation events.",
        ),
        figures(
            loss_chart(
                "Loss by epoch",
                "Good: both fall and flatten. If validation rises while training falls, the model"
                " memorises.",
                [Curve("training", epoch, loss, 0, dots=True), validation],
                rules=[Rule("best", x=epoch[best])] if len(epoch) > 1 else [],
                numbers=(["epoch", "training", "validation", "seconds"], rows),
            )
        ),
        name="learning",
    )


def validation_curve(seen: Observations, name: str, colour: int) -> Curve:
    """Return the validation loss by epoch; scores in the history are negated losses."""
    history = seen.about["history"]
    epochs = [entry["epoch"] for entry in history]
    return Curve(name, epochs, [-entry["validation"] for entry in history], colour, dots=True)


def loss_chart(
    title: str,
    aid: str,
    curves: Sequence[Curve],
    *,
    rules: Sequence[Rule] = (),
    numbers: tuple[list[str], list[list[str]]] | None = None,
) -> Html:
    """Return a chart of losses by epoch."""
    epochs = np.concatenate([np.asarray(curve.x) for curve in curves])
    losses = np.concatenate([np.asarray(curve.y) for curve in curves])
    x = whole_numbers("epoch", float(epochs.min()), float(epochs.max()))
    y = linear("loss (cross-entropy)", losses)
    return chart(title, aid, x, y, curves, rules=rules, numbers=numbers, kind="training")

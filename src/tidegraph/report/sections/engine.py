"""How the engine updated the representations."""

from __future__ import annotations

import numpy as np

from tidegraph.core.palette import SERIES
from tidegraph.core.words import counted
from tidegraph.report.axes import Axis, compact, linear, time_axis
from tidegraph.report.figures import Bars, Curve, Rule, chart
from tidegraph.report.markup import Html, element, figures, section
from tidegraph.report.observations import Observations

__all__ = ["engine", "over_stream", "stream_axis"]


def engine(seen: Observations) -> Html:
    """Return the section."""
    arrays, about = seen.arrays, seen.about
    t = arrays["replay.t"]
    events, seconds = arrays["replay.events"], arrays["replay.seconds"]
    certified = arrays["replay.certified"]
    rate = events / np.maximum(seconds, 1e-9)
    touched = arrays["replay.touched"] / np.maximum(arrays["replay.steps"], 1)
    total = float(events.sum() / max(seconds.sum(), 1e-9))
    return section(
        "How the representations were updated",
        element(
            "p",
            f"The stream was {'recorded' if about.get('recorded') else 'replayed'} with the model's"
            " settings"
            f" ({counted(len(about['channels']), 'channel')}, r_max {about['r_max']:g} in units of"
            f" {about['r_max_unit']}, {counted(about['threads'], 'thread')}): {compact(total)}"
            f" events per second{'' if about.get('recorded') else ' of engine time'}.",
        ),
        figures(
            chart(
                "Certified error as a fraction of the threshold",
                "Good: at most 1, apart from rounding, which the certificate includes; the largest"
                f" here is {certified.max():.3f}. The certificate is computed from estimates and"
                " graph alone.",
                stream_axis(seen),
                linear("certified error / threshold", [], low=0, high=max(1.2, certified.max())),
                [
                    Curve(name, t, certified[:, k], k % SERIES)
                    for k, name in enumerate(about["channels"])
                ],
                rules=[Rule("threshold", y=1.0)],
                kind="certified",
            ),
            over_stream(
                seen,
                "Speed",
                "Good: level while the graph grows. Dips are bursts that move many nodes, or"
                " another program on the machine.",
                linear("events per second", rate, low=0),
                Curve("", t, rate, 0),
                kind="speed",
            ),
            over_stream(
                seen,
                "Nodes touched per step",
                "How far one step (the events of one time) reaches. Good: far below the number of"
                " nodes.",
                linear("nodes per step", touched, low=0),
                Curve("", t, touched, 2),
                kind="touched",
            ),
        ),
        name="engine",
    )


def stream_axis(seen: Observations) -> Axis:
    """Return the time axis of the whole stream."""
    time = seen.about["time"]
    return time_axis(time["first"], time["last"], time["unit"])


def over_stream(
    seen: Observations, title: str, aid: str, y: Axis, drawn: Curve | Bars, *, kind: str
) -> Html:
    """Return a chart over the whole stream that marks where the test begins, if there is one."""
    begins = seen.about["time"]["test"]
    rules = [] if begins is None else [Rule("test begins", x=begins)]
    return chart(title, aid, stream_axis(seen), y, [drawn], rules=rules, kind=kind)

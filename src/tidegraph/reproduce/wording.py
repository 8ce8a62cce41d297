"""What several targets share: names of models, groups of data sets, and notes."""

from __future__ import annotations

from collections.abc import Sequence

from tidegraph.reproduce.page import Row, Table, published_rows

__all__ = [
    "DEFAULT",
    "MRR",
    "ON_MRR",
    "ON_PRESETS",
    "ON_SAMPLERS",
    "ON_WIKIPEDIA",
    "PAPER",
    "RANDOM",
    "SNAPSHOTS",
    "published_with",
]

DEFAULT = "tidegraph, default"
PAPER = {name: f"tidegraph, paper-{name}" for name in ("gru", "lstm", "transformer")}
SNAPSHOTS = ("uci", "bitcoin-alpha", "bitcoin-otc")
RANDOM = (("random-all", "ap"), ("random-dst", "ap"))
MRR = (("all-nodes", "mrr_1000"), ("all-nodes", "mrr_full"))

ON_SAMPLERS = (
    "random-dst draws negatives from the destinations, as TGN does. random-all draws them from all"
    " nodes, as the paper's program does, which is easier if few nodes are destinations."
)
ON_PRESETS = (
    "paper-… uses the paper's settings in our implementation: its encoder of each node's changes, a"
    " small network over both nodes, and negatives from all nodes in training. The default reads"
    " inner products of representations and the history of the pair instead."
)
ON_MRR = (
    "mrr_full ranks every true destination among all nodes (ROLAND's table); mrr_1000 ranks the"
    " best destination of each source against 1,000 random nodes (the paper's program). The same"
    " scores give very different numbers."
)
ON_WIKIPEDIA = "Wikipedia is used without edge features: the file used here has none."


def published_with(
    name: str, title: str, rows: Sequence[Row], more: Sequence[str] = (), *, log: bool = False
) -> Table:
    """Return a published table with our rows below it, and columns that only ours have."""
    columns, theirs, sources = published_rows(name)
    return Table(title, [*columns, *more], [*theirs, *rows], log, sources)

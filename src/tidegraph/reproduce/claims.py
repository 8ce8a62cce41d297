"""What the paper says in words, and what the tables that were measured here say to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tidegraph.reproduce.page import OURS

__all__ = ["overview"]

_NOT_YET = "not measured yet"


class _Measured:
    """The numbers of one target, by table, row and column, as `results.json` has them."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._tables = results["tables"]

    def rows(self, title: str | None = None) -> list[dict[str, Any]]:
        """Those of the table of this title, or of the first one."""
        found = (table for table in self._tables if title in (None, table["title"]))
        return list(next(found, {"rows": []})["rows"])

    def values(self, name: str, metric: str | None = None) -> dict[str, float]:
        """What was measured in a row of the first table, by column."""
        for row in self.rows():
            if row["name"] == name and metric in (None, row["metric"]):
                return _means(row)
        return {}

    def along(self, title: str, column: str) -> dict[str, float]:
        """A column of a table in which one setting varies, by its value."""
        found = {row["name"].rpartition(" ")[2]: _means(row) for row in self.rows(title)}
        return {value: means[column] for value, means in found.items() if column in means}


_Say: TypeAlias = Callable[[_Measured], str]  # what was seen, or nothing


@dataclass(frozen=True)
class _Claim:
    words: str  # the paper's claim in short
    target: str
    seen: _Say


def overview(output: Path) -> str:
    """A page about all targets whose results are in a directory, and about the paper's claims."""
    return "\n".join(_lines(output)) + "\n"


def _lines(output: Path) -> Iterator[str]:
    found = {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(output.glob("*/results.json"))
    }
    yield from ("# The paper's tables, measured anew", "")
    if any(results["fast"] for results in found.values()):
        yield "**Tried out on small pieces of the data: these numbers mean nothing.**"
        yield ""
    yield "Written by `tidegraph reproduce`, from the results beside each page."
    yield from ("", "| page | seeds | cells | missing |", "|---|---|---|---|")
    for name, results in found.items():
        seeds = ", ".join(map(str, results["seeds"]))
        yield (
            f"| [{results['title']}]({name}/README.md) | {seeds} | {results['cells']} |"
            f" {len(results['missing']) or ''} |"
        )
    yield from ("", "## What it says, and what was seen", "")
    yield "Its settings in this implementation; where a number has no unit it is AP in percent, or"
    yield "the MRR against 1,000 nodes."
    yield from ("", "| the paper says | seen here | page |", "|---|---|---|")
    for claim in _CLAIMS:
        results = found.get(claim.target)
        seen = claim.seen(_Measured(results)) if results is not None else ""
        yield f"| {claim.words} | {seen or _NOT_YET} | {claim.target} |"


def _means(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        column: value["mean"]
        for column, value in row["values"].items()
        if value["mean"] is not None
    }


# What was seen ------------------------------------------------------------------------------------

_LSTM, _GRU = "tidegraph, paper-lstm", "tidegraph, paper-gru"
_MRR = "mrr_1000"


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}"


def _against(first: Mapping[str, float], second: Mapping[str, float]) -> str:
    """In how many columns the first is ahead, and by which numbers."""
    shared = [column for column in first if column in second]
    ahead = sum(first[column] > second[column] for column in shared)
    pairs = [f"{name} {_number(first[name])} against {_number(second[name])}" for name in shared]
    return f"ahead in {ahead} of {len(shared)}: {'; '.join(pairs)}" if shared else ""


def _lstm_over_gru(measured: _Measured) -> str:
    return _against(measured.values(_LSTM, _MRR), measured.values(_GRU, _MRR))


def _high_pass(measured: _Measured) -> str:
    gains = []
    for row in measured.rows():
        if row["whose"] == OURS:
            gains += [
                f"{row['name'].removeprefix('tidegraph, ').partition(',')[0]} on"
                f" {column.removesuffix(' gain')} {value['text']}"
                for column, value in row["values"].items()
                if column.endswith(" gain")
            ]
    up = sum("-" not in gain.rpartition(" ")[2] for gain in gains)
    return f"a gain in {up} of {len(gains)}: {'; '.join(gains)}" if gains else ""


def _times(measured: _Measured) -> str:
    return _against(
        measured.values(f"{_LSTM}, with times"), measured.values(f"{_LSTM}, without times")
    )


def _varied(title: str, column: str = "random-all") -> _Say:
    def seen(measured: _Measured) -> str:
        found = measured.along(title, column)
        return "; ".join(f"{value}: {_number(mean)}" for value, mean in found.items())

    return seen


def _moved(measured: _Measured) -> str:
    found = measured.along("r_max", "records per event")
    shown = "; ".join(f"r_max {value}: {mean:.2f}" for value, mean in found.items())
    return f"representations recorded anew per event, whose own ends are two: {shown}" * bool(found)


def _epochs(measured: _Measured) -> str:
    names = ("TGN of torch_geometric", _LSTM, "tidegraph, default")
    found = {name: measured.values(name, "seconds per epoch").get("wikipedia") for name in names}
    shown = [f"{name} {value:.1f} s" for name, value in found.items() if value is not None]
    return f"on one machine: {'; '.join(shown)}" * bool(shown)


_CLAIMS: Sequence[_Claim] = (
    _Claim("of its encoders the LSTM is ahead of the GRU", "dtdg-link", _lstm_over_gru),
    _Claim("high-pass filters add in all cells but one", "ablation-high-pass", _high_pass),
    _Claim("an encoding of times hardly adds", "time-encoding", _times),
    _Claim("r_max of 1e-3 and 1e-2 leave nothing to learn from", "sensitivity", _varied("r_max")),
    _Claim("alpha hardly matters", "sensitivity", _varied("alpha")),
    _Claim("more than eight LSTM layers do not converge", "sensitivity", _varied("LSTM layers")),
    _Claim("layers of the last network hardly matter", "sensitivity", _varied("MLP layers")),
    _Claim("nodes move without events of their own", "sensitivity", _moved),
    _Claim("an epoch takes a sixth of TGN's", "time-cost", _epochs),
)

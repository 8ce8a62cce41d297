"""The roles of a table's columns: as given, else inferred from names or places and reported."""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegraph.core.errors import DataError
from tidegraph.events.read_report import ColumnUse
from tidegraph.events.tables.advice import TableError
from tidegraph.events.tables.cells import DATE, NUMBER
from tidegraph.events.tables.sources import Source

Column: TypeAlias = str | int

# Names that identify a column, the likeliest first.
_SYNONYMS = {
    "src": "src source sources source_id src_id user user_id userid from from_id u sender head"
    " caller fromnodeid from_node node1 source_node buyer payer origin originator debtor"
    " absender von",
    "dst": "dst target destination destinations dest target_id dst_id item item_id itemid to to_id"
    " i v receiver recipient callee tail tonodeid to_node node2 target_node seller payee"
    " beneficiary creditor empfänger empfaenger an",
    "t": "t time timestamp timestamps ts date datetime time_stamp unixts unix_time created_at when"
    " created datum zeit zeitpunkt zeitstempel",
    "weight": "weight w weights amount value rating",
    "op": "op operation",
    "label": "label labels state_label edge_label y",
}
# Suffixes such a name may have, and endings of time columns: a single match decides.
_OF_NODES = r"_(id|name|no|nr|number|user|node)$"
_OF_TIMES = r"(_(at|on|ts|time|date|when|datum|zeit)|time_?stamp|date_?time)$"
_NEEDED = ("src", "dst", "t")
_SAMPLE_ROWS = 100  # looked at to guess columns that no name identifies


@dataclass
class Chosen:
    """The column behind each role, and how it was found."""

    uses: dict[str, ColumnUse]
    features: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        return {role: use.column for role, use in self.uses.items()}

    @property
    def wanted(self) -> list[str]:
        return list(dict.fromkeys([*self.roles.values(), *self.features]))

    def is_guess(self, role: str) -> bool:
        return role in self.uses and self.uses[role].by != "given"

    def remarks(self) -> list[str]:
        """Return sentences about the columns without a role of their own."""
        features = [f"edge_features are {_listed(self.features)}"] if self.features else []
        return features + ([f"ignored: {_listed(self.ignored)}"] if self.ignored else [])


def choose_columns(source: Source, given: Mapping[str, Any], features: Any) -> Chosen:
    """Return the column of every role, given or inferred; raise, with advice, if one is missing.

    A role given as False has no column.
    """
    chosen = Chosen({})
    needed = [role for role in _NEEDED if given.get(role) is not False]
    free = list(source.columns)

    def find(column: Column, role: str) -> str:
        if isinstance(column, int) and -len(source.columns) <= column < len(source.columns):
            return source.columns[column]
        if column in source.columns:
            return str(column)
        trimmed = [name for name in source.columns if name.strip() == str(column).strip()]
        if len(trimmed) == 1:
            return trimmed[0]
        alike = {name.strip().casefold(): name for name in source.columns}
        near = difflib.get_close_matches(str(column).strip().casefold(), alike, n=1)
        advice = f"; did you mean {alike[near[0]]!r}?" if near else ""
        raise DataError(
            f"{role} was given as column {column!r}; {source.name} has"
            f" {_listed(source.columns)}{advice}"
        )

    for role, column in given.items():
        if column is not None and column is not False:
            chosen.uses[role] = ColumnUse(find(column, role), "given")
            if chosen.uses[role].column in free:
                free.remove(chosen.uses[role].column)
    if features != "rest":
        if isinstance(features, (str, int)):
            features = (features,)
        chosen.features = tuple(find(column, "edge_features") for column in features)
        free = [column for column in free if column not in chosen.features]
    paired = _paired(source.columns)
    for place, role in enumerate(_SYNONYMS):
        if given.get(role) is not None:
            continue
        if source.headed:
            match = _named(role, free)
            if match is None and paired.get(role) in free:
                match = paired[role]
        else:
            match = source.columns[place] if place < min(4, len(source.columns)) else None
            if match not in free or (role == "weight" and not source.is_number(match)):
                match = None
        if match is not None:
            chosen.uses[role] = ColumnUse(match, "name" if source.headed else "place")
            free.remove(match)
    roles = chosen.roles
    missing = [role for role in needed if role not in roles]
    if missing:
        likely = _likely(source, roles, free, needed)
        hint = ", perhaps {columns}" if likely else ""
        if "t" in missing and "t" not in likely:
            hint += (
                "; none looks like a time: if the rows are in order, add a column that counts them"
            )
        raise TableError(
            f"{source.name} has {_listed(source.columns)}; {', '.join(needed[:-1])} and"
            f" {needed[-1]} are needed",
            f"name the column of {' and '.join(missing)}{hint}",
            columns=[{role: likely[role] for role in needed if role in likely}],
        )
    for role, other in itertools.combinations(needed, 2):
        if roles[role] == roles[other]:
            raise DataError(
                f"column {roles[role]!r} was given as both {role} and {other};"
                f" {source.name} has {_listed(source.columns)}: give each its own"
            )
    if features == "rest":
        chosen.features = tuple(
            column for column in free if source.is_number(column) or source.is_text(column)
        )
        free = [column for column in free if column not in chosen.features]
    chosen.ignored = tuple(free)
    return chosen


def _named(role: str, columns: Sequence[str]) -> str | None:
    """Return the column whose name identifies it as `role`."""
    plain = _plain(columns)
    names = _SYNONYMS[role].split()
    match = next((plain[name] for name in names if name in plain), None)
    if match is None and role in ("src", "dst"):
        cut = {re.sub(_OF_NODES, "", name): column for name, column in plain.items()}
        match = next((cut[name] for name in names if len(name) > 1 and name in cut), None)
    if match is None and role == "t":
        ending = [column for name, column in plain.items() if re.search(_OF_TIMES, name)]
        match = ending[0] if len(ending) == 1 else None
    return match


def _plain(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns by their names in lower case, words separated by underscores."""
    return {re.sub(r"[\s.-]+", "_", column.strip().lower()): column for column in columns}


def _paired(columns: Sequence[str]) -> dict[str, str]:
    """Return src and dst if exactly two columns differ in one telling word: from_iban, to_iban."""
    telling = {role: set(_SYNONYMS[role].split()) for role in ("src", "dst")}
    found: dict[str, dict[tuple[str, ...], str]] = {role: {} for role in telling}
    for name, column in _plain(columns).items():
        words = name.split("_")
        for role, synonyms in telling.items():
            for place, word in enumerate(words):
                if len(word) > 1 and word in synonyms:
                    found[role][(*words[:place], "", *words[place + 1 :])] = column
    both = [(column, found["dst"].get(rest)) for rest, column in found["src"].items()]
    pairs = [(source, target) for source, target in both if target is not None]
    return dict(zip(("src", "dst"), pairs[0], strict=True)) if len(pairs) == 1 else {}


def _likely(
    source: Source, roles: Mapping[str, str], free: Sequence[str], needed: Sequence[str]
) -> dict[str, str]:
    """Guess a column for each needed role from its first cells.

    Times are dates or growing numbers, or have a name that says so. Nodes occur repeatedly, perhaps
    in another column, and are neither row numbers nor fractions. A role may get no column.
    """
    seen: dict[str, list[str]] = {column: [] for column in free}
    if free:
        for batch in source.batches(list(free), "drop"):
            head = batch.slice(0, _SAMPLE_ROWS).to_pydict()
            seen = {name: [str(cell) for cell in head[name] if cell is not None] for name in free}
            break
    columns_with = Counter(cell for cells in seen.values() for cell in set(cells))

    def numbers(column: str) -> list[float]:
        cells = seen[column]
        return [float(cell) for cell in cells] if all(re.match(NUMBER, c) for c in cells) else []

    def counts_rows(column: str) -> bool:
        steps = numbers(column)
        return len(steps) > 1 and all(b - a == 1 for a, b in itertools.pairwise(steps))

    def is_time(column: str) -> tuple[bool, ...]:
        cells, values = seen[column], numbers(column)
        dated = bool(cells) and all(re.match(DATE, cell) for cell in cells)
        named = re.search(r"time|date|zeit|datum|when", column.lower()) is not None
        return dated, named, len(values) > 1 and values == sorted(values)

    def is_node(column: str) -> tuple[bool, ...]:
        cells = seen[column]
        fractions = any(value != int(value) for value in numbers(column) if abs(value) < 2**53)
        elsewhere = any(columns_with[cell] > 1 for cell in cells)
        return not fractions, elsewhere, 1 < len(set(cells)) < len(cells)

    likely = {role: roles[role] for role in needed if role in roles}
    left = sorted(free, key=counts_rows)  # row numbers are the last resort
    for role, best in (("t", is_time), ("src", is_node), ("dst", is_node)):
        if role in needed and role not in likely:
            possible = [column for column in left if role != "t" or any(is_time(column))]
            if possible:
                found = max(possible, key=lambda column: (not counts_rows(column), *best(column)))
                likely[role] = found
                left.remove(found)
    return likely


def _listed(columns: Sequence[str]) -> str:
    shown = ", ".join(repr(column) for column in columns[:12])
    more = f" and {len(columns) - 12} more" if len(columns) > 12 else ""
    return f"column{'s' if len(columns) != 1 else ''} {shown}{more}"

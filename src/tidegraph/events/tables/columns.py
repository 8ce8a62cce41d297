"""The roles of a table's columns: as given, else inferred from names or places and reported."""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tidegraph.core.errors import DataError
from tidegraph.events.moments import epoch_unit
from tidegraph.events.read_report import ColumnUse, listed
from tidegraph.events.tables.advice import TableError
from tidegraph.events.tables.cells import NUMBER, is_date, with_point
from tidegraph.events.tables.source import Source

Column: TypeAlias = str | int

# Names that identify a column, the likeliest first.
_SYNONYMS = {
    "src": "src source sources source_id src_id user user_id userid from from_id u sender head"
    " caller fromnodeid from_node node1 source_node buyer payer origin originator debtor"
    " customer client reader viewer listener student absender von kunde",
    "dst": "dst target destination destinations dest target_id dst_id item item_id itemid to to_id"
    " i v receiver recipient callee tail tonodeid to_node node2 target_node seller payee"
    " beneficiary creditor product article movie song track video book page course merchant"
    " empfänger empfaenger an produkt artikel",
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
# Words in the names of columns that say what kind of node is in them. One who does something and a
# thing are never the same node. Two different words of doers may be two roles of one person.
_DOERS = (
    "user customer client reader viewer listener student member visitor subscriber shopper buyer"
    " seller vendor supplier patient doctor teacher driver rider passenger host guest kunde nutzer"
    " käufer verkäufer"
)
_THINGS = (
    "item product article movie film song track video book page course game app url site website"
    " sku repo repository merchant store shop restaurant hotel paper topic category playlist"
    " document recipe subreddit produkt artikel seite buch"
)
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

    @property
    def kinds(self) -> Literal["two", "perhaps two"] | None:
        """Whether the names of the columns say that their nodes are of two kinds."""
        words = [_words(self.uses[role].column) for role in ("src", "dst")]
        things = [found & set(_THINGS.split()) for found in words]
        doers = [found & set(_DOERS.split()) for found in words]
        if (doers[0] and things[1] and not doers[1]) or (things[0] and doers[1] and not doers[0]):
            return "two"
        named = [doer | thing for doer, thing in zip(doers, things, strict=True)]
        return "perhaps two" if all(named) and named[0] != named[1] else None


def find_column(source: Source, column: Column, role: str) -> str:
    """Return the name of a column given by name or place; raise DataError if there is none."""
    if column in source.columns:
        return str(column)
    place = re.fullmatch(r"(?:column )?(-?[0-9]+)", str(column).strip())
    if place and -len(source.columns) <= int(place[1]) < len(source.columns):
        return source.columns[int(place[1])]
    trimmed = [name for name in source.columns if name.strip() == str(column).strip()]
    if len(trimmed) == 1:
        return trimmed[0]
    alike = {name.strip().casefold(): name for name in source.columns}
    near = difflib.get_close_matches(str(column).strip().casefold(), alike, n=1)
    advice = f"; did you mean {alike[near[0]]!r}?" if near else ""
    raise DataError(
        f"{role} was given as column {column!r}; {source.name} has {listed(source.columns)}{advice}"
    )


def choose_columns(source: Source, given: Mapping[str, Any], features: Any) -> Chosen:
    """Return the column of every role, given or inferred; raise, with advice, if one is missing.

    A role given as False has no column.
    """
    chosen = Chosen({})
    needed = [role for role in _NEEDED if given.get(role) is not False]
    free = list(source.columns)
    for role, column in given.items():
        if column is not None and column is not False:
            chosen.uses[role] = ColumnUse(find_column(source, column, role), "given")
            if chosen.uses[role].column in free:
                free.remove(chosen.uses[role].column)
    if features != "rest":
        if isinstance(features, (str, int)):
            features = (features,)
        chosen.features = tuple(find_column(source, each, "edge_features") for each in features)
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
            places = [column for column in source.columns if column != chosen.roles.get("t")]
            match = places[place] if place < min(3, len(places)) else None
            match = match if match in free else None
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
            f"{source.name} has {listed(source.columns)}; {', '.join(needed[:-1])} and"
            f" {needed[-1]} are needed",
            f"name the column of {' and '.join(missing)}{hint}",
            columns=[{role: likely[role] for role in needed if role in likely}],
        )
    for role, other in itertools.combinations(needed, 2):
        if roles[role] == roles[other]:
            raise DataError(
                f"column {roles[role]!r} was given as both {role} and {other};"
                f" {source.name} has {listed(source.columns)}: give each its own"
            )
    if free and "t" in needed and chosen.uses["t"].by == "place":
        likely = proposal(source, chosen, dated=True)
        if likely and likely["t"] != roles["t"]:
            raise TableError(
                f"{source.name} has no header, and its third column holds no dates, but"
                f" {likely['t']!r} does",
                "name the columns, perhaps {columns}",
                columns=[likely],
            )
    if features == "rest":
        chosen.features = tuple(
            column for column in free if source.is_number(column) or source.is_text(column)
        )
        free = [column for column in free if column not in chosen.features]
    chosen.ignored = tuple(free)
    return chosen


def proposal(source: Source, chosen: Chosen, *, dated: bool = False) -> dict[str, str]:
    """Return other columns for src, dst and t, if that of t hardly holds times and others do.

    dated: whether only dates, and numbers that are times since 1970, count as times.
    """
    kept = {
        role: column
        for role, column in chosen.roles.items()
        if role in ("src", "dst") and not chosen.is_guess(role)
    }
    free = [column for column in source.columns if column not in kept.values()]
    seen = _sample(source, free)
    times = {column for column in free if _times(source, seen[column], dated)}
    if chosen.roles.get("t") in times or not times:
        return {}
    # Not what names or places say, or the guess would be the same again.
    likely = _likely(source, kept, free, _NEEDED, times)
    return likely if len(likely) == len(_NEEDED) else {}


def _times(source: Source, cells: Sequence[str], dated: bool) -> bool:
    """Whether at least half of some cells are dates or numbers."""

    def fits(cell: str) -> bool:
        number = with_point(cell, source.decimal)
        if not re.match(NUMBER, number):
            return is_date(cell)
        return not dated or (math.isfinite(float(number)) and bool(epoch_unit(int(float(number)))))

    fit = [fits(cell) for cell in cells]
    return bool(fit) and 2 * sum(fit) >= len(fit)


def _words(column: str) -> set[str]:
    """Return the words of a name in the singular, without endings such as Id.

    >>> sorted(_words("UserIDs")), sorted(_words("product_code"))
    (['user', 'userids'], ['code', 'product'])
    """
    name = next(iter(_plain([column])))
    cut = (re.sub(r"(?<=[^_])(ids?|names?|nr|no)$", "", word) for word in name.split("_"))
    return {re.sub(r"(?<=[^s])s$", "", word) for word in cut} | set(name.split("_"))


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
    """Return the columns by their names in lower case, words separated by underscores.

    A name with a remark, such as "Created (UTC)", counts without it too.
    """
    full = {re.sub(r"[\s.-]+", "_", column.strip().lower()): column for column in columns}
    short = {re.sub(r"_?\([^)]*\)$", "", name): column for name, column in full.items()}
    return full | {name: short[name] for name in short if name and name not in full}


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


def _sample(source: Source, columns: Sequence[str]) -> dict[str, list[str]]:
    """Return the first cells of some columns, as text and without the empty ones."""
    if columns:
        for batch in source.batches(list(columns), "drop"):
            head = batch.slice(0, _SAMPLE_ROWS).to_pydict()
            return {n: [str(cell) for cell in head[n] if cell is not None] for n in columns}
    return {column: [] for column in columns}


def _likely(
    source: Source,
    roles: Mapping[str, str],
    free: Sequence[str],
    needed: Sequence[str],
    times: Collection[str] | None = None,
) -> dict[str, str]:
    """Guess a column for each needed role from its first cells.

    Times are dates or growing numbers, or have a name that says so. Nodes occur repeatedly, perhaps
    in another column, and are neither row numbers nor fractions. A role may get no column.

    times: the columns that may be times, if that is known.
    """
    seen = _sample(source, free)
    columns_with = Counter(cell for cells in seen.values() for cell in set(cells))

    def numbers(column: str) -> list[float]:
        cells = seen[column]
        return [float(cell) for cell in cells] if all(re.match(NUMBER, c) for c in cells) else []

    def counts_rows(column: str) -> bool:
        steps = numbers(column)
        return len(steps) > 1 and all(b - a == 1 for a, b in itertools.pairwise(steps))

    def is_time(column: str) -> tuple[bool, ...]:
        cells, values = seen[column], numbers(column)
        dated = bool(cells) and all(is_date(cell) for cell in cells)
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
            possible = [
                column
                for column in left
                if role != "t" or (any(is_time(column)) if times is None else column in times)
            ]
            if possible:
                found = max(possible, key=lambda column: (not counts_rows(column), *best(column)))
                likely[role] = found
                left.remove(found)
    return likely

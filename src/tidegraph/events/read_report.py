"""`ReadReport`: how a file was understood, and what became of its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from tidegraph.core.words import counted

Evidence: TypeAlias = Literal["given", "name", "place"]
_FORGOTTEN = "of a node that was forgotten"
EVIDENCE: dict[Evidence, str] = {
    "given": "as given",
    "name": "by its name",
    "place": "by its place",
}


class ColumnUse(NamedTuple):
    """The column behind a role, and how it was found."""

    column: str
    by: Evidence


@dataclass(frozen=True, slots=True)
class Conventions:
    """How a table writes times, numbers and ids, as given or recognised.

    What the stream itself shows is not repeated here: which columns hold words, and whether ids do.
    """

    unit: str | None = None  # of times as they are written; None: they are dates
    date_format: str | None = None  # "iso", or a format of strptime; None: times are numbers
    decimal: str = "."
    # Whether an id is one node as a source and another as a destination; None: the names of the
    # columns say so, but no id is on both sides yet.
    bipartite: bool | None = False


def listed(columns: Sequence[str]) -> str:
    """Return the names of columns in words, the first dozen of many."""
    shown = ", ".join(repr(column) for column in columns[:12])
    more = f" and {len(columns) - 12} more" if len(columns) > 12 else ""
    return f"column{'s' if len(columns) != 1 else ''} {shown}{more}"


@dataclass(frozen=True, slots=True)
class ReadReport:
    """How the columns of a file were understood, and what became of its rows."""

    source: str
    read: int
    kept: int
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> rows
    remarks: tuple[str, ...] = ()  # "t counts s, as given", ...
    columns: dict[str, ColumnUse] = field(default_factory=dict)  # by role
    out_of_order: int = 0  # rows earlier than the row before; all were sorted if there are any
    features: tuple[str, ...] = ()  # columns that became edge features
    ignored: tuple[str, ...] = ()  # columns that nothing was read from
    conventions: Conventions | None = None  # None: not read from a table, or by an older version

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence per column, then the remarks."""
        uses = self.columns.items()
        found = (f"{role} is column {use.column!r}, {EVIDENCE[use.by]}" for role, use in uses)
        order: tuple[str, ...] = ()
        if self.out_of_order:
            are = "is" if self.out_of_order == 1 else "are"
            late = f"{counted(self.out_of_order, 'row')} {are} earlier than the row before"
            order = (f"{late}; all were sorted by time",)
        features = (f"edge_features are {listed(self.features)}",) if self.features else ()
        ignored = (f"ignored: {listed(self.ignored)}",) if self.ignored else ()
        return (*found, *features, *ignored, *order, *self.remarks)

    def without(self, name: str, rows: int) -> ReadReport:
        """Return the report of the same rows without those of a forgotten node, nor its name."""
        whole = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        dropped = {why: count for why, count in self.dropped.items() if not whole.search(why)}
        unnamed = sum(self.dropped.values()) - sum(dropped.values())
        dropped[_FORGOTTEN] = dropped.get(_FORGOTTEN, 0) + unnamed + rows
        remarks = tuple(each for each in self.remarks if not whole.search(each))
        return replace(self, kept=self.kept - rows, dropped=dropped, remarks=remarks)

    def __str__(self) -> str:
        """Return one line of counts, then one per reason and per note."""
        lines = [f"{self.source}: {self.kept:,} of {counted(self.read, 'row')} kept"]
        lines += [f"  dropped {rows:,}: {reason}" for reason, rows in self.dropped.items()]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, from which `from_dict` restores the report."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReadReport:
        """Return the report of these values, which may come from JSON."""
        found = dict(values)
        # Streams saved before columns and order were fields have them among the notes.
        found["remarks"] = tuple(found.pop("notes", found.get("remarks", ())))
        found |= {name: tuple(found.get(name, ())) for name in ("features", "ignored")}
        uses = found.get("columns", {}).items()
        found["columns"] = {role: ColumnUse(*use) for role, use in uses}
        if found.get("conventions") is not None:
            found["conventions"] = Conventions(**found["conventions"])
        return cls(**found)

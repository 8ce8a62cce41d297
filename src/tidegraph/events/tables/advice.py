"""`TableError`: an error whose advice names options, in Python's spelling or in another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tidegraph.core.errors import DataError

Options: TypeAlias = Mapping[str, Any]  # of `read_table`


class TableError(DataError):
    """A table that cannot be read as asked.

    advice: a sentence with a field `{name}` for every remedy.
    remedies: alternatives, each given as the options to pass.

    >>> error = TableError("a.csv is not in time order", "use {sort}", sort=[{"sort": True}])
    >>> str(error), error.spelled(lambda options: "--sort")
    ('a.csv is not in time order; use sort=True', 'a.csv is not in time order; use --sort')
    """

    def __init__(self, problem: str, advice: str = "", **remedies: Sequence[Options]) -> None:
        self._problem, self._advice, self._remedies = problem, advice, remedies
        super().__init__(self.spelled(_in_python))

    def spelled(self, spell: Callable[[Options], str | None]) -> str:
        """Return the message with options spelled by `spell`, None for those it lacks."""
        if not self._advice:
            return self._problem
        spelled = {
            name: " or ".join(filter(None, map(spell, alternatives)))
            for name, alternatives in self._remedies.items()
        }
        return f"{self._problem}; {self._advice.format(**spelled)}"


def _in_python(options: Options) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())

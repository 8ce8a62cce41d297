"""What the directory of a finished run contains."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegraph.core.errors import StateFileError
from tidegraph.evaluation import Verdict, verdicts
from tidegraph.report.observations import Observations, read_observations

OBSERVATIONS = "observations"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run, as its directory describes it."""

    name: str
    results: dict[str, Any]  # metrics.json
    config: str  # config.toml
    observations: Observations | None

    @property
    def title(self) -> str:
        """The title of the data."""
        data = self.results.get("data") or {}
        seen = self.observations.about.get("title") if self.observations else None
        return str(data.get("title") or seen or data.get("name") or self.name)

    @property
    def task(self) -> str:
        """`link`, `node` or `events`."""
        if self.observations is not None:
            return str(self.observations.about["task"])
        if "task" in self.results:
            return str(self.results["task"])
        return "node" if "none" in self.results["metrics"] else "link"

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by their dotted names."""
        config = self.results.get("config")
        return flat(config if config else {"model": self.results.get("settings") or {}})

    @property
    def heuristics(self) -> dict[str, Any]:
        """The values of the heuristics: `[name][sampler][part][metric]`."""
        return self.results.get("heuristics") or {}

    @property
    def digest(self) -> str | None:
        """The digest of the data, if it is known."""
        data = self.results.get("data") or {}
        return data.get("hash") or data.get("digest")

    def verdicts(self, *, headline: bool = True) -> list[Verdict]:
        """Return the verdicts by the headline metric, or those by another; all nodes come first."""
        headlines = self.results.get("headlines") or {}
        examples = self.results.get("examples")
        found = verdicts(self.results["metrics"], self.heuristics, headlines, examples)
        wanted = [verdict for verdict in found if verdict.headline == headline]
        return sorted(wanted, key=lambda verdict: verdict.part != "all")


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a tree by their dotted names."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        inner = isinstance(value, dict) and value
        leaves |= flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return leaves


def read_run(directory: str | Path) -> FinishedRun:
    """Read the directory of a run, which may lack everything but its metrics."""
    path = Path(directory)
    metrics, config = path / "metrics.json", path / "config.toml"
    try:
        results = json.loads(metrics.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StateFileError(
            f"{path} has no metrics.json, so it is not a finished run; give the directory of one,"
            f" or finish it with: tidegraph resume {path}"
        ) from None
    except (OSError, ValueError) as error:
        raise StateFileError(f"{metrics} cannot be read ({error}); run it again") from None
    if not isinstance(results, dict) or not isinstance(results.get("metrics"), dict):
        raise StateFileError(f"{metrics} does not contain the metrics of a run; run it again")
    return FinishedRun(
        path.absolute().name,
        results,
        config.read_text(encoding="utf-8") if config.is_file() else "",
        read_observations(path / OBSERVATIONS),
    )

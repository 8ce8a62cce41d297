"""How a propagator describes itself in a saved state."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidegraph.core.errors import DataError, StateFileError
from tidegraph.engine.channels import Channel, EngineSettings, Sketch
from tidegraph.engine.compact import CompactGraph, open_graph
from tidegraph.engine.precision import Dtype

_KIND = "propagator"
_LAYOUT = 3  # version of the arrays in a saved state


@dataclass(frozen=True)
class Description:
    """Everything that makes two propagators compute the same, apart from their arrays."""

    settings: EngineSettings
    nodes: int
    dtype: Dtype
    block_columns: int
    sketch: Sketch | None
    graph: CompactGraph | None = None  # saved by path and fingerprint

    def to_dict(self) -> dict[str, Any]:
        """Return the description as types that JSON holds."""
        graph = self.graph
        return {
            "kind": _KIND,
            "layout": _LAYOUT,
            "settings": asdict(self.settings),
            "nodes": self.nodes,
            "dtype": self.dtype,
            "block_columns": self.block_columns,
            "sketch": None if self.sketch is None else asdict(self.sketch),
            "graph": None
            if graph is None
            else {"path": str(graph.path.resolve()), "fingerprint": graph.fingerprint},
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any], source: str) -> Description:
        """Return what `to_dict` saved, and open its graph.

        Raise StateFileError if it is not a propagator of this release, or if its graph is missing
        or has changed. `source` names the file in errors.
        """
        if saved.get("kind") != _KIND:
            raise StateFileError(f"{source} holds a {saved.get('kind')}, not a {_KIND}")
        if saved.get("layout") != _LAYOUT:
            raise StateFileError(
                f"{source} has state layout {saved.get('layout', 1)}; this release reads"
                f" layout {_LAYOUT}: load it with the release that saved it"
            )
        settings = dict(saved["settings"])
        settings["channels"] = tuple(Channel(**channel) for channel in settings["channels"])
        return cls(
            settings=EngineSettings(**settings),
            nodes=saved["nodes"],
            dtype=saved["dtype"],
            block_columns=saved["block_columns"],
            sketch=None if saved["sketch"] is None else Sketch(**saved["sketch"]),
            graph=_saved_graph(saved.get("graph"), source),
        )


def _saved_graph(saved: dict[str, str] | None, source: str) -> CompactGraph | None:
    if saved is None:
        return None
    try:
        graph = open_graph(saved["path"])
    except DataError as error:
        raise StateFileError(
            f"{source} needs the compact graph it was saved with: {error}"
        ) from None
    if graph.fingerprint != saved["fingerprint"]:
        raise StateFileError(
            f"{source} was saved with another graph than the one now in {graph.path};"
            " restore that graph"
        )
    return graph

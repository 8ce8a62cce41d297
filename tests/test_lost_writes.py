"""A power failure loses what was not synced, and nothing that was acknowledged."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tidegraph.bench.disk import Disk, Operation
from tidegraph.bench.live_kills import Script
from tidegraph.bench.lost_writes import lost_writes

ROOT = Path("/nowhere")


def disk_after(*calls: tuple[str, int, int, str, str]) -> Disk:
    disk = Disk(ROOT)
    for kind, descriptor, position, first, second in calls:
        disk.apply(Operation(kind, descriptor, position, first.encode(), second.encode()))
    return disk


def left(disk: Disk, way: str) -> dict[str, bytes | None]:
    return disk.left(way, np.random.default_rng(0))


def test_what_is_synced_stays_and_the_rest_goes_as_the_way_says() -> None:
    disk = disk_after(
        ("o", 3, 0, "/nowhere", ""),
        ("o", 4, 0, "/nowhere/a", ""),
        ("w", 4, 0, "first", ""),
        ("s", 4, 0, "", ""),
        ("s", 3, 0, "", ""),
        ("w", 4, 5, " second", ""),
        ("r", -1, 0, "/nowhere/a", "/nowhere/b"),
    )
    assert disk.now() == {"b": b"first second"}
    assert left(disk, "nothing") == {"a": b"first"}
    assert left(disk, "names") == {"b": b"first"}
    assert left(disk, "contents") == {"a": b"first second"}
    (torn,) = left(disk, "torn").items()
    assert torn[0] == "b"
    assert torn[1] is not None
    assert b"first" <= torn[1] < b"first second"


def test_a_name_is_lost_though_the_file_was_synced() -> None:
    calls = [("o", 4, 0, "/nowhere/a", ""), ("w", 4, 0, "x", ""), ("s", 4, 0, "", "")]
    assert left(disk_after(*calls), "nothing") == {}


@pytest.mark.skipif(shutil.which("cc") is None, reason="records with a compiled library")
@pytest.mark.parametrize("forgets", [False, True], ids=["", "forgetting"])
def test_a_power_failure_before_any_sync_loses_nothing(tmp_path: Path, forgets: bool) -> None:
    script = Script(seed=7, requests=9, forgets=forgets)
    assert lost_writes(script, every=4, directory=tmp_path)["crashes"] > 20

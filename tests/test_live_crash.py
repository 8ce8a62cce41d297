"""What was acknowledged is there exactly once, whatever is killed when."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tidegraph.bench.live_kills import Script, check, uninterrupted
from tidegraph.live import failpoints

# Reached only when something is trained, or compacted, or forgotten, in a script that does it.
FORGETTING = [name for name in failpoints.NAMES if "forget" in name or "purge" in name]


@pytest.fixture(scope="module", params=[False, True], ids=["", "forgetting"])
def script(request: pytest.FixtureRequest) -> Script:
    return Script(seed=7, requests=24, forgets=request.param)


@pytest.fixture(scope="module")
def expected(script: Script) -> dict[str, object]:
    return uninterrupted(script)[0]


@pytest.mark.parametrize("name", failpoints.NAMES)
def test_a_kill_at_any_failpoint_loses_nothing(
    tmp_path: Path, script: Script, expected: dict[str, object], name: str
) -> None:
    if (name in FORGETTING) and not script.forgets:
        pytest.skip("nothing is forgotten")
    times = [f"{name}:{nth}" for nth in (1, 2)]
    assert check(tmp_path / "live", script, expected, iter(times)) >= 1


def test_kills_at_random_moments_lose_nothing(
    tmp_path: Path, script: Script, expected: dict[str, object]
) -> None:
    generator = np.random.default_rng(1)
    moments = (float(generator.uniform(0, 0.5)) for _ in range(10))
    check(tmp_path / "live", script, expected, moments)

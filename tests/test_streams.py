"""The promise and the certificate on real streams, in float32, against exact solutions."""

from __future__ import annotations

import pytest

from tidegraph.engine.verify import verify
from tidegraph.events import datasets


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "snapshots", "half_life"),
    [
        ("wikipedia", None, None),
        ("wikipedia", None, 86_400.0),
        ("uci", 190_080, None),
        ("bitcoin-otc", 1_200_000_000_000, None),  # its times are kept in microseconds
        ("bitcoin-alpha", 1_200_000, None),
        ("nyc-flights", None, 7 * 86_400.0),
    ],
)
def test_the_bound_holds_on_a_real_stream(
    name: str, snapshots: int | None, half_life: float | None
) -> None:
    if datasets.find(datasets.DATA_SETS[name]) is None:
        pytest.skip(f"{name} is not on this machine")
    result = verify(
        datasets.load_dataset(name), columns=32, snapshots=snapshots, half_life=half_life, samples=5
    )
    assert result.steps > 50
    for sample in result.samples:
        assert sample.error_over_bound <= 1
        assert sample.error_over_threshold <= 1 + sample.drift
        assert sample.drift < 0.05

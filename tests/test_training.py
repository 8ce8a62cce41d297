"""The training loop: what is random follows from the seed, and a killed run loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.learning.training import Epoch, Training, fit

EXAMPLES, COLUMNS = 60, 4
TRAINING = Training(epochs=4, batch_size=16, learning_rate=1e-2, patience=4, seed=3)


class Stopped(Exception):
    """Stands for whatever ends a process."""


def problem() -> tuple[nn.Module, Callable[[NDArray[np.int64]], Tensor], Callable[[], float]]:
    """A network with dropout, and a linear function to learn."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(EXAMPLES, COLUMNS, generator=random)
    y = x @ torch.arange(1.0, COLUMNS + 1)
    torch.manual_seed(7)
    module = nn.Sequential(nn.Linear(COLUMNS, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))

    def loss(rows: NDArray[np.int64]) -> Tensor:
        chosen = torch.from_numpy(rows)
        return nn.functional.mse_loss(module(x[chosen])[:, 0], y[chosen])

    def validate() -> float:
        with torch.no_grad():
            return -float(nn.functional.mse_loss(module(x)[:, 0], y))

    return module, loss, validate


def weights(module: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def fitted(training: Training = TRAINING, checkpoint: Path | None = None) -> list[Tensor]:
    module, loss, validate = problem()
    fit(module, EXAMPLES, loss, validate, training, checkpoint=checkpoint)
    return weights(module)


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_training_makes_the_loss_smaller() -> None:
    module, loss, validate = problem()
    before = validate()
    epochs = fit(module, EXAMPLES, loss, validate, replace(TRAINING, epochs=30, patience=30))
    assert len(epochs) == 30
    assert validate() > before / 2
    assert epochs[-1].loss < epochs[0].loss / 2
    assert not module.training


@pytest.mark.parametrize("in_order", [False, True])
def test_every_epoch_takes_every_example_once_in_order_where_wanted(in_order: bool) -> None:
    module, loss, validate = problem()
    seen: list[int] = []

    def watched(rows: NDArray[np.int64]) -> Tensor:
        seen.extend(rows.tolist())
        return loss(rows)

    fit(module, EXAMPLES, watched, validate, replace(TRAINING, epochs=2, in_order=in_order))
    for epoch in (seen[:EXAMPLES], seen[EXAMPLES:]):
        assert sorted(epoch) == list(range(EXAMPLES))
        assert (epoch == sorted(epoch)) is in_order


def test_the_same_seed_gives_the_same_weights_and_another_one_others() -> None:
    assert same(fitted(), fitted())
    assert not same(fitted(), fitted(replace(TRAINING, seed=4)))


def test_the_seed_decides_and_not_what_was_drawn_before() -> None:
    expected = fitted()
    module, loss, validate = problem()
    torch.rand(100)
    np.random.default_rng().random(5)
    fit(module, EXAMPLES, loss, validate, TRAINING)
    assert same(weights(module), expected)


@pytest.mark.parametrize("survived", range(1, TRAINING.epochs))
def test_a_run_killed_after_any_epoch_ends_with_the_same_weights(
    survived: int, tmp_path: Path
) -> None:
    module, loss, validate = problem()

    def killed(done: int, total: int, text: str) -> None:
        if done > survived * total // TRAINING.epochs + 1:  # in the middle of the next epoch
            raise Stopped

    path = tmp_path / "training.safetensors"
    with pytest.raises(Stopped):
        fit(module, EXAMPLES, loss, validate, TRAINING, checkpoint=path, progress=killed)
    assert same(fitted(checkpoint=path), fitted())


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    expected = fitted(checkpoint=path)
    module, _, validate = problem()

    def asked_again(rows: NDArray[np.int64]) -> Tensor:
        raise AssertionError("there is nothing left to train")

    fit(module, EXAMPLES, asked_again, validate, TRAINING, checkpoint=path)
    assert same(weights(module), expected)


def scored(
    scores: list[float], patience: int | None
) -> tuple[list[Epoch], list[list[Tensor]], nn.Module]:
    """A training whose validation scores are given, and the weights after each of its epochs."""
    module, loss, _ = problem()
    seen: list[list[Tensor]] = []

    def validate() -> float:
        seen.append(weights(module))
        return scores[len(seen) - 1]

    training = replace(TRAINING, epochs=len(scores), patience=patience)
    return fit(module, EXAMPLES, loss, validate, training), seen, module


def test_the_best_epoch_is_kept() -> None:
    epochs, seen, module = scored([1.0, 3.0, 2.0, 2.5], patience=4)
    assert [epoch.validation for epoch in epochs] == [1.0, 3.0, 2.0, 2.5]
    assert same(weights(module), seen[1])
    assert not same(seen[1], seen[3])


def test_without_patience_training_goes_on_and_the_last_epoch_is_kept() -> None:
    epochs, seen, module = scored([3.0, 1.0, 2.0, 1.0], patience=None)
    assert len(epochs) == 4
    assert same(weights(module), seen[3])


def test_training_stops_when_nothing_gets_better() -> None:
    epochs, seen, module = scored([1.0, 2.0, 1.5, 1.9, 9.0], patience=2)
    assert len(epochs) == 4
    assert same(weights(module), seen[1])


def test_equal_scores_are_no_improvement() -> None:
    _, seen, module = scored([1.0, 1.0, 1.0], patience=5)
    assert same(weights(module), seen[0])


def test_a_checkpoint_of_other_settings_is_rejected_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    fitted(checkpoint=path)
    content = path.read_bytes()
    with pytest.raises(ParameterError, match="remove the file or repeat the settings"):
        fitted(replace(TRAINING, learning_rate=2e-2), checkpoint=path)
    assert path.read_bytes() == content


def test_a_file_that_is_no_checkpoint_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    path.write_bytes(b"something else")
    with pytest.raises(StateFileError, match="does not hold the weights"):
        fitted(checkpoint=path)


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch_size": 0}, {"patience": 0}, {"learning_rate": 0.0}]
)
def test_impossible_settings_are_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Training(**wrong)  # type: ignore[arg-type]

"""The training loop, and the processes that share it; knows nothing of what an example is."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegraph.core.declarations import inherited, validate
from tidegraph.core.durable import replace_file
from tidegraph.core.errors import ParameterError, StateFileError
from tidegraph.core.progress import Progress
from tidegraph.learning.settings import TrainingSettings

if TYPE_CHECKING:  # torch takes seconds to import, and the settings need none of it
    import torch
    from torch import Tensor, nn

    Loss = Callable[[NDArray[np.int64]], Tensor]  # positions of examples -> a scalar

_Value = TypeVar("_Value")
_WARM_UP = 0.1  # share of the steps during which the learning rate grows


@dataclass(kw_only=True)
class Training(TrainingSettings):
    """How to fit: Adam, with a learning rate that rises and then falls along a cosine."""

    epochs: int = inherited(TrainingSettings, "epochs", 10)
    weight_decay: float = 1e-6

    def __post_init__(self) -> None:
        validate(self)
        if self.device == "cpu":
            return
        import torch

        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
            reason = str(error).partition("\n")[0]
            raise ParameterError(
                f"device {self.device!r} cannot be used here ({reason}); 'cpu' always can"
            ) from None


@dataclass(frozen=True)
class Epoch:
    """What one pass over the examples achieved."""

    number: int
    loss: float
    validation: float
    elapsed_s: float

    def plain(self) -> dict[str, int | float]:
        """Return the epoch as histories show it, counted from 1."""
        return {
            "epoch": self.number + 1,
            "loss": self.loss,
            "validation": self.validation,
            "seconds": self.elapsed_s,
        }


# Several processes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranks:
    """The processes that train one model together, and which of them this is."""

    rank: int = 0
    size: int = 1

    @classmethod
    def present(cls) -> Ranks:
        """Return the processes of the group, or this one alone where there is no group."""
        import torch

        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return cls(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return cls()

    @property
    def leads(self) -> bool:
        """Whether this process is the one that records, validates and writes."""
        return self.rank == 0

    def share(self, value: _Value) -> _Value:
        """Return the first process's value in all of them, once all have arrived here."""
        if self.size == 1:
            return value
        import torch

        box = [value if self.leads else None]
        torch.distributed.broadcast_object_list(box)
        return box[0]  # type: ignore[return-value]

    def broadcast(self, module: nn.Module) -> None:
        """Copy the weights and buffers of the first process to all others."""
        if self.size > 1:
            import torch

            for tensor in module.state_dict().values():
                torch.distributed.broadcast(tensor, 0)

    def add_gradients(self, module: nn.Module) -> None:
        """Replace the gradients of every process by their sum over all, in one message."""
        if self.size == 1:
            return
        import torch
        from torch import nn

        gradients = []
        for parameter in module.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        summed = nn.utils.parameters_to_vector(gradients)
        torch.distributed.all_reduce(summed)
        nn.utils.vector_to_parameters(summed, gradients)


@contextlib.contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """Form a group of the processes that `torchrun` started; elsewhere, or in a group, do nothing.

    With `device="cuda"` process n of a machine takes GPU n and they communicate by NCCL, otherwise
    by gloo.
    """
    import torch

    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    if alone or torch.distributed.is_initialized():
        yield Ranks.present()
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        # The first may propagate for hours while the others wait; torchrun stops them if it dies.
        timeout=datetime.timedelta(days=30),
    )
    try:
        yield Ranks.present()
        # All of gloo's messages are released before any process leaves: releasing one while the
        # interpreter shuts down aborts the process.
        torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()


# The loop -----------------------------------------------------------------------------------------


def fit(
    module: nn.Module,
    examples: int,
    loss: Loss,
    validate: Callable[[], float],
    training: Training,
    *,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> list[Epoch]:
    """Fit `module`, leave it with the weights of the best epoch by `validate`, return all epochs.

    Without patience the last epoch counts as the best.

    `loss` takes positions below `examples`, ascending with time, and returns the mean over them.
    All randomness follows from the seed and the number of the epoch, so a run that is stopped and
    resumed from its `checkpoint` ends with the same weights as one that is not.

    The processes of a group share every batch. A step follows the mean over the whole batch, so it
    equals the step of one process except for dropout and rounding. The first process validates and
    writes the checkpoint, which all must be able to read.
    """
    import torch

    ranks = Ranks.present()
    ranks.broadcast(module)
    optimiser = torch.optim.Adam(
        module.parameters(),
        lr=training.learning_rate,
        weight_decay=training.weight_decay,
        fused=True,
    )
    batches = math.ceil(examples / training.batch_size)
    epochs: list[Epoch] = []
    best = {name: value.clone() for name, value in module.state_dict().items()}
    if checkpoint is not None and checkpoint.is_file():
        epochs, best = _resume(checkpoint, module, optimiser, training)
    while len(epochs) < training.epochs and not _exhausted(epochs, training.patience):
        number = len(epochs)
        begun = time.perf_counter()
        # For dropout; processes drop different inputs.
        dropped = (training.seed * 1_000_003 + number) * ranks.size + ranks.rank
        torch.manual_seed(dropped % 2**63)
        order = np.arange(examples)
        if not training.in_order:
            order = np.random.default_rng((training.seed, number)).permutation(examples)
        module.train()
        total = 0.0
        for batch in range(batches):
            rate = _rate(training, number * batches + batch, training.epochs * batches)
            for group in optimiser.param_groups:
                group["lr"] = rate
            rows = order[batch * training.batch_size : (batch + 1) * training.batch_size]
            own = rows[ranks.rank :: ranks.size]
            optimiser.zero_grad()
            if len(own):  # the last batch may be smaller than the number of processes
                value = loss(own) * (len(own) / len(rows))
                value.backward()  # type: ignore[no-untyped-call]
                total += float(value.detach())
            ranks.add_gradients(module)
            optimiser.step()
            if progress is not None:
                done = number * batches + batch + 1
                progress(done, training.epochs * batches, f"epoch {number + 1}")
        module.eval()
        total, score = ranks.share((total * ranks.size, validate() if ranks.leads else 0.0))
        last_counts = training.patience is None or not epochs
        if last_counts or score > max(epoch.validation for epoch in epochs):
            best = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        epochs.append(Epoch(number, total / batches, score, time.perf_counter() - begun))
        if checkpoint is not None and ranks.leads:
            _save(checkpoint, module, optimiser, best, epochs, training)
    module.load_state_dict(best)
    module.eval()
    return epochs


def _exhausted(epochs: list[Epoch], patience: int | None) -> bool:
    if patience is None or not epochs:
        return False
    best = max(range(len(epochs)), key=lambda number: epochs[number].validation)
    return len(epochs) - 1 - best >= patience


def _rate(training: Training, step: int, steps: int) -> float:
    """Return the learning rate of a step: a function of its number, so resuming needs no state."""
    warm = max(1, int(_WARM_UP * steps))
    if step < warm:
        return training.learning_rate * (step + 1) / warm
    return training.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


# Files --------------------------------------------------------------------------------------------


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]], about: dict[str, Any]) -> None:
    """Write arrays and a JSON description to one safetensors file, replacing what was there."""
    from safetensors.numpy import save

    kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    data = save(kept, metadata={"tidegraph": json.dumps(about)})
    replace_file(path, lambda file: file.write(data))


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the description that `write_arrays` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            about = json.loads(file.metadata()["tidegraph"])
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError) as error:
        raise StateFileError(f"{path} does not hold the weights of a model: {error}") from None


def _save(
    path: Path,
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    best: dict[str, Tensor],
    epochs: list[Epoch],
    training: Training,
) -> None:
    state = optimiser.state_dict()["state"]
    adam = {f"{number}.{name}": state[number][name] for number in state for name in state[number]}
    parts = {"model": module.state_dict(), "best": best, "adam": adam}
    arrays = {
        f"{part}.{name}": tensor.detach().cpu().numpy()
        for part, tensors in parts.items()
        for name, tensor in tensors.items()
    }
    about = {"training": training.__dict__, "epochs": [epoch.__dict__ for epoch in epochs]}
    write_arrays(path, arrays, about)


def _resume(
    path: Path, module: nn.Module, optimiser: torch.optim.Optimizer, training: Training
) -> tuple[list[Epoch], dict[str, Tensor]]:
    import torch

    arrays, about = read_arrays(path)
    if about.get("training") != training.__dict__:
        raise ParameterError(
            f"{path} was written by a training with {about.get('training')}; "
            f"this one has {training.__dict__}: remove the file or repeat the settings"
        )
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "adam": {}}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = torch.tensor(array)
    module.load_state_dict(parts["model"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["adam"].items():
        number, _, what = name.partition(".")
        state.setdefault(int(number), {})[what] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    return [Epoch(**epoch) for epoch in about["epochs"]], parts["best"]

"""Several processes train one model: the steps of one process, and the same files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tidegraph import LinkPredictor, generate_communities
from tidegraph.learning.training import Ranks, joined

ROOT = Path(__file__).parent.parent


def torchrun(processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, "--nproc_per_node", str(processes), *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_single_process_shares_with_itself() -> None:
    with joined("cpu") as ranks:
        assert ranks == Ranks(0, 1) == Ranks.present()
        assert ranks.leads
        assert ranks.share("word") == "word"


FITTED = """
import sys
from dataclasses import replace
from pathlib import Path
import torch
from tests.test_training import EXAMPLES, TRAINING, problem
from tidegraph.learning.training import fit, joined

module, loss, validate = problem()
module[2].p = 0.0  # what is forgotten at random is the only thing that differs
out = Path(sys.argv[1])
with joined("cpu") as ranks:
    if not ranks.leads:  # weights are the first one's, whatever the others begin with
        torch.nn.init.zeros_(module[0].weight)
    # 60 examples in batches of 59: the last one leaves a process without any.
    training = replace(TRAINING, batch_size=59)
    epochs = fit(module, EXAMPLES, loss, validate, training, checkpoint=out / "run.safetensors")
    scores = [epoch.validation for epoch in epochs]
    torch.save((module.state_dict(), scores), out / f"{ranks.size}-{ranks.rank}.pt")
"""


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    script = tmp_path / "fitted.py"
    script.write_text(FITTED)
    found = {}
    for size in (1, 2):
        out = tmp_path / str(size)
        out.mkdir()
        done = torchrun(size, str(script), str(out))
        assert done.returncode == 0, done.stderr
        for rank in range(size):
            found[size, rank] = torch.load(out / f"{size}-{rank}.pt")
    (one, scores), (first, shared), (second, heard) = found[1, 0], found[2, 0], found[2, 1]
    assert shared == heard, "all processes know the same scores"
    assert shared == pytest.approx(scores, rel=1e-4)
    for name, weight in one.items():
        assert torch.equal(first[name], second[name]), "processes stay together to the bit"
        torch.testing.assert_close(first[name], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_command_trains_in_two_processes_as_in_one(tmp_path: Path) -> None:
    generate_communities(nodes=120, events=4000, communities=4, seed=2).save(tmp_path / "toy.tide")
    results: list[dict[str, Any]] = []
    for size in (1, 2):
        model = tmp_path / f"model {size}"
        done = torchrun(
            size,
            *("-m", "tidegraph", "train", str(tmp_path / "toy.tide"), "-o", str(model), "--json"),
            *("--set", "columns=16", "--set", "epochs=3", "--set", "hidden=64"),
        )
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(lines) == 1, "only one of the processes prints"
        results.append(json.loads(lines[0]))
        assert LinkPredictor.load(model).predict_proba([0], [1], 10**6).shape == (1,)
        assert not model.with_name(f"{model.name}.unfinished").exists()
    # 600 validation events: two points are what chance alone may do.
    assert results[0]["validation"]["ap"] > 0.6
    assert abs(results[0]["validation"]["ap"] - results[1]["validation"]["ap"]) < 0.02

"""Check an installed tidegraph, without compiler or sources: `make wheel` runs this.

python tests/smoke.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import tidegraph


def command(*words: str) -> str:
    """Run `tidegraph WORDS` and return what it printed; end the check where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegraph", *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"tidegraph {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def main() -> None:
    home = Path(tidegraph.__file__).resolve()
    if not home.is_relative_to(Path(sys.prefix).resolve()):
        sys.exit(f"tidegraph was imported from {home}, not from the environment {sys.prefix}")

    flights = tidegraph.load_dataset("nyc-flights")
    channels = [tidegraph.Channel.low_pass(), tidegraph.Channel.low_pass(half_life=7 * 86400)]
    propagator = tidegraph.Propagator(
        tidegraph.Sketch(columns=16), nodes=flights.nodes, channels=channels
    )
    propagator.apply_steps(flights[:20_000].steps())
    excess = (propagator.error_bound() / propagator.threshold()).max()
    if not excess <= 1:
        sys.exit(f"the certified error is {excess:.3f} of the threshold")

    with tempfile.TemporaryDirectory() as folder:
        propagator.save(Path(folder) / "state")
        again = tidegraph.Propagator.load(Path(folder) / "state")
        if not np.array_equal(again.embedding(), propagator.embedding()):
            sys.exit("a saved propagator came back with other embeddings")

    early = flights.before("2013-01-03")
    predictor = tidegraph.LinkPredictor(columns=4, epochs=1, hidden=16).fit(early)
    _, likely = predictor.rank("N14228", "2013-01-03", k=3)
    if not (len(likely) == 3 and np.all((likely >= 0) & (likely <= 1))):
        sys.exit(f"the likeliest destinations have the probabilities {likely}")

    if tidegraph.__version__ not in command("--version"):
        sys.exit("the command and the package disagree about the version")
    command("--help")
    command("data", "info", "nyc-flights")
    native = find_spec("tidegraph._native")
    print(
        f"tidegraph {tidegraph.__version__} works on Python {sys.version.split()[0]}:"
        f" {Path(native.origin or '').name if native else 'no native module'}"
    )


if __name__ == "__main__":
    main()

"""Record a stream once, then read the state of any node at any time in the past."""

import tempfile

import numpy as np

import tidegraph
from tidegraph import Channel, Propagator, Sketch

stream = tidegraph.generate_communities(nodes=300, events=8000, seed=2)
propagator = Propagator(
    Sketch(32), nodes=stream.nodes, channels=[Channel.low_pass(0.2)], r_max=1e-3
)

with tempfile.TemporaryDirectory() as path:
    trajectories = tidegraph.record(stream, propagator, path, epsilon=0.05)
    node = int(np.bincount(stream.src).argmax())
    times = np.quantile(stream.t, [0.25, 0.5, 0.75, 1.0]).astype(np.int64)
    nodes = np.full(len(times), node)
    states = trajectories.state(nodes, times)  # strictly before each time
    bounds = trajectories.bound(nodes, times)
    print(f"{trajectories.records:,} records, {trajectories.nbytes / 1e6:.1f} MB")
    for when, state, bound in zip(times, states, bounds, strict=True):
        print(f"t={when}: norm {np.linalg.norm(state):.3f}, error at most {float(bound[0]):.3f}")

print(tidegraph.explain(stream, node, times[1], times[2], top=3))

"""Follow a live stream: edges arrive, fade and are removed, and the error is always known."""

import numpy as np

from tidegraph import Batch, Channel, Op, Propagator, Sketch

channels = [Channel.low_pass(0.2), Channel.low_pass(0.2, half_life=600)]
propagator = Propagator(Sketch(columns=32, seed=1), nodes=500, channels=channels, r_max=1e-2)

random = np.random.default_rng(0)
clock = 0
for minute in range(30):
    src, dst = random.integers(0, 500, (2, 40))
    clock += 60
    touched = propagator.apply(Batch(src=src, dst=dst, t=clock))
    if minute % 10 == 9:
        first = propagator.apply(Batch(src=src[:1], dst=dst[:1], op=Op.REMOVE, t=clock))
        error = propagator.error_bound(touched).max()
        print(
            f"minute {minute + 1}: {len(touched)} nodes moved, {len(first)} by a removal;"
            f" certified error {error:.4f}"
        )

propagator.apply(Batch(new_nodes=1))  # node 500 joins
propagator.apply(Batch(src=[500], dst=[int(dst[0])], t=clock + 1))
z = propagator.embedding([500, int(dst[0])])  # [2 nodes, 2 channels, 32 columns]
print("similarity:", np.round(np.einsum("cd,cd->c", z[0], z[1]) / 32, 3))

"""Where features come from makes no difference but to memory: kept, sketched or borrowed."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tidegraph import Batch, Channel, PrecisionError, Propagator, Sketch, StateFileError
from tidegraph.core import statefile

NODES, COLUMNS = 900, 40  # more nodes than computed rows are remembered
CHANNELS = (Channel.low_pass(), Channel.high_pass(half_life=20.0))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    own = array.copy(order="K")
    own.setflags(write=False)
    return own


def history(new_features: NDArray[np.float64] | None) -> list[Batch]:
    """Edges, changed and removed nodes, new ones with features of their own and without."""
    rng = np.random.default_rng(3)
    batches = []
    for step in range(30):
        src, dst = rng.integers(0, NODES, (2, 20))
        batches.append(Batch(src=src, dst=dst, t=step))
    ones = np.ones((2, COLUMNS))
    return [
        *batches[:10],
        Batch(feature_nodes=[5, 700], feature_values=ones, src=[5], dst=[700], t=10),
        Batch(new_nodes=2, new_features=3 * ones, src=[NODES], dst=[NODES + 1], t=11),
        Batch(new_nodes=2, new_features=new_features, src=[NODES + 2], dst=[NODES + 3], t=12),
        Batch(removed_nodes=[700, 8, NODES + 1], t=13),
        Batch(feature_nodes=[9], feature_values=2 * ones[:1], t=14),
        *[
            Batch(b.src % 8, b.dst % 8 + 10, t=int(b.time or 0) + 15) for b in batches[10:]
        ],  # living nodes only
        Batch(t=2000),  # long enough for a decayed version to start afresh
        Batch(src=[1], dst=[2], t=2001),
    ]


def play(propagator: Propagator, batches: list[Batch]) -> list[NDArray[Any]]:
    """Everything that can be read, after the history and after a repair."""
    touched = [propagator.apply(batch) for batch in batches]
    found = [propagator.embedding(), propagator.residual(), propagator.features()]
    audit = propagator.audit()
    found += [propagator.error_bound(), audit.drift, audit.residual]
    propagator.repair()
    return [*touched, *found, propagator.residual()]


def assert_equal_bits(one: list[NDArray[Any]], other: list[NDArray[Any]]) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.tobytes() == b.tobytes()


def options(dtype: str) -> dict[str, Any]:
    return {
        "channels": CHANNELS,
        "dtype": dtype,
        "r_max": 1e-2,
        "r_max_unit": "absolute",
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("distribution", ["gaussian", "uniform", "sign"])
def test_a_sketch_gives_the_bits_of_its_rows(distribution: Any, dtype: str) -> None:
    sketch = Sketch(COLUMNS, seed=7, distribution=distribution, first_column=3)
    rows = sketch.rows(np.arange(NODES + 4))
    kept = play(Propagator(rows[:NODES], **options(dtype)), history(rows[-2:]))
    sketched = play(Propagator(sketch, nodes=NODES, **options(dtype)), history(None))
    assert_equal_bits(kept, sketched)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("given", [np.float32, np.float64])
def test_a_read_only_array_gives_the_bits_of_its_copy(given: Any, dtype: str) -> None:
    features = np.random.default_rng(1).normal(size=(NODES, COLUMNS)).astype(given)
    kept = play(Propagator(features, **options(dtype)), history(None))
    borrowed = play(Propagator(read_only(features), **options(dtype)), history(None))
    assert_equal_bits(kept, borrowed)


def test_an_isolated_node_without_self_loop_has_its_features_from_any_source() -> None:
    sketch = Sketch(8, seed=2)
    rows = sketch.rows(np.arange(5))
    for features in (rows, read_only(rows), sketch):
        propagator = Propagator(
            features, nodes=5, r_max_unit="absolute", self_loop=0.0, initial=Batch([0], [1])
        )
        np.testing.assert_allclose(propagator.embedding([3])[0, 0], 0.2 * rows[3], rtol=1e-6)


def memory_beyond_states(features: Any) -> int:
    """Bytes of a propagator other than its estimates and residuals."""
    propagator = Propagator(features, nodes=NODES)
    return propagator.statistics()["state_bytes"] - 2 * NODES * COLUMNS * 4


def test_only_arrays_that_someone_can_write_to_are_copied(tmp_path: Path) -> None:
    features = np.random.default_rng(1).normal(size=(NODES, COLUMNS)).astype(np.float32)
    copied = features.nbytes  # at least so many, if they are
    path = tmp_path / "features.npy"
    np.save(path, features)
    view = features[:]
    view.setflags(write=False)
    assert memory_beyond_states(features) >= copied
    assert memory_beyond_states(view) >= copied  # its base can be written to
    assert memory_beyond_states(read_only(np.asfortranarray(features))) >= copied
    assert memory_beyond_states(read_only(features.astype(np.float16))) >= copied
    assert memory_beyond_states(read_only(features.astype(">f4"))) >= copied
    assert memory_beyond_states(np.load(path, mmap_mode="r+")) >= copied
    assert memory_beyond_states(read_only(features)) < copied
    assert memory_beyond_states(np.load(path, mmap_mode="r")) < copied
    assert memory_beyond_states(Sketch(COLUMNS)) < copied


def test_writing_to_an_array_that_was_handed_over_changes_nothing() -> None:
    features = np.random.default_rng(1).normal(size=(20, 4))
    view = features[:]
    view.setflags(write=False)
    for given in (features, view):
        propagator = Propagator(given)
        before = propagator.features()
        features += 1
        np.testing.assert_array_equal(propagator.features(), before)


def test_a_borrowed_array_lives_as_long_as_its_propagator() -> None:
    features = read_only(np.random.default_rng(1).normal(size=(20, 4)))
    expected = features.copy()
    alive = weakref.ref(features)
    propagator = Propagator(features, dtype="float64")
    del features
    gc.collect()
    assert alive() is not None
    np.testing.assert_allclose(propagator.features(), expected, rtol=1e-15)
    del propagator
    gc.collect()
    assert alive() is None


def reload_file(propagator: Propagator, path: Path) -> Propagator:
    propagator.save(path / "state")
    return Propagator.load(path / "state")


@pytest.mark.parametrize(
    "again",
    [reload_file, lambda p, _: pickle.loads(pickle.dumps(p)), lambda p, _: copy.deepcopy(p)],
    ids=["save", "pickle", "deepcopy"],
)
@pytest.mark.parametrize("source", ["sketch", "borrowed"])
def test_a_restored_propagator_continues_to_the_bit(
    again: Callable[[Propagator, Path], Propagator], source: str, tmp_path: Path
) -> None:
    sketch = Sketch(COLUMNS, seed=7, first_column=3)
    features = sketch if source == "sketch" else read_only(sketch.rows(np.arange(NODES)))
    batches = history(None)
    propagator = Propagator(features, nodes=NODES, channels=CHANNELS)
    for batch in batches[:20]:
        propagator.apply(batch)
    other = again(propagator, tmp_path)
    third = again(other, tmp_path)
    assert third._packed() == other._packed()
    assert_equal_bits(play(propagator, batches[20:]), play(other, batches[20:]))
    new = Batch(new_nodes=2, src=[NODES + 4], dst=[NODES + 5], t=2100)
    assert_equal_bits(play(propagator, [new]), play(other, [new]))


def test_the_file_of_a_sketch_holds_no_features(tmp_path: Path) -> None:
    sketch = Sketch(COLUMNS, seed=7)
    sizes = []
    for features in (sketch, sketch.rows(np.arange(NODES))):
        Propagator(features, nodes=NODES).save(tmp_path / "state")
        sizes.append((tmp_path / "state").stat().st_size)
    assert sizes[0] < sizes[1] - 0.99 * 4 * NODES * COLUMNS


def test_a_state_of_another_layout_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "state"
    Propagator(np.eye(3)).save(path)
    description, arrays = statefile.read(path)
    del description["layout"]
    statefile.write(path, description, arrays)
    with pytest.raises(StateFileError, match="layout 1; this release reads layout 3"):
        Propagator.load(path)


def test_a_sketch_too_large_for_the_thresholds_is_rejected_when_its_first_node_comes() -> None:
    propagator = Propagator(Sketch(4), nodes=0, r_max_unit="absolute", r_max=1e-20)
    with pytest.raises(PrecisionError, match="times their threshold"):
        propagator.apply(Batch(new_nodes=1))
    assert propagator.nodes == 0


@pytest.mark.parametrize("owner", [bytearray, lambda data: memoryview(bytearray(data))])
def test_memory_that_its_owner_can_write_to_is_copied(owner: Any) -> None:
    """A read-only array may show a buffer that is none of NumPy's, and can change."""
    buffer = owner(np.eye(4).tobytes())
    view = memoryview(buffer).toreadonly() if isinstance(buffer, memoryview) else buffer
    array = np.frombuffer(view).reshape(4, 4)
    array.setflags(write=False)
    propagator = Propagator(array, nodes=4)
    buffer[:8] = np.array([7.0]).tobytes()
    assert array[0, 0] == 7
    assert np.array_equal(propagator.features(), np.eye(4))

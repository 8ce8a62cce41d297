"""What every encoder and decoder must do, whichever it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tidegraph.core.errors import ParameterError
from tidegraph.learning.inference import PairNetwork, sigmoid
from tidegraph.learning.models import (
    DECODERS,
    ENCODERS,
    Hadamard,
    LinkNetwork,
    Pair,
    Rectifier,
    TimeEncoding,
    Window,
    make_decoder,
    make_encoder,
)
from tidegraph.learning.settings import LinkSettings

BATCH, LENGTH, COLUMNS, WIDTH = 7, 5, 6, 8
SEQUENCES = sorted(ENCODERS.keys() - {"state"})


def window_of(known: Tensor | None = None, seed: int = 0) -> Window:
    """Windows of nodes that have moved 0, 1, 2, ... times, unless told otherwise."""
    random = torch.Generator().manual_seed(seed)
    if known is None:
        moves = torch.arange(BATCH).clamp(max=LENGTH)
        known = torch.arange(LENGTH) >= LENGTH - moves[:, None]
    return Window(
        torch.randn(BATCH, LENGTH, COLUMNS, generator=random),
        torch.rand(BATCH, LENGTH, generator=random) * 10,
        known,
        torch.randn(BATCH, COLUMNS, generator=random),
    )


def encoder_of(name: Any, **options: Any) -> nn.Module:
    torch.manual_seed(1)
    return make_encoder(name, COLUMNS, WIDTH, options).eval()


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_gives_one_finite_vector_per_node_even_if_it_never_moved(name: str) -> None:
    out = encoder_of(name)(window_of())
    assert out.shape == (BATCH, WIDTH)
    assert torch.isfinite(out).all()
    nothing = encoder_of(name)(window_of(known=torch.zeros(BATCH, LENGTH, dtype=torch.bool)))
    assert torch.isfinite(nothing).all()


@pytest.mark.parametrize("name", ENCODERS)
def test_every_weight_of_an_encoder_can_learn(name: str) -> None:
    options = {"time_encoding": True} if name in SEQUENCES else {}
    encoder = encoder_of(name, **options).train()
    (encoder(window_of()) * torch.randn(BATCH, WIDTH)).sum().backward()
    for label, parameter in encoder.named_parameters():
        assert parameter.grad is not None, label
        assert torch.isfinite(parameter.grad).all(), label
        assert parameter.grad.abs().sum() > 0, label


@pytest.mark.parametrize("name", ENCODERS)
def test_what_is_not_known_has_no_influence(name: str) -> None:
    options = {"time_encoding": True} if name in SEQUENCES else {}
    encoder, window, other = encoder_of(name, **options), window_of(), window_of(seed=5)
    hidden = ~window.known
    changed = replace(
        window,
        change=torch.where(hidden[..., None], other.change, window.change),
        elapsed=torch.where(hidden, other.elapsed, window.elapsed),
    )
    assert not torch.equal(changed.change, window.change)
    assert torch.equal(encoder(changed), encoder(window))


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_window_longer_than_the_history_gives_the_same_answer(name: str) -> None:
    encoder, window = encoder_of(name, time_encoding=True), window_of()
    longer = Window(
        torch.cat([torch.zeros(BATCH, 9, COLUMNS), window.change], dim=1),
        torch.cat([torch.zeros(BATCH, 9), window.elapsed], dim=1),
        torch.cat([torch.zeros(BATCH, 9, dtype=torch.bool), window.known], dim=1),
        window.state,
    )
    torch.testing.assert_close(encoder(longer), encoder(window))


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_recurrent_encoder_starts_at_the_first_change_that_is_known(name: str) -> None:
    encoder, window = encoder_of(name), window_of()
    answer = encoder(window)
    assert not answer[0].any()  # it has never moved
    for node in range(1, BATCH):
        known = window.known[node]
        alone = replace(window, change=window.change[node : node + 1, known])
        alone = replace(alone, known=torch.ones_like(alone.change[..., 0], dtype=torch.bool))
        steps = encoder.steps(alone)[0]  # type: ignore[operator]
        out, _ = encoder.recurrent(steps[None])  # type: ignore[operator]
        torch.testing.assert_close(answer[node], out[0, -1])


@pytest.mark.parametrize("name", SEQUENCES)
def test_small_changes_are_distinguished_as_well_as_large_ones_and_from_them(name: str) -> None:
    encoder, window = encoder_of(name), window_of(torch.ones(BATCH, LENGTH, dtype=torch.bool))
    other = replace(window, change=window_of(window.known, seed=5).change)

    def apart(one: float, another: float) -> Tensor:
        first = encoder(replace(window, change=window.change * one))
        difference: Tensor = (first - encoder(replace(other, change=other.change * another))).norm()
        return difference

    assert apart(1e-3, 1e-3) > apart(1, 1) / 2
    same = encoder(replace(window, change=window.change * 1e-3)) - encoder(window)
    assert same.norm() > apart(1, 1) / 20


@pytest.mark.parametrize("name", SEQUENCES)
def test_every_known_change_has_an_influence(name: str) -> None:
    encoder = encoder_of(name)
    window = window_of(known=torch.ones(BATCH, LENGTH, dtype=torch.bool))
    for step in range(LENGTH):
        change = window.change.clone()
        change[:, step] += 1
        moved = (encoder(replace(window, change=change)) - encoder(window)).abs().amax(dim=1)
        assert (moved > 0).all(), step


@pytest.mark.parametrize("name", ENCODERS)
def test_nodes_do_not_influence_each_other(name: str) -> None:
    encoder, window = encoder_of(name), window_of()
    alone = Window(window.change[3:4], window.elapsed[3:4], window.known[3:4], window.state[3:4])
    torch.testing.assert_close(encoder(alone), encoder(window)[3:4])


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("time_encoding", [False, True])
def test_times_matter_where_they_are_encoded_and_only_there(name: str, time_encoding: bool) -> None:
    encoder = encoder_of(name, time_encoding=time_encoding)
    window = window_of(known=torch.ones(BATCH, LENGTH, dtype=torch.bool))
    later = replace(window, elapsed=window.elapsed + 3)
    same = torch.equal(encoder(later), encoder(window))
    assert same is not time_encoding


def test_a_time_encoding_is_made_of_cosines_of_several_frequencies() -> None:
    encoding = TimeEncoding(WIDTH)
    assert torch.equal(encoding(torch.zeros(3)), torch.ones(3, WIDTH))
    out = encoding(torch.linspace(0, 100, 50))
    assert out.abs().max() <= 1
    assert len(torch.unique(out[10])) == WIDTH


def test_a_transformer_rejects_what_it_cannot_hold() -> None:
    with pytest.raises(ParameterError, match="multiple of 4 heads"):
        make_encoder("transformer", COLUMNS, 6)
    with pytest.raises(ParameterError, match="window is 0"):
        make_encoder("transformer", COLUMNS, WIDTH, {"window": 0})


def test_a_transformer_sees_the_order_of_changes_that_have_places_of_their_own() -> None:
    encoder = encoder_of("transformer", window=3)
    window = window_of(known=torch.ones(BATCH, LENGTH, dtype=torch.bool))

    def swapped(first: int, second: int) -> Tensor:
        order = list(range(LENGTH))
        order[first], order[second] = second, first
        out: Tensor = encoder(replace(window, change=window.change[:, order]))
        return out

    torch.testing.assert_close(swapped(0, 1), encoder(window))
    assert not torch.allclose(swapped(2, 3), encoder(window), atol=1e-4)


PAIR = 3


def decoder_of(name: Any, width: int = WIDTH) -> nn.Module:
    torch.manual_seed(2)
    return make_decoder(name, width, PAIR, hidden=16, layers=2, dropout=0.0).eval()


def ends() -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    return tuple(torch.randn(BATCH, size, generator=random) for size in (WIDTH, WIDTH, PAIR))  # type: ignore[return-value]


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_gives_one_logit_per_pair_and_can_learn(name: str) -> None:
    decoder = decoder_of(name)
    out = decoder(*ends())
    assert out.shape == (BATCH,)
    out.sum().backward()
    for label, parameter in decoder.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.abs().sum() > 0, label


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_reads_both_nodes_and_pair_features_only_where_it_says_so(name: Any) -> None:
    decoder, (src, dst, pair) = decoder_of(name), ends()
    before = decoder(src, dst, pair)
    assert not torch.equal(decoder(src + 1, dst, pair), before)
    assert not torch.equal(decoder(src, dst + 1, pair), before)
    assert torch.equal(decoder(src, dst, pair + 1), before) is not DECODERS[name].reads_pairs


def test_an_entry_by_entry_product_does_not_know_who_came_first() -> None:
    src, dst, pair = ends()
    decoder = decoder_of(Hadamard)
    assert torch.equal(decoder(src, dst, pair), decoder(dst, src, pair))


def test_pair_features_alone_will_do() -> None:
    assert decoder_of(Pair, width=0)(None, None, ends()[2]).shape == (BATCH,)


def test_what_is_no_encoder_or_decoder_is_rejected_by_name() -> None:
    with pytest.raises(ParameterError, match=r"'rnn'.*state, lstm, gru, transformer"):
        make_encoder("rnn", COLUMNS, WIDTH)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"'dot'.*concatenation, hadamard, pair"):
        decoder_of("dot")


# Units that are dropped ---------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.999])
def test_a_rectifier_drops_as_many_units_as_it_is_told_and_keeps_their_mean(dropout: float) -> None:
    torch.manual_seed(0)
    count = 10**6
    out = Rectifier(dropout)(torch.ones(count + 3))  # not a multiple of what 64 bits decide about
    kept = float((out > 0).sum()) / count
    assert abs(kept - (1 - dropout)) < 5 * (dropout * (1 - dropout) / count) ** 0.5 + 2**-16
    assert out[out > 0].unique().tolist() == [pytest.approx(1 / (1 - dropout), rel=0.01)]
    neighbours = float(((out[:-1] > 0) & (out[1:] > 0)).sum()) / count
    assert abs(neighbours - kept**2) < 5 / count**0.5


def test_the_gradient_passes_units_that_gave_something_and_no_others() -> None:
    torch.manual_seed(0)
    x = torch.randn(50, 31, requires_grad=True)
    out = Rectifier(0.3)(x)
    out.backward(torch.full_like(out, 2.0))
    assert x.grad is not None
    kept = out > 0
    assert kept.any()
    assert (kept <= (x > 0)).all()
    torch.testing.assert_close(out[kept], x[kept] / 0.7, rtol=1e-4, atol=0)
    torch.testing.assert_close(x.grad, 2 * kept / 0.7, rtol=1e-4, atol=0)


def test_a_rectifier_drops_nothing_in_answers_and_repeats_itself_with_a_seed() -> None:
    x, unit = torch.randn(40, 8), Rectifier(0.5)
    drawn = []
    for _ in range(2):
        torch.manual_seed(3)
        drawn.append(unit(x))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(unit(x), drawn[0])
    assert torch.equal(unit.eval()(x), torch.relu(x))


# The same network in NumPy ------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("past_negatives", [0, 1])
def test_numpy_and_torch_give_the_same_answers(layers: int, past_negatives: int) -> None:
    torch.manual_seed(0)
    settings = LinkSettings(hidden=32, layers=layers, past_negatives=past_negatives)
    network = LinkNetwork(settings, 0, 12).eval()
    random = np.random.default_rng(0)
    features = (3 * random.standard_normal((5000, 12)) + 2).astype(np.float32)
    features[0] *= 1e4  # beyond what is clipped
    network.adjust(features[1:])
    with torch.no_grad():
        standard = network.standardise(features.copy())
        expected = network(torch.from_numpy(standard), None, None).numpy()
    # A sum of n numbers of float32 is off by some n roundings of their largest.
    assert expected.shape == (5000, 1 + past_negatives)
    answer = PairNetwork(network.weights())
    np.testing.assert_allclose(answer(features.copy()), expected[:, 0], atol=1e-4)
    np.testing.assert_allclose(answer(features, given_src=True), expected[:, -1], atol=1e-4)


def test_numpy_takes_the_weights_of_a_network_of_pairs_alone() -> None:
    weights = LinkNetwork(LinkSettings(hidden=8), 0, 5).weights()
    lacking = {name: array for name, array in weights.items() if name != "mean"}
    narrow = {**weights, "decoder.net.0.weight": weights["decoder.net.0.weight"][:, :4]}
    more = {**weights, "encoder.project.weight": np.zeros((2, 2), dtype=np.float32)}
    last = max(name for name in weights if name.endswith(".weight"))
    third = {**weights, last: np.zeros((3, weights[last].shape[1]), dtype=np.float32)}
    for wrong in (lacking, narrow, more, third):
        with pytest.raises((KeyError, ValueError)):
            PairNetwork(wrong)


def test_probabilities_of_large_logits_are_finite() -> None:
    logits = np.array([-200, -1, 0, 1, 200], dtype=np.float32)
    with np.errstate(all="raise", under="ignore"):
        found = sigmoid(logits)
    np.testing.assert_allclose(
        found, torch.sigmoid(torch.from_numpy(logits)), rtol=1e-6, atol=1e-38
    )

"""Gated delta nets: values worked out elsewhere, two forms of the recurrence, and states that carry over any cut."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from tests.reference.bounds import BF16, PRECISIONS, assert_is_rounding_of, draw
from vtlite.reference.gdn import causal_conv1d, chunk_gated_delta_rule, gated_delta_rule, gdn_gates

FORMS = pytest.mark.parametrize("form", [gated_delta_rule, chunk_gated_delta_rule])
Hk, Hv, K, V = 2, 4, 6, 5


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def batch(lengths, slots, starts=None):
    """Sequences of `lengths` new tokens after `starts` earlier ones."""
    return SimpleNamespace(query_start_loc=np.cumsum([0, *lengths]), state_slots=np.array(slots),
                           seq_lens=np.array(lengths) + np.array(starts or [0] * len(lengths)))


def inputs(rng, T, dtype=np.float64):
    """q, k, v, g, beta; some tokens forget everything, some nothing."""
    g = -np.exp(rng.normal(-2, 3, (T, Hv)))
    return (draw(rng, (T, Hk, K), dtype), draw(rng, (T, Hk, K), dtype), draw(rng, (T, Hv, V), dtype),
            g, rng.uniform(0, 1, (T, Hv)))


def test_convolution_of_a_ramp():
    """silu(.4), silu(.3 + .8), ... by hand; the state is the last three inputs as they came."""
    x, weight, state = np.arange(1.0, 6)[:, None], np.array([[.1], [.2], [.3], [.4]]), np.zeros((1, 3, 1))
    y = causal_conv1d(x, weight, state, batch([5], [0]))
    np.testing.assert_allclose(y[:, 0], [0.239475, 0.825286, 1.761594, 2.857722, 3.928055], atol=1e-6)
    assert state[0, :, 0].tolist() == [3, 4, 5]


def test_recurrence_of_three_tokens():
    """A head of two by two; o and S as transformers' torch_recurrent_gated_delta_rule gives them."""
    q, k, v = ([[3, 4], [1, 0], [1, 1]], [[1, 0], [0, 2], [1, -1]], [[1, 2], [3, -1], [.5, .5]])
    q, k, v = (np.array(x, np.float64)[:, None] for x in (q, k, v))
    g, beta = gdn_gates(np.array([[0.0], [1], [-1]]), np.array([[0.0], [2], [-1]]), np.array([.5]), np.array([.25]))
    np.testing.assert_allclose(g[:, 0], [-1.36174389, -2.47626242, -0.63784246], atol=1e-8)
    np.testing.assert_allclose(beta[:, 0], [.5, .88079708, .26894142], atol=1e-8)
    state = np.zeros((1, 1, 2, 2))
    o = gated_delta_rule(q, k, v, g, beta, state, batch([3], [0]))
    np.testing.assert_allclose(o[:, 0], [[.21213192, .42426385], [.02971854, .05943708], [.70926542, -.21051118]], atol=1e-6)
    np.testing.assert_allclose(state[0, 0], [[.3020721, .0709423], [1.1164591, -.4919648]], atol=1e-6)


def test_a_value_written_under_a_key_is_read_back():
    """beta = 1 and no decay: S^T k = v for the last of several keys, whatever was there before."""
    rng = np.random.default_rng(0)
    k, v = rng.standard_normal((5, 1, K)), rng.standard_normal((5, 1, V))
    state = rng.standard_normal((1, 1, K, V))
    o = gated_delta_rule(k, k, v, np.zeros((5, 1)), np.ones((5, 1)), state, batch([5], [0]))
    np.testing.assert_allclose(o * K**0.5, v, atol=1e-5)             # q is k / sqrt(K); 1e-6 in the length is felt


@pytest.mark.parametrize("start", [0, 1, 63])
@pytest.mark.parametrize("T", [1, 3, 63, 64, 65, 200])
def test_the_chunk_form_is_the_recurrence(rng, T, start):
    arguments, state = inputs(rng, T), rng.standard_normal((3, Hv, K, V))
    states = state.copy(), state.copy()
    o, chunked = (f(*arguments, s, batch([T], [1], [start]))
                  for f, s in zip((gated_delta_rule, chunk_gated_delta_rule), states))
    np.testing.assert_allclose(chunked, o, atol=1e-12)
    np.testing.assert_allclose(*states, atol=1e-12)
    assert np.array_equal(states[0][[0, 2]], state[[0, 2]]), "only its own slot is written"


@FORMS
def test_a_ragged_batch_is_its_sequences_one_by_one(rng, form):
    lengths, slots = [1, 70, 3], [2, 1, 4]
    arguments, state = inputs(rng, 74), rng.standard_normal((5, Hv, K, V))
    together = state.copy()
    o = form(*arguments, together, batch(lengths, slots))
    for first, length, slot in zip([0, 1, 71], lengths, slots):
        rows = slice(first, first + length)
        alone = form(*(x[rows] for x in arguments), state, batch([length], [slot]))
        assert np.array_equal(alone, o[rows])
    assert np.array_equal(state, together)


@FORMS
def test_a_cut_changes_nothing_but_rounding(rng, form):
    arguments = inputs(rng, 100)
    whole, parts = np.zeros((1, Hv, K, V)), np.zeros((1, Hv, K, V))
    o = form(*arguments, whole, batch([100], [0]))
    for first, last in ((0, 1), (1, 41), (41, 100)):
        o_part = form(*(x[first:last] for x in arguments), parts, batch([last - first], [0], [first]))
        np.testing.assert_allclose(o_part, o[first:last], atol=1e-12)
    np.testing.assert_allclose(parts, whole, atol=1e-12)


@FORMS
def test_a_bf16_state_is_rounded_where_it_is_stored_so_that_cuts_on_the_grid_change_no_bit(rng, form):
    """From position 20 on: stored at 64, at 128 and at the end. In between it is as wide as an f32 state that is rounded there."""
    arguments, whole, parts, wide = inputs(rng, 140, np.float32), *(np.zeros((1, Hv, K, V), t) for t in (BF16, BF16, np.float32))
    o = form(*arguments, whole, batch([140], [0], [20]))
    for first, last in ((0, 44), (44, 108), (108, 140)):
        for state in (parts, wide):
            part = form(*(x[first:last] for x in arguments), state, batch([last - first], [0], [20 + first]))
            assert np.array_equal(part, o[first:last])
        wide[...] = wide.astype(BF16)
    assert np.array_equal(parts, whole) and np.array_equal(wide, whole)


def test_a_cut_convolution_is_the_same_even_when_a_part_is_shorter_than_its_memory(rng):
    x, weight = rng.standard_normal((12, 7)), rng.standard_normal((4, 7))
    whole, parts = np.zeros((1, 3, 7)), np.zeros((1, 3, 7))
    y = causal_conv1d(x, weight, whole, batch([12], [0]))
    cuts = [0, 1, 2, 4, 11, 12]
    found = [causal_conv1d(x[a:b], weight, parts, batch([b - a], [0])) for a, b in zip(cuts, cuts[1:])]
    assert np.array_equal(np.concatenate(found), y) and np.array_equal(parts, whole)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_precision_follows_the_activations(rng, dtype):
    """The state stays wide; outputs are rounded once."""
    arguments = inputs(rng, 30, dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    exact_state, state = np.zeros((1, Hv, K, V)), np.zeros((1, Hv, K, V), wide)
    exact = gated_delta_rule(*(x.astype(np.float64) for x in arguments), exact_state, batch([30], [0]))
    found = gated_delta_rule(*arguments[:3], *(x.astype(wide) for x in arguments[3:]), state, batch([30], [0]))
    assert_is_rounding_of(found, exact, 200 * np.abs(exact).max(), dtype)
    x, weight, conv_state = draw(rng, (30, 7), dtype), rng.standard_normal((4, 7)), np.zeros((1, 3, 7), dtype)
    exact = causal_conv1d(x.astype(np.float64), weight, np.zeros((1, 3, 7)), batch([30], [0]))
    assert_is_rounding_of(causal_conv1d(x, weight, conv_state, batch([30], [0])), exact, 20 * np.abs(exact).max(), dtype)
    assert conv_state.dtype == dtype and np.array_equal(conv_state[0], x[-3:])


def test_gates_are_wide_and_do_not_overflow():
    big = np.array([[-300.0, 300.0]]).astype(ml_dtypes.bfloat16)
    g, beta = gdn_gates(big, big, np.zeros(2, BF16), np.zeros(2, BF16))
    assert g.dtype == beta.dtype == np.float32
    assert g.tolist() == [[-0.0, -300.0]] and beta.tolist() == [[0.0, 1.0]]

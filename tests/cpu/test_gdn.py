"""Gated delta nets on a CPU: close to their definition, and one value per token however the work arrives."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.cpu.threads import threads
from vtlite import cpu, reference
from vtlite.reference.gdn import chunk_gated_delta_rule

W = 4
BF16 = ml_dtypes.bfloat16


def batch(lengths, slots, starts=0):
    """Sequences of `lengths` new tokens after `starts` earlier ones."""
    return SimpleNamespace(query_start_loc=np.cumsum([0, *lengths]), state_slots=np.array(slots, np.int64),
                           seq_lens=np.array(lengths) + starts)


def mixer(ops, x, a, b, weights, states, where, Hk, Hv, K, V):
    """Convolution, gates and delta rule together: [T, Hv, V]."""
    g, beta = ops.gdn_gates(a, b, weights["A_log"], weights["dt_bias"])
    y = ops.causal_conv1d(x, weights["conv"], states[0], where)
    q, k, v = (part.reshape(len(x), -1, width) for part, width in
               zip(np.split(y, [Hk * K, 2 * Hk * K], axis=1), (K, K, V)))
    return ops.gated_delta_rule(q, k, v, g, beta, states[1], where)


class Net:
    """Weights and inputs of one mixer: x [T, C], a, b [T, Hv]."""

    def __init__(self, T, Hk, Hv, K, V, seed=7):
        rng = np.random.default_rng(seed)
        self.sizes, self.C = (Hk, Hv, K, V), 2 * Hk * K + Hv * V
        self.x = rng.standard_normal((T, self.C), np.float32)
        self.a, self.b = rng.standard_normal((2, T, Hv), np.float32)
        self.weights = {"conv": rng.standard_normal((W, self.C), np.float32),
                        "A_log": rng.normal(-1, 1, Hv).astype(np.float32), "dt_bias": rng.standard_normal(Hv, np.float32)}

    def states(self, slots, dtype=np.float32):
        """conv_state, and a recurrent state of `dtype`."""
        Hk, Hv, K, V = self.sizes
        wide = np.float64 if dtype == np.float64 else np.float32
        return np.zeros((slots, W - 1, self.C), wide), np.zeros((slots, Hv, K, V), dtype)

    def run(self, ops, rows, states, where, dtype=np.float32):
        return mixer(ops, self.x[rows].astype(dtype), self.a[rows].astype(dtype), self.b[rows].astype(dtype), self.weights,
                     states, where, *self.sizes)


@pytest.mark.parametrize("sizes", [(4, 8, 64, 64), (2, 6, 16, 24), (3, 3, 20, 12), (1, 2, 128, 128), (1, 1, 5, 3)])
def test_close_to_the_definition(sizes):
    net = Net(200, *sizes)
    states, exact_states = net.states(3), net.states(3, np.float64)
    where = batch([1, 130, 69], [2, 0, 1])
    found = net.run(cpu, slice(None), states, where)
    exact = net.run(reference, slice(None), exact_states, where, np.float64)
    assert np.abs(found - exact).max() < 2e-6 * np.abs(exact).max()
    assert np.array_equal(states[0], exact_states[0])
    assert np.abs(states[1] - exact_states[1]).max() < 4e-6 * np.abs(exact_states[1]).max()


@pytest.mark.parametrize("V", [1, 24])
def test_a_bf16_state_is_stored_as_the_definition_stores_it(V):
    """Two sequences, one from the middle of a chunk on. Sums differ in their order, so a state may be rounded the other way."""
    net, where = Net(200, 2, 4, 16, V), batch([140, 60], [2, 0], [0, 90])
    states, defined = net.states(3, BF16), net.states(3, BF16)
    found, expected = net.run(cpu, slice(None), states, where), net.run(reference, slice(None), defined, where)
    assert np.abs(found - expected).max() < 2**-8 * np.abs(expected).max()
    differing = states[1].view(np.uint16) != defined[1].view(np.uint16)
    assert differing.mean() < 0.02 and states[1][[0, 2]].any() and not states[1][1].any()


def test_a_bf16_state_is_what_an_f32_state_rounded_to_nearest_even_at_grid_points_is():
    net = Net(200, 2, 4, 16, 24)
    states, rounded = net.states(1, BF16), net.states(1)
    found, start = net.run(cpu, slice(None), states, batch([200], [0])), 0
    for end in (64, 128, 192, 200):
        part = net.run(cpu, slice(start, end), rounded, batch([end - start], [0], start))
        assert np.array_equal(found[start:end], part)
        rounded[1][...], start = rounded[1].astype(BF16), end
    assert np.array_equal(states[1], rounded[1])


def test_a_bf16_state_keeps_what_is_not_a_number():
    net, states = Net(1, 1, 1, 4, 8), Net(1, 1, 1, 4, 8).states(1, BF16)
    states[1].view(np.uint16)[0, 0, 0] = 0xFFFF, 0x7FFF, 0x7F81, 0x7F80, 0, 0, 0, 0
    net.run(cpu, slice(None), states, batch([1], [0]))
    assert np.isfinite(states[1].astype(np.float32)).tolist() == [[[[False] * 4 + [True] * 4] * 4]]


@settings(max_examples=30)
@given(st.data())
def test_bits_do_not_depend_on_cuts_neighbours_slots_or_threads(data):
    """Three sequences, each alone in one step, then in random steps beside the others."""
    net = Net(60, *data.draw(st.sampled_from([(4, 8, 64, 64), (2, 4, 16, 24)])))
    starts, ends = [0, 7, 47], [7, 47, 60]
    alone, alone_states = [], net.states(4)
    for s in range(3):
        alone.append(net.run(cpu, slice(starts[s], ends[s]), alone_states, batch([ends[s] - starts[s]], [s])))
    slots = data.draw(st.permutations(range(4)))[:3]
    states, done, found = net.states(4), [0, 0, 0], [[], [], []]
    with threads(data.draw(st.integers(1, 3))):
        while any(start + n < end for start, n, end in zip(starts, done, ends)):
            left = [s for s in range(3) if starts[s] + done[s] < ends[s]]
            step = {s: data.draw(st.integers(1, ends[s] - starts[s] - done[s]))
                    for s in data.draw(st.lists(st.sampled_from(left), min_size=1, unique=True))}
            rows = np.concatenate([np.arange(starts[s] + done[s], starts[s] + done[s] + n) for s, n in step.items()])
            out = net.run(cpu, rows, states, batch(list(step.values()), [slots[s] for s in step]))
            for s, part in zip(step, np.split(out, np.cumsum(list(step.values()))[:-1])):
                found[s].append(part)
                done[s] += len(part)
    for s in range(3):
        assert np.array_equal(np.concatenate(found[s]), alone[s])
        assert all(np.array_equal(state[slots[s]], one[s]) for state, one in zip(states, alone_states))


def test_gates_far_out():
    big = np.float32([[-300, 300, 0]])
    g, beta = cpu.gdn_gates(big, big, np.zeros(3, np.float32), np.zeros(3, np.float32))
    assert np.allclose(g, [[0, -300, -np.log(2)]]) and beta.tolist() == [[0, 1, 0.5]]


def test_values_are_recalled_after_sixteen_thousand_tokens(rng):
    """Every 500th token writes a value under one of eight keys, half of them twice; the others write under keys at right
    angles to those. Without decay the last value under each key is read back, by both forms of the definition too."""
    T, K, V, keys = 16384, 32, 8, 8
    basis = np.linalg.qr(rng.standard_normal((K, K)))[0]
    k, v = rng.standard_normal((T, K - keys)) @ basis[keys:], rng.standard_normal((T, V))
    written = np.arange(100, 6100, 500)                                               # 12 writes: keys 0 .. 7, then 0 .. 3
    k[written] = basis[np.arange(12) % keys]
    k[-keys:] = basis[:keys]
    beta, g = rng.uniform(0, 1, (T, 1)), np.zeros((T, 1))
    beta[written], beta[-keys:] = 1, 0                                                # the last tokens only read
    expected = v[written[[8, 9, 10, 11, 4, 5, 6, 7]]]
    one = SimpleNamespace(query_start_loc=np.array([0, T]), seq_lens=np.array([T]), state_slots=np.array([0]))
    for form, dtype, tolerance in ((reference.gated_delta_rule, np.float64, 2e-5), (chunk_gated_delta_rule, np.float64, 2e-5),
                                   (cpu.gated_delta_rule, np.float32, 1e-4)):
        x = [array.astype(dtype) for array in (k[:, None], k[:, None], v[:, None], g, beta)]
        o = form(*x, np.zeros((1, 1, K, V), dtype), one)
        np.testing.assert_allclose(o[-keys:, 0] * K**0.5, expected, rtol=0, atol=tolerance)

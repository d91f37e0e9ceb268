"""Linear on a CPU: close to its definition, and one value per row in any company."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.cpu.threads import threads
from vtlite import cpu, reference
from vtlite.cpu.linear import SERIAL_PRODUCTS

WEIGHT_TYPES = (ml_dtypes.bfloat16, np.float16, np.float32)
EPS = 2.0**-24


def make(rng, T, K, N, weight_type=ml_dtypes.bfloat16):
    return rng.standard_normal((T, K), np.float32), rng.standard_normal((N, K), np.float32).astype(weight_type)


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
@pytest.mark.parametrize("K", (1, 7, 8, 63, 576, 1536))
def test_error_is_a_few_expected_roundings(rng, K, weight_type):
    """One rounding per step of a lane, three in the tree, one per product of the tail: errors add as a random walk."""
    for T, N in ((1, 1), (1, 500), (3, 64), (63, 3), (500, 1), (500, 64)):
        x, w = make(rng, T, K, N, weight_type)
        truth = reference.linear(x.astype(np.float64), w)
        magnitude = np.sqrt((x.astype(np.float64) ** 2) @ (w.astype(np.float64) ** 2).T)
        expected = EPS * magnitude * np.sqrt(K / 8 + 3 + K % 8)
        assert (np.abs(cpu.linear(x, w) - truth) < 6 * expected).all()


def test_order_is_lanes_then_tree_then_tail():
    """The documented order, spelled out with exact float64 products for K = 19."""
    rng = np.random.default_rng(1)
    x, w = make(rng, 1, 19, 1)
    products = x[0].astype(np.float64) * w[0].astype(np.float64)                   # exact: 24 + 8 bits
    lanes = [np.float32(np.float32(products[i]) + products[i + 8]) for i in range(8)]
    for width in (4, 2, 1):
        lanes = [lanes[i] + lanes[i + width] for i in range(width)]
    total = lanes[0]
    for product in products[16:]:
        total = np.float32(total + product)
    assert cpu.linear(x, w)[0, 0] == total


@settings(max_examples=60)
@given(T=st.integers(1, 40), K=st.integers(1, 200), N=st.integers(1, 130), weight_type=st.sampled_from(WEIGHT_TYPES),
       seed=st.integers(0, 2**16))
def test_a_row_alone_equals_the_row_in_a_batch(T, K, N, weight_type, seed):
    x, w = make(np.random.default_rng(seed), T, K, N, weight_type)
    together = cpu.linear(x, w)
    for t in range(T):
        assert np.array_equal(cpu.linear(x[t : t + 1], w)[0], together[t])
    assert np.array_equal(cpu.linear(x, w[-1:])[:, 0], together[:, -1])


def test_one_thread_all_threads_and_the_serial_path_agree(rng):
    x, w = make(rng, 5, 576, 500)
    assert x.shape[0] * w.size >= SERIAL_PRODUCTS > w[:200].size
    with threads(1):
        one = cpu.linear(x, w)
    with threads(3):
        all_threads = cpu.linear(x, w)
    assert np.array_equal(one, all_threads)
    assert np.array_equal(cpu.linear(x[:1], w[:200]), all_threads[:1, :200])


def test_bias_then_residual_are_added_in_float32(rng):
    x, w = make(rng, 3, 64, 20)
    bias, residual = rng.standard_normal(20).astype(ml_dtypes.bfloat16), rng.standard_normal((3, 20), np.float32)
    expected = (cpu.linear(x, w) + bias.astype(np.float32)) + residual
    assert np.array_equal(cpu.linear(x, w, bias, residual), expected)
    assert cpu.linear(x, w, out_dtype=np.float64).dtype == np.float64


def test_mapped_weights_are_read_where_they_lie(rng, tmp_path):
    x, w = make(rng, 2, 24, 50)
    (tmp_path / "w").write_bytes(b"\0" + w.tobytes())                              # an odd offset: unaligned
    mapped = np.memmap(tmp_path / "w", np.uint8, mode="r")[1:].view(ml_dtypes.bfloat16).reshape(w.shape)
    assert np.array_equal(cpu.linear(x, mapped), cpu.linear(x, w))


def test_other_activations_are_refused(rng):
    x, w = make(rng, 1, 8, 2)
    with pytest.raises(TypeError, match="float64"):
        cpu.linear(x.astype(np.float64), w)

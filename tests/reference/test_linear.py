"""vtlite/reference/linear.py against a loop over its equation in float64."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.bounds import BF16, PRECISIONS, assert_is_rounding_of, draw
from vtlite.reference import linear

sizes = st.integers(1, 9)


@given(sizes, st.integers(1, 40), sizes, st.booleans(), st.booleans(), st.sampled_from(PRECISIONS), st.integers(0, 99))
def test_is_a_sum_of_products_plus_bias_plus_residual_rounded_once(T, K, N, biased, residual_added, dtype, seed):
    rng = np.random.default_rng(seed)
    x, weight = draw(rng, (T, K), dtype), draw(rng, (N, K), BF16)
    bias = draw(rng, N, BF16) if biased else None
    residual = draw(rng, (T, N), dtype) if residual_added else None
    exact, size = np.zeros((T, N)), np.zeros((T, N))
    for t in range(T):
        for n in range(N):
            terms = [float(x[t, k]) * float(weight[n, k]) for k in range(K)]
            terms += [float(bias[n])] if biased else []
            terms += [float(residual[t, n])] if residual_added else []
            exact[t, n], size[t, n] = sum(terms), sum(map(abs, terms))
    assert_is_rounding_of(linear(x, weight, bias, residual), exact, (K + 4) * size, dtype)


def test_out_dtype_replaces_the_rounding_to_x_dtype():
    x, weight = np.array([[1, 2**-8]], BF16), np.array([[1, 1]], BF16)
    assert linear(x, weight) == 1                                            # 1 + 2^-8 is a tie, to even
    y = linear(x, weight, out_dtype=np.float32)
    assert y.dtype == np.float32 and y == 1 + 2**-8

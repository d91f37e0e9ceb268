"""vtlite/reference/attention.py against a loop over queries and keys, on caches whose blocks lie in any order."""

import math
from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.bounds import PRECISIONS, assert_is_rounding_of, draw
from vtlite.reference import paged_attention, write_kv

F64 = np.dtype(np.float64)
sequences = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 12)), min_size=1, max_size=4)   # (queries, earlier tokens)


def paged(rng, keys: list, values: list, block_size: int, num_queries: list[int], spare_blocks: int = 3):
    """A cache filled with NaN, then written at shuffled blocks through `write_kv`; and the batch that reads it."""
    seq_lens = np.array([len(k) for k in keys])
    needed = -(-seq_lens // block_size)
    order = rng.permutation(np.arange(1, needed.sum() + spare_blocks))[: needed.sum()]
    block_table = np.zeros((len(keys), needed.max()), np.int32)
    kv = np.full((2, needed.sum() + spare_blocks, block_size, *keys[0].shape[1:]), np.nan, keys[0].dtype)
    for s, blocks in enumerate(np.split(order, np.cumsum(needed)[:-1])):
        block_table[s, : len(blocks)] = blocks
        positions = np.arange(seq_lens[s])
        write_kv(kv, keys[s], values[s], blocks[positions // block_size] * block_size + positions % block_size)
    query_start_loc = np.concatenate([[0], np.cumsum(num_queries)])
    return kv, SimpleNamespace(seq_lens=seq_lens, query_start_loc=query_start_loc, block_table=block_table)


def naive(q, k, v, scale: float, window: int | None, softcap: float | None) -> np.ndarray:
    """One query head [t, D] at the last t positions of one KV head [n, D], one query and one key at a time."""
    def score(query, p) -> float:
        x = scale * float(query @ k[p].astype(F64))
        return x if softcap is None else softcap * math.tanh(x / softcap)

    out = np.zeros((len(q), v.shape[-1]))
    for i, query in enumerate(q.astype(F64)):
        position = len(k) - len(q) + i
        first = 0 if window is None else max(0, position - window + 1)
        weights = [math.exp(score(query, p)) for p in range(first, position + 1)]
        for weight, p in zip(weights, range(first, position + 1)):
            out[i] += weight / sum(weights) * v[p].astype(F64)
    return out


@settings(max_examples=60)
@given(sequences, st.sampled_from([1, 3, 4]), st.integers(1, 2), st.sampled_from([1, 4, 16]),
       st.sampled_from([None, 1, 3, 100]), st.sampled_from([None, 0.5, 30.0]), st.sampled_from(PRECISIONS), st.integers(0, 99))
def test_is_a_softmax_over_the_visible_keys_of_the_query_s_group(lengths, group, num_kv_heads, block_size, window, softcap, dtype,
                                                                 seed):
    rng = np.random.default_rng(seed)
    D, num_queries, seq_lens = 6, [t for t, _ in lengths], [t + past for t, past in lengths]
    q = draw(rng, (sum(num_queries), group * num_kv_heads, D), dtype)
    keys, values = ([draw(rng, (n, num_kv_heads, D), dtype) for n in seq_lens] for _ in range(2))
    kv, batch = paged(rng, keys, values, block_size, num_queries)
    exact = np.empty(q.shape)
    for s, (first, last) in enumerate(zip(batch.query_start_loc, batch.query_start_loc[1:])):
        for head in range(group * num_kv_heads):
            k, v = keys[s][:, head // group], values[s][:, head // group]
            exact[first:last, head] = naive(q[first:last, head], k, v, 0.4, window, softcap)
    assert_is_rounding_of(paged_attention(q, kv, batch, 0.4, window, softcap), exact.reshape(len(q), -1), 300, dtype)


def test_where_blocks_lie_and_how_large_they_are_does_not_matter():
    rng = np.random.default_rng(1)
    q, keys, values = (rng.standard_normal((n, 2, 4)) for n in (5, 21, 21))
    outputs = [paged_attention(q, *paged(np.random.default_rng(seed), [keys], [values], block_size, [5]), 0.5)
               for seed in range(3) for block_size in (1, 4, 16, 32)]
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])


def test_later_rows_do_not_change_earlier_ones():
    rng = np.random.default_rng(2)
    q, keys, values = (rng.standard_normal((9, 2, 4)) for _ in range(3))
    whole = paged_attention(q, *paged(rng, [keys], [values], 4, [9]), 0.5)
    for length in range(1, 9):
        part = paged_attention(q[:length], *paged(rng, [keys[:length]], [values[:length]], 4, [length]), 0.5)
        np.testing.assert_allclose(part, whole[:length], rtol=1e-14)


def test_a_window_of_one_returns_the_query_s_own_value():
    rng = np.random.default_rng(3)
    q, keys, values = (rng.standard_normal((7, 1, 4)) for _ in range(3))
    out = paged_attention(q, *paged(rng, [keys], [values], 4, [7]), 0.5, window=1)
    np.testing.assert_array_equal(out, values.reshape(7, 4))


def test_scores_far_beyond_the_range_of_exp_are_fine():
    q, keys = np.full((1, 1, 2), 1e4), np.array([[[1.0, 0.0]], [[-1.0, 0.0]]])
    values = np.array([[[1.0, 2.0]], [[3.0, 4.0]]])
    out = paged_attention(q, *paged(np.random.default_rng(0), [keys], [values], 4, [1]), 1.0)
    np.testing.assert_array_equal(out, [[1.0, 2.0]])

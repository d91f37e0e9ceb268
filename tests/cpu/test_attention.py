"""Paged attention on a CPU: close to its definition, and one value per row however the work arrives."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.cpu.threads import threads
from vtlite import cpu, reference
from vtlite.cpu.attention import TILE


class Cache:
    """One layer's KV cache holding random keys and values of sequences, in shuffled blocks; unused slots hold NaN."""

    def __init__(self, rng, seq_lens, num_kv_heads, head_dim, block_size=16):
        needed = [-(-n // block_size) for n in seq_lens]
        order = rng.permutation(sum(needed) + 2)
        self.block_size = block_size
        self.block_table = np.full((len(seq_lens), max(needed)), -1, np.int32)
        self.kv = np.full((2, len(order), block_size, num_kv_heads, head_dim), np.nan, np.float32)
        for s, (n, blocks) in enumerate(zip(seq_lens, needed, strict=True)):
            self.block_table[s, :blocks], order = order[:blocks], order[blocks:]
            k, v = rng.standard_normal((2, n, num_kv_heads, head_dim), np.float32)
            cpu.write_kv(self.kv, k, v, self.slots(s, n))

    def slots(self, s, n):
        positions = np.arange(n)
        return self.block_table[s, positions // self.block_size].astype(np.int64) * self.block_size + positions % self.block_size

    def attend(self, ops, q, rows, window=None, softcap=None):
        """q holds the rows of each (sequence, end, count) in turn: the last `count` positions before `end`."""
        batch = SimpleNamespace(query_start_loc=np.cumsum([0, *(count for _, _, count in rows)]),
                                seq_lens=np.array([end for _, end, _ in rows]),
                                block_table=self.block_table[[s for s, _, _ in rows]])
        return ops.paged_attention(q, self.kv, batch, q.shape[-1] ** -0.5, window, softcap)


@pytest.mark.parametrize("head_dim", (5, 16, 64, 80, 128))
@pytest.mark.parametrize("window", (None, 50))
@pytest.mark.parametrize("group", (1, 3, 4))
def test_close_to_the_definition(rng, head_dim, window, group):
    """The answer is an average of values of size 1: float32 keeps it to about 1e-6 whatever the length."""
    cache = Cache(rng, (1, 63, TILE, 500), 2, head_dim)
    rows = [(0, 1, 1), (1, 63, 63), (2, TILE, 3), (3, 500, 1)]
    q = rng.standard_normal((68, 2 * group, head_dim), np.float32)
    truth = cache.attend(reference, q.astype(np.float64), rows, window)
    assert np.abs(cache.attend(cpu, q, rows, window) - truth).max() < 2e-6


def test_a_softcap_bounds_the_scores(rng):
    cache, rows = Cache(rng, (200,), 2, 16), [(0, 200, 5)]
    q = 10 * rng.standard_normal((5, 4, 16), np.float32)
    truth = cache.attend(reference, q.astype(np.float64), rows, softcap=3)
    assert np.abs(cache.attend(cpu, q, rows, softcap=3) - truth).max() < 2e-6
    assert np.abs(cache.attend(cpu, q, rows) - truth).max() > 0.1


def test_large_scores_do_not_overflow(rng):
    cache = Cache(rng, (200,), 1, 16)
    q = 1e4 * rng.standard_normal((1, 1, 16), np.float32)
    truth = cache.attend(reference, q.astype(np.float64), [(0, 200, 1)])
    assert np.allclose(cache.attend(cpu, q, [(0, 200, 1)]), truth, atol=1e-3)


@settings(max_examples=40)
@given(length=st.integers(1, 3 * TILE), block_size=st.sampled_from((1, 8, 16, 24)), group=st.integers(1, 4),
       head_dim=st.sampled_from((4, 16, 44, 64)), window=st.none() | st.integers(1, 2 * TILE), data=st.data())
def test_whole_chunked_and_decoded_rows_have_the_same_bits(length, block_size, group, head_dim, window, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    cache = Cache(rng, (length, 40), 2, head_dim, block_size)
    q = rng.standard_normal((length, 2 * group, head_dim), np.float32)
    whole = cache.attend(cpu, q, [(0, length, length)], window)
    cuts = sorted({0, length, *data.draw(st.lists(st.integers(0, length), max_size=3))})
    chunks = [cache.attend(cpu, q[a:b], [(0, b, b - a)], window) for a, b in zip(cuts, cuts[1:])]
    assert np.array_equal(np.concatenate(chunks), whole)
    alone = [cache.attend(cpu, q[t : t + 1], [(0, t + 1, 1)], window)[0] for t in range(0, length, 7)]
    assert np.array_equal(alone, whole[::7])
    beside = cache.attend(cpu, np.concatenate([q[:5], q[-1:]]), [(1, 40, len(q[:5])), (0, length, 1)], window)
    assert np.array_equal(beside[-1], whole[-1])


def test_other_blocks_and_other_thread_counts_have_the_same_bits(rng):
    cache, rows = Cache(rng, (300,), 3, 64), [(0, 300, 9)]
    q = rng.standard_normal((9, 6, 64), np.float32)
    both = cache.attend(cpu, q, rows)
    for number in (1, 3):
        with threads(number):
            assert np.array_equal(cache.attend(cpu, q, rows), both)
    moved = rng.permutation(cache.kv.shape[1])
    cache.kv = np.ascontiguousarray(cache.kv[:, np.argsort(moved)])
    cache.block_table = moved[cache.block_table].astype(np.int32)
    assert np.array_equal(cache.attend(cpu, q, rows), both)


def test_write_kv_touches_its_slots_only(rng):
    kv = np.zeros((2, 4, 16, 2, 8), np.float32)
    k, v = rng.standard_normal((2, 3, 2, 8), np.float32)
    cpu.write_kv(kv, k, v, np.array([5, 63, 16]))
    flat = kv.reshape(2, 64, 2, 8)
    assert np.array_equal(flat[:, [5, 63, 16]], [k, v])
    assert np.count_nonzero(flat) == k.size + v.size

"""Paged attention: a token's bits are those of its arithmetic, however its work reaches the GPU."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtlite.cuda import attention, attention_arithmetic, attention_decode, device as devices
from vtlite.cuda.attention import paged_attention
from vtlite.cuda.attention_merge import AHEAD, attention_merge_kernel
from vtlite.cuda.attention_tile import CHUNK, TILE
from vtlite.cuda.lang import bf16, f32
from vtlite.errors import DeviceError

BLOCK_SIZE = 16


class Cache:
    """One layer's KV cache with the keys and values of sequences in shuffled blocks; every other slot holds NaN."""

    def __init__(self, rng, keys_and_values: list[np.ndarray], spare: int = 2):
        """keys_and_values: [2, n, Hkv, D] per sequence."""
        needed = [-(-kv.shape[1] // BLOCK_SIZE) for kv in keys_and_values]
        order = rng.permutation(sum(needed) + spare)
        self.kv = np.full((2, len(order), BLOCK_SIZE, *keys_and_values[0].shape[2:]), np.nan, f32).astype(bf16)
        self.block_table = np.zeros((len(needed), max(needed)), np.int32)
        for s, (kv, blocks) in enumerate(zip(keys_and_values, needed, strict=True)):
            self.block_table[s, :blocks], order = order[:blocks], order[blocks:]
            positions = np.arange(kv.shape[1])
            self.kv[:, self.block_table[s, positions // BLOCK_SIZE], positions % BLOCK_SIZE] = kv

    def batch(self, rows) -> SimpleNamespace:
        """rows: (sequence, end, count), each for the last `count` positions before `end`."""
        return SimpleNamespace(query_start_loc=np.cumsum([0, *(count for _, _, count in rows)]),
                               seq_lens=np.array([end for _, end, _ in rows]),
                               block_table=self.block_table[[s for s, _, _ in rows]])


def on(device, q, kv, batch, *args, **options) -> np.ndarray:
    """paged_attention of host arrays, as bits."""
    arrays = SimpleNamespace(**{name: device.array(value) for name, value in vars(batch).items()})
    return paged_attention(device.array(q), device.array(kv), arrays, *args, **options).numpy().view(np.uint16)


def draw(rng, *shape) -> np.ndarray:
    return (2 * rng.standard_normal(shape)).astype(bf16)


@pytest.mark.parametrize("num_heads, head_dim, rows, options", [
    (9, 96, [(0, 20, 1)], {}),
    (2, 96, [(0, 70, 3)], {"window": 7, "softcap": 20}),
    (3, 64, [(0, 20, 20)], {}),
    (2, 64, [(0, 70, 1)], {"window": 8}),
])
def test_the_kernels_give_the_bits_of_their_arithmetic(device, num_heads, head_dim, rows, options):
    rng = np.random.default_rng(5)
    cache = Cache(rng, [draw(rng, 2, rows[0][1], 1, head_dim)])
    q, batch = draw(rng, rows[0][2], num_heads, head_dim), cache.batch(rows)
    expected = attention_arithmetic.paged_attention(q, cache.kv, batch, 0.125, **options)
    assert np.array_equal(on(device, q, cache.kv, batch, 0.125, **options), expected.view(np.uint16))


def test_queries_that_are_read_again_for_each_tile_give_the_same_bits(device, monkeypatch):
    """As on chips before sm_90; the kernel runs on every chip."""
    monkeypatch.setattr(attention_decode, "runs_on", lambda lowest, chip: lowest == "sm_80")
    rng = np.random.default_rng(8)
    cache = Cache(rng, [draw(rng, 2, TILE + 1, 1, 256)])
    q, batch = draw(rng, 1, 9, 256), cache.batch([(0, TILE + 1, 1)])
    expected = attention_arithmetic.paged_attention(q, cache.kv, batch, 0.0625)
    assert np.array_equal(on(device, q, cache.kv, batch, 0.0625), expected.view(np.uint16))


@pytest.mark.parametrize("chip, blocks", [("sm_80", 2), ("sm_86", 1), ("sm_90a", 3)])
def test_no_more_blocks_are_launched_than_run_at_once(chip, blocks):
    constants = attention_decode.layout(256, 16, BLOCK_SIZE, False, chip)
    assert attention_decode.attention_decode_kernel.specialize(**constants).runs_on(chip)
    assert attention_decode.blocks_per_multiprocessor(constants, chip) == blocks


def test_a_token_has_the_same_bits_decoded_prefilled_and_beside_others(device, monkeypatch):
    rng, end, window = np.random.default_rng(0), CHUNK + 10, 60
    cache = Cache(rng, [draw(rng, 2, end, 1, 64), draw(rng, 2, 20, 1, 64)])
    q, options = draw(rng, 3, 2, 64), {"scale": 0.125, "window": window}
    batch = cache.batch([(0, end, 3)])
    whole = on(device, q, cache.kv, batch, **options)
    assert np.array_equal(whole, attention_arithmetic.paged_attention(q, cache.kv, batch, **options).view(np.uint16))
    monkeypatch.setattr(device, "num_sms", 1)                       # fewer blocks, each with several items
    mixed = cache.batch([(0, end, 1), (1, 12, 2), (0, end - 1, 1)])
    beside = on(device, np.concatenate([q[2:], q[:2], q[1:2]]), cache.kv, mixed, **options)
    assert np.array_equal(beside[[3, 0]], whole[1:])


@settings(max_examples=25, deadline=None)
@given(end=st.integers(2, 2 * CHUNK + 40), window=st.none() | st.integers(1, CHUNK + TILE), seed=st.integers(0, 99), data=st.data())
def test_rows_are_independent_in_the_arithmetic(end, window, seed, data):
    """Tiles and chunks that only other rows see change nothing."""
    rng = np.random.default_rng(seed)
    cache = Cache(rng, [draw(rng, 2, end, 1, 16)])
    count = data.draw(st.integers(2, min(end, 90)))
    q = draw(rng, count, 1, 16) * rng.choice([1, 40], (count, 1, 1)).astype(bf16)
    softcap = data.draw(st.sampled_from((None, 5.0)))


    def attend(rows, batch) -> np.ndarray:
        return attention_arithmetic.paged_attention(rows, cache.kv, cache.batch(batch), 0.25, window, softcap)

    whole = attend(q, [(0, end, count)])
    for row in {0, count // 2, count - 1}:
        assert np.array_equal(whole[row], attend(q[row : row + 1], [(0, end - count + row + 1, 1)])[0])


@pytest.mark.parametrize("width", [1, CHUNK // BLOCK_SIZE + 1])
def test_padding_rows_become_zeros(device, width):
    rng = np.random.default_rng(1)
    cache = Cache(rng, [draw(rng, 2, 5, 1, 64)])
    cache.block_table = np.resize(cache.block_table, (1, width))
    out = on(device, draw(rng, 3, 1, 64), cache.kv, cache.batch([(0, 5, 1), (0, 0, 1), (0, 0, 1)]), 0.125)
    assert out[0].any() and not out[1:].any()


def test_one_chunk_has_the_same_bits_merged_and_not(device):
    """The width of the block table alone says whether a longer context may be among the sequences."""
    rng = np.random.default_rng(6)
    cache = Cache(rng, [draw(rng, 2, 70, 1, 64)])
    q, batch = draw(rng, 1, 2, 64), cache.batch([(0, 70, 1)])
    alone = on(device, q, cache.kv, batch, 0.125)
    batch.block_table = np.resize(batch.block_table, (1, CHUNK // BLOCK_SIZE + 1))
    assert np.array_equal(on(device, q, cache.kv, batch, 0.125), alone)


def test_many_chunks_are_joined_in_their_order(device):
    """By attention_merge alone, over more chunks than it loads at once, some of which outweigh all before."""
    rng, chunks, num_heads = np.random.default_rng(7), AHEAD + 3, 2
    o, ml = rng.standard_normal((1, chunks, num_heads, 64), f32), np.empty((1, chunks, num_heads, 2), f32)
    ml[..., 0], ml[..., 1] = rng.uniform(-20, 20, ml.shape[:-1]), rng.uniform(1, CHUNK, ml.shape[:-1])
    total_m, total = np.full(num_heads, -np.inf, f32), np.zeros((num_heads, 65), f32)
    for part in np.concatenate([o, ml], axis=-1)[0]:
        total_m, total = attention_arithmetic.join(total_m, total, part[:, 64], part[:, [*range(64), 65]])
    out = device.zeros((1, num_heads * 64), bf16)
    arrays = map(device.array, (o, ml, np.array([0, 1]), np.array([(chunks - 1) * CHUNK + 1])))
    device.launch(attention_merge_kernel.specialize(HEAD_DIM=64), (num_heads, 1), *arrays, out, attention.NO_WINDOW, chunks)
    expected = attention_arithmetic.normalise(total)
    assert np.array_equal(out.numpy().view(np.uint16).reshape(num_heads, 64), expected.view(np.uint16))


def test_more_sequences_than_the_workspace_holds_go_in_several_launches(device, monkeypatch):
    rng = np.random.default_rng(2)
    cache = Cache(rng, [draw(rng, 2, n, 1, 64) for n in (5, 9)])
    q, batch = draw(rng, 2, 1, 64), cache.batch([(0, 5, 1), (1, 9, 1)])
    together = on(device, q, cache.kv, batch, 0.125)
    monkeypatch.setattr(attention, "WORKSPACE_BYTES", 1)
    assert np.array_equal(on(device, q, cache.kv, batch, 0.125), together)


def test_what_the_kernels_do_not_take_is_named(device):
    rng = np.random.default_rng(3)
    cache = Cache(rng, [draw(rng, 2, 5, 1, 64)])
    batch = cache.batch([(0, 5, 1)])
    with pytest.raises(DeviceError, match="1 to 16 query heads per KV head.*found head_dim 64, 17 heads, 1 KV heads"):
        on(device, draw(rng, 1, 17, 64), cache.kv, batch, 0.125)
    with pytest.raises(DeviceError, match="head_dim 64, 96, 128, 256.*found head_dim 80"):
        on(device, draw(rng, 1, 1, 80), draw(rng, 2, 1, 16, 1, 80), batch, 0.125)
    with pytest.raises(DeviceError, match="softcap is -1, it must be above 0, or None"):
        on(device, draw(rng, 1, 1, 64), cache.kv, batch, 0.125, softcap=-1)


@pytest.mark.gpu
def test_random_mixes_give_the_bits_of_each_row_alone(monkeypatch):
    monkeypatch.setenv("VTLITE_DEVICE", "0")
    device, rng = devices.current(), np.random.default_rng(4)
    for mix in range(60):
        head_dim, num_kv_heads, group = [(64, 3, 3), (128, 8, 4), (256, 4, 6), (96, 1, 16)][mix % 4]
        lengths = rng.integers(1, 3000, rng.integers(1, 12))
        cache = Cache(rng, [draw(rng, 2, n, num_kv_heads, head_dim) for n in lengths])
        rows = [(s, int(n), int(rng.integers(1, min(n, 300) + 1)) if rng.random() < 0.5 else 1) for s, n in enumerate(lengths)]
        q, options = draw(rng, sum(count for *_, count in rows), num_kv_heads * group, head_dim), {"scale": head_dim**-0.5}
        options["window"] = [None, 500][mix // 4 % 2]
        together, start = on(device, q, cache.kv, cache.batch(rows), **options), 0
        for s, end, count in rows:
            last = on(device, q[start + count - 1 : start + count], cache.kv, cache.batch([(s, end, 1)]), **options)
            first = on(device, q[start : start + 1], cache.kv, cache.batch([(s, end - count + 1, 1)]), **options)
            assert np.array_equal(together[[start + count - 1, start]], np.concatenate([last, first]))
            start += count

"""Attention over a paged KV cache    o = softmax(scale q K^T + mask) V

q [T, H, D] f32; kv [2, num_blocks, block_size, Hkv, D] f32; o [T, H D] f32. Layout and masks as in reference/attention.py.
Order, for one query row and head: a score is lane sums over D (element d in lane d % 8, ascending, by fma), hsum's tree,
the last D % 8 products, times scale; with a softcap then softcap tanh(score / softcap). Keys are cut at the absolute
positions 0, TILE, 2 TILE, ...; inside a tile the weights exp(score - tile max) add up in lanes of eight and o adds
weight * v by fma in ascending position; tiles join in ascending order, each rescaled by exp(its max - common max). All of it
follows position and window alone.
Bytes: 8 D Hkv seq_len per row of the batch. Bound by memory in decode, by fma in prefill.
"""

import numpy as np
from numba import njit

from vtlite.cpu import cores
from vtlite.cpu.elementary import exp, tanh
from vtlite.cpu.kernel import SERIAL_BELOW, Kernel, float_in, inlined, pointer_to, run
from vtlite.cpu.simd import LANES, add, fma, hmax, hsum, load, maximum, splat, store
from vtlite.cpu.strided import bits

SERIAL_PRODUCTS = 1 << 17      # query elements times keys: fewer are over before a second thread has woken
TILE = 64                      # positions; a multiple of LANES, small enough that a tile's keys stay in the L1 cache

_f32 = np.float32


def write_kv(kv: np.ndarray, k: np.ndarray, v: np.ndarray, slot_mapping: np.ndarray) -> None:
    """Store k, v [T, num_kv_heads, head_dim] f32 at the flat slots slot_mapping [T] i64 of kv, in place."""
    assert kv.flags.c_contiguous, "the cache is written in place"
    run(_write, len(k), kv, bits(k), bits(v), slot_mapping, k.shape[1] * k.shape[2], kv.size // 2,
        parallel=k.size >= SERIAL_BELOW)


def paged_attention(q: np.ndarray, kv: np.ndarray, batch, scale: float, window: int | None = None,
                    softcap: float | None = None) -> np.ndarray:
    """q [T, num_heads, head_dim] f32 -> [T, num_heads * head_dim] f32; k and v of these rows already written."""
    T, num_heads, head_dim = q.shape
    block_size, num_kv_heads = kv.shape[2:4]
    assert kv.flags.c_contiguous, "the cache is read in place"
    q, table = bits(q), np.ascontiguousarray(batch.block_table, np.int32)
    out = np.empty((T, num_heads * head_dim), np.float32)
    workers = min(cores.num_threads(), T * num_kv_heads)
    scratch = np.empty((workers, TILE + head_dim + 2 * (num_heads // num_kv_heads)), np.float32)
    slots = np.empty((workers, TILE), np.int64)
    run(_share, workers, q, kv, out, batch.query_start_loc, batch.seq_lens, table, table.shape[1], block_size, kv.size // 2,
        T, num_heads, num_kv_heads, head_dim, float(scale), window or 0, workers, scratch, scratch.shape[1], slots,
        float(softcap or 0), parallel=out.size * table.shape[1] * block_size >= SERIAL_PRODUCTS)
    return out


@Kernel
def _write(task, args):
    """All heads of one token."""
    kv, k, v = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), pointer_to(args[2], np.float32)
    size, to_values = args[4], args[5]
    slot = pointer_to(args[3], np.int64)[task]
    for i in range(size):
        kv[slot * size + i] = k[task * size + i]
        kv[to_values + slot * size + i] = v[task * size + i]


@Kernel
def _share(worker, args):
    """Every workers-th pair of query row and KV head: late rows see more keys, so each share has some of all."""
    q, kv, out = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), pointer_to(args[2], np.float32)
    query_start_loc, seq_lens = pointer_to(args[3], np.int64), pointer_to(args[4], np.int64)
    table, table_width, block_size, to_values = pointer_to(args[5], np.int32), args[6], args[7], args[8]
    T, num_heads, num_kv_heads, head_dim = args[9], args[10], args[11], args[12]
    scale, window, workers = float_in(args[13]), args[14], args[15]
    weights = pointer_to(args[16] + 4 * worker * args[17], np.float32)       # [TILE]
    partial = pointer_to(args[16] + 4 * (worker * args[17] + TILE), np.float32)              # [head_dim]
    state = pointer_to(args[16] + 4 * (worker * args[17] + TILE + head_dim), np.float32)     # [2, group]
    starts = pointer_to(args[18] + 8 * worker * TILE, np.int64)              # [TILE] where each key of the tile starts in kv[0]
    softcap = float_in(args[19])
    group = num_heads // num_kv_heads
    s = 0
    for task in range(worker, T * num_kv_heads, workers):
        t, kv_head = task // num_kv_heads, task % num_kv_heads
        while t >= query_start_loc[s + 1]:
            s += 1
        end = seq_lens[s] - (query_start_loc[s + 1] - 1 - t)
        begin = end - window if 0 < window < end else 0
        _attend(q, kv, out, (t * num_heads + kv_head * group) * head_dim, table, s * table_width, block_size, begin, end,
                kv_head * head_dim, num_kv_heads * head_dim, to_values, head_dim, group, scale, softcap, starts, weights, partial, state)


@njit(inline="always")
def _attend(q, kv, out, row, table, table_row, block_size, begin, end, head_start, slot_stride, to_values, D, group, scale, softcap,
            starts, weights, partial, state):
    """out[row : row + group D]: the heads of one query row that share a KV head, over keys begin .. end - 1.

    A loop invariant: out / sum is the answer over the tiles so far, weights being relative to the running max.
    """
    for h in range(group):
        state[h], state[group + h] = _f32(-np.inf), _f32(0)
    for d in range(row, row + group * D):
        out[d] = _f32(0)
    first = begin
    while first < end:
        next_tile = first - first % TILE + TILE
        last = next_tile if next_tile < end else end
        for p in range(first, last):
            slot = table[table_row + p // block_size] * block_size + p % block_size
            starts[p - first] = slot * slot_stride + head_start
        for i in range(last - first, TILE):
            starts[i] = starts[last - first - 1]                             # _scores reads four at a time
        for h in range(group):
            head = row + h * D
            _scores(q, head, kv, starts, last - first, D, scale, weights)
            if softcap:
                for i in range(last - first):
                    weights[i] = softcap * tanh(weights[i] / softcap)
            peak, total = _exponentials(weights, last - first)
            _weighted_sum(kv, to_values, starts, last - first, D, weights, partial)
            common = max(peak, state[h])
            old, new = exp(state[h] - common), exp(peak - common)
            state[h], state[group + h] = common, fma(state[group + h], old, total * new)
            for d in range(D):
                out[head + d] = fma(out[head + d], old, partial[d] * new)
        first = last
    for h in range(group):
        for d in range(row + h * D, row + (h + 1) * D):
            out[d] /= state[group + h]


@inlined
def _scores(q, head, kv, starts, count, D, scale, scores):
    """scores[i] = scale * (q . key i), four keys at a time so that four chains of fma overlap."""
    i = 0
    while i < count:
        k0, k1, k2, k3 = starts[i], starts[i + 1], starts[i + 2], starts[i + 3]
        a0 = a1 = a2 = a3 = splat(0)
        d = 0
        while d + LANES <= D:
            v = load(q, head + d)
            a0, a1 = fma(v, load(kv, k0 + d), a0), fma(v, load(kv, k1 + d), a1)
            a2, a3 = fma(v, load(kv, k2 + d), a2), fma(v, load(kv, k3 + d), a3)
            d += LANES
        s0, s1, s2, s3 = hsum(a0), hsum(a1), hsum(a2), hsum(a3)
        while d < D:
            v = q[head + d]
            s0, s1 = fma(v, kv[k0 + d], s0), fma(v, kv[k1 + d], s1)
            s2, s3 = fma(v, kv[k2 + d], s2), fma(v, kv[k3 + d], s3)
            d += 1
        scores[i], scores[i + 1], scores[i + 2], scores[i + 3] = s0 * scale, s1 * scale, s2 * scale, s3 * scale
        i += 4


@inlined
def _exponentials(scores, count):
    """Replace scores by exp(score - max), zeros up to a multiple of eight; returns the max and the sum."""
    padded = -(-count // LANES) * LANES
    for i in range(count, padded):
        scores[i] = _f32(-np.inf)
    highest = load(scores, 0)
    for i in range(LANES, padded, LANES):
        highest = maximum(highest, load(scores, i))
    peak = hmax(highest)
    for i in range(padded):
        scores[i] = exp(scores[i] - peak)
    total = splat(0)
    for i in range(0, padded, LANES):
        total = add(total, load(scores, i))
    return peak, hsum(total)


@inlined
def _weighted_sum(kv, to_values, starts, count, D, weights, out):
    """out[d] = sum over i of weights[i] * value i[d], i ascending; 32, 8 or 1 elements at a time."""
    d = 0
    while d + 4 * LANES <= D:
        a0 = a1 = a2 = a3 = splat(0)
        for i in range(count):
            w, v = splat(weights[i]), to_values + starts[i] + d
            a0, a1 = fma(w, load(kv, v), a0), fma(w, load(kv, v + LANES), a1)
            a2, a3 = fma(w, load(kv, v + 2 * LANES), a2), fma(w, load(kv, v + 3 * LANES), a3)
        store(out, d, a0)
        store(out, d + LANES, a1)
        store(out, d + 2 * LANES, a2)
        store(out, d + 3 * LANES, a3)
        d += 4 * LANES
    while d + LANES <= D:
        a0 = splat(0)
        for i in range(count):
            a0 = fma(splat(weights[i]), load(kv, to_values + starts[i] + d), a0)
        store(out, d, a0)
        d += LANES
    while d < D:
        total = _f32(0)
        for i in range(count):
            total = fma(weights[i], kv[to_values + starts[i] + d], total)
        out[d] = total
        d += 1

"""Grouped-query attention of one new token per slot over a cache of slots that differ in length.

q [B, 9, 64]; k, v [B, S, 3, 64]; pos [B] int64; out [B, 576]. One program per slot and key-value head holds the
head's three queries (padded to 16 rows for the tensor core) and walks the filled part of the cache, 64 at a time.
"""
import triton
import triton.language as tl

H: tl.constexpr = tl.constexpr(3)       # key-value heads
G: tl.constexpr = tl.constexpr(3)       # queries per key-value head
D: tl.constexpr = tl.constexpr(64)      # head dimension
TILE: tl.constexpr = tl.constexpr(64)


@triton.jit
def attention(q, k, v, pos, out, scale_log2e, S):
    b, h = tl.program_id(0), tl.program_id(1)
    row, dim, tile = tl.arange(0, 16), tl.arange(0, D), tl.arange(0, TILE)
    length = tl.load(pos + b).to(tl.int32) + 1
    heads = (b * H * G + h * G + row[:, None]) * D + dim[None, :]
    query = tl.load(q + heads, mask=row[:, None] < G, other=0.0)
    top = tl.full([16], -1e30, tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    for start in range(0, length, TILE):
        t = start + tile
        inside = t < length
        cell = ((b.to(tl.int64) * S + t[:, None]) * H + h) * D + dim[None, :]
        key = tl.load(k + cell, mask=inside[:, None], other=0.0)
        value = tl.load(v + cell, mask=inside[:, None], other=0.0)
        score = tl.where(inside[None, :], tl.dot(query, tl.trans(key)) * scale_log2e, -1e30)
        new_top = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp2(score - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weight, 1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(value.dtype), value)
        top = new_top
    tl.store(out + heads, (acc / total[:, None]).to(query.dtype), mask=row[:, None] < G)

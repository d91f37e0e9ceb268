"""attention_tile's arithmetic in NumPy, bit for bit: what the attention kernels give on Hopper, without running their threads

Rows of a sequence and KV head go through tiles and chunks together, which changes no row. l is the last column of o: the sum
of the weights is their product with a column of ones. For the steps see attention_tile.py.
"""

import ml_dtypes
import numpy as np

from vtlite.cuda import tensor_core
from vtlite.cuda.attention import LOG2_E
from vtlite.cuda.attention_tile import CHUNK, HEADROOM, TILE
from vtlite.elementary import softmax_exp2, tanh
from vtlite.ieee import div, fma, mul

f32 = np.float32


def paged_attention(q: np.ndarray, kv: np.ndarray, batch, scale: float, window: int | None = None,
                    softcap: float | None = None) -> np.ndarray:
    """q [T, H, D] bf16 -> [T, H D] bf16, as vtlite.cuda.attention.paged_attention on host arrays."""
    tokens, num_heads, head_dim = q.shape
    num_kv_heads, block_size = kv.shape[3], kv.shape[2]
    group, out = num_heads // num_kv_heads, np.empty_like(q)
    for s, seq_len in enumerate(batch.seq_lens):
        first, last = batch.query_start_loc[s], batch.query_start_loc[s + 1]
        pages = kv[:, batch.block_table[s, : -(-seq_len // block_size)]]
        keys, values = pages.reshape(2, -1, num_kv_heads, head_dim)[:, :seq_len]
        ends = np.repeat(np.arange(seq_len - (last - first), seq_len) + 1, group)
        for head in range(num_kv_heads):
            heads = slice(head * group, (head + 1) * group)
            rows = q[first:last, heads].reshape(-1, head_dim)
            made = attend(rows, keys[:, head], values[:, head], ends, scale, window, softcap)
            out[first:last, heads] = made.reshape(last - first, group, head_dim)
    return out.reshape(tokens, -1)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, ends: np.ndarray, scale: float, window: int | None,
           softcap: float | None) -> np.ndarray:
    """q [R, D], k, v [n, D] bf16; row r sees the last `window` of the first ends[r] keys -> [R, D] bf16."""
    scale_log2 = f32(scale * LOG2_E if softcap is None else softcap * LOG2_E)
    begins = np.zeros_like(ends) if window is None else np.maximum(ends - window, 0)
    columns = np.concatenate([v, np.ones((len(v), 1), v.dtype)], axis=1).T              # [D + 1, n]
    total_m, total = np.full(len(q), -np.inf, f32), np.zeros((len(q), q.shape[1] + 1), f32)
    for chunk in range(begins.min() // CHUNK * CHUNK, ends.max(), CHUNK):
        m, o = np.full(len(q), -np.inf, f32), np.zeros_like(total)
        for first in range(chunk, min(chunk + CHUNK, ends.max()), TILE):
            positions = np.arange(first, min(first + TILE, len(k)))
            s = tensor_core.chain(_bits(q), _bits(k[positions]), np.zeros((len(q), len(positions)), f32))
            if softcap is not None:
                s = tanh(mul(s, f32(scale / softcap)))
            s[(positions < begins[:, None]) | (positions >= ends[:, None])] = -np.inf
            p, factor, m = _weigh(s, m, scale_log2)
            o = _chain_over_keys(p, columns[:, positions], mul(o, factor[:, None]))
        total_m, total = join(total_m, total, m, o)
    return normalise(total)


def join(total_m: np.ndarray, total: np.ndarray, m: np.ndarray, o: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """References [R] and sums [R, D + 1] of the chunks before, and of the next one -> those of all."""
    joined = np.maximum(total_m, m)
    factors = softmax_exp2(total_m - _finite(joined)), softmax_exp2(m - _finite(joined))
    return joined, fma(o, factors[1][:, None], mul(total, factors[0][:, None]))


def normalise(total: np.ndarray) -> np.ndarray:
    """O / L of sums [R, D + 1] -> [R, D] bf16."""
    return (mul(total[:, :-1], div(f32(1), total[:, -1:])) + f32(0)).astype(ml_dtypes.bfloat16)


def _weigh(s: np.ndarray, m: np.ndarray, scale_log2: f32) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores [R, n] and the reference m [R] -> weights [R, n] bf16, what to multiply o by, the reference moved on."""
    peak = s.max(axis=1)
    with np.errstate(invalid="ignore"):
        moves = fma(peak, scale_log2, -m) > HEADROOM
        new = np.where(moves, mul(peak, scale_log2), m)
        factor = np.where(moves, softmax_exp2(m - new), f32(1))
    weights = softmax_exp2(fma(s, scale_log2, -_finite(new)[:, None]))
    return weights.astype(ml_dtypes.bfloat16), factor, new


def _finite(m: np.ndarray) -> np.ndarray:
    return np.where(m == -np.inf, f32(0), m)


def _chain_over_keys(p: np.ndarray, columns: np.ndarray, o: np.ndarray) -> np.ndarray:
    """o [R, D + 1] + p columns^T in steps of 16 keys; keys that a last step lacks are zeros."""
    padding = ((0, 0), (0, -p.shape[1] % tensor_core.STEP))
    return tensor_core.chain(np.pad(_bits(p), padding), np.pad(_bits(columns), padding), o)


def _bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint16)

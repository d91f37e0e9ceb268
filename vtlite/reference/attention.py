"""Attention over a paged KV cache      o = softmax(scale q K^T + mask) V        (arXiv:1706.03762)

With a softcap the scores x = scale q K^T become softcap tanh(x / softcap) before the mask (Gemma 2, arXiv:2408.00118).

The cache of one layer is kv [2, num_blocks, block_size, num_kv_heads, head_dim]: kv[0] keys, kv[1] values.
Position p of sequence s lives in block `block_table[s, p // block_size]`, row `p % block_size`; a flat
slot is block * block_size + row (Kwon et al. 2023, arXiv:2309.06180).

`batch` is flat: the query rows of sequence s are query_start_loc[s] .. query_start_loc[s+1], and they are
its last positions, ending at seq_lens[s]. A query at position p sees the keys at p - window + 1 .. p.
Grouped queries: query head h reads KV head h // (num_heads / num_kv_heads) (arXiv:2305.13245).
"""

import numpy as np

from vtlite.reference.precision import widen


def write_kv(kv: np.ndarray, k: np.ndarray, v: np.ndarray, slot_mapping: np.ndarray) -> None:
    """Store k, v [T, num_kv_heads, head_dim] at the flat slots slot_mapping [T], in place."""
    block, row = np.divmod(slot_mapping, kv.shape[2])
    kv[0, block, row] = k
    kv[1, block, row] = v


def paged_attention(q: np.ndarray, kv: np.ndarray, batch, scale: float, window: int | None = None,
                    softcap: float | None = None) -> np.ndarray:
    """q [T, num_heads, head_dim] -> [T, num_heads * head_dim] in q's type; k and v of these rows already written."""
    out = np.empty_like(q)
    for s, seq_len in enumerate(batch.seq_lens):
        first, last = batch.query_start_loc[s], batch.query_start_loc[s + 1]
        num_blocks = -(-seq_len // kv.shape[2])
        pages = kv[:, batch.block_table[s, :num_blocks]]                    # [2, blocks, block_size, Hkv, D]
        keys, values = pages.reshape(2, -1, *kv.shape[3:])[:, :seq_len]     # [seq_len, Hkv, D]
        out[first:last] = _attend(widen(q[first:last]), widen(keys), widen(values), seq_len, scale, window, softcap)
    return out.reshape(len(q), -1)


def _attend(q, k, v, seq_len: int, scale: float, window: int | None, softcap: float | None) -> np.ndarray:
    """q [t, H, D] at the last t of seq_len positions; k, v [seq_len, Hkv, D] -> [t, H, D]."""
    t, num_heads, head_dim = q.shape
    group = num_heads // k.shape[1]
    q = q.reshape(t, k.shape[1], group, head_dim)
    scores = np.einsum("tkgd,pkd->kgtp", q, k, optimize=True) * q.dtype.type(scale)
    if softcap is not None:
        scores = np.tanh(scores / q.dtype.type(softcap)) * q.dtype.type(softcap)
    query_position = np.arange(seq_len - t, seq_len)[:, None]
    key_position = np.arange(seq_len)[None, :]
    hidden = key_position > query_position
    if window is not None:
        hidden |= key_position <= query_position - window
    scores[:, :, hidden] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("kgtp,pkd->tkgd", weights, v, optimize=True).reshape(t, num_heads, head_dim)

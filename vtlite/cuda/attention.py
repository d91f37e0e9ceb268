"""Attention over a paged KV cache    o = softmax(scale q K^T + mask) V

q [T, H, D] bf16, kv [2, num_blocks, block_size, Hkv, D] bf16, o [T, H D] bf16; scores and sums in f32, weights in bf16.
`batch`, masks and the softcap are vtlite/reference/attention.py's; its arrays lie on the device.

Sequences with one new token go to attention_decode and, unless one chunk holds every context, to attention_merge, those with
more to attention_prefill; both use the arithmetic of attention_tile. Which of them has work is found on the device, from
query_start_loc.
Order, per row: tiles of TILE keys within chunks of CHUNK keys, both cut at their absolute multiples, chunks joined in
ascending order. It follows from position and window alone, so a token has the same bits in decode, in a whole prefill and in a
chunked one, in any batch and any blocks. attention_arithmetic.py has it in NumPy.
Bytes: decode 4 D Hkv per visible key, bound by memory. Flops: prefill 4 D H per visible key and token.
"""

import math
from types import SimpleNamespace

import numpy as np

from vtlite import reference
from vtlite.cuda import attention_decode, attention_prefill
from vtlite.cuda.attention_decode import attention_decode_kernel
from vtlite.cuda.attention_merge import attention_merge_kernel
from vtlite.cuda.attention_prefill import attention_prefill_kernel
from vtlite.cuda.attention_tile import CHUNK, first_that_fits
from vtlite.cuda.attention_work import MOST_SEQUENCES
from vtlite.cuda.device import current
from vtlite.cuda.lang import bf16, f32, i32
from vtlite.cuda.layout import need_contiguous, vectors_between_tokens
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

MOST_GROUP = 16                  # query heads per KV head: the rows of one MMA
WORKSPACE_BYTES = 256 << 20      # of partial results: more sequences go in several launches
NO_WINDOW = 0xFFFFFFFF
LOG2_E = 1 / math.log(2)


def paged_attention(q, kv, batch, scale: float, window: int | None = None, softcap: float | None = None, *, out=None):
    """q [T, H, D] bf16 -> [T, H D] bf16; k and v of these rows already written. q may leave gaps between tokens.

    `batch` has query_start_loc [S + 1] i64, seq_lens [S] i64 and block_table [S, blocks] i32 on the device. Every sequence has
    at least one row. A sequence of length 0 with one row is padding: its row becomes zeros.
    """
    (tokens, num_heads, head_dim), (block_size, num_kv_heads) = q.shape, kv.shape[2:4]
    out = current().empty((tokens, num_heads * head_dim), bf16) if out is None else out
    need_contiguous(kv=kv, out=out, query_start_loc=batch.query_start_loc, seq_lens=batch.seq_lens,
                    block_table=batch.block_table)
    group = _group(num_heads, num_kv_heads, head_dim, block_size)
    if kv.size // 8 >= 1 << 32:
        raise DeviceError(f"the attention kernels take caches of less than 64 GiB per layer; found kv {list(kv.shape)}")
    for name, value in (("scale", scale), ("window", window), ("softcap", softcap)):
        if value is not None and not value > 0:
            raise DeviceError(f"{name} is {value!r}, it must be above 0" + (", or None" if name != "scale" else ""))
    factors = (scale * LOG2_E, 1.0) if softcap is None else (softcap * LOG2_E, scale / softcap)
    window, num_sequences = window or NO_WINDOW, len(batch.seq_lens)
    chunks = _most_chunks(block_size, batch.block_table.shape[1], window)
    most = min(MOST_SEQUENCES, max(1, WORKSPACE_BYTES // (chunks * num_heads * (4 * head_dim + 8))))
    for first in range(0, num_sequences, most):
        last = min(first + most, num_sequences)
        part = batch.query_start_loc[first : last + 1], batch.seq_lens[first:last], batch.block_table[first:last]
        if tokens == num_sequences or num_sequences > 1:
            _decode(q, kv, part, (*factors, window), softcap is not None, group, chunks, out)
        if tokens > num_sequences:
            _prefill(q, kv, part, (*factors, window), softcap is not None, group, out)
    return out


def _decode(q, kv, part: tuple, numbers: tuple, softcap: bool, group: int, chunks: int, out) -> None:
    """numbers: what scores are multiplied by, what they are multiplied by before the softcap, the window."""
    query_start_loc, seq_lens, block_table = part
    (_, num_heads, head_dim), num_sequences, num_kv_heads = q.shape, len(seq_lens), kv.shape[3]
    parts = num_sequences if chunks > 1 else 0
    partial_o = current().empty((parts, chunks, num_heads, head_dim), f32)
    partial_ml = current().empty((parts, chunks, num_heads, 2), f32)
    layout = attention_decode.layout(head_dim, group, kv.shape[2], softcap, current().chip)
    blocks = current().num_sms * attention_decode.blocks_per_multiprocessor(layout, current().chip)
    current().launch(attention_decode_kernel.specialize(**layout), min(num_sequences * chunks * num_kv_heads, blocks),
                     q, kv, query_start_loc, seq_lens, block_table, partial_o, partial_ml, out, *numbers, num_sequences,
                     num_kv_heads, group, block_table.shape[1], chunks, vectors_between_tokens("q", q), kv.size // 16)
    if chunks > 1:
        current().launch(attention_merge_kernel.specialize(HEAD_DIM=head_dim), (num_heads, num_sequences),
                         partial_o, partial_ml, query_start_loc, seq_lens, out, numbers[-1], chunks)


def _prefill(q, kv, part: tuple, numbers: tuple, softcap: bool, group: int, out) -> None:
    num_sequences, table_width = part[2].shape
    layouts = attention_prefill.layouts(q.shape[2], kv.shape[2], softcap)
    layout = first_that_fits(layouts, attention_prefill.shared_bytes, attention_prefill.STATIC_KIB, current().chip)
    kernel = attention_prefill_kernel.specialize(**layout)
    tiles = len(q) * group // (kernel.threads // 2) + num_sequences                        # at most
    current().launch(kernel, (tiles, kv.shape[3]), q, kv, *part, out, *numbers, num_sequences, group, table_width,
                     vectors_between_tokens("q", q), kv.size // 16)


def _group(num_heads: int, num_kv_heads: int, head_dim: int, block_size: int) -> int:
    """Query heads per KV head; DeviceError for shapes that the kernels do not take."""
    head_dims = attention_decode.TUNED
    if head_dim not in head_dims or num_heads % num_kv_heads or num_heads > MOST_GROUP * num_kv_heads or block_size % 16:
        raise DeviceError(f"the attention kernels take head_dim {', '.join(map(str, head_dims))}, 1 to {MOST_GROUP} query heads "
                          f"per KV head and blocks of a multiple of 16 tokens; found head_dim {head_dim}, {num_heads} heads, "
                          f"{num_kv_heads} KV heads and blocks of {block_size}")
    return num_heads // num_kv_heads


def _most_chunks(block_size: int, table_width: int, window: int) -> int:
    """Chunks of one sequence that a query can see."""
    return min(-(-table_width * block_size // CHUNK), (window - 1) // CHUNK + 2)


# -- the specs

def _inputs(rng, S: int, T: int, keys: int, H: int, Hkv: int, D: int, window: int = 0, softcap: int = 0) -> dict:
    """S sequences of T new tokens each; sequence s is s % 4 tokens shorter than `keys`. Blocks lie in any order."""
    def normal(*shape: int) -> np.ndarray:                          # of a million numbers, repeated
        return np.resize(rng.standard_normal(1_000_003, f32), shape).astype(bf16)

    seq_lens = keys - np.arange(S) % 4
    width = -(-keys // 16)
    blocks = 1 + rng.permutation(S * width)
    options = {name: value for name, value in (("window", window), ("softcap", softcap)) if value}
    return {"q": 2 * normal(S * T, H, D), "kv": normal(2, S * width + 1, 16, Hkv, D), "query_start_loc": np.arange(S + 1) * T,
            "seq_lens": seq_lens, "block_table": blocks.reshape(S, width).astype(i32), "scale": D**-0.5, **options}


def _reference(q, kv, query_start_loc, seq_lens, block_table, scale, **options):
    batch = SimpleNamespace(query_start_loc=query_start_loc, seq_lens=seq_lens, block_table=block_table)
    return reference.paged_attention(q, kv, batch, scale, **options)


def _launch(inputs, out) -> None:
    arrays = ("query_start_loc", "seq_lens", "block_table")
    batch = SimpleNamespace(**{name: inputs[name] for name in arrays})
    paged_attention(**{name: value for name, value in inputs.items() if name not in arrays}, batch=batch, out=out["o"])


def _spec(name: str, cases, gpu_cases, rows) -> OpSpec:
    """Weights are rounded to bf16, each by up to 2^-9 of itself; bench/attention.py has the large sizes."""
    return OpSpec(name, cases=cases, gpu_cases=gpu_cases, bench_cases=(), make_inputs=_inputs,
                  outputs=lambda S, T, H, D, **_: {"o": ((S * T, H * D), bf16)}, reference=_reference, launch=_launch,
                  num_bytes=lambda S, T, keys, H, Hkv, D, **_: S * (4 * keys * Hkv * D + 4 * T * H * D),
                  flops=lambda S, T, keys, H, D, **_: 4 * S * T * (keys - T // 2) * H * D, rows=rows, intermediate=2.0**-8)


def _case(S: int, T: int, keys: int, H: int, Hkv: int, D: int, **options: int) -> dict:
    return {"S": S, "T": T, "keys": keys, "H": H, "Hkv": Hkv, "D": D, **options}


SPECS = (
    _spec("attention.decode", [_case(2, 1, 20, 2, 1, 64)],
          [_case(3, 1, 1000, 32, 8, 128), _case(5, 1, 700, 24, 4, 256), _case(2, 1, 5000, 9, 3, 64, window=700),
           _case(2, 1, 900, 16, 1, 96), _case(4, 1, 300, 8, 8, 128, softcap=30), _case(1, 1, 262144, 4, 1, 64)],
          ("q", "seq_lens", "block_table")),
    _spec("attention.prefill", [_case(1, 3, 70, 2, 1, 64, window=7)],
          [_case(2, 500, 500, 32, 8, 128), _case(1, 63, 900, 24, 4, 256), _case(3, 130, 2000, 9, 3, 64, window=300),
           _case(1, 300, 300, 16, 1, 96), _case(2, 200, 260, 8, 8, 128, softcap=30), _case(1, 9, 70, 2, 1, 96, softcap=20)],
          ()),
)

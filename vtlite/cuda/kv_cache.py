"""KV write    kv[0, block, row] = k[t],  kv[1, block, row] = v[t]    with block, row = divmod(slot_mapping[t], block_size)

k, v [T, H, D] bf16; kv [2, num_blocks, block_size, H, D] bf16, in place; slot_mapping [T] i64, negative for padding, which
writes nothing.
Bytes: 8 T H D + 8 T; bound by memory.
"""

import numpy as np

from vtlite import reference
from vtlite.cuda.device import current
from vtlite.cuda.kernel import kernel
from vtlite.cuda.lang import bf16, cuda, i64, load_u32x4, ptr, store_u32x4, u32
from vtlite.cuda.layout import need_contiguous, vectors_between_tokens
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

THREADS = 256

ROW = 128                        # 16-byte vectors of one token: H D / 8


@kernel((ptr(bf16), ptr(bf16), ptr(i64), ptr(bf16), u32, u32, u32, u32), threads=THREADS, constants=("ROW",),
        prebuild=[{"ROW": row} for row in (24, 32, 64, 128, 256)])
def write_kv_kernel(k, v, slot_mapping, kv, plane, num_vectors, k_stride, v_stride):
    """plane: vectors of all keys, which come before the values; strides: vectors from one token to the next."""
    vector = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    if vector < num_vectors:
        token = vector // u32(ROW)
        slot = slot_mapping[token]
        if slot >= 0:
            column = vector - token * u32(ROW)
            target = u32(slot) * u32(ROW) + column
            k0, k1, k2, k3 = load_u32x4(k, token * k_stride + column)
            v0, v1, v2, v3 = load_u32x4(v, token * v_stride + column)
            store_u32x4(kv, target, k0, k1, k2, k3)
            store_u32x4(kv, plane + target, v0, v1, v2, v3)


def write_kv(kv, k, v, slot_mapping) -> None:
    """Store k, v [T, H, D] bf16 at the flat slots slot_mapping [T] i64 of kv [2, num_blocks, block_size, H, D], in place.

    k and v may leave gaps between tokens.
    """
    need_contiguous(kv=kv, slot_mapping=slot_mapping)
    tokens, heads, head_dim = k.shape
    if heads * head_dim % 8 or kv.size // 8 >= 1 << 32:
        raise DeviceError(f"the KV kernel takes rows of a multiple of 8 elements and caches of less than 64 GiB per layer; "
                          f"found k {list(k.shape)} and kv {list(kv.shape)}")
    row = heads * head_dim // 8
    vectors = tokens * row
    current().launch(write_kv_kernel.specialize(ROW=row), -(-vectors // THREADS),
                     k, v, slot_mapping, kv, kv.size // 16, vectors, vectors_between_tokens("k", k), vectors_between_tokens("v", v))


def _inputs(rng, T: int, H: int, D: int, blocks: int) -> dict:
    slots = rng.permutation(blocks * 16)[:T].astype(np.int64)
    return {"kv": rng.standard_normal((2, blocks, 16, H, D)).astype(bf16), "k": rng.standard_normal((T, H, D)).astype(bf16),
            "v": rng.standard_normal((T, H, D)).astype(bf16), "slot_mapping": slots}


def _written(kv, k, v, slot_mapping):
    kv = kv.copy()
    reference.write_kv(kv, k, v, slot_mapping)
    return kv


def _case(T: int, H: int, D: int, blocks: int) -> dict:
    return {"T": T, "H": H, "D": D, "blocks": blocks}


SPECS = (
    OpSpec("kv.write", cases=[_case(1, 3, 64, 2), _case(3, 2, 16, 1), _case(63, 1, 8, 5)],
           gpu_cases=[_case(1, 8, 128, 7), _case(500, 3, 64, 40)], bench_cases=[_case(32768, 8, 128, 4096)],
           make_inputs=_inputs, outputs=lambda T, H, D, blocks: {"kv": ((2, blocks, 16, H, D), bf16)}, reference=_written,
           launch=lambda inputs, out: write_kv(out["kv"], inputs["k"], inputs["v"], inputs["slot_mapping"]),
           num_bytes=lambda T, H, D, blocks: 8 * T * H * D + 8 * T, in_place={"kv": "kv"}),
)

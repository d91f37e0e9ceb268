"""What attention starts from    q = rotary(norm(q)),  kv[slot] = rotary(norm(k)), v    in one launch

q [T, H, D], k, v [T, Hkv, D] bf16, most often parts of one projection; norm is rms_norm over a head, where there is one; the
pairs of rotary are half-split; kv [2, num_blocks, block_size, Hkv, D] in place, slot_mapping [T] i64 as write_kv has it.
Order and roundings are those of rms_norm, rotary and write_kv one after another, with the same bits: four launches less where
a step has few tokens and a launch costs more than its bytes.
Bytes: 4 T (H + 2 Hkv) D; bound by memory. A row passes through shared memory once: the partner of an element is in another thread.
"""

import numpy as np

from vtlite import reference
from vtlite.cuda import norm
from vtlite.cuda.device import current
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import bf16, consteval, cuda, f32, i64, ptr, store_u32x4, u32
from vtlite.cuda.layout import need_contiguous, vectors_between_heads, vectors_between_tokens
from vtlite.cuda.norm import add_squares, load_vector, reciprocal_rms, scaled
from vtlite.cuda.reduction import group_sum
from vtlite.cuda.rope import partner, turned_half_split
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

HIDDEN = 128                     # D
GROUP = 4                        # threads per row, as in norm.layout
VECTORS = 4
ROWS = 32                        # per block
ZERO_CENTERED = False
NORM = True                      # whether q and k are normed
HEADS = 32                       # of q
KV_HEADS = 8
ROTARY = 128                     # elements of a head that turn, a multiple of 16
CONSTANTS = (*norm.LAYOUT, "ZERO_CENTERED", "NORM", "HEADS", "KV_HEADS", "ROTARY")

LARGEST_HEAD = 1024              # elements: a row is one warp's
ROUNDED_NORM = 2.0**-7           # of a row's largest value: normed elements are rounded to bf16 before they turn


def constants(heads: int, kv_heads: int, head_dim: int, rotary: int, normed: bool, zero_centered: bool) -> dict:
    return {**norm.layout(head_dim), "ZERO_CENTERED": zero_centered, "NORM": normed, "HEADS": heads, "KV_HEADS": kv_heads, "ROTARY": rotary}


@device
def load_row(words, x, start, first):
    """A thread's vectors of the row that begins at vector `start`."""
    for v in consteval(range(VECTORS)):
        words[v, 0], words[v, 1], words[v, 2], words[v, 3] = load_vector(x, start, first + u32(v * GROUP), first)


@device
def scale_row(words, weight, inverse, first):
    """The row times its reciprocal root mean square and the weight, rounded."""
    for v in consteval(range(VECTORS)):
        w0, w1, w2, w3 = load_vector(weight, u32(0), first + u32(v * GROUP), first)
        words[v, 0], words[v, 1] = scaled(words[v, 0], w0, inverse), scaled(words[v, 1], w1, inverse)
        words[v, 2], words[v, 3] = scaled(words[v, 2], w2, inverse), scaled(words[v, 3], w3, inverse)


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), ptr(bf16), ptr(bf16), ptr(f32), ptr(f32), ptr(i64), ptr(bf16), ptr(bf16), f32,
         u32, u32, u32, u32, u32, u32), threads=lambda GROUP, ROWS, **_: GROUP * ROWS, constants=CONSTANTS,
        prebuild=[constants(32, 8, 128, 128, True, False), constants(16, 8, 128, 128, True, False), constants(9, 3, 64, 64, False, False),
                  constants(4, 2, 64, 64, True, False), constants(4, 2, 64, 32, True, True), constants(16, 4, 256, 64, True, True),
                  constants(24, 4, 256, 64, True, True), constants(16, 2, 256, 64, True, True), constants(8, 2, 256, 64, True, True)])
def attention_inputs_kernel(q, k, v, q_weight, k_weight, cos, sin, slot_mapping, out, kv, eps,
                            num_rows, q_token_stride, q_head_stride, k_token_stride, v_token_stride, plane):
    """A row: a head of q, k or v of a token. Strides and plane (all keys of kv, which come before the values) in vectors."""
    tid = u32(cuda.threadIdx.x)
    row = u32(cuda.blockIdx.x) * u32(ROWS) + tid // u32(GROUP)
    token, first = row // u32(HEADS + 2 * KV_HEADS), tid & u32(GROUP - 1)
    head = row - token * u32(HEADS + 2 * KV_HEADS)
    k_head, v_head = head - u32(HEADS), head - u32(HEADS + KV_HEADS)
    words, partial = cuda.local.array((VECTORS, 4), u32), cuda.shared.array(32, f32)
    rows = cuda.shared.array(consteval(4 * GROUP * ROWS * VECTORS), u32)
    total = f32(0)
    if row < num_rows:
        if head < u32(HEADS):
            load_row(words, q, token * q_token_stride + head * q_head_stride, first)
        elif head < u32(HEADS + KV_HEADS):
            load_row(words, k, token * k_token_stride + k_head * u32(HIDDEN // 8), first)
        else:
            load_row(words, v, token * v_token_stride + v_head * u32(HIDDEN // 8), first)
        if NORM:
            for i in consteval(range(VECTORS)):
                if first + u32(i * GROUP) < u32(HIDDEN // 8):
                    for j in consteval(range(4)):
                        total = add_squares(words[i, j], total)
    if NORM:
        inverse = reciprocal_rms(group_sum(total, partial), eps)
        if (row < num_rows) & (head < u32(HEADS + KV_HEADS)):
            if head < u32(HEADS):
                scale_row(words, q_weight, inverse, first)
            else:
                scale_row(words, k_weight, inverse, first)
    mine = tid // u32(GROUP) * u32(GROUP * VECTORS)
    if row < num_rows:
        for i in consteval(range(VECTORS)):
            for j in consteval(range(4)):
                rows[(mine + first + u32(i * GROUP)) * u32(4) + u32(j)] = words[i, j]
    cuda.syncthreads()
    if row < num_rows:
        slot = slot_mapping[token]
        for i in consteval(range(VECTORS)):
            column = first + u32(i * GROUP)
            a0, a1, a2, a3 = words[i, 0], words[i, 1], words[i, 2], words[i, 3]
            if (column < u32(ROTARY // 8)) & (head < u32(HEADS + KV_HEADS)):
                other = (mine + partner(column)) * u32(4)
                b0, b1, b2, b3 = rows[other], rows[other + u32(1)], rows[other + u32(2)], rows[other + u32(3)]
                a0, a1, a2, a3 = turned_half_split(a0, a1, a2, a3, b0, b1, b2, b3, column, token, cos, sin)
            if column < u32(HIDDEN // 8):
                if head < u32(HEADS):
                    store_u32x4(out, (token * u32(HEADS) + head) * u32(HIDDEN // 8) + column, a0, a1, a2, a3)
                elif slot >= 0:
                    at = u32(slot) * u32(KV_HEADS * (HIDDEN // 8)) + column
                    if head < u32(HEADS + KV_HEADS):
                        store_u32x4(kv, at + k_head * u32(HIDDEN // 8), a0, a1, a2, a3)
                    else:
                        store_u32x4(kv, plane + at + v_head * u32(HIDDEN // 8), a0, a1, a2, a3)


def attention_inputs(q, k, v, cos, sin, kv, slot_mapping, q_norm=None, k_norm=None, eps: float = 0.0, zero_centered: bool = False,
                     *, out=None):
    """q [T, H, D], k, v [T, Hkv, D] bf16, cos, sin [T, R/2] f32, norms [D] bf16 or None -> rotated q [T, H, D] bf16.

    Rotated keys and values go to the flat slots slot_mapping [T] i64 of kv, negative ones nowhere. q may leave gaps between tokens
    and heads, k and v between tokens. D is a multiple of 8 up to 1024, R a multiple of 16 up to D.
    """
    (tokens, heads, head_dim), kv_heads, rotary = q.shape, k.shape[1], 2 * cos.shape[-1]
    if head_dim % 8 or head_dim > LARGEST_HEAD or rotary % 16 or not 0 < rotary <= head_dim:
        raise DeviceError(f"attention_inputs takes head_dim as a multiple of 8 up to {LARGEST_HEAD} and R up to it as a multiple of 16; "
                          f"found head_dim {head_dim} and R {rotary}")
    if kv.size // 8 >= 1 << 32:
        raise DeviceError(f"attention_inputs takes caches of less than 64 GiB per layer; found kv {list(kv.shape)}")
    normed = q_norm is not None
    y = current().empty(q.shape, bf16) if out is None else out
    need_contiguous(cos=cos, sin=sin, kv=kv, slot_mapping=slot_mapping, out=y, **({"q_norm": q_norm, "k_norm": k_norm} if normed else {}))
    made = attention_inputs_kernel.specialize(**constants(heads, kv_heads, head_dim, rotary, normed, zero_centered))
    rows = tokens * (heads + 2 * kv_heads)
    current().launch(made, -(-rows // made.constants["ROWS"]), q, k, v, q_norm if normed else q, k_norm if normed else k, cos, sin,
                     slot_mapping, y, kv, eps, rows, *vectors_between_heads("q", q)[1:], vectors_between_tokens("k", k),
                     vectors_between_tokens("v", v), kv.size // 16)
    return y


def _inputs(rng, T: int, H: int, Hkv: int, D: int, R: int, blocks: int, normed: bool = True, zero_centered: bool = False) -> dict:
    angle = rng.uniform(-np.pi, np.pi, (T, R // 2))
    def draw(*shape):
        return rng.standard_normal(shape).astype(bf16)

    norms = {"q_norm": draw(D), "k_norm": draw(D), "eps": 1e-6, "zero_centered": zero_centered} if normed else {}
    slots = rng.permutation(blocks * 16)[:T].astype(np.int64)
    return {"q": draw(T, H, D), "k": draw(T, Hkv, D), "v": draw(T, Hkv, D), "cos": np.cos(angle).astype(f32),
            "sin": np.sin(angle).astype(f32), "kv": draw(2, blocks, 16, Hkv, D), "slot_mapping": slots, **norms}


def _defined(kv, **inputs):
    kv = kv.copy()
    return reference.attention_inputs(kv=kv, **inputs), kv


def _case(T: int, H: int, Hkv: int, D: int, R: int, **options) -> dict:
    return {"T": T, "H": H, "Hkv": Hkv, "D": D, "R": R, "blocks": -(-T // 16) + 1, **options}


SPECS = (
    OpSpec("attention.inputs", cases=[_case(1, 4, 2, 64, 64), _case(3, 4, 2, 64, 32, zero_centered=True), _case(5, 3, 1, 64, 64, normed=False)],
           gpu_cases=[_case(1, 32, 8, 128, 128), _case(63, 24, 4, 256, 64, zero_centered=True), _case(500, 9, 3, 64, 64, normed=False)],
           bench_cases=[_case(8192, 32, 8, 128, 128), _case(8192, 24, 4, 256, 64, zero_centered=True)], make_inputs=_inputs,
           outputs=lambda T, H, Hkv, D, blocks, **_: {"y": ((T, H, D), bf16), "kv": ((2, blocks, 16, Hkv, D), bf16)},
           reference=_defined,
           launch=lambda inputs, out: attention_inputs(**{**inputs, "kv": out["kv"]}, out=out["y"]),
           num_bytes=lambda T, H, Hkv, D, **_: 4 * T * (H + 2 * Hkv) * D, in_place={"kv": "kv"}, intermediate=ROUNDED_NORM),
)

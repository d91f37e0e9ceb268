"""Rotary position embedding    y1 = x1 cos - x2 sin,  y2 = x2 cos + x1 sin    for each pair of the first R elements of a head

x, y [T, H, D] bf16; cos, sin [T, R/2] f32; computed in f32, one rounding to bf16. Pair j is elements j and j + R/2
(half-split) or 2 j and 2 j + 1 (interleaved); elements from R on pass through. An angle is one f32 product,
position * inv_freq.
Order: no sums; y1 = fma(x1, cos, -(x2 sin)), y2 = fma(x2, cos, x1 sin).
Bytes: 4 T H D + 4 T R; bound by memory: the cosines of a token serve all its heads from L1.
"""

import numpy as np

from vtlite import reference
from vtlite.cuda.device import current
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (bf16, bf16x2_high, bf16x2_low, cuda, f32, f32_to_bf16x2, fma, i32, i32_to_f32, i64, load_f32x4,
                              load_u32x4, mul, ptr, select, store_f32x4, store_u32x4, u32)
from vtlite.cuda.layout import need_contiguous, vectors_between_tokens
from vtlite.elementary import cos as cosine, sin as sine
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

THREADS = 256

HEADS = 32                       # H
HEAD_DIM = 128                   # D, a multiple of 8
ROTARY = 128                     # R, a multiple of 16 (half-split) or 8 (interleaved)
SHAPE = ("HEADS", "HEAD_DIM", "ROTARY")
HALF, ANGLES = 64, 4             # R / 2; cosines and sines of a thread of their table
COMMON = [{"HEADS": h, "HEAD_DIM": d, "ROTARY": r} for h, d, r in
          ((32, 128, 128), (8, 128, 128), (9, 64, 64), (3, 64, 64), (16, 256, 64), (2, 256, 64))]


@device
def turned_first(x1, x2, cos, sin):
    return fma(x1, cos, -mul(x2, sin))


@device
def turned_second(x1, x2, cos, sin):
    return fma(x2, cos, mul(x1, sin))


@device
def turned_low_half(a, b, cos0, sin0, cos1, sin1):
    """y1 of two pairs, whose x1 are in `a` and x2 in `b`."""
    return f32_to_bf16x2(turned_first(bf16x2_low(a), bf16x2_low(b), cos0, sin0),
                         turned_first(bf16x2_high(a), bf16x2_high(b), cos1, sin1))


@device
def turned_high_half(a, b, cos0, sin0, cos1, sin1):
    """y2 of two pairs, whose x1 are in `a` and x2 in `b`."""
    return f32_to_bf16x2(turned_second(bf16x2_low(a), bf16x2_low(b), cos0, sin0),
                         turned_second(bf16x2_high(a), bf16x2_high(b), cos1, sin1))


@device
def partner(j):
    """The vector whose elements turn with those of vector j < R / 8 of a head (half-split)."""
    return select(j < u32(ROTARY // 16), j + u32(ROTARY // 16), j - u32(ROTARY // 16))


@device
def turned_half_split(a0, a1, a2, a3, b0, b1, b2, b3, j, token, cos, sin):
    """Vector j < R / 8 of a head, a, turned with its partner, b."""
    low = j < u32(ROTARY // 16)
    angle = token * u32(ROTARY // 8) + select(low, j, j - u32(ROTARY // 16)) * u32(2)
    c0, c1, c2, c3 = load_f32x4(cos, angle)
    c4, c5, c6, c7 = load_f32x4(cos, angle + u32(1))
    s0, s1, s2, s3 = load_f32x4(sin, angle)
    s4, s5, s6, s7 = load_f32x4(sin, angle + u32(1))
    if low:
        a0, a1 = turned_low_half(a0, b0, c0, s0, c1, s1), turned_low_half(a1, b1, c2, s2, c3, s3)
        a2, a3 = turned_low_half(a2, b2, c4, s4, c5, s5), turned_low_half(a3, b3, c6, s6, c7, s7)
    else:
        a0, a1 = turned_high_half(b0, a0, c0, s0, c1, s1), turned_high_half(b1, a1, c2, s2, c3, s3)
        a2, a3 = turned_high_half(b2, a2, c4, s4, c5, s5), turned_high_half(b3, a3, c6, s6, c7, s7)
    return a0, a1, a2, a3


@device
def turned_pair(a, cos, sin):
    """y1 and y2 of one pair, whose x1 and x2 are in `a`."""
    return f32_to_bf16x2(turned_first(bf16x2_low(a), bf16x2_high(a), cos, sin),
                         turned_second(bf16x2_low(a), bf16x2_high(a), cos, sin))


@kernel((ptr(bf16), ptr(f32), ptr(f32), ptr(bf16), u32, u32), threads=THREADS, constants=SHAPE, prebuild=COMMON)
def rotary_half_split_kernel(x, cos, sin, y, num_items, token_stride):
    """An item: one vector; if it turns, its partner comes from L1, where a neighbour has brought it.

    token_stride: vectors from one token of x to the next.
    """
    item = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    if item < num_items:
        head = item // u32(HEAD_DIM // 8)                                  # token * HEADS + its head
        j = item - head * u32(HEAD_DIM // 8)
        token = head // u32(HEADS)
        source = token * token_stride + (head - token * u32(HEADS)) * u32(HEAD_DIM // 8) + j
        a0, a1, a2, a3 = load_u32x4(x, source)
        if j < u32(ROTARY // 8):
            b0, b1, b2, b3 = load_u32x4(x, source - j + partner(j))
            a0, a1, a2, a3 = turned_half_split(a0, a1, a2, a3, b0, b1, b2, b3, j, token, cos, sin)
        store_u32x4(y, item, a0, a1, a2, a3)


@kernel((ptr(bf16), ptr(f32), ptr(f32), ptr(bf16), u32, u32), threads=THREADS, constants=SHAPE,
        prebuild=[{"HEADS": 128, "HEAD_DIM": 64, "ROTARY": 64}, {"HEADS": 1, "HEAD_DIM": 64, "ROTARY": 64}])
def rotary_interleaved_kernel(x, cos, sin, y, num_items, token_stride):
    """An item: one vector, four pairs. token_stride: vectors from one token of x to the next."""
    item = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    if item < num_items:
        head = item // u32(HEAD_DIM // 8)                                  # token * HEADS + its head
        j = item - head * u32(HEAD_DIM // 8)
        token = head // u32(HEADS)
        a0, a1, a2, a3 = load_u32x4(x, token * token_stride + (head - token * u32(HEADS)) * u32(HEAD_DIM // 8) + j)
        if j < u32(ROTARY // 8):
            angle = token * u32(ROTARY // 8) + j
            c0, c1, c2, c3 = load_f32x4(cos, angle)
            s0, s1, s2, s3 = load_f32x4(sin, angle)
            store_u32x4(y, item, turned_pair(a0, c0, s0), turned_pair(a1, c1, s1),
                        turned_pair(a2, c2, s2), turned_pair(a3, c3, s3))
        else:
            store_u32x4(y, item, a0, a1, a2, a3)


@device
def cos_sin_of(position, frequency, factor):
    angle = mul(position, frequency)
    return mul(cosine(angle), factor), mul(sine(angle), factor)


@kernel((ptr(i64), ptr(f32), ptr(f32), ptr(f32), f32, u32), threads=THREADS, constants=("HALF", "ANGLES"),
        prebuild=[{"HALF": half, "ANGLES": 4} for half in (32, 64)])
def rope_cos_sin_kernel(positions, inv_freq, cos, sin, factor, num_items):
    """An item: ANGLES of one token, 4 that are stored at once or 1."""
    item = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    if item < num_items:
        token = item // u32(HALF // ANGLES)
        j = item - token * u32(HALF // ANGLES)
        position = i32_to_f32(i32(positions[token]))
        if ANGLES == 4:
            f0, f1, f2, f3 = load_f32x4(inv_freq, j)
            c0, s0 = cos_sin_of(position, f0, factor)
            c1, s1 = cos_sin_of(position, f1, factor)
            c2, s2 = cos_sin_of(position, f2, factor)
            c3, s3 = cos_sin_of(position, f3, factor)
            store_f32x4(cos, item, c0, c1, c2, c3)
            store_f32x4(sin, item, s0, s1, s2, s3)
        else:
            cos[item], sin[item] = cos_sin_of(position, inv_freq[j], factor)


def rope_cos_sin(positions, inv_freq, attention_factor: float = 1.0, *, out=None):
    """positions [T] i64 below 2^20, inv_freq [R/2] f32 -> cos, sin [T, R/2] f32, times attention_factor."""
    shape = positions.size, inv_freq.size
    cos, sin = (current().empty(shape, f32), current().empty(shape, f32)) if out is None else out
    need_contiguous(positions=positions, inv_freq=inv_freq, cos=cos, sin=sin)
    angles = 1 if inv_freq.size % 4 else 4
    items = shape[0] * shape[1] // angles
    current().launch(rope_cos_sin_kernel.specialize(HALF=inv_freq.size, ANGLES=angles), -(-items // THREADS),
                     positions, inv_freq, cos, sin, attention_factor, items)
    return cos, sin


def rotary(x, cos, sin, interleaved: bool = False, *, out=None):
    """x [T, H, D] bf16, cos and sin [T, R/2] f32 with R <= D -> [T, H, D] bf16.

    x may leave gaps between tokens; out may not share memory with it.
    """
    tokens, heads, head_dim = x.shape
    rotary_dim = 2 * cos.shape[-1]
    step = 8 if interleaved else 16
    if head_dim % 8 or rotary_dim % step or not 0 < rotary_dim <= head_dim:
        raise DeviceError(f"the rotary kernel takes head_dim as a multiple of 8 and R up to it as a multiple of {step}; "
                          f"found head_dim {head_dim} and R {rotary_dim}")
    y = current().empty(x.shape, bf16) if out is None else out
    need_contiguous(cos=cos, sin=sin, out=y)
    kernel = rotary_interleaved_kernel if interleaved else rotary_half_split_kernel
    items = tokens * heads * head_dim // 8
    current().launch(kernel.specialize(HEADS=heads, HEAD_DIM=head_dim, ROTARY=rotary_dim), -(-items // THREADS),
                     x, cos, sin, y, items, vectors_between_tokens("x", x))
    return y


def _rotary_inputs(rng, T: int, H: int, D: int, R: int, interleaved: bool) -> dict:
    angle = rng.uniform(-np.pi, np.pi, (T, R // 2))
    return {"x": rng.standard_normal((T, H, D)).astype(bf16), "cos": np.cos(angle).astype(f32),
            "sin": np.sin(angle).astype(f32), "interleaved": interleaved}


def _angles(rng, T: int, R: int) -> dict:
    return {"positions": rng.choice([rng.integers(0, 100, T), rng.integers(0, 1 << 18, T)]).astype(np.int64),
            "inv_freq": (1e6 ** (-np.arange(0, R, 2) / R)).astype(f32), "attention_factor": 1.0}


def _cos_sin(positions, inv_freq, attention_factor):
    """The angle is rounded to f32 by definition; cosine and sine of it in float64."""
    angle = (positions.astype(f32)[:, None] * inv_freq.astype(f32)).astype(np.float64)
    return np.cos(angle) * attention_factor, np.sin(angle) * attention_factor


def _rotary_cases(shapes) -> list[dict]:
    return [{"T": t, "H": h, "D": d, "R": r, "interleaved": i} for t, h, d, r in shapes for i in (False, True)]


SPECS = (
    OpSpec("rope.rotary", cases=_rotary_cases([(1, 3, 64, 64), (3, 2, 32, 16), (63, 1, 16, 16)]),
           gpu_cases=_rotary_cases([(1, 32, 128, 128), (63, 16, 256, 64), (500, 9, 64, 64)]),
           bench_cases=_rotary_cases([(8192, 32, 128, 128), (8192, 16, 256, 64)]), make_inputs=_rotary_inputs,
           outputs=lambda T, H, D, **_: {"y": ((T, H, D), bf16)}, reference=reference.rotary,
           launch=lambda inputs, out: rotary(**inputs, out=out["y"]),
           num_bytes=lambda T, H, D, R, **_: 4 * T * H * D + 4 * T * R, rows=("x", "cos", "sin")),
    OpSpec("rope.cos_sin", cases=[{"T": 1, "R": 64}, {"T": 3, "R": 20}, {"T": 63, "R": 2}], gpu_cases=[{"T": 500, "R": 128}],
           bench_cases=[{"T": 131072, "R": 128}], make_inputs=_angles,
           outputs=lambda T, R: {"cos": ((T, R // 2), f32), "sin": ((T, R // 2), f32)}, reference=_cos_sin,
           launch=lambda inputs, out: rope_cos_sin(**inputs, out=(out["cos"], out["sin"])),
           num_bytes=lambda T, R: 4 * T * R + 8 * T, rows=("positions",), tolerance=4),
)

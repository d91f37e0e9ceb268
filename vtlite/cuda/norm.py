"""RMSNorm    y = x / sqrt(mean(x^2) + eps) * w,   plain, zero-centred (1 + w), after an addition, or gated by silu(z)

x, residual, z, y, h [T, D] bf16; w [D] bf16, of the gated norm f32; sums in f32, one rounding to bf16.
Order: GROUP threads share a row; thread t squares the 8 elements of vectors t, t + GROUP, ... in ascending order by fma, then
group_sum's tree (vtlite/cuda/reduction.py). GROUP follows from D: the order depends on D only.
Bytes: rms_norm 4 T D, add_rms_norm 8 T D, gated_rms_norm 6 T D, and w; bound by memory. A row stays in registers between
the sum and the scaling; w comes from L1.    Read: notebooks/03_norms.py
"""

from vtlite import reference
from vtlite.cuda.device import current
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (bf16, bf16x2_high, bf16x2_low, consteval, cuda, f32, f32_to_bf16x2, fma, load_f32x4, load_u32x4,
                              mul, ptr, select, store_u32x4, u32)
from vtlite.cuda.layout import need_contiguous, vectors_between_heads
from vtlite.cuda.reduction import group_sum
from vtlite.elementary import rsqrt, silu
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

HIDDEN = 4096                    # D, a multiple of 8
GROUP = 128                      # threads per row
VECTORS = 4                      # 16-byte vectors of a row per thread
ROWS = 1                         # rows per block
ZERO_CENTERED = False

THREADS = 128                    # per block, where a row needs no more
LAYOUT = ("HIDDEN", "GROUP", "VECTORS", "ROWS")


def layout(hidden: int) -> dict[str, int]:
    """The constants for rows of D = `hidden`: at most four vectors per thread."""
    if hidden % 8 or not 0 < hidden <= 32768:
        raise DeviceError(f"the norm kernels take rows of 8 to 32768 elements, a multiple of 8; found {hidden}")
    vectors = hidden // 8
    group = 1 << (-(-vectors // 4) - 1).bit_length()
    return {"HIDDEN": hidden, "GROUP": group, "VECTORS": -(-vectors // group), "ROWS": max(1, THREADS // group)}


PREBUILT = [{**layout(hidden), "ZERO_CENTERED": zero_centered} for zero_centered, sizes in (
    (False, (64, 128, 576, 960, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 7168, 8192)),
    (True, (64, 256, 1024, 2048, 2560, 4096, 5120))) for hidden in sizes]


@device
def first_vector(row, heads, token_stride, head_stride):
    """Of a row: head row % heads of token row // heads."""
    token = row // heads
    return token * token_stride + (row - token * heads) * head_stride


@device
def load_vector(p, start, column, first):
    """Vector `column` of the row whose first vector is `start`; beyond the row's end vector `first`, which must not count."""
    return load_u32x4(p, start + select(column < u32(HIDDEN // 8), column, first))


@device
def add_squares(word, total):
    """total + low^2 + high^2 for a pair of bf16."""
    total = fma(bf16x2_low(word), bf16x2_low(word), total)
    return fma(bf16x2_high(word), bf16x2_high(word), total)


@device
def reciprocal_rms(total, eps):
    """1 / sqrt(total / D + eps)."""
    return rsqrt(mul(total, f32(1.0 / HIDDEN)) + eps)


@device
def scaled(word, weight, inverse):
    """x * inverse * weight for a pair of x and a pair of weights, as a pair."""
    low, high = bf16x2_low(weight), bf16x2_high(weight)
    if ZERO_CENTERED:
        low, high = low + f32(1), high + f32(1)
    return f32_to_bf16x2(mul(mul(bf16x2_low(word), inverse), low), mul(mul(bf16x2_high(word), inverse), high))


@device
def scaled_and_gated(word, gate, low_weight, high_weight, inverse):
    """x * inverse * weight * silu(z) for a pair of x, a pair of z and two f32 weights, as a pair."""
    low = mul(mul(bf16x2_low(word), inverse), low_weight)
    high = mul(mul(bf16x2_high(word), inverse), high_weight)
    return f32_to_bf16x2(mul(low, silu(bf16x2_low(gate))), mul(high, silu(bf16x2_high(gate))))


@device
def added(word, other):
    """The sum of two pairs, rounded to a pair."""
    return f32_to_bf16x2(bf16x2_low(word) + bf16x2_low(other), bf16x2_high(word) + bf16x2_high(other))


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), f32, u32, u32, u32, u32), threads=lambda GROUP, ROWS, **_: GROUP * ROWS,
        constants=(*LAYOUT, "ZERO_CENTERED"), prebuild=PREBUILT)
def rms_norm_kernel(x, weight, y, eps, num_rows, heads, token_stride, head_stride):
    """heads: rows per token. Strides: vectors from one token, and one head, of x to the next."""
    tid = u32(cuda.threadIdx.x)
    row = u32(cuda.blockIdx.x) * u32(ROWS) + tid // u32(GROUP)
    start, first = first_vector(row, heads, token_stride, head_stride), tid & u32(GROUP - 1)
    words, weights = cuda.local.array((VECTORS, 4), u32), cuda.local.array((VECTORS, 4), u32)
    partial, total = cuda.shared.array(32, f32), f32(0)
    for v in consteval(range(VECTORS)):                                    # all loads first: 32 VECTORS bytes in flight
        weights[v, 0], weights[v, 1], weights[v, 2], weights[v, 3] = load_vector(weight, u32(0), first + u32(v * GROUP), first)
    if row < num_rows:
        for v in consteval(range(VECTORS)):
            words[v, 0], words[v, 1], words[v, 2], words[v, 3] = load_vector(x, start, first + u32(v * GROUP), first)
        for v in consteval(range(VECTORS)):
            if first + u32(v * GROUP) < u32(HIDDEN // 8):
                for i in consteval(range(4)):
                    total = add_squares(words[v, i], total)
    inverse = reciprocal_rms(group_sum(total, partial), eps)
    for v in consteval(range(VECTORS)):
        column = first + u32(v * GROUP)
        if row < num_rows and column < u32(HIDDEN // 8):
            store_u32x4(y, row * u32(HIDDEN // 8) + column,
                        scaled(words[v, 0], weights[v, 0], inverse), scaled(words[v, 1], weights[v, 1], inverse),
                        scaled(words[v, 2], weights[v, 2], inverse), scaled(words[v, 3], weights[v, 3], inverse))


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), ptr(bf16), ptr(bf16), f32, u32), threads=lambda GROUP, ROWS, **_: GROUP * ROWS,
        constants=(*LAYOUT, "ZERO_CENTERED"), prebuild=PREBUILT)
def add_rms_norm_kernel(x, residual, weight, y, h, eps, num_rows):
    tid = u32(cuda.threadIdx.x)
    row = u32(cuda.blockIdx.x) * u32(ROWS) + tid // u32(GROUP)
    start, first = row * u32(HIDDEN // 8), tid & u32(GROUP - 1)
    words, others = cuda.local.array((VECTORS, 4), u32), cuda.local.array((VECTORS, 4), u32)
    partial, total = cuda.shared.array(32, f32), f32(0)
    if row < num_rows:
        for v in consteval(range(VECTORS)):
            column = first + u32(v * GROUP)
            words[v, 0], words[v, 1], words[v, 2], words[v, 3] = load_vector(x, start, column, first)
            others[v, 0], others[v, 1], others[v, 2], others[v, 3] = load_vector(residual, start, column, first)
        for v in consteval(range(VECTORS)):
            if first + u32(v * GROUP) < u32(HIDDEN // 8):
                for i in consteval(range(4)):
                    words[v, i] = added(words[v, i], others[v, i])
                    total = add_squares(words[v, i], total)
    inverse = reciprocal_rms(group_sum(total, partial), eps)
    for v in consteval(range(VECTORS)):
        column = first + u32(v * GROUP)
        if row < num_rows and column < u32(HIDDEN // 8):
            w0, w1, w2, w3 = load_u32x4(weight, column)
            store_u32x4(h, start + column, words[v, 0], words[v, 1], words[v, 2], words[v, 3])
            store_u32x4(y, start + column, scaled(words[v, 0], w0, inverse), scaled(words[v, 1], w1, inverse),
                        scaled(words[v, 2], w2, inverse), scaled(words[v, 3], w3, inverse))


@kernel((ptr(bf16), ptr(bf16), ptr(f32), ptr(bf16), f32, u32, u32, u32, u32), threads=lambda GROUP, ROWS, **_: GROUP * ROWS,
        constants=LAYOUT, prebuild=[layout(64), layout(128)])
def gated_rms_norm_kernel(x, z, weight, y, eps, num_rows, heads, token_stride, head_stride):
    """heads: rows per token. Strides: vectors from one token, and one head, of z to the next."""
    tid = u32(cuda.threadIdx.x)
    row = u32(cuda.blockIdx.x) * u32(ROWS) + tid // u32(GROUP)
    start, first = row * u32(HIDDEN // 8), tid & u32(GROUP - 1)
    z_start = first_vector(row, heads, token_stride, head_stride)
    words, gates = cuda.local.array((VECTORS, 4), u32), cuda.local.array((VECTORS, 4), u32)
    partial, total = cuda.shared.array(32, f32), f32(0)
    if row < num_rows:
        for v in consteval(range(VECTORS)):
            column = first + u32(v * GROUP)
            words[v, 0], words[v, 1], words[v, 2], words[v, 3] = load_vector(x, start, column, first)
            gates[v, 0], gates[v, 1], gates[v, 2], gates[v, 3] = load_vector(z, z_start, column, first)
        for v in consteval(range(VECTORS)):
            if first + u32(v * GROUP) < u32(HIDDEN // 8):
                for i in consteval(range(4)):
                    total = add_squares(words[v, i], total)
    inverse = reciprocal_rms(group_sum(total, partial), eps)
    for v in consteval(range(VECTORS)):
        column = first + u32(v * GROUP)
        if row < num_rows and column < u32(HIDDEN // 8):
            w0, w1, w2, w3 = load_f32x4(weight, column * u32(2))
            w4, w5, w6, w7 = load_f32x4(weight, column * u32(2) + u32(1))
            store_u32x4(y, start + column, scaled_and_gated(words[v, 0], gates[v, 0], w0, w1, inverse),
                        scaled_and_gated(words[v, 1], gates[v, 1], w2, w3, inverse),
                        scaled_and_gated(words[v, 2], gates[v, 2], w4, w5, inverse),
                        scaled_and_gated(words[v, 3], gates[v, 3], w6, w7, inverse))


def rms_norm(x, weight, eps: float, zero_centered: bool = False, *, out=None):
    """x [T, D] or [T, H, D] bf16, weight [D] bf16 -> the same shape, bf16; the mean is over D.

    x may leave gaps between tokens and between heads.
    """
    y = current().empty(x.shape, bf16) if out is None else out
    need_contiguous(weight=weight, out=y)
    constants, rows, grid = _rows(x)
    current().launch(rms_norm_kernel.specialize(**constants, ZERO_CENTERED=zero_centered), grid,
                     x, weight, y, eps, rows, *vectors_between_heads("x", x))
    return y


def add_rms_norm(x, residual, weight, eps: float, zero_centered: bool = False, *, out=None):
    """x, residual [..., D] bf16, weight [D] bf16 -> (y, h) [..., D] bf16: h = x + residual, and y its norm.

    In `out`, h may be residual.
    """
    y, h = (current().empty(x.shape, bf16), current().empty(x.shape, bf16)) if out is None else out
    need_contiguous(x=x, residual=residual, weight=weight, y=y, h=h)
    constants, rows, grid = _rows(x)
    current().launch(add_rms_norm_kernel.specialize(**constants, ZERO_CENTERED=zero_centered), grid,
                     x, residual, weight, y, h, eps, rows)
    return y, h


def gated_rms_norm(x, z, weight, eps: float, *, out=None):
    """x, z [T, D] or [T, H, D] bf16, weight [D] f32 -> the same shape, bf16: the norm of x times silu(z).

    z may leave gaps between tokens and between heads.
    """
    y = current().empty(x.shape, bf16) if out is None else out
    need_contiguous(x=x, weight=weight, out=y)
    constants, rows, grid = _rows(x)
    current().launch(gated_rms_norm_kernel.specialize(**constants), grid, x, z, weight, y, eps, rows,
                     *vectors_between_heads("z", z))
    return y


def _rows(x) -> tuple[dict, int, int]:
    """Constants, number of rows and grid for x."""
    constants = layout(x.shape[-1])
    rows = x.size // x.shape[-1]
    return constants, rows, -(-rows // constants["ROWS"])


def _inputs(*names: str, weight_dtype=bf16):
    """make_inputs for activations of these names and a weight."""
    def make(rng, T: int, D: int, zero_centered: bool | None = None) -> dict:
        activations = {name: (rng.standard_normal((T, D)) * rng.choice([0.1, 1, 10], (T, 1))).astype(bf16) for name in names}
        weight = rng.standard_normal(D) * 0.2 + (0 if zero_centered else 1)
        options = {} if zero_centered is None else {"zero_centered": zero_centered}
        return {**activations, "weight": weight.astype(weight_dtype), "eps": 1e-6, **options}

    return make


def _added(x, residual, weight, eps, zero_centered):
    """add_rms_norm in float64, but for the rounding of h that belongs to the definition."""
    h = (x + residual).astype(f32).astype(bf16).astype(x.dtype)
    return reference.rms_norm(h, weight, eps, zero_centered), h


_EMULATED = [(1, 576), (3, 256), (5, 24), (63, 8), (2, 2048)]
_REAL = [(1, 4096), (3, 5120), (63, 2048), (500, 128), (500, 576), (7, 8192), (2, 32768)]
_BIG = [(8192, 4096), (4096, 8192), (262144, 128)]


def _sizes(pairs, **options) -> list[dict]:
    return [{"T": t, "D": d, **options} for t, d in pairs]


def _both(pairs) -> list[dict]:
    return _sizes(pairs, zero_centered=False) + _sizes(pairs[:2], zero_centered=True)


SPECS = (
    OpSpec("norm.rms_norm", cases=_both(_EMULATED), gpu_cases=_both(_REAL), bench_cases=_sizes(_BIG, zero_centered=False),
           make_inputs=_inputs("x"), outputs=lambda T, D, **_: {"y": ((T, D), bf16)}, reference=reference.rms_norm,
           launch=lambda inputs, out: rms_norm(**inputs, out=out["y"]),
           num_bytes=lambda T, D, **_: 4 * T * D + 2 * D, rows=("x",)),
    OpSpec("norm.add_rms_norm", cases=_both(_EMULATED), gpu_cases=_both(_REAL), bench_cases=_sizes(_BIG, zero_centered=False),
           make_inputs=_inputs("x", "residual"), outputs=lambda T, D, **_: {"y": ((T, D), bf16), "h": ((T, D), bf16)},
           reference=_added, launch=lambda inputs, out: add_rms_norm(**inputs, out=(out["y"], out["h"])),
           num_bytes=lambda T, D, **_: 8 * T * D + 2 * D, rows=("x", "residual")),
    OpSpec("norm.gated_rms_norm", cases=_sizes(_EMULATED[1:4]), gpu_cases=_sizes([(1, 128), (63, 128), (500, 256)]),
           bench_cases=_sizes([(262144, 128)]), make_inputs=_inputs("x", "z", weight_dtype=f32),
           outputs=lambda T, D: {"y": ((T, D), bf16)}, reference=reference.gated_rms_norm,
           launch=lambda inputs, out: gated_rms_norm(**inputs, out=out["y"]),
           num_bytes=lambda T, D: 6 * T * D + 4 * D, rows=("x", "z")),
)

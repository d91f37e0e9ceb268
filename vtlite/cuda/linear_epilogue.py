"""What the linear kernels do with the sums of two neighbouring outputs, once, after the chain.

plain    y = sum + bias + residual        in f32, in this order; then one rounding to bf16, or none for f32
gated    y = silu(bf16(gate)) * bf16(up)  gate, up = sums + bias; silu and product in f32, one rounding to bf16: the bits of a
                                          plain linear followed by silu_and_mul

`flags` says which parts there are. y is passed as u16, whatever it holds. Columns past N and tokens past T are computed by
the kernels and dropped here.
"""

from vtlite.cuda.activation import activated
from vtlite.cuda.kernel import device
from vtlite.cuda.lang import as_u32, bf16_to_f32, bf16x2_high, bf16x2_low, f32_to_bf16x2, load_u32, store_u32, store_u32x2, u16, u32

HAS_BIAS, HAS_RESIDUAL, OUT_F32 = 1, 2, 4


@device
def load_pair(p, at, both, aligned):
    """Elements at, at + 1 of a bf16 array as f32; the second is not read unless `both` exist. `aligned`: `at` is even."""
    if aligned:
        pair = load_u32(p, at >> u32(1))
        return bf16x2_low(pair), bf16x2_high(pair)
    first = bf16_to_f32(p[at])
    second = first
    if both:
        second = bf16_to_f32(p[at + u32(1)])
    return first, second


@device
def store_bf16_pair(y, at, pair, both, aligned):
    if aligned:
        store_u32(y, at >> u32(1), pair)
    else:
        y[at] = u16(pair & u32(0xFFFF))
        if both:
            y[at + u32(1)] = u16(pair >> u32(16))


@device
def store_f32_pair(y, at, first, second, both, aligned):
    if aligned:
        store_u32x2(y, at >> u32(1), as_u32(first), as_u32(second))
    else:
        store_u32(y, at, as_u32(first))
        if both:
            store_u32(y, at + u32(1), as_u32(second))


@device
def biased(first, second, bias, row, both, aligned, flags):
    """The sums of weight rows row, row + 1 with their bias."""
    if flags & u32(HAS_BIAS):
        b0, b1 = load_pair(bias, row, both, aligned)
        first, second = first + b0, second + b1
    return first, second


@device
def write_plain(y, bias, residual, token, column, T, N, flags, first, second):
    """y[token, column], y[token, column + 1] from their sums; column is even."""
    if token < T and column < N:
        both, aligned = column + u32(1) < N, N & u32(1) == u32(0)
        at = token * N + column
        first, second = biased(first, second, bias, column, both, aligned, flags)
        if flags & u32(HAS_RESIDUAL):
            r0, r1 = load_pair(residual, at, both, aligned)
            first, second = first + r0, second + r1
        if flags & u32(OUT_F32):
            store_f32_pair(y, at, first, second, both, aligned)
        else:
            store_bf16_pair(y, at, f32_to_bf16x2(first, second), both, aligned)


@device
def write_gated(y, bias, token, column, T, N, flags, gate0, gate1, up0, up1):
    """The same from the sums of gate and up; the bias holds that of all gates, then that of all ups."""
    if token < T and column < N:
        both, aligned = column + u32(1) < N, N & u32(1) == u32(0)
        gate0, gate1 = biased(gate0, gate1, bias, column, both, aligned, flags)
        up0, up1 = biased(up0, up1, bias, N + column, both, aligned, flags)
        pair = activated(f32_to_bf16x2(gate0, gate1), f32_to_bf16x2(up0, up1))
        store_bf16_pair(y, token * N + column, pair, both, aligned)

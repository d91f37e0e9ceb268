"""A probe of arithmetic: every primitive that computes on values, and every elementary function, on one set of numbers.

x, y, z [N] f32, a, b [N] u32 -> out [N, len(RESULTS)] u32: bit patterns. One thread per number, no reduction. What a GPU writes is
what the emulator writes, but for the bits of NaNs: tests/cuda/test_probes.py. (needs sm_89, for the conversions to fp8)
"""

from vtlite.cuda.device import current
from vtlite.cuda.kernel import kernel
from vtlite.cuda.lang import (as_f32, as_i32, as_u32, bf16_to_f32, bf16x2_high, bf16x2_low, byte_permute, clz, cuda, div,
                              e2m1x2_to_f16x2, e4m3x2_to_f16x2, e5m2x2_to_f16x2, f16_to_f32, f16x2_high, f16x2_low, f32,
                              f32_to_bf16, f32_to_bf16x2, f32_to_e4m3x2, f32_to_e5m2x2, f32_to_f16, f32_to_f16x2, f32_to_i32_rn,
                              f32_to_i32_rz, f32_to_u32_rz, fabs, floor, fma, fmax, fmin, i32, i32_to_f32, mul, mul_hi_u32,
                              mul_lo_u32, popc, ptr, rotl_u32, select, sqrt, u16, u32, u32_as_f32, u32_to_f32)
from vtlite.elementary import cos, exp, exp2, gelu_tanh, log, log1p, rsqrt, sigmoid, silu, sin, softmax_exp2, softplus, tanh

THREADS = 128
FLOATS = ("x * y + z", "x * y - z", "-x", "fma", "mul", "div", "sqrt", "floor", "fabs", "fmax", "fmin", "select", "as_f32", "i32_to_f32",
          "u32_to_f32", "u32_as_f32", "bf16_to_f32", "bf16x2_low", "bf16x2_high", "f16_to_f32", "f16x2_low", "f16x2_high", "exp", "exp2",
          "log", "log1p", "sigmoid", "silu", "gelu_tanh", "softplus", "rsqrt", "sin", "cos",
          "softmax_exp2", "tanh")
INTEGERS = ("a + b", "a - b", "a * b", "a << 5", "a >> b % 32", "i32(a) >> 5", "i32 + i32", "i32 * i32", "a // 7", "a % 7", "a ^ ~b",
            "a < b", "i32(a) < i32(b)", "x < y", "x != x", "as_i32", "as_u32", "f32_to_i32_rn", "f32_to_i32_rz", "f32_to_u32_rz",
            "mul_hi_u32", "mul_lo_u32", "rotl_u32", "byte_permute", "popc", "clz")
NARROW = ("f32_to_bf16", "f32_to_bf16x2", "f32_to_f16", "f32_to_f16x2", "f32_to_e4m3x2", "e4m3x2_to_f16x2", "f32_to_e5m2x2",
          "e5m2x2_to_f16x2", "e2m1x2_to_f16x2")
RESULTS = FLOATS + INTEGERS + NARROW
COUNT = len(RESULTS)
SPECS = ()


@kernel((ptr(f32), ptr(f32), ptr(f32), ptr(u32), ptr(u32), ptr(u32), u32), threads=THREADS, needs="sm_89")
def arithmetic_kernel(xs, ys, zs, a_values, b_values, out, count):
    i = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    if i < count:
        x, y, z, a, b = xs[i], ys[i], zs[i], a_values[i], b_values[i]
        at = floats(out, i * COUNT, x, y, z, a)
        at = integers(out, at, x, y, a, b)
        narrow(out, at, x, y, a)


def put(out, at, value):
    out[at] = value
    return at + 1


def floats(out, at, x, y, z, a):
    at = put(out, at, as_u32(x * y + z))
    at = put(out, at, as_u32(x * y - z))
    at = put(out, at, as_u32(-x))
    at = put(out, at, as_u32(fma(x, y, z)))
    at = put(out, at, as_u32(mul(x, y)))
    at = put(out, at, as_u32(div(x, y)))
    at = put(out, at, as_u32(sqrt(x)))
    at = put(out, at, as_u32(floor(x)))
    at = put(out, at, as_u32(fabs(x)))
    at = put(out, at, as_u32(fmax(x, y)))
    at = put(out, at, as_u32(fmin(x, y)))
    at = put(out, at, as_u32(select(x < y, x, y)))
    at = put(out, at, as_u32(as_f32(i32(a))))
    at = put(out, at, as_u32(i32_to_f32(i32(a))))
    at = put(out, at, as_u32(u32_to_f32(a)))
    at = put(out, at, as_u32(u32_as_f32(a)))
    at = put(out, at, as_u32(bf16_to_f32(u16(a))))
    at = put(out, at, as_u32(bf16x2_low(a)))
    at = put(out, at, as_u32(bf16x2_high(a)))
    at = put(out, at, as_u32(f16_to_f32(u16(a))))
    at = put(out, at, as_u32(f16x2_low(a)))
    at = put(out, at, as_u32(f16x2_high(a)))
    at = put(out, at, as_u32(exp(x)))
    at = put(out, at, as_u32(exp2(x)))
    at = put(out, at, as_u32(log(x)))
    at = put(out, at, as_u32(log1p(fabs(x))))
    at = put(out, at, as_u32(sigmoid(x)))
    at = put(out, at, as_u32(silu(x)))
    at = put(out, at, as_u32(gelu_tanh(x)))
    at = put(out, at, as_u32(softplus(x)))
    at = put(out, at, as_u32(rsqrt(x)))
    bounded = fmin(fmax(x, f32(-1048576.0)), f32(1048576.0))
    at = put(out, at, as_u32(sin(bounded)))
    at = put(out, at, as_u32(cos(bounded)))
    at = put(out, at, as_u32(softmax_exp2(select(x < f32(127.0), x, f32(0)))))
    return put(out, at, as_u32(tanh(x)))


def integers(out, at, x, y, a, b):
    at = put(out, at, a + b)
    at = put(out, at, a - b)
    at = put(out, at, a * b)
    at = put(out, at, a << 5)
    at = put(out, at, a >> (b & 31))
    at = put(out, at, u32(i32(a) >> 5))
    at = put(out, at, u32(i32(a) + i32(b)))
    at = put(out, at, u32(i32(a) * i32(b)))
    at = put(out, at, a // 7)
    at = put(out, at, a % 7)
    at = put(out, at, a ^ ~b)
    at = put(out, at, select(a < b, u32(1), u32(0)))
    at = put(out, at, select(i32(a) < i32(b), u32(1), u32(0)))
    at = put(out, at, select(x < y, u32(1), u32(0)))
    at = put(out, at, select(x != x, u32(1), u32(0)))
    at = put(out, at, u32(as_i32(x)))
    at = put(out, at, as_u32(x))
    at = put(out, at, u32(f32_to_i32_rn(x)))
    at = put(out, at, u32(f32_to_i32_rz(x)))
    at = put(out, at, f32_to_u32_rz(x))
    at = put(out, at, mul_hi_u32(a, b))
    at = put(out, at, mul_lo_u32(a, b))
    at = put(out, at, rotl_u32(a, b))
    at = put(out, at, byte_permute(a, b, b & 0x7777))
    at = put(out, at, popc(a))
    return put(out, at, clz(a))


def narrow(out, at, x, y, a):
    at = put(out, at, u32(f32_to_bf16(x)))
    at = put(out, at, f32_to_bf16x2(x, y))
    at = put(out, at, u32(f32_to_f16(x)))
    at = put(out, at, f32_to_f16x2(x, y))
    at = put(out, at, u32(f32_to_e4m3x2(x, y)))
    at = put(out, at, e4m3x2_to_f16x2(u16(a)))
    at = put(out, at, u32(f32_to_e5m2x2(x, y)))
    at = put(out, at, e5m2x2_to_f16x2(u16(a)))
    put(out, at, e2m1x2_to_f16x2(a))


def arithmetic(x, y, z, a, b):
    """x, y, z [N] f32 and a, b [N] u32 on the device -> [N, COUNT] u32, the columns in the order of RESULTS."""
    out = current().empty((x.size, COUNT), u32)
    current().launch(arithmetic_kernel.specialize(), -(-x.size // THREADS), x, y, z, a, b, out, x.size)
    return out

"""Arithmetic with one defined result, and bit casts. Every operation is IEEE 754, rounded to nearest even unless it says so.

`+` and `-` on f32 are add.rn and sub.rn. `a * b + c` is two roundings on the GPU too, for the compiler is kept from fusing;
fma(a, b, c) is the one way to fuse. Integers: see the package's docstring.
"""

import numpy as np

from vtlite import ieee
from vtlite.cuda.lang.primitive import compiled_as, primitive
from vtlite.cuda.lang.types import f32, i32, u32
from vtlite.ieee import as_f32, as_i32, div, fma, i32_to_f32, maximum, mul, select, sqrt

primitive("fma.rn.f32 $0, $a, $b, $c;", outputs="f", inputs="fff", pure=True)(fma)
primitive("mul.rn.f32 $0, $a, $b;", outputs="f", inputs="ff", pure=True)(mul)
primitive("div.rn.f32 $0, $a, $b;", outputs="f", inputs="ff", pure=True)(div)
primitive("sqrt.rn.f32 $0, $a;", outputs="f", inputs="f", pure=True)(sqrt)
primitive("max.NaN.f32 $0, $a, $b;", outputs="f", inputs="ff", pure=True)(maximum)
primitive("mov.b32 $0, $x;", outputs="i", inputs="f", pure=True)(as_i32)
primitive("mov.b32 $0, $x;", outputs="f", inputs="i", pure=True)(as_f32)
primitive("cvt.rn.f32.s32 $0, $x;", outputs="f", inputs="i", pure=True)(i32_to_f32)


@compiled_as(ieee.select)
def _select(condition, a, b):
    return a if condition else b


@primitive("mov.b32 $0, $x;", outputs="u", inputs="u")
def anew(x):
    """x, a u32, itself (PTX: a mov that may not be moved). The compiler takes it for another number: what follows from it is
    computed where it stands, instead of before a loop that then has to keep it in registers."""
    return x


@primitive("mov.b32 $0, $x;", outputs="u", inputs="f", pure=True)
def as_u32(x):
    """The bits of an f32 as a u32 (CUDA: __float_as_uint)."""
    return f32(x).view(u32)


@primitive("mov.b32 $0, $x;", outputs="f", inputs="u", pure=True)
def u32_as_f32(x):
    """The bits of a u32 as an f32 (CUDA: __uint_as_float)."""
    return u32(x).view(f32)


@primitive("cvt.rn.f32.u32 $0, $x;", outputs="f", inputs="u", pure=True)
def u32_to_f32(x):
    """Nearest f32 of a u32 (CUDA: __uint2float_rn)."""
    return f32(u32(x))


def _to_integer(x, rounded, low: int, high: int) -> int:
    return 0 if np.isnan(x) else int(min(max(rounded(np.float64(x)), low), high))


@primitive("cvt.rni.s32.f32 $0, $x;", outputs="i", inputs="f", pure=True)
def f32_to_i32_rn(x):
    """Nearest i32, ties to even, saturating; 0 for NaN (CUDA: __float2int_rn)."""
    return i32(_to_integer(x, np.rint, -(1 << 31), (1 << 31) - 1))


@primitive("cvt.rzi.s32.f32 $0, $x;", outputs="i", inputs="f", pure=True)
def f32_to_i32_rz(x):
    """i32 truncated towards zero, saturating; 0 for NaN (CUDA: __float2int_rz)."""
    return i32(_to_integer(x, np.trunc, -(1 << 31), (1 << 31) - 1))


@primitive("cvt.rzi.u32.f32 $0, $x;", outputs="u", inputs="f", pure=True)
def f32_to_u32_rz(x):
    """u32 truncated towards zero, saturating; 0 for NaN (CUDA: __float2uint_rz)."""
    return u32(_to_integer(x, np.trunc, 0, (1 << 32) - 1))


@primitive("cvt.rmi.f32.f32 $0, $x;", outputs="f", inputs="f", pure=True)
def floor(x):
    """Largest integer <= x, as an f32 (CUDA: floorf)."""
    return np.floor(f32(x))


@primitive("abs.f32 $0, $x;", outputs="f", inputs="f", pure=True)
def fabs(x):
    """|x| (CUDA: fabsf)."""
    return np.abs(f32(x))


@primitive("max.f32 $0, $a, $b;", outputs="f", inputs="ff", pure=True)
def fmax(a, b):
    """The larger; the number if the other is NaN; +0 > -0 (CUDA: fmaxf)."""
    if a != a or b != b:
        return f32(b) if a != a else f32(a)               # NumPy's own makes NaN of a signalling one
    return f32(0.0) if a == 0 and b == 0 and not (np.signbit(a) and np.signbit(b)) else np.fmax(f32(a), f32(b))


@primitive("min.f32 $0, $a, $b;", outputs="f", inputs="ff", pure=True)
def fmin(a, b):
    """The smaller; the number if the other is NaN; -0 < +0 (CUDA: fminf)."""
    if a != a or b != b:
        return f32(b) if a != a else f32(a)
    return f32(-0.0) if a == 0 and b == 0 and (np.signbit(a) or np.signbit(b)) else np.fmin(f32(a), f32(b))


@primitive("mul.hi.u32 $0, $a, $b;", outputs="u", inputs="uu", pure=True)
def mul_hi_u32(a, b):
    """High 32 bits of the 64-bit product of two u32 (CUDA: __umulhi)."""
    return u32(int(u32(a)) * int(u32(b)) >> 32)


@primitive("mul.lo.u32 $0, $a, $b;", outputs="u", inputs="uu", pure=True)
def mul_lo_u32(a, b):
    """Low 32 bits of the product of two u32 (CUDA: a * b)."""
    return u32(int(u32(a)) * int(u32(b)) & 0xFFFFFFFF)


@primitive("shf.l.wrap.b32 $0, $x, $x, $n;", outputs="u", inputs="uu", pure=True)
def rotl_u32(x, n):
    """A u32 rotated left by n modulo 32 (CUDA: __funnelshift_l(x, x, n))."""
    return u32((int(u32(x)) << (int(n) & 31) | int(u32(x)) >> (32 - (int(n) & 31))) & 0xFFFFFFFF)


@primitive("prmt.b32 $0, $a, $b, $selector;", outputs="u", inputs="uuu", pure=True)
def byte_permute(a, b, selector):
    """Byte k of the result is byte (selector >> 4 k) & 7 of the eight bytes of a (0-3) and b (4-7) (CUDA: __byte_perm)."""
    pool = int(u32(a)) | int(u32(b)) << 32
    return u32(sum((pool >> 8 * (int(selector) >> 4 * k & 7) & 0xFF) << 8 * k for k in range(4)))

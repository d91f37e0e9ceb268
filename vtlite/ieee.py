"""IEEE 754 operations with one defined result, on NumPy scalars and arrays alike.

Everything bit-exact in vtlite is written in terms of these, `+` and `-`. Their meaning here is what a kernel's
instruction of the same name computes, so what runs on NumPy gives the bits of the GPU. (leaf)
"""

import numpy as np

f32, i32 = np.float32, np.int32


def fma(a, b, c):
    """a * b + c rounded once, f32 (PTX fma.rn.f32).

    The product is exact in float64. The sum is taken there rounded to odd, which makes the second rounding, to f32,
    the right one (Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums: proved algorithms
    using rounding to odd").
    """
    with np.errstate(invalid="ignore", over="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        total = np.add(product, c, dtype=np.float64)
        rest = total - product
        error = (product - (total - rest)) + np.subtract(c, rest, dtype=np.float64)      # total + error is the exact sum
        bits = total.view(np.int64)
        even_and_inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
        towards = np.where((error > 0) == (total > 0), 1, -1)
        odd = np.where(even_and_inexact, bits + towards, bits).view(np.float64)
        return odd.astype(f32)[()]


def mul(a, b):
    """a * b rounded, f32, never fused with an addition (PTX mul.rn.f32)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.multiply(a, b, dtype=f32)


def div(a, b):
    """a / b rounded, f32 (PTX div.rn.f32)."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return np.divide(a, b, dtype=f32)


def sqrt(a):
    """Square root rounded, f32 (PTX sqrt.rn.f32)."""
    with np.errstate(invalid="ignore"):
        return np.sqrt(a, dtype=f32)


def maximum(a, b):
    """The larger; NaN if either is NaN; of two zeros either one (PTX max.NaN.f32)."""
    return np.maximum(a, b, dtype=f32)


def select(condition, a, b):
    """a where the condition holds, else b (PTX selp)."""
    return np.where(condition, a, b)[()]


def as_i32(x):
    """The bits of an f32 as an i32 (PTX mov.b32)."""
    return np.asarray(x, f32).view(i32)[()]


def as_f32(x):
    """The bits of an i32 as an f32 (PTX mov.b32)."""
    return np.asarray(x, i32).view(f32)[()]


def i32_to_f32(x):
    """Nearest f32 of an i32 (PTX cvt.rn.f32.s32)."""
    return np.asarray(x, i32).astype(f32)[()]

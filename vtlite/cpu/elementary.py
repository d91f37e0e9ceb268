"""exp, sin and cos made of IEEE operations only: the same bits on every machine, alone or inside a vector loop.

A C library's or NumPy's versions differ from machine to machine. These are plain scalar code: LLVM may run eight of
them side by side, which changes no bit because nothing is reassociated.
"""

import numpy as np
from numba import njit

from vtlite.cpu.simd import fma

_f32, _i32 = np.float32, np.int32

LOG2_E = _f32(1.4426950408889634)
LN2_HIGH, LN2_LOW = _f32(0.693359375), _f32(-2.12194440e-4)      # n * LN2_HIGH is exact for |n| < 2^15
ROUND = _f32(1.5 * 2**23)                                        # adding it leaves the nearest integer in the low bits
ROUND_BITS = ROUND.view(_i32)
EXP_LOWEST, EXP_HIGHEST = _f32(-105), _f32(89)                   # beyond these: 0 and inf

TWO_OVER_PI = 0.6366197723675814
PI_2_HIGH, PI_2_LOW = 1.5707963267948966, 6.123233995736766e-17  # their sum is pi / 2 to 107 bits
ROUND_64 = 1.5 * 2.0**52


@njit(inline="always")
def exp(x):
    """e^x for float32, within 1 ulp; 0 below -104, inf above 88.8, exp(0) = 1, NaN stays.

    x = n ln 2 + r with |r| <= ln 2 / 2; the Taylor series of e^r to r^7; 2^n in two factors, so that results below
    the normal range are rounded once.
    """
    x = EXP_LOWEST if x < EXP_LOWEST else EXP_HIGHEST if x > EXP_HIGHEST else x
    shifted = fma(x, LOG2_E, ROUND)
    n = shifted - ROUND
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    p = fma(r, _f32(1 / 5040), _f32(1 / 720))
    p = fma(p, r, _f32(1 / 120))
    p = fma(p, r, _f32(1 / 24))
    p = fma(p, r, _f32(1 / 6))
    p = fma(p, r, _f32(0.5))
    p = fma(p, r, _f32(1))
    p = fma(p, r, _f32(1))
    exponent = np.float32(shifted).view(_i32) - ROUND_BITS
    half = exponent >> _i32(1)
    return p * _power_of_two(half) * _power_of_two(exponent - half)


@njit(inline="always")
def _power_of_two(n):
    """2^n for int32 -127 < n < 128."""
    return np.int32((n + _i32(127)) << _i32(23)).view(_f32)


@njit(inline="always")
def cos_sin(angle):
    """(cos, sin) of a float32 angle in radians, |angle| < 2^30, both rounded once from float64.

    angle = q pi/2 + r with |r| <= pi/4; the Taylor series of sin r to r^13 and cos r to r^14; q picks and signs.
    """
    x = np.float64(angle)
    q = fma(x, TWO_OVER_PI, ROUND_64) - ROUND_64
    r = fma(q, -PI_2_LOW, fma(q, -PI_2_HIGH, x))
    r2 = r * r
    s = fma(r2, 1 / 6227020800, -1 / 39916800)
    s = fma(s, r2, 1 / 362880)
    s = fma(s, r2, -1 / 5040)
    s = fma(s, r2, 1 / 120)
    s = fma(s, r2, -1 / 6)
    s = fma(s * r2, r, r)
    c = fma(r2, -1 / 87178291200, 1 / 479001600)
    c = fma(c, r2, -1 / 3628800)
    c = fma(c, r2, 1 / 40320)
    c = fma(c, r2, -1 / 720)
    c = fma(c, r2, 1 / 24)
    c = fma(c, r2, -0.5)
    c = fma(c, r2, 1.0)
    quadrant = np.int64(q) & 3
    if quadrant & 1:
        c, s = s, c
    cos = -c if quadrant == 1 or quadrant == 2 else c
    sin = -s if quadrant >= 2 else s
    return _f32(cos), _f32(sin)

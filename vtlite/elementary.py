"""Elementary functions in float32, built from `vtlite.ieee` alone: one source for NumPy, the emulator and the GPU.

There are no branches and no approximate instructions, so the same bits come out everywhere. The stated errors bound
what millions of arguments show (tests/test_elementary.py); an ulp is the spacing of float32 at the true
value. Coefficients: bench/fit_elementary.py. The method is the usual one: reduce the argument, evaluate a short
polynomial by Horner's rule in fma, undo the reduction (Muller 2016, "Elementary Functions", chapters 3 and 11). (leaf)
"""

import numpy as np

from vtlite.ieee import as_f32, as_i32, div, f32, fma, i32, i32_to_f32, maximum, mul, select, sqrt

INF, NAN = f32(np.inf), f32(np.nan)
LOG2_E = f32(1.44269502)
LN2_HIGH, LN2_LOW = f32(0.693145752), f32(1.42860677e-06)            # the high part has 15 bits
TWO_OVER_PI = f32(0.636619747)
PI_2_HIGH, PI_2_MIDDLE, PI_2_LOW = f32(1.57079637), f32(-4.37113883e-08), f32(-1.71512451e-15)
ROUNDER = f32(12582912.0)         # 1.5 * 2^23: adding it rounds to an integer, which then sits in the low bits
ROUNDER_BITS = i32(0x4B400000)
SIGN_BIT = i32(-2 ** 31)
SQRT_HALF_BITS = i32(0x3F3504F3)
SMALLEST_NORMAL = f32(1.17549435e-38)
TWO_23 = f32(8388608.0)
SQRT_2_OVER_PI = f32(0.797884583)


def _scale(x, n):
    """x * 2^n for -252 <= n <= 252, rounded once: in two steps, of which only the last can be inexact."""
    half = n >> i32(1)
    return mul(mul(x, as_f32((half + i32(127)) << i32(23))), as_f32((n - half + i32(127)) << i32(23)))


def exp(x):
    """e^x. Error < 1.1 ulp; subnormal results included; exp(-inf) = 0."""
    x = select(x > f32(89.0), f32(89.0), x)
    x = select(x < f32(-104.0), f32(-104.0), x)
    shifted = fma(x, LOG2_E, ROUNDER)
    n = shifted - ROUNDER
    r = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, x))
    return _scale(exp_polynomial(r), as_i32(shifted) - ROUNDER_BITS)


def exp_polynomial(r):
    """e^r for |r| <= ln 2 / 2."""
    p = fma(f32(0.00137453037), r, f32(0.00836894475))
    p = fma(p, r, f32(0.0416696481))
    p = fma(p, r, f32(0.166665182))
    p = fma(p, r, f32(0.499999881))
    return fma(fma(p, r, f32(1.0)), r, f32(1.0))


def exp2(x):
    """2^x. Error < 1.1 ulp; subnormal results included."""
    x = select(x > f32(129.0), f32(129.0), x)
    x = select(x < f32(-151.0), f32(-151.0), x)
    shifted = x + ROUNDER
    r = x - (shifted - ROUNDER)                                       # |r| <= 1/2
    p = fma(f32(0.00015238006), r, f32(0.00133911369))
    p = fma(p, r, f32(0.00961884111))
    p = fma(p, r, f32(0.0555035919))
    p = fma(p, r, f32(0.240226448))
    p = fma(fma(p, r, f32(0.693147182)), r, f32(1.0))
    return _scale(p, as_i32(shifted) - ROUNDER_BITS)


def softmax_exp2(x):
    """2^x for x < 127 in nine operations. Relative error < 2^-18; what lies below 2^-126 comes out between 0 and 2^-126.

    2^0 = 1 and 2^-inf = 0 exactly: n = -127 takes all exponent bits from the 1 that the polynomial gives. Of a NaN a GPU makes
    the largest f32, which is infinity when rounded to bf16.
    """
    x = maximum(x, f32(-127.0))
    shifted = x + ROUNDER
    r = x - (shifted - ROUNDER)                                       # |r| <= 1/2
    p = fma(f32(0.00960057881), r, f32(0.0559170172))
    p = fma(p, r, f32(0.240237147))
    p = fma(fma(p, r, f32(0.69312197)), r, f32(1.0))
    return as_f32(as_i32(p) + (as_i32(shifted) << i32(23)))           # ROUNDER's own bits leave at the top


def log(x):
    """Natural logarithm. Error < 1.1 ulp; log(0) = -inf, negative arguments give NaN."""
    tiny = x < SMALLEST_NORMAL
    scaled = select(tiny, mul(x, TWO_23), x)
    steps = (as_i32(scaled) - SQRT_HALF_BITS) >> i32(23)              # scaled = 2^steps m, m in [sqrt(1/2), sqrt(2))
    f = as_f32(as_i32(scaled) - (steps << i32(23))) - f32(1.0)
    e = i32_to_f32(steps) - select(tiny, f32(23.0), f32(0.0))
    p = fma(f32(-0.0735380277), f, f32(0.126151875))
    p = fma(p, f, f32(-0.132034585))
    p = fma(p, f, f32(0.142280996))
    p = fma(p, f, f32(-0.166213155))
    p = fma(p, f, f32(0.199997663))
    p = fma(p, f, f32(-0.250008523))
    p = fma(p, f, f32(0.333333552))
    p = fma(p, f, f32(-0.5))
    y = fma(e, LN2_HIGH, fma(mul(f, f), p, fma(e, LN2_LOW, f)))
    y = select(x == INF, INF, y)
    y = select(x == f32(0.0), -INF, y)
    return select(x >= f32(0.0), y, NAN)


def log1p(x):
    """log(1 + x) for x >= 0, without losing a small x to the addition (Higham 2002, section 1.14.1). Error < 1.5 ulp."""
    u = f32(1.0) + x
    lost = x - (u - f32(1.0))
    return select(u == INF, INF, log(u) + div(lost, u))


def sigmoid(x):
    """1 / (1 + e^-x). Error < 2.5 ulp."""
    return div(f32(1.0), f32(1.0) + exp(-x))


def silu(x):
    """x sigmoid(x) = x / (1 + e^-x). Error < 3 ulp."""
    return div(x, f32(1.0) + exp(-x))


def gelu_tanh(x):
    """Gaussian error linear unit, tanh form: x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)) (arXiv:1606.08415).

    Relative error < 5e-6 for |x| <= 5.
    """
    return div(x, f32(1.0) + exp(-gelu_argument(x)))


def gelu_argument(x):
    """2 sqrt(2/pi) (x + 0.044715 x^3), whose sigmoid gelu_tanh(x) multiplies x by."""
    return mul(mul(f32(2.0) * SQRT_2_OVER_PI, x), fma(mul(f32(0.044715), x), x, f32(1.0)))


def tanh(x):
    """Hyperbolic tangent, 1 - 2 / (1 + e^2x). Absolute error < 2e-7."""
    return f32(1.0) - div(f32(2.0), f32(1.0) + exp(x + x))


def softplus(x):
    """log(1 + e^x) = max(x, 0) + log1p(e^-|x|). Error < 2.5 ulp."""
    magnitude = select(x < f32(0.0), -x, x)
    return select(x > f32(0.0), x, f32(0.0)) + log1p(exp(-magnitude))


def rsqrt(x):
    """1 / sqrt(x), two correctly rounded steps. Error < 1.6 ulp."""
    return div(f32(1.0), sqrt(x))


def sin(x):
    """Sine for |x| <= 2^20. Error < 1.8 ulp of max(|sin x|, 2^-20)."""
    return _sin_quadrant(x, i32(0))


def cos(x):
    """Cosine for |x| <= 2^20. Error < 1.8 ulp of max(|cos x|, 2^-20)."""
    return _sin_quadrant(x, i32(1))


def _sin_quadrant(x, quarter_turns):
    """sin(x + quarter_turns * pi / 2)."""
    shifted = fma(x, TWO_OVER_PI, ROUNDER)
    n = shifted - ROUNDER
    r = fma(-n, PI_2_LOW, fma(-n, PI_2_MIDDLE, fma(-n, PI_2_HIGH, x)))          # |r| <= pi / 4; Cody and Waite 1980
    z = mul(r, r)
    s = fma(f32(2.92177288e-06), z, f32(-0.00019861295))
    s = fma(s, z, f32(0.0083333971))
    s = fma(s, z, f32(-0.166666672))
    s = fma(mul(s, z), r, r)
    c = fma(f32(2.45439514e-05), z, f32(-0.00138882722))
    c = fma(c, z, f32(0.0416666642))
    c = fma(mul(c, z), z, fma(f32(-0.5), z, f32(1.0)))
    quadrant = as_i32(shifted) + quarter_turns                                  # in the two low bits, which ROUNDER leaves free
    y = select((quadrant & i32(1)) == i32(0), s, c)
    return as_f32(as_i32(y) ^ ((quadrant << i32(30)) & SIGN_BIT))

"""What the compiler takes for silu and gelu_tanh: the same bits, without the branch of a division by div.rn.

div.rn checks its operands and calls a subroutine for rare ones: the check costs two instructions, and the branches keep the
divisions of a thread from overlapping. Here the divisor is known: 4 h with h = (1 + e^-x) / 4, so that plain fma does: steps
of Newton and of Halley towards 1 / h, and one towards the quotient (Markstein 1990, "Computation of elementary functions
on the IBM RISC System/6000 processor"). If 1 / h is correctly rounded, so is the quotient. For 19 of the 2^23 fractions of h
it is not; all their quotients were tried, and are right.

tests/cuda/test_quick.py compares densely; bench/sweep_quick.py compares all 2^32 arguments of both functions.
"""

from vtlite import elementary
from vtlite.cuda.lang.primitive import compiled_as
from vtlite.elementary import LN2_HIGH, LN2_LOW, LOG2_E, ROUNDER, ROUNDER_BITS, exp_polynomial, gelu_argument
from vtlite.ieee import as_f32, as_i32, f32, fma, i32, mul, select

RECIPROCAL = i32(0x7EF311C7)     # less the bits of h: the bits of 1 / h within 5.1 %
INFINITE_QUARTER = f32(2.0**126) # from this h on 4 h is infinite
CERTAIN = f32(20.0)              # from this x on, 1 + e^-x is 1
DROWNED = f32(-89.0)             # up to this x it is infinite


@compiled_as(elementary.silu)
def silu(x):
    return weighted(x, x)


@compiled_as(elementary.gelu_tanh)
def gelu_tanh(x):
    return weighted(x, gelu_argument(x))


def weighted(x, a):
    """x / (1 + e^-a) where a is x or gelu_argument(x): then no quotient is subnormal but of subnormal x, which 2 divides."""
    h = quarter_of_one_plus_exp_minus(a)
    r = select(h < INFINITE_QUARTER, reciprocal(h), f32(0.0))
    return select(a < CERTAIN, mul(quotient(x, h, r), f32(0.25)), x)


def quarter_of_one_plus_exp_minus(x):
    """(1 + exp(-x)) / 4, and from INFINITE_QUARTER on where exp(-x) is infinite."""
    x = select(x < DROWNED, DROWNED, x)
    x = select(x > CERTAIN, CERTAIN, x)
    shifted = fma(x, -LOG2_E, ROUNDER)
    n = shifted - ROUNDER
    r = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, -x))
    scale = as_f32((as_i32(shifted) - ROUNDER_BITS + i32(125)) << i32(23))                # 2^(n-2)
    return fma(exp_polynomial(r), scale, f32(0.25))                                       # the product is exact: one rounding


def reciprocal(h):
    """1 / h for 1/4 <= h < INFINITE_QUARTER."""
    r = as_f32(RECIPROCAL - as_i32(h))
    r = fma(fma(-h, r, f32(1.0)), r, r)
    r = fma(fma(-h, r, f32(1.0)), r, r)
    e = fma(-h, r, f32(1.0))
    return fma(fma(e, e, e), r, r)


def quotient(x, h, r):
    """x / h rounded, where r = reciprocal(h) and the quotient is 0 or between 2^-100 and 2^126 in size."""
    q = mul(x, r)
    return fma(-fma(h, q, -x), r, q)

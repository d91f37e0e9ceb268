"""Arithmetic primitives on one scalar at a time: the bits of `vtlite.ieee` and `lang.conversion`, many times faster.

The emulator puts these in the place of the definitions, which also serve whole arrays. tests/cuda/test_emulated_arithmetic.py
holds them to the same bits. Kernels run under errstate(all="ignore"), so overflow needs no care here.
"""

import struct

import numpy as np

from vtlite import ieee
from vtlite.cuda.lang import conversion

f32, i32, u32 = np.float32, np.int32, np.uint32

_float_of, _bits_of = struct.Struct("f"), struct.Struct("I")
_BF16_VALUES = list((np.arange(1 << 16, dtype=u32) << u32(16)).view(f32))


def fma(a, b, c):
    """The sum in float64 is rounded again, to f32: that errs only if it is inexact and lies midway between two f32."""
    product, c64 = float(a) * float(b), float(c)
    total = product + c64
    near = f32(total)
    other = total + (total - float(near))                    # the other neighbour, if total lies midway
    if other == float(near) or f32(other) != other:
        return near
    rest = total - product
    exact = (product - (total - rest)) + (c64 - rest) == 0
    return near if exact else ieee.fma(a, b, c)


def mul(a, b):
    return f32(a) * f32(b)


def div(a, b):
    return f32(a) / f32(b)


def select(condition, a, b):
    return a if condition else b


def as_i32(x):
    return f32(x).view(i32)


def as_f32(x):
    return i32(x).view(f32)


def i32_to_f32(x):
    return f32(x)


def bf16_to_f32(bits):
    return _BF16_VALUES[bits]


def bf16x2_low(pair):
    return _BF16_VALUES[int(pair) & 0xFFFF]


def bf16x2_high(pair):
    return _BF16_VALUES[int(pair) >> 16]


def f32_to_bf16(x):
    return np.uint16(_rounded(x))


def f32_to_bf16x2(low, high):
    return u32(_rounded(low) | _rounded(high) << 16)


def _rounded(x) -> int:
    """The bits of x rounded to bf16, ties to even."""
    if x != x:
        return int(conversion.NAN_16)
    bits, = _bits_of.unpack(_float_of.pack(x))
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


FAST = {getattr(room, name): function for room, names in (
    (ieee, ("fma", "mul", "div", "select", "as_i32", "as_f32", "i32_to_f32")),
    (conversion, ("bf16_to_f32", "bf16x2_low", "bf16x2_high", "f32_to_bf16", "f32_to_bf16x2")))
    for name in names for function in (globals()[name],)}

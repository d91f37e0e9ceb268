"""Conversions between f32 and the narrow types: bf16, f16, e4m3, e5m2, e2m1. To nearest even; narrow values are bit patterns.

A pair in one u32 (bf16x2, f16x2) or u16 (e4m3x2, e5m2x2) has its first element in the low half. The bits of a NaN are not
promised: GPU and Python may differ in them.
"""

import ml_dtypes
import numpy as np

from vtlite.cuda.lang.primitive import primitive
from vtlite.cuda.lang.types import bf16, e4m3, e5m2, f16, f32, u8, u16, u32

NAN_16, NAN_8 = u16(0x7FFF), u8(0x7F)       # what the GPU's conversions make of NaN


def _halves(pair):
    return u16(int(pair) & 0xFFFF), u16(int(pair) >> 16)


def _pair(low, high):
    return u32(int(low) | int(high) << 16)


@primitive("cvt.rn.bf16.f32 $0, $x;", outputs="h", inputs="f", pure=True)
def f32_to_bf16(x):
    """f32 -> bf16 (CUDA: __float2bfloat16_rn)."""
    return NAN_16 if np.isnan(x) else f32(x).astype(bf16).view(u16)


@primitive("{ .reg .b16 z; mov.b16 z, 0; mov.b32 $0, {z, $bits}; }", outputs="f", inputs="h", pure=True)
def bf16_to_f32(bits):
    """bf16 -> f32, exact (CUDA: __bfloat162float)."""
    return u32(int(bits) << 16).view(f32)


@primitive("cvt.rn.bf16x2.f32 $0, $high, $low;", outputs="u", inputs="ff", pure=True)
def f32_to_bf16x2(low, high):
    """Two f32 -> a pair of bf16 (CUDA: __floats2bfloat162_rn)."""
    return _pair(f32_to_bf16(low), f32_to_bf16(high))


@primitive("shl.b32 $0, $pair, 16;", outputs="f", inputs="u", pure=True)
def bf16x2_low(pair):
    """First element of a pair of bf16, as f32 (CUDA: __low2float)."""
    return bf16_to_f32(_halves(pair)[0])


@primitive("and.b32 $0, $pair, 0xffff0000;", outputs="f", inputs="u", pure=True)
def bf16x2_high(pair):
    """Second element of a pair of bf16, as f32 (CUDA: __high2float)."""
    return bf16_to_f32(_halves(pair)[1])


@primitive("cvt.rn.f16.f32 $0, $x;", outputs="h", inputs="f", pure=True)
def f32_to_f16(x):
    """f32 -> f16; too large becomes infinity (CUDA: __float2half_rn)."""
    with np.errstate(over="ignore"):
        return NAN_16 if np.isnan(x) else f32(x).astype(f16).view(u16)


@primitive("cvt.f32.f16 $0, $bits;", outputs="f", inputs="h", pure=True)
def f16_to_f32(bits):
    """f16 -> f32, exact (CUDA: __half2float)."""
    return f32(u16(bits).view(f16))


@primitive("cvt.rn.f16x2.f32 $0, $high, $low;", outputs="u", inputs="ff", pure=True)
def f32_to_f16x2(low, high):
    """Two f32 -> a pair of f16 (CUDA: __floats2half2_rn)."""
    return _pair(f32_to_f16(low), f32_to_f16(high))


@primitive("{ .reg .b16 a, b; mov.b32 {a, b}, $pair; cvt.f32.f16 $0, a; }", outputs="f", inputs="u", pure=True)
def f16x2_low(pair):
    """First element of a pair of f16, as f32 (CUDA: __low2float)."""
    return f16_to_f32(_halves(pair)[0])


@primitive("{ .reg .b16 a, b; mov.b32 {a, b}, $pair; cvt.f32.f16 $0, b; }", outputs="f", inputs="u", pure=True)
def f16x2_high(pair):
    """Second element of a pair of f16, as f32 (CUDA: __high2float)."""
    return f16_to_f32(_halves(pair)[1])


def _to_fp8(x, kind):
    largest = f32(ml_dtypes.finfo(kind).max)
    return NAN_8 if np.isnan(x) else np.clip(f32(x), -largest, largest).astype(kind).view(u8)


def _from_fp8(bits, kind):
    value = u8(bits).view(kind)
    return NAN_16 if np.isnan(value) else f32(value).astype(f16).view(u16)      # f16 holds every value of both types


@primitive("cvt.rn.satfinite.e4m3x2.f32 $0, $high, $low;", outputs="h", inputs="ff", pure=True, needs="sm_89")
def f32_to_e4m3x2(low, high):
    """Two f32 -> a pair of e4m3, saturating at 448 (CUDA: __nv_cvt_float2_to_fp8x2, __NV_SATFINITE, __NV_E4M3)."""
    return u16(int(_to_fp8(low, e4m3)) | int(_to_fp8(high, e4m3)) << 8)


@primitive({
    "sm_89": "cvt.rn.f16x2.e4m3x2 $0, $pair;",
    # The exponent of an e4m3 put into an f16 reads as value x 2^-8; a magnitude of 0x7f, NaN, carries into bit 15.
    "sm_80": "{ .reg .b32 t, s, m, n, k; cvt.u32.u16 t, $pair; prmt.b32 t, t, 0, 0x1404; and.b32 s, t, 0x80008000; "
             "and.b32 m, t, 0x7f007f00; shr.u32 n, m, 1; or.b32 n, n, s; mov.b32 k, 0x5c005c00; mul.f16x2 n, n, k; "
             "add.u32 m, m, 0x01000100; and.b32 m, m, 0x80008000; shr.u32 s, m, 15; sub.u32 m, m, s; or.b32 $0, n, m; }",
}, outputs="u", inputs="h", pure=True)
def e4m3x2_to_f16x2(pair):
    """A pair of e4m3 -> a pair of f16, exact (CUDA: __nv_cvt_fp8x2_to_halfraw2, __NV_E4M3)."""
    return _pair(_from_fp8(int(pair) & 0xFF, e4m3), _from_fp8(int(pair) >> 8, e4m3))


@primitive("cvt.rn.satfinite.e5m2x2.f32 $0, $high, $low;", outputs="h", inputs="ff", pure=True, needs="sm_89")
def f32_to_e5m2x2(low, high):
    """Two f32 -> a pair of e5m2, saturating at 57344 (CUDA: __nv_cvt_float2_to_fp8x2, __NV_SATFINITE, __NV_E5M2)."""
    return u16(int(_to_fp8(low, e5m2)) | int(_to_fp8(high, e5m2)) << 8)


@primitive("{ .reg .b32 t; cvt.u32.u16 t, $pair; prmt.b32 $0, t, 0, 0x1404; }", outputs="u", inputs="h", pure=True)
def e5m2x2_to_f16x2(pair):
    """A pair of e5m2 -> a pair of f16, exact: an e5m2 is the high byte of an f16 (CUDA: __nv_cvt_fp8x2_to_halfraw2)."""
    return u32((int(pair) & 0xFF) << 8 | (int(pair) >> 8) << 24)


@primitive("{ .reg .b32 s, m; shl.b32 s, $byte, 12; and.b32 s, s, 0x8000; shl.b32 m, $byte, 24; and.b32 m, m, 0x80000000; "
           "or.b32 s, s, m; shl.b32 m, $byte, 9; and.b32 m, m, 0x0e00; or.b32 s, s, m; shl.b32 m, $byte, 21; "
           "and.b32 m, m, 0x0e000000; or.b32 s, s, m; mov.b32 m, 0x74007400; mul.f16x2 $0, s, m; }", outputs="u", inputs="u", pure=True)
def e2m1x2_to_f16x2(byte):
    """Two e2m1 in the low byte of a u32, low nibble first -> a pair of f16, exact (CUDA: __nv_cvt_fp4x2_to_halfraw2).

    Exponent and mantissa put into an f16 read as value x 2^-14, the subnormal 0.5 included.
    """
    nibbles = np.array([int(byte) & 15, int(byte) >> 4 & 15], u8).view(ml_dtypes.float4_e2m1fn)
    return _pair(*nibbles.astype(f32).astype(f16).view(u16))

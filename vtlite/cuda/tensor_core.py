"""The arithmetic of Hopper's tensor core on NumPy arrays, bit for bit: what the emulator's mma computes.

One step of mma.m16n8k16 adds 16 products to a float32 accumulator c. On an H200:
1. the products are exact;
2. e = max(exponent(c), max_i(exponent(a_i) + exponent(b_i))), where exponent(x) = floor(log2 |x|) and zeros are ignored;
3. c and every product are truncated toward zero to a multiple of 2^(e - 25);
4. their exact sum, truncated toward zero to 24 significant bits, is the new c.

Found from results of mma.sync (bf16 inputs) on that chip and equal to all 851,968 of them; cuBLAS's large kernels, which
use wgmma, give the same bits. Not probed, and therefore assumed here: float16 inputs follow the same rule, subnormals
count with the exponent of the smallest normal number, infinities and NaN behave as in IEEE addition. Other chips differ.
"""

import numpy as np

STEP = 16                        # products per step
KEPT_BITS = 25                   # addends are multiples of 2^(e - KEPT_BITS)
OF_ZERO = -400                   # stands for the exponent of a zero: below any other sum of two exponents
PRODUCTS_AT_ONCE = 1 << 18       # in memory: what a core's cache holds


def chain(a: np.ndarray, b: np.ndarray, c: np.ndarray, kind: str = "bf16") -> np.ndarray:
    """c + a b^T as a chain of steps in ascending k.

    a [M, K] and b [N, K] as uint16 bit patterns of `kind` ("bf16" or "f16"), K a multiple of 16; c [M, N] f32 -> [M, N] f32.
    """
    if a.shape[1] % STEP or a.shape[1] != b.shape[1]:
        raise ValueError(f"a and b should have the same K, a multiple of {STEP}; found {a.shape[1]} and {b.shape[1]}")
    rows = max(1, PRODUCTS_AT_ONCE // (STEP * len(b)))
    value_b, exponent_b = _split(b.T, kind)                              # [K, N]: sums over a first axis are fast
    out = np.array(c, np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for top in range(0, len(a), rows):
            value_a, exponent_a = _split(a[top : top + rows].T, kind)
            part = out[top : top + rows]
            for k in range(0, a.shape[1], STEP):
                products = value_a[k : k + STEP, :, None] * value_b[k : k + STEP, None, :]               # exact
                exponents = exponent_a[k : k + STEP, :, None] + exponent_b[k : k + STEP, None, :]
                part[...] = _accumulate(products, exponents.max(axis=0), part)
    return out


def mma_m16n8k16(kind: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One mma of a warp on its fragments: a [32, 4] u32, b [32, 2] u32, c [32, 4] f32 -> [32, 4] f32.

    Lane 4 g + q holds rows g and g + 8 of a and c, column g of b, and k = 2 q, 2 q + 1, 2 q + 8, 2 q + 9 (PTX ISA,
    "Matrix fragments for mma.m16n8k16").
    """
    rows_a = a.view(np.uint16).reshape(8, 4, 2, 2, 2).transpose(3, 0, 2, 1, 4).reshape(16, 16)     # g q k8 row8 half
    columns_b = b.view(np.uint16).reshape(8, 4, 2, 2).transpose(0, 2, 1, 3).reshape(8, 16)         # g q k8 half
    tile_c = c.reshape(8, 4, 2, 2).transpose(2, 0, 1, 3).reshape(16, 8)                            # g q row8 half
    out = chain(rows_a, columns_b, tile_c, kind)
    return out.reshape(2, 8, 4, 2).transpose(1, 2, 0, 3).reshape(32, 4)


def _split(bits: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Bit patterns -> values f64 and exponents i16, OF_ZERO for zeros; contiguous."""
    bits = np.ascontiguousarray(bits)
    if kind == "bf16":
        value = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        exponent = np.maximum((bits >> 7 & 0xFF).astype(np.int16), 1) - 127
    else:
        value = bits.view(np.float16)
        exponent = np.maximum((bits >> 10 & 0x1F).astype(np.int16), 1) - 15
    return value.astype(np.float64), np.where(value == 0, np.int16(OF_ZERO), exponent)


def _accumulate(products: np.ndarray, exponent: np.ndarray, c: np.ndarray) -> np.ndarray:
    """products [16, M, N] f64, the largest sum of their operands' exponents [M, N], c [M, N] f32 -> [M, N] f32."""
    exponent_c = np.maximum((c.view(np.int32) >> 23) & 0xFF, 1) - 127
    exponent = np.maximum(np.maximum(exponent, np.where(c == 0, OF_ZERO, exponent_c)), OF_ZERO)            # i32 from here on
    scale = np.ldexp(1.0, KEPT_BITS - exponent)                              # a power of two: scaling is exact
    products *= scale
    total = np.trunc(products, out=products).sum(axis=0) + np.trunc(c * scale)
    total = (total.view(np.int64) & -(1 << 53 - 24)).view(np.float64) / scale            # 24 of f64's 53 bits stay
    tiny = np.abs(total) < 2.0**-126
    if tiny.any():
        total[tiny] = np.trunc(total[tiny] * 2.0**149) * 2.0**-149           # f32 has fewer bits there
    return total.astype(np.float32)

"""Weights without a checkpoint    y[i] = center + spread * (2 u_i - 1),   u_i in [0, 1) a hash of (seed, i)

y [N] bf16. The hash of i + seed * 2^32 / phi is Wellons' "lowbias32" (https://nullprogram.com/blog/2018/07/31/); its upper 24
bits are u. f32 arithmetic, one rounding to bf16: the same weights on every device.
Bytes: 2 N; bound by the hash's integer arithmetic, about 12 instructions an element.
"""

import math

from vtlite.cuda.device import current
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import bf16, consteval, cuda, f32, f32_to_bf16, mul, ptr, u32, u32_to_f32
from vtlite.errors import DeviceError

THREADS = 256
PER_THREAD = 8
GOLDEN = 0x9E3779B9              # 2^32 divided by the golden ratio
SPECS = ()                       # there is no other definition to compare with


@device
def lowbias32(x):
    x = (x ^ (x >> u32(16))) * u32(0x7FEB352D)
    x = (x ^ (x >> u32(15))) * u32(0x846CA68B)
    return x ^ (x >> u32(16))


@kernel((ptr(bf16), u32, u32, f32, f32), threads=THREADS)
def uniform_kernel(y, count, seed, center, spread):
    first = u32(cuda.blockIdx.x) * u32(THREADS * PER_THREAD) + u32(cuda.threadIdx.x)
    for n in consteval(range(PER_THREAD)):
        i = first + u32(n * THREADS)
        if i < count:
            u = mul(u32_to_f32(lowbias32(i + seed * u32(GOLDEN)) >> u32(8)), f32(2.0**-23))
            y[i] = f32_to_bf16(center + mul(spread, u - f32(1)))


def uniform(shape: tuple[int, ...], seed: int, center: float, spread: float, *, out=None):
    """bf16 numbers between center - spread and center + spread: the same ones for the same `seed`, 0 .. 2^32 - 1."""
    y = current().empty(shape, bf16) if out is None else out
    count = math.prod(shape)
    if count >= 1 << 32:
        raise DeviceError(f"weights of shape {list(shape)} have {count} elements; one array is drawn of less than 2^32")
    current().launch(uniform_kernel.specialize(), -(-count // (THREADS * PER_THREAD)), y, count, seed, center, spread)
    return y

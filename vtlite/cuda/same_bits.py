"""Whether two kernels for y = x W^T have the same bits: inputs that would show it, and a count of the outputs that differ.

Inputs are bf16 whose exponents spread over EXPONENTS powers of two; one in 64 is larger by 2^OUTLIER. The right half of every
row of W is the left one with the other sign, and in even rows of x both halves are equal: there the exact sum is 0, and what a
kernel gives instead is what its order of additions and its rounding have left, in all its bits. Odd rows are sums of no pattern.
Nothing is added to even rows. All is drawn from hashes of (seed, place), the one of uniform.py.
Bytes: 2 N drawn, 4 N compared; bound by memory, and by the hash.
"""

import math

import numpy as np

from vtlite.cuda.device import current
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import bf16, cuda, load_u32x4, ptr, u16, u32
from vtlite.cuda.uniform import GOLDEN, lowbias32
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

THREADS = 256
MOST_BLOCKS = 256                # of a comparison
EXPONENTS, LOWEST, OUTLIER = 8, 121, 6               # LOWEST is a biased exponent: 2^-6
X, WEIGHT, ADDED = 0, 1, 2       # what an array is for


@kernel((ptr(u16), u32, u32, u32, u32), threads=THREADS)
def draw_inputs_kernel(y, count, columns, seed, purpose):
    i = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    if i < count:
        row, half = i // columns, columns >> u32(1)
        column = i - row * columns
        even, right = row & u32(1) == u32(0), column >= half
        place, sign = i, u32(0)
        if right & ((purpose == u32(WEIGHT)) | (purpose == u32(X)) & even):
            place = i - half
            sign = u32(0x8000) if purpose == u32(WEIGHT) else u32(0)
        bits = lowbias32(place + seed * u32(GOLDEN))
        exponent = u32(LOWEST) + (bits >> u32(8) & u32(EXPONENTS - 1))
        if bits >> u32(11) & u32(63) == u32(0):
            exponent = exponent + u32(OUTLIER)
        bits = sign ^ (bits << u32(8) & u32(0x8000)) | exponent << u32(7) | bits & u32(0x7F)
        y[i] = u16(u32(0) if even & (purpose == u32(ADDED)) else bits)


@device
def differing(word):
    """How many halves of a word are not zero."""
    low = u32(1) if word & u32(0xFFFF) != u32(0) else u32(0)
    return low + u32(1) if word >> u32(16) != u32(0) else low


@kernel((ptr(u16), ptr(u16), ptr(u32), u32), threads=THREADS)
def count_differing_kernel(a, b, counts, num_vectors):
    thread = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    stride = u32(cuda.gridDim.x) * u32(THREADS)
    count, vector = u32(0), thread
    while vector < num_vectors:
        a0, a1, a2, a3 = load_u32x4(a, vector)
        b0, b1, b2, b3 = load_u32x4(b, vector)
        count = count + differing(a0 ^ b0) + differing(a1 ^ b1) + differing(a2 ^ b2) + differing(a3 ^ b3)
        vector = vector + stride
    counts[thread] = count


def draw(shape: tuple[int, int], seed: int, purpose: int, *, out=None):
    """[rows, columns] bf16, columns even, for x [T, K], a WEIGHT [N, K] or what is ADDED [T, N]."""
    count = math.prod(shape)
    if shape[1] % 2 or count >= 1 << 32:
        raise DeviceError(f"inputs of shape {list(shape)} are not drawn: columns must be even, and elements fewer than 2^32")
    y = current().empty(shape, bf16) if out is None else out
    current().launch(draw_inputs_kernel.specialize(), -(-count // THREADS), y.view(u16), count, shape[1], seed, purpose)
    return y


def count_differing(a, b, *, out=None):
    """a, b of one shape, bf16, a multiple of 8 elements -> how many differ in a bit, in parts to be added up: [threads] u32."""
    if a.shape != b.shape or a.size % 8:
        raise DeviceError(f"{a} and {b} cannot be compared: shapes must be equal, of a multiple of 8 elements")
    blocks = _blocks(a.size)
    counts = current().empty((blocks * THREADS,), u32) if out is None else out
    current().launch(count_differing_kernel.specialize(), blocks, a.view(u16), b.view(u16), counts, a.size // 8)
    return counts


def _blocks(size: int) -> int:
    return max(1, min(MOST_BLOCKS, -(-size // (8 * THREADS))))


def _expected(a, b) -> np.ndarray:
    """What each thread counts."""
    threads = _blocks(a.size) * THREADS
    vectors = (a.astype(np.float32).view(np.uint32) != b.astype(np.float32).view(np.uint32)).reshape(-1, 8).sum(1)
    return np.pad(vectors, (0, -len(vectors) % threads)).reshape(-1, threads).sum(0).astype(np.uint32)


def _inputs(rng, N: int) -> dict:
    a = rng.standard_normal(N).astype(bf16)
    return {"a": a, "b": np.where(rng.random(N) < 0.3, -a, a)}


SPECS = (
    OpSpec("same_bits.count", cases=[{"N": 8}, {"N": 5000}], gpu_cases=[{"N": 1 << 20}], bench_cases=(), make_inputs=_inputs,
           outputs=lambda N: {"counts": ((_blocks(N) * THREADS,), u32)}, reference=_expected,
           launch=lambda inputs, out: count_differing(**inputs, out=out["counts"]), num_bytes=lambda N: 4 * N),
)

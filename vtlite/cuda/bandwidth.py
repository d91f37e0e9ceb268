"""The ceilings of memory: copy    y = x,   and read    y[t] = the words that thread t meets, xor-ed.   The speed of every other
memory-bound kernel is quoted as a share of these, measured in the same run.

x, y [N] u32 (N a multiple of 4); y of read [blocks * 256] u32.
Order: thread t of all takes vectors t, t + threads, ...; xor has no rounding.
Bytes: copy 8 N, read 4 N; bound by memory. Four 16-byte loads per thread are in flight.
"""

import numpy as np

from vtlite.cuda.device import current
from vtlite.cuda.kernel import kernel
from vtlite.cuda.lang import consteval, cuda, load_weights_u32x4, ptr, store_u32x4, u32
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

THREADS = 256
IN_FLIGHT = 4
BLOCKS_PER_SM = 8


@kernel((ptr(u32), ptr(u32), u32), threads=THREADS)
def copy_kernel(x, y, num_vectors):
    first = u32(cuda.blockIdx.x) * u32(THREADS * IN_FLIGHT) + u32(cuda.threadIdx.x)
    words = cuda.local.array((IN_FLIGHT, 4), u32)
    for v in consteval(range(IN_FLIGHT)):                          # all loads first
        if first + u32(v * THREADS) < num_vectors:
            words[v, 0], words[v, 1], words[v, 2], words[v, 3] = load_weights_u32x4(x, first + u32(v * THREADS))
    for v in consteval(range(IN_FLIGHT)):
        if first + u32(v * THREADS) < num_vectors:
            store_u32x4(y, first + u32(v * THREADS), words[v, 0], words[v, 1], words[v, 2], words[v, 3])


@kernel((ptr(u32), ptr(u32), u32), threads=THREADS)
def read_kernel(x, y, num_vectors):
    thread = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    stride = u32(cuda.gridDim.x) * u32(THREADS)
    words = cuda.local.array((IN_FLIGHT, 4), u32)
    total = u32(0)
    first = thread
    while first < num_vectors:
        for v in consteval(range(IN_FLIGHT)):
            for i in consteval(range(4)):
                words[v, i] = u32(0)
            if first + u32(v) * stride < num_vectors:
                words[v, 0], words[v, 1], words[v, 2], words[v, 3] = load_weights_u32x4(x, first + u32(v) * stride)
        for v in consteval(range(IN_FLIGHT)):
            for i in consteval(range(4)):
                total = total ^ words[v, i]
        first = first + stride * u32(IN_FLIGHT)
    y[thread] = total


def copy(x, *, out=None):
    """A copy of x [N] u32."""
    y = current().empty(x.shape, u32) if out is None else out
    vectors = _vectors(x)
    current().launch(copy_kernel.specialize(), -(-vectors // (THREADS * IN_FLIGHT)), x, y, vectors)
    return y


def read(x, *, out=None):
    """Reads x [N] u32; returns what each thread's words xor to, [threads] u32, whose own xor is that of x."""
    blocks = current().num_sms * BLOCKS_PER_SM
    y = current().empty((blocks * THREADS,), u32) if out is None else out
    current().launch(read_kernel.specialize(), blocks, x, y, _vectors(x))
    return y


def _vectors(x) -> int:
    if x.ndim != 1 or x.size % 4:
        raise DeviceError(f"the bandwidth kernels take [N] u32 with N a multiple of 4, found {x}")
    return x.size // 4


SPECS = (
    OpSpec("memory.copy", cases=[{"N": 4}, {"N": 252}, {"N": 5000}], gpu_cases=[{"N": 1 << 20}], bench_cases=[{"N": 1 << 26}],
           make_inputs=lambda rng, N: {"x": rng.integers(0, 1 << 32, N, np.uint32)}, outputs=lambda N: {"y": ((N,), u32)},
           reference=lambda x: x, launch=lambda inputs, out: copy(inputs["x"], out=out["y"]), num_bytes=lambda N: 8 * N),
)

"""Kernels for the tests of the compiler and of the cubin cache, small enough to compile in a moment."""

from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import consteval, cp_async_wait, cuda, f32, fma, i32, ptr, shared_address, shfl_xor, u32

SCALE = 2
UNROLL = 4
WORDS = 32


@device
def scaled(value):
    return value * f32(SCALE)


@kernel((ptr(f32), ptr(f32), u32), threads=32, constants=("SCALE",), prebuild=({"SCALE": 2}, {"SCALE": 3}))
def scale_kernel(x, y, count):
    i = u32(cuda.threadIdx.x)
    if i < count:
        y[i] = scaled(x[i])


@kernel((ptr(f32), ptr(f32)), threads=32)
def product_and_sum_kernel(x, y):
    i = u32(cuda.threadIdx.x)
    y[i] = x[i] * y[i] + x[i + 32] - x[i] * x[i + 64]


@kernel((ptr(f32), ptr(f32)), threads=32)
def fused_kernel(x, y):
    i = u32(cuda.threadIdx.x)
    y[i] = fma(x[i], y[i], x[i + 32])


@kernel((ptr(u32), ptr(i32), u32, i32), threads=32)
def narrow_integers_kernel(x, y, a, b):
    i = u32(cuda.threadIdx.x)
    i = i + 32
    x[0] = (i * a >> 3) + (a << 2)
    y[0] = (b * b + i32(7) >> 5) - b


@kernel((ptr(u32), u32), threads=32, shared=lambda: 4 * WORDS)
def shared_memory_kernel(x, a):
    small = cuda.shared.array(WORDS, u32)
    large = cuda.shared.array(consteval(64 * WORDS), u32)
    rest = cuda.shared.array(0, u32)
    i = u32(cuda.threadIdx.x)
    small[i], large[i], rest[i] = a, a + 1, a + 2
    cuda.syncthreads()
    x[i] = small[31 - i] + large[31 - i] + rest[31 - i] + shared_address(large)


@kernel((ptr(f32),), threads=32)
def unrolled_kernel(x):
    i = u32(cuda.threadIdx.x)
    values = cuda.local.array(UNROLL, f32)
    for v in consteval(range(UNROLL)):
        values[v] = x[i * UNROLL + u32(v)]
    for v in consteval(range(UNROLL)):
        x[i * UNROLL + u32(v)] = shfl_xor(values[v], 1)


@kernel((ptr(f32),), threads=32)
def double_where_float_is_due_kernel(x):
    x[0] = fma(x[0], 0.5, x[1])


@kernel((u32,), threads=32)
def variable_where_literal_is_due_kernel(groups):
    cp_async_wait(groups)


@kernel((ptr(f32), ptr(f32)), threads=512, min_blocks=4)
def many_values_kernel(x, y):
    """Turns 48 values of each thread around: more than the 32 registers that four such blocks leave it."""
    tid, values = u32(cuda.threadIdx.x), cuda.local.array(48, f32)
    for i in consteval(range(48)):
        values[i] = x[tid + u32(512 * i)]
    cuda.syncthreads()
    for i in consteval(range(48)):
        y[tid + u32(512 * i)] = values[47 - i]

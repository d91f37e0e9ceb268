"""Linear    y = x W^T + b + r        and, for an MLP,  y = silu(x Wg^T) * (x Wu^T)

One arithmetic whatever the number of rows: an output is one chain of mma.m16n8k16 steps in ascending k on one f32
accumulator, and the epilogue comes once, after it (linear_epilogue.py). Few rows are bound by the bytes of W and go to
linear_skinny.py, many by arithmetic and go to linear_tiled.py (or, on Hopper, linear_wgmma.py; or to cuBLASLt, where it is
shown to have the same bits: linear_cublas.py); no bit tells which. Zeros past K change no bit either: they add nothing to a step.

The tensor core truncates: beside float64 a chain is off by up to 2e-5 of the largest value at K = 17408, 6e-6 at 5120.
sm_90.linear has the same bits on NumPy arrays.
"""

import numpy as np

from vtlite import reference
from vtlite.cuda import linear_skinny, linear_tiled, linear_wgmma
from vtlite.cuda.device import current
from vtlite.cuda.lang import bf16, f32, u16
from vtlite.cuda.layout import need_contiguous
from vtlite.cuda.linear_epilogue import HAS_BIAS, HAS_RESIDUAL, OUT_F32
from vtlite.cuda.linear_skinny import MOST_ROWS, linear_skinny_kernel
from vtlite.cuda.linear_tiled import linear_tiled_kernel
from vtlite.cuda.linear_wgmma import linear_wgmma_kernel
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

WGMMA = True                            # many rows on Hopper by linear_wgmma.py; by linear_tiled.py they get the same bits
CHAIN_ROUNDING = 128                    # tolerance, in units of 2^-22 of a row's largest value


def linear(x, weight, bias=None, residual=None, out_dtype=None, *, out=None):
    """x [T, K], weight [N, K], bias [N], residual [T, N], all bf16, K a multiple of 8 -> [T, N] in `out_dtype`, bf16 or f32.

    Bias and residual are added to the f32 sum, in this order, before the one rounding. `out` may be the residual.
    """
    y = current().empty((len(x), len(weight)), np.dtype(out_dtype or bf16)) if out is None else out
    _run(x, weight, bias, residual, y, gated=False)
    return y


def linear_silu_and_mul(x, weight, bias=None, *, out=None):
    """silu_and_mul(linear(x, weight, bias)), the same bits in one kernel.

    x [T, K], weight [2 F, K], gates first, bias [2 F], all bf16, K a multiple of 8 -> [T, F] bf16.
    """
    y = current().empty((len(x), len(weight) // 2), bf16) if out is None else out
    _run(x, weight, bias, None, y, gated=True)
    return y


def _run(x, weight, bias, residual, y, gated: bool) -> None:
    _check(x, weight, bias, residual, y, len(weight) // (1 + gated))
    cublas = current().cublas
    if cublas is None or not cublas.run(x, weight, bias, residual, y, gated):
        launch(x, weight, bias, residual, y, gated)


def launch(x, weight, bias, residual, y, gated: bool) -> None:
    """Queue our kernel for a linear layer, gated or not, whose arrays fit."""
    (T, K), N = x.shape, len(weight) // (1 + gated)
    device = current()
    if T <= MOST_ROWS:
        kernel, constants = linear_skinny_kernel, linear_skinny.chosen(T, N, gated)
        grid = -(-N * (1 + gated) // constants["TILE_N"])
    else:
        if WGMMA and device.chip == "sm_90a":
            kernel, constants = linear_wgmma_kernel, linear_wgmma.chosen(T, N, gated)
        else:
            kernel, constants = linear_tiled_kernel, linear_tiled.chosen(T, N, gated, device.chip)
        grid = -(-T // constants["TILE_T"]), -(-N * (1 + gated) // constants["TILE_N"])
    flags = HAS_BIAS * (bias is not None) | HAS_RESIDUAL * (residual is not None) | OUT_F32 * (y.dtype == f32)
    bias, residual = (weight if array is None else array for array in (bias, residual))          # not read without their flags
    if T:
        device.launch(kernel.specialize(**constants), grid, x, weight, bias, residual, y.view(u16), T, N, K, flags)


def _check(x, weight, bias, residual, y, N: int) -> None:
    (T, K), shapes = x.shape, {"out": (y, (len(x), N))}
    if weight.shape[1] != K:
        raise DeviceError(f"linear: x {list(x.shape)} has {K} columns, weight {list(weight.shape)} has {weight.shape[1]}; "
                          "they must be equal")
    if K % 8 or K == 0:
        raise DeviceError(f"linear: rows of {K} elements; the kernels read 16 bytes at once, K must be a multiple of 8: pad "
                          "x and weight with zeros")
    if T * N >= 1 << 32:
        raise DeviceError(f"linear: {T} x {N} outputs; one launch makes fewer than {1 << 32}: split the rows")
    if bias is not None:
        shapes["bias"] = bias, (len(weight),)
    if residual is not None:
        shapes["residual"] = residual, (T, N)
    for name, (array, shape) in shapes.items():
        if array.shape != shape:
            raise DeviceError(f"linear: {name} has shape {list(array.shape)}, expected {list(shape)}")
    if y.dtype not in (bf16, f32):
        raise DeviceError(f"linear: the output is {y.dtype}, it can be bfloat16 or float32")
    need_contiguous(x=x, weight=weight, **{name: array for name, (array, _) in shapes.items()})


def _inputs(rng, T, N, K, bias=False, residual=False, f32_out=False):
    """Values whose products spread over many powers of two, so that truncation shows."""
    def draw(*shape):
        return (rng.standard_normal(shape, f32) * rng.choice(np.array([1 / 16, 1, 4], f32), shape)).astype(bf16)

    inputs = {"x": draw(T, K), "weight": draw(N, K)}
    return inputs | ({"bias": draw(N)} if bias else {}) | ({"residual": draw(T, N)} if residual else {})


def _linear_spec(name: str, cases, gpu_cases) -> OpSpec:
    return OpSpec(
        name, cases, gpu_cases, bench_cases=(), make_inputs=_inputs, reference=reference.linear, rows=("x", "residual"),
        outputs=lambda T, N, K, f32_out=False, **_: {"y": ((T, N), f32 if f32_out else bf16)},
        launch=lambda inputs, out: linear(**inputs, out=out["y"]),
        num_bytes=lambda T, N, K, residual=False, f32_out=False, **_: 2 * (N * K + T * K + T * N * (1 + residual + f32_out)),
        flops=lambda T, N, K, **_: 2 * T * N * K, tolerance=CHAIN_ROUNDING)


def _shapes(*shapes, **options):
    return [{"T": T, "N": N, "K": K, **options} for T, N, K in shapes]


EVERY_PART = {"bias": True, "residual": True, "f32_out": True}
SPECS = (
    _linear_spec("linear.bf16",
                 [*_shapes((1, 1, 64), (16, 9, 72)), *_shapes((17, 4, 72), bias=True), *_shapes((3, 8, 200), residual=True),
                  *_shapes((63, 3, 72), **EVERY_PART)],
                 [*_shapes((1, 5120, 1024), (8, 5120, 1024), (63, 5120, 1024), (1, 1024, 5120), (3, 500, 17408)),
                  *_shapes((16, 4096, 1024), residual=True), *_shapes((63, 17408, 264), **EVERY_PART)]),
    _linear_spec("linear.bf16.prefill", [],             # on the emulator it takes seconds: tests/cuda/test_linear.py does it once
                 [*_shapes((500, 1024, 2048), (1000, 4096, 1024), (130, 500, 17408)),
                  *_shapes((65, 9, 72), (500, 5120, 264), **EVERY_PART)]),
    OpSpec("linear.silu_and_mul", _shapes((1, 1, 64), (17, 3, 72), (3, 8, 200)),
           _shapes((8, 17408, 264), (63, 200, 4096), (65, 40, 72), (500, 1000, 1024)), bench_cases=(),
           make_inputs=lambda rng, T, N, K: _inputs(rng, T, 2 * N, K),
           outputs=lambda T, N, K: {"y": ((T, N), bf16)}, rows=("x",),
           reference=lambda x, weight: reference.silu_and_mul(reference.linear(x, weight)),
           launch=lambda inputs, out: linear_silu_and_mul(**inputs, out=out["y"]),
           num_bytes=lambda T, N, K: 2 * (2 * N * K + T * K + T * N), flops=lambda T, N, K: 4 * T * N * K, tolerance=CHAIN_ROUNDING),
)

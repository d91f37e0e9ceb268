"""RMSNorm    y = x / sqrt(mean(x^2) + eps) * w, plain, after an addition, or times silu(z)

x [..., D] f32; w [D] bf16, f16 or f32; y [..., D] f32.
Order: squares add up in eight lanes by fma (element d in lane d % 8, ascending), hsum's tree joins the lanes, the last
D % 8 squares follow by fma. Depends on D alone.    Bytes: 8 per element of x, bound by memory.
"""

from functools import cache

import numpy as np

from vtlite.cpu.elementary import silu
from vtlite.cpu.kernel import SERIAL_BELOW, Kernel, float_in, pointer_to, run
from vtlite.cpu.simd import LANES, fma, hsum, load, load_one, splat
from vtlite.cpu.strided import bits


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float, zero_centered: bool = False) -> np.ndarray:
    """x [..., D] f32, weight [D] -> [..., D] f32; the mean is over the last axis. zero_centered: times 1 + weight."""
    x, w, y = bits(x), bits(weight), np.empty(x.shape, np.float32)
    run(_row_kernel(w.dtype.type), x.size // w.size, x, w, y, w.size, float(eps), float(zero_centered),
        parallel=x.size >= SERIAL_BELOW)
    return y


def add_rms_norm(x: np.ndarray, residual: np.ndarray, weight: np.ndarray, eps: float,
                 zero_centered: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(rms_norm(h), h) with h = x + residual."""
    h = np.empty(x.shape, np.float32)
    run(_add, len(x), bits(x), bits(residual), h, h.size // len(h), parallel=h.size >= SERIAL_BELOW)
    return rms_norm(h, weight, eps, zero_centered), h


def gated_rms_norm(x: np.ndarray, z: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """rms_norm(x) * silu(z), for x and z [..., D] f32."""
    y = rms_norm(x, weight, eps)
    run(_times_silu, y.size // y.shape[-1], y, bits(z), y.shape[-1], parallel=y.size >= SERIAL_BELOW)
    return y


@cache
def _row_kernel(weight_type: type) -> Kernel:
    """The norm of row `task`, for weights that travel as `weight_type`."""
    @Kernel
    def rms_norm_row(task, args):
        x, w, y, D = pointer_to(args[0], np.float32), pointer_to(args[1], weight_type), pointer_to(args[2], np.float32), args[3]
        eps, offset, row = float_in(args[4]), float_in(args[5]), task * args[3]
        squares = splat(0)
        for d in range(0, D - LANES + 1, LANES):
            v = load(x, row + d)
            squares = fma(v, v, squares)
        total = hsum(squares)
        for d in range(D - D % LANES, D):
            total = fma(x[row + d], x[row + d], total)
        rms = np.sqrt(total / np.float32(D) + eps)
        for d in range(D):
            y[row + d] = x[row + d] / rms * (load_one(w, d) + offset)
    return rms_norm_row


@Kernel
def _add(task, args):
    x, residual, h = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), pointer_to(args[2], np.float32)
    for i in range(task * args[3], (task + 1) * args[3]):
        h[i] = x[i] + residual[i]


@Kernel
def _times_silu(task, args):
    y, z, D = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32), args[2]
    for i in range(task * D, (task + 1) * D):
        y[i] *= silu(z[i])

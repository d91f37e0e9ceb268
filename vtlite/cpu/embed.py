"""Rows of a matrix by index, each by itself.    Bytes: read and write of the rows."""

from functools import cache

import numpy as np

from vtlite.cpu.kernel import SERIAL_BELOW, Kernel, pointer_to, run
from vtlite.cpu.simd import load_one
from vtlite.cpu.strided import bits


def embedding(input_ids: np.ndarray, weight: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """input_ids [T] i64 in 0..V-1, weight [V, D] bf16, f16 or f32 -> [T, D] f32, the `dtype` of a CPU's activations."""
    assert np.dtype(dtype) == np.float32, f"activations are float32 on a CPU, not {dtype}"
    return gather_rows(weight, input_ids)


def gather_rows(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """x [T, D] bf16, f16 or f32, rows [L] i64 in 0..T-1 -> [L, D] f32."""
    if rows.size and not 0 <= rows.min() <= rows.max() < len(x):
        raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(x)}")
    x, y = bits(x), np.empty((len(rows), x.shape[1]), np.float32)
    run(_row_kernel(x.dtype.type), len(rows), x, rows, y, y.shape[1], parallel=y.size >= SERIAL_BELOW)
    return y


@cache
def _row_kernel(kind: type) -> Kernel:
    """Row `task` of the result, for elements that travel as `kind`."""
    @Kernel
    def gather_row(task, args):
        x, y, D = pointer_to(args[0], kind), pointer_to(args[2], np.float32), args[3]
        row = pointer_to(args[1], np.int64)[task]
        for d in range(D):
            y[task * D + d] = load_one(x, row * D + d)
    return gather_row

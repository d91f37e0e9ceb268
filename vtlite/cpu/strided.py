"""Arrays as kernels read them: contiguous, under the type that the elements travel by.

A copy that this takes is itself a kernel, so that a recorded step (replay.py) makes it again.
"""

import ml_dtypes
import numpy as np

from vtlite.cpu.kernel import SERIAL_BELOW, Kernel, pointer_to, run

_TRAVELS_AS = {np.dtype(ml_dtypes.bfloat16): np.uint16, np.dtype(np.float16): np.int16, np.dtype(np.float32): np.float32}


def bits(array: np.ndarray) -> np.ndarray:
    """A contiguous float array under the type that kernels read it by: bfloat16 as uint16, float16 as int16.

    An activation that is not contiguous, f32 with at most four axes, is copied.
    """
    kind = _TRAVELS_AS.get(array.dtype)
    if kind is None:
        raise TypeError(f"a CPU kernel was given {array.dtype} {list(array.shape)}; it reads bfloat16, float16 and float32")
    return array.view(kind) if array.flags.c_contiguous else _copied(array)


def _copied(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.float32 or not 1 <= array.ndim <= 4:
        raise TypeError(f"a CPU kernel was given a strided {array.dtype} {list(array.shape)}; it copies float32 of up to four axes")
    if not array.size:
        return np.ascontiguousarray(array)
    copy = np.empty(array.shape, np.float32)
    shape = (1,) * (4 - array.ndim) + array.shape
    strides = (0,) * (4 - array.ndim) + tuple(stride // 4 for stride in array.strides)
    first = array[(slice(1),) * array.ndim]
    run(_copy, shape[0] * shape[1], first, copy, *shape[1:], *strides, parallel=copy.size >= SERIAL_BELOW)
    return copy


@Kernel
def _copy(task, args):
    """The elements of one pair of the outer two axes."""
    source, target = pointer_to(args[0], np.float32), pointer_to(args[1], np.float32)
    B, C, D, stride_a, stride_b, stride_c, stride_d = args[2], args[3], args[4], args[5], args[6], args[7], args[8]
    start = task // B * stride_a + task % B * stride_b
    for c in range(C):
        for d in range(D):
            target[(task * C + c) * D + d] = source[start + c * stride_c + d * stride_d]

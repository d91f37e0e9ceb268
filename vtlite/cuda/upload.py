"""Weights on their way to a device: pieces of the mapped file, rounded to bfloat16 if need be, through pinned memory."""

from collections.abc import Callable, Iterable

import numpy as np

from vtlite.cuda.lang import bf16


class Upload:
    """What `vtlite.checkpoint.weights.Weights` puts tensors on `device` with; `on_bytes(n)` hears how many bytes were read so far.

    The host holds one piece and the pinned ring at a time, whatever the checkpoint's size.
    """

    def __init__(self, device, on_bytes: Callable[[int], None] = lambda n: None):
        self.device, self.on_bytes, self.num_bytes = device, on_bytes, 0

    def __call__(self, shape: tuple[int, ...], pieces: Iterable[np.ndarray], dtype=None):
        """An array of `shape` on the device, made of `pieces` one below another along the first axis; bfloat16 by default."""
        array, row = self.device.empty(shape, dtype or bf16), 0
        for piece in pieces:
            array[row : row + len(piece)].copy_from(np.ascontiguousarray(piece.astype(array.dtype, copy=False)))
            row += len(piece)
            self.num_bytes += piece.nbytes
            self.on_bytes(self.num_bytes)
        return array

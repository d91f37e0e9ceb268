"""Weights drawn at random where a model's config.json is all there is: enough to measure its speed and memory."""

import zlib
from collections.abc import Callable

import numpy as np


class DummyWeights:
    """Stands for `vtlite.checkpoint.weights.Weights`: whatever a model asks for is there, in bfloat16.

    `uniform(shape, seed, center, spread)` draws an array where the model runs, `on_host` the same as a NumPy array. The seed is
    made of the tensor's name, so a config.json has the same weights everywhere. Matrices keep the scale of what they are
    applied to; vectors, most of them scales of norms, lie around 1. `upload` as in Weights.
    """

    def __init__(self, uniform: Callable, on_host: Callable, upload: Callable | None = None):
        self._uniform, self._on_host, self._upload = uniform, on_host, upload

    def __contains__(self, name: str) -> bool:
        return False                                       # no name that a model would only try

    def take(self, name: str, shape: tuple[int, ...], dtype=None):
        return self.take_stacked([name], [shape], dtype)

    def take_stacked(self, names: list[str], shapes: list[tuple[int, ...]], dtype=None):
        shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        if dtype is None:
            return self._draw(names[0], shape, self._uniform)
        return self.place(self.read(names[0], shape), dtype)

    def place(self, array: np.ndarray, dtype=None):
        if self._upload is not None:
            return self._upload(array.shape, [array], dtype)
        return array if dtype is None else array.astype(dtype, copy=False)

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """The tensor on the host."""
        return self._draw(name, shape, self._on_host)

    def ignore(self, pattern: str, reason: str = "") -> list[str]:
        return []

    def finish(self) -> None:
        """Nothing can be left over."""

    def _draw(self, name: str, shape: tuple[int, ...], uniform: Callable):
        seed = zlib.crc32(name.encode())
        if len(shape) == 1:
            return uniform(shape, seed, 1.0, 0.25)
        return uniform(shape, seed, 0.0, (3 / shape[-1]) ** 0.5)      # variance 1 / K

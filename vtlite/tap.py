"""`tap(name, array)`: look at an intermediate value by its Hugging Face module path.

Models call it at the places where two implementations can be compared. Nothing happens
unless a `collect` block is open, so a tap costs one attribute test.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_sink: Callable | None = None


def tap(name: str, array):
    """Offer `array` [T, ...] under `name` (e.g. "model.layers.3.self_attn"); returns it unchanged."""
    if _sink is not None:
        _sink(name, array)
    return array


def is_open() -> bool:
    """Whether somebody collects."""
    return _sink is not None


@contextmanager
def collect(sink: Callable) -> Iterator[None]:
    """Call `sink(name, array)` for every tap inside the block. Arrays may be reused: copy what you keep."""
    global _sink
    before, _sink = _sink, sink
    try:
        yield
    finally:
        _sink = before

"""Kernels shared out among another number of threads."""

from contextlib import contextmanager

import pytest

from vtlite.cpu import cores


@contextmanager
def threads(number: int):
    """Kernels are cut up for, and shared out among, this many threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cores, "num_threads", lambda: number)
        yield

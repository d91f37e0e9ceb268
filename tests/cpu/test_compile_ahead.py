"""What compiles ahead compiles what a first run needs."""

import gc

import numpy as np

from vtlite import cpu
from vtlite.cpu import compile_ahead
from vtlite.engine.first_run import compiled_before


def test_what_it_runs_is_valid_and_leaves_a_trace_in_the_cache():
    try:
        compile_ahead.main()
    finally:
        gc.enable()
    wide = np.ones((64, 2048), np.float32)
    cpu.linear(wide, wide)                            # large enough to use the parallel launcher
    assert compiled_before()

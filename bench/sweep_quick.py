"""Do the GPU's forms of silu and gelu_tanh (vtlite/cuda/lang/quick.py) give the bits of their definitions? All 2^32 arguments.

    python -m bench.sweep_quick [--first 0 --last 0xffffffff]            about 5 minutes on two cores

Prints how many differ, NaN counting as equal to NaN; exit code 1 if any does.
"""

import argparse
import sys
import time

import numpy as np
from numba import njit, prange
from numba.extending import register_jitable

from vtlite.cpu import elementary as compiled
from vtlite.cuda.lang import quick

CHUNK = 1 << 24

for _function in (quick.quarter_of_one_plus_exp_minus, quick.reciprocal, quick.quotient, quick.weighted):
    register_jitable(_function)
quick_silu, quick_gelu_tanh = register_jitable(quick.silu), register_jitable(quick.gelu_tanh)


@njit(parallel=True, error_model="numpy")
def count_different(first, count):
    different = 0
    for i in prange(count):
        x = compiled._float_of(np.int32(np.uint32(first + i)))
        for got, want in ((quick_silu(x), compiled.silu(x)), (quick_gelu_tanh(x), compiled.gelu_tanh(x))):
            if compiled._bits_of(got) != compiled._bits_of(want) and (got == got or want == want):
                different += 1
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("--first", 0), ("--last", 0xFFFFFFFF)):
        parser.add_argument(name, type=lambda text: int(text, 0), default=default, help="bits of an f32")
    args = parser.parse_args()
    start, different = time.perf_counter(), 0
    for first in range(args.first, args.last + 1, CHUNK):
        different += count_different(first, min(CHUNK, args.last + 1 - first))
        if first % (CHUNK << 4) == 0:
            print(f"{first:#010x}: {different} differ, {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{args.last + 1 - args.first} arguments of two functions: {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

"""The emulator's scalar arithmetic has the bits of the definitions."""

import inspect
from itertools import product

import numpy as np
import pytest

from vtlite.cuda.emulated_arithmetic import FAST

f32, i32, u32 = np.float32, np.int32, np.uint32
SPECIAL = np.array([0, -0.0, 1, -1, 1.5, 3, 2**-149, -(2**-149), 2**-126, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan,
                    1 + 2**-23, 1 - 2**-24, 2**24 + 1, 1.00390625, 1.01171875], f32)


def floats(rng, n):
    random = rng.integers(0, 1 << 32, n, dtype=u32).view(f32)
    return np.concatenate([SPECIAL, random, rng.standard_normal(n).astype(f32)])


def arguments(function, rng):
    """Tuples of scalars that suit a function's parameters."""
    count = len(inspect.signature(function).parameters)
    if function.__name__ in ("as_f32", "i32_to_f32"):
        return [(i32(n),) for n in floats(rng, 500).view(i32)]
    if function.__name__ == "bf16_to_f32":
        return [(np.uint16(n),) for n in range(0, 1 << 16, 37)]
    if function.__name__.startswith("bf16x2"):
        return [(n,) for n in rng.integers(0, 1 << 32, 500, dtype=u32)]
    if function.__name__ == "select":
        return [(bool(c), f32(1), f32(2)) for c in (0, 1)]
    if count <= 2:
        return list(product(floats(rng, 500 if count == 1 else 20), repeat=count))
    near_ties = [(f32(1 + k * 2**-12), f32(1 + j * 2**-12), f32(s * 2.0**e)) for k, j, s, e
                 in rng.integers((1, 1, -3, -60), (4096, 4096, 4, 10), (1500, 4))]
    return list(product(SPECIAL, repeat=3)) + list(zip(*(floats(rng, 500) for _ in range(3)))) + near_ties


@pytest.mark.parametrize("definition", FAST, ids=lambda function: function.__name__)
def test_same_bits(definition):
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        for values in arguments(definition, rng):
            expected, got = definition(*values), FAST[definition](*values)
            assert type(got) is type(expected), values
            assert got.tobytes() == expected.tobytes() or (expected != expected and got != got), values

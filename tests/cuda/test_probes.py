"""The device that runs has the arithmetic that vtlite says: the tensor core's, and that of every other primitive."""

import ml_dtypes
import numpy as np
import pytest
from ml_dtypes import bfloat16

from vtlite import elementary
from vtlite.cuda import probes, tensor_core
from vtlite.cuda.device import open_device, using
from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.cuda.probe_arithmetic import FLOATS, NARROW, RESULTS, arithmetic
from vtlite.cuda.tensor_map import TensorMap


def random(rng, *shape, spread):
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)).astype(bfloat16)


def chain(a, b):
    return tensor_core.chain(a.view(np.uint16), b.view(np.uint16), np.zeros((len(a), len(b)), np.float32))


@pytest.mark.parametrize("depth, spread", [(16, 0), (48, 8)])
def test_mma_adds_in_ascending_steps_of_sixteen(device, depth, spread):
    rng = np.random.default_rng(depth)
    a, b = random(rng, 16, depth, spread=spread), random(rng, 8, depth, spread=spread)
    got = probes.mma_chain(device.array(a), device.array(b)).numpy()
    np.testing.assert_array_equal(got.view(np.uint32), chain(a, b).view(np.uint32))


def test_wgmma_has_the_bits_of_mma(device):
    rng = np.random.default_rng(1)
    a, b = random(rng, 64, 64, spread=4), random(rng, 16, 64, spread=4)
    got = probes.wgmma_chain(device.array(probes.swizzled(a)), device.array(probes.swizzled(b))).numpy()
    np.testing.assert_array_equal(got.view(np.uint32), chain(a, b).view(np.uint32))


@pytest.mark.parametrize("swizzled, columns", [(True, 64), (False, 32)])
@pytest.mark.parametrize("row, column", [(0, 0), (3, 16), (-5, -8), (36, 72), (50, 0)])
def test_a_tensor_copy_brings_its_box_with_zeros_outside_the_matrix(device, swizzled, columns, row, column):
    """A matrix within another: its rows are farther apart than they are long."""
    whole = np.random.default_rng(2).standard_normal((40, 160)).astype(bfloat16)
    matrix = TensorMap(device.array(whole)[:, 32:132], (16, columns), swizzled)
    got = probes.copied_box(matrix, row, column).numpy().view(bfloat16).reshape(16, columns)
    padded = np.zeros((200, 300), bfloat16)
    padded[50:90, 50:150] = whole[:, 32:132]
    box = padded[50 + row : 66 + row, 50 + column : 50 + column + columns]
    assert got.tobytes() == (probes.swizzled(box) if swizzled else box).tobytes()


def numbers(rng, count):
    """f32 of every kind: moderate, of any bits, and the special ones."""
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 2.0**-126, 448, 449, 464, 465, 57344, 61440, 65504,
                        65520, 3e38, -3e38, 2147483648, -2147483648, 4294967296, 0.5, 1.5, 2.5, -0.5], np.float32)
    moderate = (rng.standard_normal(count // 2) * rng.choice([0.1, 1, 10, 60], count // 2)).astype(np.float32)
    anything = rng.integers(0, 1 << 32, count - count // 2 - len(special), np.uint32).view(np.float32)
    return rng.permutation(np.concatenate([special, moderate, anything]))


def probed(device, count):
    rng = np.random.default_rng(5)
    x, y, z = (numbers(rng, count) for _ in range(3))
    a, b = (rng.integers(0, 1 << 32, count, np.uint32) for _ in range(2))
    with using(device):
        out = arithmetic(*map(device.array, (x, y, z, a, b))).numpy()
    return dict(zip(RESULTS, out.T, strict=True)), x, y, z, a, b


def test_arithmetic_in_a_kernel_is_that_of_numpy():
    out, x, y, z, a, b = probed(EmulatedDevice(), 128)
    signed = a.view(np.int32)
    with np.errstate(all="ignore"):
        floats = {"x * y + z": x * y + z, "div": x / y, "sqrt": np.sqrt(x), "floor": np.floor(x), "i32_to_f32": signed.astype(np.float32),
                  **{name: getattr(elementary, name)(x) for name in ("exp", "exp2", "log", "sigmoid", "silu", "softplus", "rsqrt")}}
        integers = {"a + b": a + b, "a * b": a * b, "i32(a) >> 5": signed >> 5, "a // 7": a // 7, "a < b": a < b, "x != x": np.isnan(x),
                    "mul_hi_u32": a.astype(np.uint64) * b >> np.uint64(32), "popc": np.bitwise_count(a)}
    for name, want in floats.items():
        np.testing.assert_array_equal(out[name].view(np.float32), want, err_msg=name)
    for name, want in integers.items():
        np.testing.assert_array_equal(out[name], want.astype(np.int64).astype(np.uint32), err_msg=name)


def difference(name, got, want, operands) -> str:
    """How the results of a probe called `name` differ, with the operands of the first that do; "" if they do not."""
    same = got == want
    if name in FLOATS:
        same |= np.isnan(got.view(np.float32)) & np.isnan(want.view(np.float32))
    elif name in NARROW:
        same |= np.array([has_nan(name, int(bits)) for bits in want])
    if same.all():
        return ""
    at = int(np.argmin(same))
    x, y, z, a, b = (operand[at] for operand in operands)
    return (f"{name}: {(~same).sum()} of {len(same)} differ; the first gives {got[at]:#010x}, emulated {want[at]:#010x}, of "
            f"x={float(x).hex()} y={float(y).hex()} z={float(z).hex()} a={a:#010x} b={b:#010x}")


@pytest.fixture(scope="module")
def on_gpu():
    return probed(open_device("0"), 1024)[0]


@pytest.fixture(scope="module")
def emulated():
    out, *operands = probed(EmulatedDevice(), 1024)
    return out, operands


@pytest.mark.gpu
@pytest.mark.parametrize("name", RESULTS)
def test_on_the_gpu_it_has_the_bits_of_the_emulator(on_gpu, emulated, name):
    out, operands = emulated
    assert difference(name, np.ascontiguousarray(on_gpu[name]), np.ascontiguousarray(out[name]), operands) == ""


def test_a_difference_is_told_with_its_operands_and_a_nan_is_none():
    want = np.array([0x3F800000, 0x7FC00000], np.uint32)
    x, a = np.array([1.5, np.nan], np.float32), np.array([2, 3], np.uint32)
    assert difference("div", want, want, (x, x, x, a, a)) == difference("div", want ^ np.uint32([0, 1]), want, (x, x, x, a, a)) == ""
    told = difference("div", want ^ np.uint32([1, 0]), want, (x, x, x, a, a))
    assert told.startswith("div: 1 of 2 differ; the first gives 0x3f800001, emulated 0x3f800000, of x=0x1.8000000000000p+0 ")
    assert difference("popc", want ^ np.uint32([0, 1]), want, (x, x, x, a, a)).startswith("popc: 1 of 2 differ")


def has_nan(name, bits):
    """Whether a narrow result holds a NaN, whose bits are not promised."""
    dtype = ml_dtypes.float8_e4m3fn if "to_e4m3" in name else ml_dtypes.float8_e5m2 if "to_e5m2" in name else \
        bfloat16 if "to_bf16" in name else np.float16
    return bool(np.isnan(np.array([bits], np.uint32).view(dtype).astype(np.float32)).any())

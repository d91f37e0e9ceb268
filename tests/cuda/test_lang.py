"""The language of kernels: what each primitive means in Python, and that its PTX is accepted by the assembler."""

import importlib.util
import inspect
import itertools
import operator
import re

import ml_dtypes
import numpy as np
import pytest

from vtlite.cuda import lang
from vtlite.cuda.lang import PRIMITIVES
from vtlite.cuda.lang.primitive import Primitive, chip_number, primitive, runs_on

CHIPS = ("sm_80", "sm_90a", "sm_120")
ARGUMENT = {"f": "z[0]", "u": "x[0]", "i": "y[0]", "h": "u16(x[1])", "l": "u64(x[2])", "x": "z[0]", "b": "x[3] > u32(2)", "p": "x",
            "s": "shared", "n": "1", "t": "m"}
RESULT_GOES_TO = {"f": "z", "u": "x", "i": "y", "h": "x", "l": "x", "x": "z", "b": "x"}
MODULES = sorted({p.function.__module__ for p in PRIMITIVES.values() if p.function.__module__ != "vtlite.ieee"})


def kernel_text(chosen: list[Primitive], needs: str) -> str:
    """A module with one kernel that calls each primitive once."""
    lines = ["from vtlite.cuda.kernel import kernel", "from vtlite.cuda.lang import *", "",
             f"@kernel((ptr(u32), ptr(i32), ptr(f32), tensor_map), threads=128, needs={needs!r})", "def every_primitive(x, y, z, m):",
             "    shared = cuda.shared.array(32, u32)"]
    slot = itertools.count()                       # each result to a place of its own, so that none is dropped
    for p in chosen:
        arguments = []
        for operand in p.operands:
            if operand.isdigit():
                lines += [f"    array = cuda.local.array({operand}, f32)", f"    for i in consteval(range({operand})):",
                          "        array[i] = z[i]"]
            arguments.append("array" if operand.isdigit() else ARGUMENT[operand])
        call = f"{p.name}({', '.join(arguments)})"
        lines.append(f"    r = {call}" if p.outputs else f"    {call}")
        for i, letter in enumerate(p.outputs):
            value = f"r[{i}]" if len(p.outputs) > 1 else "r"
            value = f"u32(1) if {value} else u32(0)" if letter == "b" else value
            lines.append(f"    {RESULT_GOES_TO[letter]}[{100 + next(slot)}] = {value}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("module", ["vtlite.ieee", *MODULES], ids=lambda module: module.rpartition(".")[2])
def test_every_primitive_is_accepted_by_the_assembler(module, tmp_path):
    pytest.importorskip("numba_cuda_mlir", reason='compiling kernels needs pip install "vtlite[cuda]", which the extra test brings')
    from vtlite.cuda.compiler import compile_kernel
    primitives = [p for p in PRIMITIVES.values() if p.function.__module__ == module]
    for chip in CHIPS:
        chosen = [p for p in primitives if p.template(chip)]
        if not chosen:
            continue
        path = tmp_path / f"{module.rpartition('.')[2]}_{chip}.py"
        path.write_text(kernel_text(chosen, "sm_90a" if chip == "sm_90a" else "sm_80"))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        generated = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(generated)
        ptx = compile_kernel(generated.every_primitive.specialize(), chip).ptx
        for p in chosen:
            instruction = re.findall(r"(?:^|[;{\s])([a-z]\w*(?:[.:]+\w+)+)", p.template(chip))[-1]
            assert instruction in ptx, p.name


def test_every_primitive_says_what_it_is():
    for p in PRIMITIVES.values():
        text = inspect.getdoc(p.function)
        assert text and re.search(r"\((?:CUDA|PTX)|\((?:ld|st)\.|PTX ", text), p.name
        assert p.function in (getattr(lang, p.name, None),), f"{p.name} is not exported"


def values_of(bits: int, dtype) -> np.ndarray:
    """The pattern of a pair in its low and high half (or byte, or nibble), as float32."""
    return np.array([bits], np.uint32).view(dtype).astype(np.float32)


def evaluate(template: str, **inputs: int) -> int:
    """The result of straight-line PTX on 32-bit integers and pairs of f16."""
    registers = {f"${name}": np.uint32(value) for name, value in inputs.items()}

    def value(text):
        return registers[text] if text in registers else np.uint32(int(text, 0))

    def half_products(a, b):
        with np.errstate(all="ignore"):
            return (np.array([a]).view(np.float16) * np.array([b]).view(np.float16)).view(np.uint32)[0]

    operations = {"and.b32": operator.and_, "or.b32": operator.or_, "shl.b32": operator.lshift, "shr.u32": operator.rshift,
                  "add.u32": operator.add, "sub.u32": operator.sub, "mov.b32": operator.pos,
                  "cvt.u32.u16": lambda a: a & np.uint32(0xFFFF), "mul.f16x2": half_products, "prmt.b32": lang.byte_permute}
    with np.errstate(over="ignore"):
        for statement in re.sub(r"[{}]|\.reg [^;]*;", "", template).split(";"):
            if statement.strip():
                name, operands = statement.split(maxsplit=1)
                target, *sources = [operand.strip() for operand in operands.split(",")]
                registers[target] = np.uint32(operations[name](*map(value, sources)))
    return int(registers["$0"])


@pytest.mark.parametrize("function, dtype, width", [
    (lang.e4m3x2_to_f16x2, ml_dtypes.float8_e4m3fn, 8), (lang.e5m2x2_to_f16x2, ml_dtypes.float8_e5m2, 8),
    (lang.e2m1x2_to_f16x2, ml_dtypes.float4_e2m1fn, 4)], ids=["e4m3", "e5m2", "e2m1"])
def test_narrow_pairs_widen_exactly_in_ptx_and_in_python(function, dtype, width):
    p = PRIMITIVES[function]
    for low in range(1 << width):
        high = (low * 7 + 3) % (1 << width)
        want = np.array([low, high], np.uint8).view(dtype).astype(np.float32)
        pair = low | high << width
        np.testing.assert_array_equal(values_of(int(function(np.uint32(pair))), np.float16), want)
        np.testing.assert_array_equal(values_of(evaluate(p.template("sm_80"), **{p.parameters[0]: pair}), np.float16), want)


@pytest.mark.parametrize("function, dtype", [(lang.f32_to_bf16, ml_dtypes.bfloat16), (lang.f32_to_f16, np.float16)])
def test_narrowing_rounds_to_nearest_even(function, dtype):
    rng = np.random.default_rng(0)
    ties = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 0, -0.0, 65520, 1e-8, np.inf]
    x = np.concatenate([rng.standard_normal(300).astype(np.float32), ties])
    with np.errstate(over="ignore"):
        want = x.astype(np.float32).astype(dtype).view(np.uint16)
    np.testing.assert_array_equal([function(value) for value in x.astype(np.float32)], want)
    assert function(np.float32(np.nan)) == 0x7FFF


@pytest.mark.parametrize("function, dtype, largest", [(lang.f32_to_e4m3x2, ml_dtypes.float8_e4m3fn, 448),
                                                      (lang.f32_to_e5m2x2, ml_dtypes.float8_e5m2, 57344)])
def test_fp8_saturates(function, dtype, largest):
    pairs = [(0.3, -17.3), (largest * 1.01, largest * 100), (-np.inf, np.inf), (2.0**-9, -(2.0**-10))]
    for low, high in pairs:
        want = np.clip(np.array([low, high], np.float32), -largest, largest).astype(dtype).astype(np.float32)
        np.testing.assert_array_equal(values_of(int(function(np.float32(low), np.float32(high))), dtype)[:2], want)


def test_conversions_to_integers_saturate_and_zeros_keep_their_signs():
    assert [int(lang.f32_to_i32_rn(np.float32(x))) for x in (0.5, 1.5, -2.5, 3e9, -3e9, np.nan)] == [0, 2, -2, 2**31 - 1, -(2**31), 0]
    assert [int(lang.f32_to_u32_rz(np.float32(x))) for x in (-1, 3.9, 5e9, np.nan)] == [0, 3, 2**32 - 1, 0]
    for a, b in itertools.product((0.0, -0.0), repeat=2):
        a, b = np.float32(a), np.float32(b)
        assert np.signbit(lang.fmax(a, b)) == (np.signbit(a) and np.signbit(b))
        assert np.signbit(lang.fmin(a, b)) == (np.signbit(a) or np.signbit(b))
    assert lang.fmax(np.float32(np.nan), np.float32(1)) == lang.fmin(np.float32(1), np.float32(np.nan)) == 1


def test_chips_have_what_lower_chips_have_but_for_what_is_one_chip_s_own():
    assert runs_on("sm_80", "sm_121") and runs_on("sm_89", "sm_90a") and runs_on("sm_90a", "sm_90a")
    assert not runs_on("sm_90", "sm_89") and not runs_on("sm_90a", "sm_100")
    assert chip_number("sm_90a") == 90


def test_a_primitive_whose_ptx_does_not_fit_its_parameters_is_refused():
    with pytest.raises(TypeError, match=r"names \['b'\]; it has \['0', 'a'\]"):
        primitive("add.u32 $0, $a, $b;", outputs="u", inputs="u")(lambda a: a)
    with pytest.raises(TypeError, match="does not fit inputs='uu'"):
        primitive("neg.s32 $0, $a;", outputs="u", inputs="uu")(lambda a: a)

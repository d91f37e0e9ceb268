"""The compiler: no GPU needed, nothing fused, nothing approximate, nothing widened; and its refusals are sentences."""

import re
from functools import cache
from importlib.metadata import PackageNotFoundError

import pytest

from tests.cuda import small_kernels as small
from vtlite.cuda import all_kernels, compiler, cubin_cache
from vtlite.cuda.compiler import CHIPS, CompileError, compile_kernel
from vtlite.cuda.lang.primitive import PRIMITIVES
from vtlite.cuda.prebuild import build_all

pytest.importorskip("numba_cuda_mlir", reason='compiling kernels needs pip install "vtlite[cuda]", which the extra test brings')
CI_CHIPS = ("sm_80", "sm_90a", "sm_120")
LARGE = {"attention_decode", "attention_prefill", "gdn_chunk", "gdn_conv", "gdn_decode", "gdn_scan", "linear_tiled", "linear_wgmma"}
IN_FLOAT64 = {"bound_kernel", "select_kernel"}       # top-p is compared in float64, once per row
INLINE = re.compile(r"// begin inline asm.*?// end inline asm", re.DOTALL)


def ptx_of(kernel, chip="sm_90a"):
    return compile_kernel(kernel.specialize(), chip).ptx


def is_large(kernel) -> bool:
    """Whether it takes tens of seconds to compile: `pytest -m slow` does, and `vtlite kernels compile --all-chips`."""
    return kernel.function.__module__.rpartition(".")[2] in LARGE


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The first prebuilt specialisations of some kernels, for CI_CHIPS: the folder, and the rows by name and chip."""
    @cache
    def build(large: bool):
        folder = tmp_path_factory.mktemp("cubins")
        rows = build_all([kernel.to_prebuild()[0] for kernel in all_kernels() if is_large(kernel) == large], CI_CHIPS, folder)
        return folder, {(row.kernel, row.chip): row for some in rows for row in some}
    return build


@pytest.mark.parametrize("kernel", [pytest.param(kernel, id=kernel.name, marks=[pytest.mark.slow] * is_large(kernel))
                                    for kernel in all_kernels()])
def test_every_kernel_compiles_without_spills_or_hidden_arithmetic(kernel, built):
    folder, rows = built(is_large(kernel))
    specialized = kernel.to_prebuild()[0]
    for chip in filter(specialized.runs_on, CI_CHIPS):
        assert rows[specialized.name, chip].problem == ""
        entry = cubin_cache.read(folder, specialized, chip)
        assert entry.cubin.startswith(b"\x7fELF") and f".target {chip}" in entry.ptx
        assert [entry.figures[name] for name in ("spill_store_bytes", "spill_load_bytes", "stack_bytes")] == [0, 0, 0]
        assert not re.search(r"\.approx|\.ftz" + ("" if kernel.name in IN_FLOAT64 else r"|\.f64"), entry.ptx)
        assert not re.search(r"\bfma\.|\bmad\.\w+\.f32", INLINE.sub("", entry.ptx)), "fused behind the source's back"


def test_what_spills_is_assembled_without_the_bound_on_its_registers():
    figures = compile_kernel(small.many_values_kernel.specialize(), "sm_80").figures
    assert figures.spill_store_bytes == 0 and figures.registers > 32


@pytest.mark.parametrize("chip", CHIPS)
def test_it_compiles_for_a_chip_that_is_not_here(chip):
    assert f".target {chip}\n" in ptx_of(small.scale_kernel, chip)


@pytest.mark.parametrize("chip", CI_CHIPS)
def test_a_product_and_a_sum_are_two_roundings(chip):
    ptx = ptx_of(small.product_and_sum_kernel, chip)
    assert (len(re.findall(r"mul\.rn\.f32", ptx)), len(re.findall(r"(?:add|sub)\.rn\.f32", ptx))) == (2, 2)
    assert "fma" not in ptx
    assert "fma.rn.f32" in ptx_of(small.fused_kernel, chip)


def test_32_bit_integers_stay_32_bits_wide():
    arithmetic = re.findall(r"\b(add|sub|mul\.lo|mad\.lo|shl|shr|mul\.wide)\.(\w+)", INLINE.sub("", ptx_of(small.narrow_integers_kernel)))
    assert {width for operation, width in arithmetic} <= {"s32", "u32", "b32"}


def test_shared_arrays_are_aligned_and_the_dynamic_one_is_sized_by_the_launch():
    compiled = compile_kernel(small.shared_memory_kernel.specialize(), "sm_90a")
    assert re.findall(r"\.shared \.align (\d+) \.b8 \w+\[(\d*)\]", compiled.ptx) == [("1024", ""), ("128", "128"), ("1024", "8192")]
    assert compiled.figures.shared_bytes >= 128 + 8192


def test_the_same_kernel_gives_the_same_cubin_whatever_was_compiled_before():
    first = compile_kernel(small.shared_memory_kernel.specialize(), "sm_80")
    compile_kernel(small.scale_kernel.specialize(SCALE=11), "sm_80")
    compiler._lower.cache_clear()
    assert compile_kernel(small.shared_memory_kernel.specialize(), "sm_80") == first


def test_constants_are_in_force_in_device_functions_too():
    assert "0f40E00000" in compile_kernel(small.scale_kernel.specialize(SCALE=7), "sm_80").ptx         # 7.0


def test_local_arrays_with_constant_indices_live_in_registers():
    compiled = compile_kernel(small.unrolled_kernel.specialize(), "sm_90a")
    assert compiled.ptx.count("shfl.sync.bfly") == small.UNROLL
    assert compiled.figures.stack_bytes == 0


def test_no_primitive_is_approximate():
    for primitive in PRIMITIVES.values():
        for template in primitive.ptx.values():
            assert ".approx" not in template and ".ftz" not in template, primitive.name


@pytest.mark.parametrize("kernel, sentence", [
    (small.double_where_float_is_due_kernel, r"fma: b is a float64, expected a float32: write f32\(\.\.\.\)"),
    (small.variable_where_literal_is_due_kernel, r"cp_async_wait: groups is a uint32, expected an integer literal or constant"),
])
def test_wrong_operands_are_named(kernel, sentence):
    with pytest.raises(CompileError, match=sentence):
        ptx_of(kernel)


def test_an_unknown_chip_and_one_that_lacks_a_primitive_are_refused():
    with pytest.raises(CompileError, match="sm_75 is not a chip that vtlite compiles for; those are sm_80, "):
        ptx_of(small.scale_kernel, "sm_75")
    wgmma = next(kernel for kernel in all_kernels() if kernel.needs == "sm_90a")
    with pytest.raises(CompileError, match="needs sm_90a, sm_120 was asked for"):
        ptx_of(wgmma, "sm_120")


@pytest.mark.parametrize("version, sentence", [
    (None, r'needs numba-cuda-mlir, which is not installed: pip install "vtlite\[cuda\]"'),
    ("0.9.1", r"numba-cuda-mlir 0\.9\.1 is installed, vtlite compiles with 0\.6"),
])
def test_without_the_right_compiler_the_next_action_is_said(version, sentence, monkeypatch):
    def found(name):
        if version is None:
            raise PackageNotFoundError(name)
        return version

    monkeypatch.setattr(compiler, "version", found)
    compiler._load_compiler.cache_clear()
    with pytest.raises(CompileError, match=sentence):
        ptx_of(small.scale_kernel)

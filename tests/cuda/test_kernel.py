"""Kernels and their specialisations: constants in force everywhere, the original code, mistakes refused by name."""

from pathlib import Path

import pytest

from tests.cuda import small_kernels as small
from vtlite import cuda as cuda_wing
from vtlite.cuda import all_kernels
from vtlite.cuda.binding import bind, functions_reached
from vtlite.cuda.compiler import CompileError, compile_kernel
from vtlite.cuda.kernel import kernel
from vtlite.cuda.lang import f32, ptr, shfl_xor, u32


def test_a_specialisation_is_made_once_per_set_of_constants():
    assert small.scale_kernel.specialize(SCALE=3) is small.scale_kernel.specialize(SCALE=3)
    assert small.scale_kernel.specialize() is small.scale_kernel.specialize(SCALE=small.SCALE)
    assert small.scale_kernel.specialize(SCALE=3).name == "scale_kernel[SCALE=3]"


def test_constants_are_in_force_in_the_functions_it_calls_and_nowhere_else():
    bound = small.scale_kernel.specialize(SCALE=5).python
    assert bound.__globals__["scaled"](f32(2)) == 10
    assert small.scaled(f32(2)) == 4


def test_the_bound_copy_runs_the_original_code():
    bound = small.scale_kernel.specialize(SCALE=5).python
    assert bound.__code__ is small.scale_kernel.function.__code__            # breakpoints and tracebacks hold
    assert bound.__globals__["scaled"].__code__ is small.scaled.__code__


def test_a_device_function_is_bound_once_however_often_it_is_reached():
    wrapped = []

    def wrap(function):
        wrapped.append(function.__name__)
        return function

    bind(small.scale_kernel.function, {"SCALE": 5}, wrap=wrap)
    assert wrapped == ["scaled"]


def test_what_a_kernel_reaches_is_found():
    assert functions_reached(small.scale_kernel.function, ["SCALE"]) == [small.scale_kernel.function, small.scaled]
    assert shfl_xor in functions_reached(small.unrolled_kernel.function, [])


def test_launch_bounds_may_follow_the_constants():
    sized = kernel((ptr(u32),), threads=lambda SCALE: 32 * SCALE, shared=lambda SCALE: 4 * SCALE, constants=("SCALE",))
    made = sized(_uses_scale)
    assert (made.specialize(SCALE=3).threads, made.specialize(SCALE=3).shared) == (96, 12)
    with pytest.raises(ValueError, match=r"_uses_scale\[SCALE=64\]: threads is 2048, it must be 1 to 1024"):
        made.specialize(SCALE=64).threads  # noqa: B018


def test_so_may_the_lowest_chip():
    made = kernel((ptr(u32),), threads=32, needs=lambda SCALE: "sm_90" if SCALE > 1 else "sm_80", constants=("SCALE",))(_uses_scale)
    assert made.specialize(SCALE=1).runs_on("sm_86") and made.specialize(SCALE=2).runs_on("sm_90a")
    assert not made.specialize(SCALE=2).runs_on("sm_89")
    with pytest.raises(CompileError, match="needs sm_90, sm_86 was asked for"):
        compile_kernel(made.specialize(SCALE=2), "sm_86")


SCALE = 1


def _uses_scale(x):
    x[0] = u32(SCALE)


def test_mistakes_are_named():
    with pytest.raises(TypeError, match="scale_kernel has no constant HIDDEN; it has SCALE"):
        small.scale_kernel.specialize(HIDDEN=1)
    with pytest.raises(TypeError, match=r"has parameters \('x',\) but its signature has 2 types"):
        kernel((ptr(u32), u32), threads=32)(_uses_scale)
    with pytest.raises(TypeError, match="constant MISSING is not a global of its module"):
        kernel((ptr(u32),), threads=32, constants=("MISSING",))(_uses_scale)
    with pytest.raises(TypeError, match="scale_kernel is a kernel: launch it with device.launch"):
        small.scale_kernel(1, 2, 3)


def test_every_kernel_of_the_package_can_be_prebuilt():
    for made in all_kernels():
        names = [specialized.name for specialized in made.to_prebuild()]
        assert names and len(set(names)) == len(names), made.name
        assert all(32 <= specialized.threads <= 1024 for specialized in made.to_prebuild()), made.name


def test_no_two_kernels_share_a_name():
    """Commands find kernels by it, and tables of times and registers tell them apart by it."""
    names = [made.name for made in all_kernels()]
    assert sorted(set(names)) == sorted(names)


def test_a_family_that_does_not_list_its_specs_is_named(monkeypatch):
    monkeypatch.setattr(cuda_wing, "FAMILIES", (*cuda_wing.FAMILIES, "reduction"))
    with pytest.raises(TypeError, match=r"vtlite\.cuda\.reduction is one of FAMILIES and has no SPECS"):
        cuda_wing.all_specs()


def test_every_file_with_kernels_belongs_to_a_family():
    known = {kernel.function.__module__ for kernel in cuda_wing.all_kernels()}
    folder = Path(cuda_wing.__file__).parent
    files = [path.stem for path in folder.glob("*.py") if "\n@kernel(" in path.read_text()]
    assert [name for name in files if f"vtlite.cuda.{name}" not in known] == []

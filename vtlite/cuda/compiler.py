"""Kernels to cubins by numba-cuda-mlir, with or without a GPU.

    compile_kernel(rms_norm_kernel.specialize(HIDDEN=4096), "sm_90a") -> Compiled(cubin, ptx, entry, figures)

numba-cuda-mlir types the bound kernel and lowers it to MLIR; from there on the steps are ours, so that they hold what the
kernels rely on: libnvvm runs with -fma=0 (a * b + c stays two roundings, as in Python), and ptxas reports registers and
spills; what spills is assembled once more, sparing registers, without min_blocks. Importing this module imports no compiler;
compile_kernel does.
"""

import re
import sys
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from types import FunctionType

import numpy as np

from vtlite.cuda.binding import bind, functions_reached
from vtlite.cuda.kernel import Specialized
from vtlite.cuda.lang.primitive import COMPILED_AS, PRIMITIVES, chip_number
from vtlite.cuda.lang.thread import Cuda, consteval
from vtlite.cuda.lang.types import Parameter
from vtlite.errors import DeviceError

CHIPS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120", "sm_121")
PACKAGE, TESTED_VERSION = "numba-cuda-mlir", "0.6"
SHARED_MEMORY = 3                       # address space
SWIZZLE_ATOM = 1024                     # bytes
OLDEST_MODERN = 100                     # libnvvm takes the IR of LLVM 7 for chips before this one
SPARING = "-Xptxas=--register-usage-level=3"        # of 10, 5 being usual: without optimisations that take many registers


class CompileError(DeviceError):
    """A kernel does not compile, or there is no compiler; the message says which and what to do."""


@dataclass(frozen=True)
class Figures:
    """What a kernel takes of the chip, per thread or block, as ptxas reports it."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int                   # static


@dataclass(frozen=True)
class Compiled:
    cubin: bytes
    ptx: str
    entry: str                          # the kernel's name in the cubin
    figures: Figures

    def describe(self) -> dict:
        return {"entry": self.entry, **asdict(self.figures)}


def compile_kernel(specialized: Specialized, chip: str) -> Compiled:
    """Compile for one chip. CompileError if there is no compiler, or the kernel or the chip does not do."""
    if chip not in CHIPS:
        raise CompileError(f"{chip} is not a chip that vtlite compiles for; those are {', '.join(CHIPS)}")
    if not specialized.runs_on(chip):
        raise CompileError(f"{specialized.name} needs {specialized.needs}, {chip} was asked for")
    try:
        mlir = _load_compiler()
    except CompileError as error:
        raise CompileError(f"{specialized.name} is not compiled for {chip}, and {error}") from error
    try:
        module = _lower(specialized, _front_end_chip(specialized, chip))
        ptx = _to_ptx(mlir, module, chip, specialized)
    except Exception as error:
        raise CompileError(f"{specialized.name} does not compile for {chip}: {error}") from error
    entry = re.search(r"\.entry\s+([\w$]+)", ptx).group(1)
    compiled = _assemble(ptx, chip, entry)
    if compiled.figures.spill_store_bytes:
        unbound = re.sub(r"\.minnctapersm \d+", "", ptx)        # fewer blocks on a multiprocessor cost less than spills
        compiled = min(compiled, _assemble(unbound, chip, entry, SPARING), key=lambda made: made.figures.spill_store_bytes)
    return compiled


def _front_end_chip(specialized: Specialized, chip: str) -> str:
    """The lowest chip for which the kernel's primitives have the same PTX: what differs between chips comes after lowering,
    which takes most of the time, so one lowering serves several chips.
    """
    used = [PRIMITIVES[function] for function in functions_reached(specialized.kernel.function, specialized.constants)
            if function in PRIMITIVES]
    wanted = [primitive.template(chip) for primitive in used]
    return next(candidate for candidate in CHIPS if [primitive.template(candidate) for primitive in used] == wanted)


@cache
def _load_compiler():
    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        raise CompileError(f'compiling kernels needs {PACKAGE}, which is not installed: pip install "vtlite[cuda]"') from None
    if not found.startswith(TESTED_VERSION + "."):
        raise CompileError(f'{PACKAGE} {found} is installed, vtlite compiles with {TESTED_VERSION}: pip install "vtlite[cuda]"')
    import numba_cuda_mlir.compiler
    import numba_cuda_mlir.cuda.experimental
    import numba_cuda_mlir.descriptor
    import numba_cuda_mlir.extending
    import numba_cuda_mlir.mlir_optimization
    numba_cuda_mlir.descriptor.mlir_target.ensure_initialized()
    from vtlite.cuda import number_rules
    number_rules.apply()
    return numba_cuda_mlir


class _pretend_gpu:
    """numba-cuda-mlir asks the driver for the host's chip even when one is given: meanwhile, answer with the wanted one."""

    NAME = "get_gpu_compute_capability"

    def __init__(self, mlir, chip: str):
        self._original = getattr(mlir.tools, self.NAME)
        major, minor = divmod(chip_number(chip), 10)
        self._answers = {tuple: (major, minor), int: chip_number(chip), str: f"sm_{major}{minor}"}

    def __enter__(self):
        self._patched = [module for name, module in list(sys.modules.items()) if name.startswith("numba_cuda_mlir")
                         and getattr(module, self.NAME, None) is self._original]
        for module in self._patched:
            setattr(module, self.NAME, lambda as_type=str: self._answers[as_type])

    def __exit__(self, *_):
        for module in self._patched:
            setattr(module, self.NAME, self._original)


@lru_cache(maxsize=2)
def _lower(specialized: Specialized, chip: str) -> str:
    """Type a kernel and lower it to MLIR."""
    mlir = _load_compiler()
    cuda, intrinsics = mlir.cuda, _intrinsics(chip)
    options = {"chip": chip, "experimental_ast_transforms": True}

    def substitute(value):
        if isinstance(value, Cuda):
            return cuda
        if value is consteval:
            return cuda.experimental.consteval
        if not isinstance(value, FunctionType):
            return None
        if value in COMPILED_AS:
            return jit_device(bind(COMPILED_AS[value], {}, substitute, jit_device))
        return intrinsics(value) if value in PRIMITIVES else None

    @cache
    def jit_device(function):
        return _compiled_once(cuda.jit(function, device=True, inline="never", **options))   # MLIR inlines them, sooner than Numba would

    bound = bind(specialized.kernel.function, specialized.constants, substitute, jit_device)
    mlir.extending.refresh_registries()             # the typing context learns of the new intrinsics
    kernel = cuda.jit(bound, launch_bounds=(specialized.threads, specialized.min_blocks), **options)
    with _pretend_gpu(mlir, chip):
        lowered = mlir.compiler._compile_only(kernel, tuple(_type_of(mlir, p) for p in specialized.signature))
    return str(lowered.metadata["mlir_module"])


def _compiled_once(callee):
    """numba-cuda-mlir compiles a device function to type a call of it, and again, under the name that lowering gives it, to lower
    the call. This dispatcher takes that name the first time: half the time for the same code."""
    from numba_cuda_mlir.mlir_lowering import generate_mangled_name
    compile_as = callee._compile_as_device_callee

    def under_its_last_name(argument_types, abi_name=None):
        return compile_as(argument_types, abi_name or generate_mangled_name(f"{callee.py_func.__qualname__}_{id(callee)}", argument_types))

    callee._compile_as_device_callee = under_its_last_name
    return callee


@cache
def _intrinsics(chip: str):
    """function -> intrinsic, made once per chip: registering one is not free."""
    from vtlite.cuda.lowering import as_intrinsic
    return cache(lambda function: as_intrinsic(PRIMITIVES[function], chip))


def _type_of(mlir, parameter: Parameter):
    if parameter.is_tensor_map:
        from vtlite.cuda.lowering import TENSOR_MAP
        return TENSOR_MAP
    dtype = parameter.read_as if parameter.is_pointer else parameter.dtype
    kind = getattr(mlir.types, np.dtype(dtype).name)
    return mlir.types.CPointer(kind) if parameter.is_pointer else kind


def _to_ptx(mlir, lowered: str, chip: str, specialized: Specialized) -> str:
    """MLIR -> PTX: numba-cuda-mlir's passes without the one that fuses, then libnvvm without fusing."""
    from numba_cuda_mlir._mlir import ir
    from numba_cuda_mlir.lowering_utilities import context
    from numba_cuda_mlir.numba_cuda.cudadrv.nvvm import LibDevice

    from vtlite.cuda import number_rules
    optimization = mlir.mlir_optimization
    with context.get_context(), _pretend_gpu(mlir, chip):
        module = ir.Module.parse(lowered)
        number_rules.let_narrow_integers_wrap(module)
        passes = optimization.get_base_pipeline().replace("math-uplift-to-fma,", "")
        optimization.PassManager.parse(passes).run(module.operation)
        optimization.run_pre_codegen_patterns(module)
        _place_shared_arrays(module)
        if chip_number(chip) < OLDEST_MODERN:
            llvm_ir = optimization._call_llvm70_capi(module, {"chip": chip}, gen_llvmir=True)
            llvm_ir = llvm_ir.replace(b"i64:64:64-f32", b"i64:64:64-i128:128:128-f32")      # libnvvm insists on i128's entry
            llvm_ir = re.sub(rb"(addrspace\(3\) global .*) zeroinitializer", rb"\1 undef", llvm_ir)
            llvm_ir = _keep_tensor_maps(llvm_ir, specialized)
        else:
            llvm_ir = optimization._prepare_llvm_ir(module)
        arch = chip.removeprefix("sm_")
        ptx = optimization._compile_to_ptx(llvm_ir, arch, LibDevice(), {"arch": f"compute_{arch}", "fma": False}).decode()
    return _renumber(ptx.rstrip("\0 \n") + "\n")


def _keep_tensor_maps(llvm_ir: bytes, specialized: Specialized) -> bytes:
    """In the IR of LLVM 7 numba-cuda-mlir makes a pointer of a tensor map, which is 128 bytes among the parameters: say so again."""
    maps = [i for i, parameter in enumerate(specialized.signature) if parameter.is_tensor_map]
    if not maps:
        return llvm_ir
    text = llvm_ir.decode()
    name, found = re.search(r"define ptx_kernel void (@\w+)\((.*)\)", text).groups()
    kinds = ["[16 x i64]*" if i in maps else kind for i, kind in enumerate(found.split(", "))]
    declared = ", ".join(f"{kind} byval align 64" if i in maps else kind for i, kind in enumerate(kinds))
    text = text.replace(f"void {name}({found})", f"void {name}({declared})").replace(f"void ({found})*", f"void ({', '.join(kinds)})*")
    for i in maps:
        text = text.replace(f"i8* %{i} to", f"[16 x i64]* %{i} to")
    numbers = re.search(r"!nvvm.annotations = !{(.*)}", text).group(1)
    text = text.replace(f"!nvvm.annotations = !{{{numbers}}}", f"!nvvm.annotations = !{{{numbers}, !1000}}")
    constants = ", ".join(f"i32 {i + 1}" for i in maps)
    return f"""{text}
!1000 = !{{void ({', '.join(kinds)})* {name}, !"grid_constant", !1001}}
!1001 = !{{{constants}}}
""".encode()


def _renumber(ptx: str) -> str:
    """Shared arrays carry the number of arrays that this process has compiled; count within the kernel instead."""
    names = {name: f"shared_{i}" for i, name in enumerate(dict.fromkeys(re.findall(r"static_shared_memory_\d+", ptx)))}
    return re.sub(r"static_shared_memory_\d+", lambda match: names[match[0]], ptx)


def _place_shared_arrays(module) -> None:
    """Shared arrays start at multiples of 128 bytes, for vector accesses, ldmatrix and bulk copies, larger ones at multiples of
    1,024, for swizzled tiles. The dynamic one (of size 0) is left for the launch to size.
    """
    from numba_cuda_mlir._mlir import ir
    from numba_cuda_mlir.mlir.util import find_ops
    for operation in find_ops(module, lambda op: op.name == "llvm.mlir.global"):
        attributes = operation.operation.attributes
        if ir.IntegerAttr(attributes["addr_space"]).value != SHARED_MEMORY:
            continue
        length, bits = map(int, re.search(r"array<(\d+) x \D+(\d+)>", str(attributes["global_type"])).groups())
        alignment = 128 if 0 < length * bits // 8 < SWIZZLE_ATOM else SWIZZLE_ATOM
        attributes["alignment"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), alignment)
        if length == 0:
            attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<external>")


def _assemble(ptx: str, chip: str, entry: str, *more: str) -> Compiled:
    """PTX -> cubin and the assembler's report. more: its options."""
    from cuda.bindings import nvjitlink
    options = [f"-arch={chip}", "-O3", "-verbose", *more]
    handle = nvjitlink.create(len(options), options)
    try:
        text = ptx.encode()
        try:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "kernel.ptx")
            nvjitlink.complete(handle)
        except nvjitlink.nvJitLinkError as error:
            log = bytearray(nvjitlink.get_error_log_size(handle))
            nvjitlink.get_error_log(handle, log)
            raise CompileError(f"the assembler refuses the PTX for {chip}: {log.decode(errors='replace').strip()}") from error
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
        return Compiled(bytes(cubin), ptx, entry, _figures(log.decode(errors="replace"), entry))
    finally:
        nvjitlink.destroy(handle)


def _figures(log: str, entry: str) -> Figures:
    report = log[log.index(f"Compiling entry function '{entry}'"):]

    def number(pattern: str, default: int | None = None) -> int:
        found = re.search(pattern, report)
        if found is None and default is None:
            raise CompileError(f"the assembler's report on {entry} lacks {pattern!r}: {report!r}")
        return int(found.group(1)) if found else default

    return Figures(number(r"Used (\d+) registers"), number(r"(\d+) bytes stack frame"), number(r"(\d+) bytes spill stores"),
                   number(r"(\d+) bytes spill loads"), number(r"(\d+) bytes smem", 0))

"""@kernel: a Python function, its signature and launch bounds; and Specialized, the unit that is compiled and launched.

    HIDDEN = 4096                       # a constant that specialisations set

    @kernel((ptr(bf16), ptr(f32), ptr(bf16), f32), threads=256, constants=("HIDDEN",), prebuild=({"HIDDEN": 2048},))
    def rms_norm_kernel(x, w, y, eps): ...

    rms_norm_kernel.specialize(HIDDEN=5120)

`threads`, `min_blocks`, `shared` and `needs` may each be a value or a function of the constants, called with them by name.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

from vtlite.cuda.binding import bind, describe, reached
from vtlite.cuda.lang.primitive import runs_on
from vtlite.cuda.lang.types import Parameter

MOST_THREADS = 1024
KERNELS: dict[str, "Kernel"] = {}       # "module.name" -> kernel, of every module imported so far

PerConstants = int | Callable[..., int]
LowestChip = str | Callable[..., str]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel before its constants are chosen."""

    function: Callable
    parameters: tuple[Parameter, ...]
    threads: PerConstants                       # per block
    constants: tuple[str, ...] = ()
    min_blocks: PerConstants = 1                # per multiprocessor: bounds the registers of a thread
    shared: PerConstants = 0                    # bytes of dynamic shared memory
    needs: LowestChip = "sm_80"                 # the lowest chip; "sm_90a" means that chip alone
    prebuild: tuple[Mapping[str, Any], ...] = ({},)
    _made: dict[tuple, "Specialized"] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def source_hash(self) -> str:
        """Identifies the code before its constants are chosen."""
        parts = [*(text for part in reached(self.function, self.constants) for text in part), *(p.text for p in self.parameters)]
        return sha256("\0".join(parts).encode()).hexdigest()

    def specialize(self, **constants) -> "Specialized":
        """This kernel with constants fixed; those not given keep the module's value. Made once per set of constants."""
        if unknown := set(constants) - set(self.constants):
            raise TypeError(f"{self.name} has no constant {sorted(unknown)[0]}; it has {', '.join(self.constants) or 'none'}")
        values = {name: constants.get(name, self.function.__globals__[name]) for name in self.constants}
        key = tuple(values.items())
        if key not in self._made:
            self._made[key] = Specialized(self, values)
        return self._made[key]

    def to_prebuild(self) -> list["Specialized"]:
        return [self.specialize(**constants) for constants in self.prebuild]

    def __call__(self, *args):
        raise TypeError(f"{self.name} is a kernel: launch it with device.launch({self.name}.specialize(...), grid, ...)")


@dataclass(frozen=True, eq=False)
class Specialized:
    """A kernel with every constant fixed: what compiler, runtime and emulator all take."""

    kernel: Kernel
    constants: Mapping[str, Any]

    @cached_property
    def name(self) -> str:
        """"rms_norm_kernel[HIDDEN=5120]"."""
        values = ",".join(f"{name}={value}" for name, value in self.constants.items())
        return f"{self.kernel.name}[{values}]" if values else self.kernel.name

    @cached_property
    def python(self) -> Callable:
        """The function to run in Python, with the constants in force in it and in all that it calls."""
        return bind(self.kernel.function, self.constants)

    @property
    def signature(self) -> tuple[Parameter, ...]:
        return self.kernel.parameters

    @cached_property
    def threads(self) -> int:
        return self._of("threads", 1, MOST_THREADS)

    @cached_property
    def min_blocks(self) -> int:
        return self._of("min_blocks", 1, 32)

    @cached_property
    def shared(self) -> int:
        """Dynamic shared memory, bytes."""
        return self._of("shared", 0, 227 << 10)

    @cached_property
    def source_hash(self) -> str:
        """Identifies what the kernel computes, on every machine: source, primitives, signature, constants, launch bounds."""
        constants = [f"{name} {describe(value)}" for name, value in sorted(self.constants.items())]
        parts = [self.kernel.source_hash, *constants, f"{self.threads} {self.min_blocks}"]
        return sha256("\0".join(parts).encode()).hexdigest()

    @cached_property
    def needs(self) -> str:
        needs = self.kernel.needs
        return needs if isinstance(needs, str) else needs(**self.constants)

    def runs_on(self, chip: str) -> bool:
        return runs_on(self.needs, chip)

    def _of(self, attribute: str, low: int, high: int) -> int:
        value = getattr(self.kernel, attribute)
        value = value if isinstance(value, int) else value(**self.constants)
        if not low <= value <= high:
            raise ValueError(f"{self.name}: {attribute} is {value}, it must be {low} to {high}")
        return value


def kernel(signature: Sequence, *, threads: PerConstants, constants: Sequence[str] = (), min_blocks: PerConstants = 1,
           shared: PerConstants = 0, needs: LowestChip = "sm_80", prebuild: Sequence[Mapping[str, Any]] = ({},)):
    """Make a function a kernel. `signature` gives one type per parameter: ptr(dtype), a scalar type such as i32, or tensor_map.

    `constants` are names of globals that specialize() may set, `prebuild` the sets of them that are compiled ahead.
    """
    def register(function: Callable) -> Kernel:
        names = tuple(inspect.signature(function).parameters)
        if len(names) != len(signature):
            raise TypeError(f"{function.__name__} has parameters {names} but its signature has {len(signature)} types")
        if absent := [name for name in constants if name not in function.__globals__]:
            raise TypeError(f"{function.__name__}: constant {absent[0]} is not a global of its module")
        parameters = tuple(map(Parameter.of, names, signature))
        made = Kernel(function, parameters, threads, tuple(constants), min_blocks, shared, needs, tuple(prebuild))
        KERNELS[f"{function.__module__}.{function.__name__}"] = made
        return made

    return register


def device(function: Callable) -> Callable:
    """Mark a function that kernels call. For the reader: any Python function that a kernel calls is compiled with it."""
    return function

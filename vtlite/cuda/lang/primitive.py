"""A primitive: one function with two lives, PTX for the compiler and a meaning in Python for everything else.

    @primitive("shfl.sync.bfly.b32 $0, $value, $lane_mask, 0x1f, 0xffffffff;", outputs="x", inputs="xu")
    def shfl_xor(value, lane_mask): ...          # the body is the meaning

In the PTX, $0 $1 ... are the results and $name is the parameter of that name. One letter describes each operand:

    f  float32          u  uint32         i  int32         h  uint16 (a bit pattern)       l  uint64
    x  float32, uint32 or int32; a result marked x has the type of the first argument marked x
    b  boolean          p  pointer        s  array in shared memory                        n  integer literal
    t  tensor map
    a number            a local array of so many float32 that is read and replaced; $name is the braced list of its registers

The decorator returns the function itself, unwrapped: calling it in Python costs nothing extra.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

OPERANDS = frozenset("fuihlxbpsnt")
OPERAND = re.compile(r"[a-z]|\d+")


@dataclass(frozen=True)
class Primitive:
    """What the compiler, the documentation and the tests know of a primitive."""

    function: Callable
    ptx: dict[str, str]             # lowest chip -> template; of several the highest that the chip reaches holds
    outputs: str
    inputs: str
    pure: bool                      # may be moved, merged or dropped: neither memory nor other threads are touched

    @property
    def name(self) -> str:
        return self.function.__name__

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """What describes each parameter: a letter, or the length of an array."""
        return tuple(OPERAND.findall(self.inputs))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)

    @property
    def needs(self) -> str:
        """The lowest chip that has it."""
        return min(self.ptx, key=chip_number)

    def template(self, chip: str) -> str | None:
        """The PTX for a chip such as "sm_90a", None if the chip lacks the primitive."""
        fitting = [lowest for lowest in self.ptx if runs_on(lowest, chip)]
        return self.ptx[max(fitting, key=chip_number)] if fitting else None


PRIMITIVES: dict[Callable, Primitive] = {}
COMPILED_AS: dict[Callable, Callable] = {}       # functions whose GPU form is other Python, not PTX


def primitive(ptx: str | dict[str, str], *, outputs: str = "", inputs: str = "", pure: bool = False, needs: str = "sm_80"):
    """Register a function as a primitive (see the top of this file) and return it."""
    variants = {needs: ptx} if isinstance(ptx, str) else ptx

    def register(function: Callable) -> Callable:
        made = Primitive(function, variants, outputs, inputs, pure)
        letters = {operand for operand in (*outputs, *made.operands) if not operand.isdigit()}
        if letters - OPERANDS or len(made.operands) != len(made.parameters):
            raise TypeError(f"{made.name}{made.parameters} does not fit inputs={inputs!r}, outputs={outputs!r}")
        known = set(made.parameters) | {str(i) for i in range(len(outputs))}
        for text in variants.values():
            if unknown := set(re.findall(r"\$(\w+)", text)) - known:
                raise TypeError(f"the PTX of {made.name} names {sorted(unknown)}; it has {sorted(known)}")
        PRIMITIVES[function] = made
        return function

    return register


def compiled_as(function: Callable) -> Callable[[Callable], Callable]:
    """Mark a Python function as what the compiler takes wherever a kernel calls `function`."""
    def register(source: Callable) -> Callable:
        COMPILED_AS[function] = source
        return source

    return register


def chip_number(chip: str) -> int:
    """"sm_90a" -> 90."""
    return int(re.fullmatch(r"sm_(\d+)[af]?", chip).group(1))


def runs_on(lowest: str, chip: str) -> bool:
    """Whether a chip has what `lowest` brought; features of an "a" chip belong to that chip alone."""
    return lowest == chip if lowest.endswith("a") else chip_number(chip) >= chip_number(lowest)

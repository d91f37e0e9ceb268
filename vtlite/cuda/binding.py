"""Bound copies of kernels: the same code object over other globals.

A kernel names its constants as module globals (`HIDDEN = 4096`), and @kernel(constants=("HIDDEN",)) says which of them a
specialisation fixes. bind() copies a function and, recursively, every Python function that it calls, with the constants
in force; the compiler also puts its own objects in the place of the language's. Code objects are shared with the
original, so breakpoints and tracebacks point to the real lines.
"""

import dis
import inspect
import textwrap
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from vtlite.cuda.lang.primitive import COMPILED_AS, PRIMITIVES
from vtlite.cuda.lang.thread import Cuda, consteval

Substitute = Callable[[Any], Any]       # a global's value -> what stands in its place, or None to leave it


def bind(function: types.FunctionType, constants: Mapping[str, Any], substitute: Substitute = lambda value: None,
         wrap: Callable[[types.FunctionType], Any] = lambda device_function: device_function) -> types.FunctionType:
    """A copy of `function` with `constants` in force, here and in every device function that it reaches.

    `substitute` replaces values of globals, `wrap` is applied to each bound device function, once.
    """
    bound: dict[types.FunctionType, Any] = {}

    def copy(original: types.FunctionType) -> types.FunctionType:
        scope = dict(original.__globals__)
        for name in _global_names(original):
            if name in constants:
                scope[name] = constants[name]
            elif name in scope:
                scope[name] = place(scope[name])
        made = types.FunctionType(original.__code__, scope, original.__name__, original.__defaults__)
        made.__doc__, made.__module__, made.__qualname__ = original.__doc__, original.__module__, original.__qualname__
        return made

    def place(value: Any) -> Any:
        replacement = substitute(value)
        if replacement is not None:
            return replacement
        if not is_device_function(value):
            return value
        if value not in bound:
            bound[value] = wrap(copy(value))
        return bound[value]

    return copy(function)


def is_device_function(value: Any) -> bool:
    """Whether a kernel's global is Python code that becomes GPU code: any function that is not part of the language."""
    return isinstance(value, types.FunctionType) and value not in PRIMITIVES and value is not consteval


def reached(function: types.FunctionType, constants: Collection[str]) -> Iterator[tuple[str, str]]:
    """(name, text) of everything that decides what a kernel computes, but for the values of its constants: its source, that of
    its device functions, their other globals, and the PTX of its primitives. In a fixed order.
    """
    for current in functions_reached(function, constants):
        if current in PRIMITIVES:
            yield current.__qualname__, repr(sorted(PRIMITIVES[current].ptx.items()))
            continue
        yield current.__qualname__, textwrap.dedent(inspect.getsource(current))
        for name, value in _globals(current, constants):
            if not isinstance(value, types.FunctionType):
                yield f"{current.__qualname__}.{name}", describe(value)


def functions_reached(function: types.FunctionType, constants: Collection[str]) -> list[types.FunctionType]:
    """The function, every device function that it reaches and every primitive, in a fixed order."""
    found = [function]
    for current in found:
        if current not in PRIMITIVES:
            called = [COMPILED_AS.get(value, value) for _, value in _globals(current, constants)
                      if isinstance(value, types.FunctionType) and value is not consteval]
            found += [value for value in called if value not in found]
    return found


def _globals(function: types.FunctionType, constants: Collection[str]) -> list[tuple[str, Any]]:
    """The globals that a function uses, by name, without those that constants replace."""
    scope = function.__globals__
    return [(name, scope[name]) for name in sorted(_global_names(function)) if name in scope and name not in constants]


@cache
def _global_names(function: types.FunctionType) -> frozenset[str]:
    """Names that the function's code, nested code included, loads from its globals."""
    names, codes = set(), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return frozenset(names)


def describe(value: Any) -> str:
    """A text that differs where values differ, and is the same on every machine."""
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, type):
        return f"type {value.__qualname__}"
    if isinstance(value, Cuda):
        return "cuda"
    if isinstance(value, np.generic):
        return f"{value.dtype} {value.item()!r}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(describe, value))})"
    if isinstance(value, (bool, int, float, str)) or value is None:
        return repr(value)
    return getattr(value, "__qualname__", type(value).__qualname__)

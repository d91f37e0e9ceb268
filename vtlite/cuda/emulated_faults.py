"""Faults of emulated kernels: what happened, in which kernel, block and thread, at which line.

A GPU would corrupt memory, hang or give an answer that depends on luck; here each of them is an exception.
"""

import os
import sys

from greenlet import getcurrent as running      # inside a kernel: the emulated thread

from vtlite.errors import VtliteError

_TOOL_PREFIXES = tuple(os.path.join(os.path.dirname(__file__), name) for name in ("emulat", "lang"))
_is_tool: dict[str, bool] = {}


class KernelFault(VtliteError):
    """A kernel did something whose result a GPU does not define."""

    def __init__(self, text: str):
        thread, access = running(), here()
        super().__init__(f"{thread.block.launch.name}, {thread_name(thread)}, {site_of(access)}: {text}")


class OutOfBounds(KernelFault):
    """An index outside its array."""


class Misaligned(KernelFault):
    """A vector access at an address that is not a multiple of its size."""


class UninitialisedRead(KernelFault):
    """A read of bytes that were never written, or that an asynchronous copy has not delivered yet."""


class Race(KernelFault):
    """Two threads touch the same bytes, one of them writes, and nothing orders them."""


class Divergence(KernelFault):
    """A barrier or warp operation that not every thread it needs will reach."""


def here(depth: int = 1) -> tuple:
    """(code, instruction offset) of the kernel's or device function's line that is being executed.

    The `depth` innermost frames, this function's own among them, are known to be the emulator's.
    """
    frame = sys._getframe(depth)
    while frame:
        code = frame.f_code
        tool = _is_tool.get(code.co_filename)
        if tool is None:
            tool = _is_tool[code.co_filename] = code.co_filename.startswith(_TOOL_PREFIXES)
        if not tool:
            return code, frame.f_lasti
        frame = frame.f_back
    return running().launch.function.__code__, 0                     # the thread has returned from the kernel


def site_of(access: tuple) -> str:
    """file:line of what `here` gave; longer tuples end in it or hold it at 2 and 3."""
    code, offset = access if len(access) == 2 else access[2:4]
    line = next((line for start, end, line in code.co_lines() if start <= offset < end), code.co_firstlineno)
    return f"{os.path.relpath(code.co_filename)}:{line}"


def thread_name(thread) -> str:
    """block (x, y, z) thread (x, y, z)"""
    return f"block {tuple(map(int, thread.blockIdx))} thread {tuple(map(int, thread.threadIdx))}"


def ranges(numbers) -> str:
    """0-3, 8 for 0, 1, 2, 3, 8."""
    parts, numbers = [], sorted(numbers)
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)

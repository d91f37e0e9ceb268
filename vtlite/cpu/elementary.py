"""`vtlite.elementary` for compiled code: the same source, its `vtlite.ieee` primitives each one machine operation.

Inside a loop LLVM may run eight of these side by side, which changes no bit because nothing is reassociated.
"""

from types import FunctionType

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from vtlite import elementary
from vtlite.cpu.kernel import inlined
from vtlite.cpu.simd import fma


def _primitive(result: types.Type, *operands: types.Type, instruction):
    """A function of these types that is one instruction: `instruction(builder, *values)` emits it."""
    def generate(context, builder, signature, args):
        return instruction(builder, *args)
    return result(*operands), generate


@intrinsic
def _mul(typingctx, a, b):
    return _primitive(types.float32, types.float32, types.float32, instruction=lambda builder, a, b: builder.fmul(a, b))


@intrinsic
def _div(typingctx, a, b):
    return _primitive(types.float32, types.float32, types.float32, instruction=lambda builder, a, b: builder.fdiv(a, b))


@intrinsic
def _select(typingctx, condition, a, b):
    return _primitive(types.float32, types.boolean, types.float32, types.float32,
                      instruction=lambda builder, condition, a, b: builder.select(condition, a, b))


@intrinsic
def _as_i32(typingctx, x):
    return _primitive(types.int32, types.float32, instruction=lambda builder, x: builder.bitcast(x, ir.IntType(32)))


@intrinsic
def _as_f32(typingctx, n):
    return _primitive(types.float32, types.int32, instruction=lambda builder, n: builder.bitcast(n, ir.FloatType()))


_names = vars(elementary) | {"fma": fma, "mul": _mul, "div": _div, "select": _select, "as_i32": _as_i32, "as_f32": _as_f32,
                             "i32_to_f32": np.float32}


def _compiled(name: str):
    """The function of that name, reading this module's primitives and what was compiled before it."""
    source = getattr(elementary, name)
    _names[name] = inlined(FunctionType(source.__code__, _names, name))
    return _names[name]


for _name in ("_scale", "exp_polynomial", "_sin_quadrant", "gelu_argument"):
    _compiled(_name)

exp, log, sin, cos = map(_compiled, ("exp", "log", "sin", "cos"))
log1p, sigmoid, silu, gelu_tanh, tanh, softplus = map(
    _compiled, ("log1p", "sigmoid", "silu", "gelu_tanh", "tanh", "softplus"))

"""`vtlite.elementary` for compiled code: the same source, its `vtlite.ieee` primitives each one machine operation.

Inside a loop LLVM may run eight of these side by side, which changes no bit because nothing is reassociated.
"""

from inspect import signature

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload, register_jitable

from vtlite import elementary, ieee
from vtlite.cpu import simd


@intrinsic
def _bits_of(typingctx, x):
    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(32))
    return types.int32(types.float32), generate


@intrinsic
def _float_of(typingctx, n):
    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())
    return types.float32(types.int32), generate


_MEANING = {
    ieee.fma: lambda a, b, c: simd.fma(a, b, c),
    ieee.mul: lambda a, b: a * b,
    ieee.div: lambda a, b: a / b,
    ieee.sqrt: lambda a: np.sqrt(a),
    ieee.select: lambda condition, a, b: a if condition else b,
    ieee.as_i32: lambda x: _bits_of(x),
    ieee.as_f32: lambda x: _float_of(np.int32(x)),
    ieee.i32_to_f32: lambda x: np.float32(x),
}


def _register(primitive, implementation):
    def choose(*arguments):
        return implementation
    choose.__signature__ = signature(implementation)          # Numba checks that both take the same arguments
    overload(primitive, jit_options={"error_model": "numpy"})(choose)


for _primitive, _implementation in _MEANING.items():
    _register(_primitive, _implementation)

for _function in (elementary._scale, elementary._sin_quadrant, elementary.exp_polynomial, elementary.gelu_argument):
    register_jitable(_function)

exp, log, sin, cos, log1p, sigmoid, silu, gelu_tanh, tanh, softplus = (
    register_jitable(error_model="numpy")(getattr(elementary, name))
    for name in ("exp", "log", "sin", "cos", "log1p", "sigmoid", "silu", "gelu_tanh", "tanh", "softplus"))

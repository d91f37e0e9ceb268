"""NumPy's rules for numbers in place of numba-cuda-mlir's, so that a kernel means the same in both lives.

* 32-bit integers stay 32 bits wide: u32 op u32 -> u32, i32 op i32 -> i32, and likewise with an integer literal that fits
  (NumPy's NEP 50). Numba would widen them to int64, which is also slow.
* They wrap: the compiler may not assume that a signed sum does not overflow.
* a != b holds for NaN.

Applied once, when the compiler is loaded. (imports the compiler)
"""

import operator
from dataclasses import replace

from numba_cuda_mlir import types
from numba_cuda_mlir._mlir import ir
from numba_cuda_mlir._mlir.dialects import arith
from numba_cuda_mlir.descriptor import mlir_target
from numba_cuda_mlir.lowering import math as lowering
from numba_cuda_mlir.mlir.util import find_ops
from numba_cuda_mlir.numba_cuda.typing import builtins
from numba_cuda_mlir.numba_cuda.typing.templates import AbstractTemplate, signature

NARROW = (types.uint32, types.int32)
OPERATIONS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.lshift, operator.rshift,
              operator.and_, operator.or_, operator.xor, operator.iadd, operator.isub, operator.imul, operator.ifloordiv,
              operator.imod, operator.ilshift, operator.irshift, operator.iand, operator.ior, operator.ixor)


def apply() -> None:
    for template in (builtins.UnaryNegate, builtins.UnaryPositive, builtins.BitwiseInvert):
        template.cases = [signature(kind, kind) for kind in NARROW] + list(template.cases)
    typing = mlir_target.typing_context
    for operation in OPERATIONS:
        function = typing.resolve_value_type(operation)
        function.templates = (_narrow(operation), *function.templates)         # the first that fits decides
    meaning = lowering._operator_mapping()
    meaning[operator.ne] = replace(meaning[operator.ne], float=lowering._make_fcmp(arith.CmpFPredicate.UNE))


def _narrow(operation):
    """Typing of an operation on two 32-bit integers of one type, or on one and a literal that fits it."""

    class Narrow(AbstractTemplate):
        key = operation
        prefer_literal = True

        def generic(self, arguments, keywords):
            narrow = {kind for kind in arguments if kind in NARROW}
            if len(narrow) != 1 or not all(kind in NARROW or isinstance(kind, types.IntegerLiteral) for kind in arguments):
                return None
            kind = narrow.pop()
            literals = [argument.literal_value for argument in arguments if isinstance(argument, types.IntegerLiteral)]
            if not all(kind.minval <= value <= kind.maxval for value in literals):
                return None
            return signature(kind, kind, kind)

    return Narrow


def let_narrow_integers_wrap(module) -> None:
    """Take back the promise of no signed overflow from the 32-bit operations of a lowered kernel."""
    wraps = ir.Attribute.parse("#arith.overflow<none>")
    for operation in find_ops(module, lambda op: op.name in ("arith.addi", "arith.subi", "arith.muli")):
        if operation.operation.results[0].type == ir.IntegerType.get_signless(32):
            operation.operation.attributes["overflowFlags"] = wraps

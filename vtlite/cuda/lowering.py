"""Primitives as numba-cuda-mlir intrinsics: each call becomes one LLVM inline-assembly operation.

The compiler's own inline_ptx takes at most 14 operands, returns only signed integers and marks everything volatile; this
lowering has no such limits, and primitives that are pure stay free to be moved, merged or dropped. (imports the compiler)
"""

import re

from numba_cuda_mlir import types
from numba_cuda_mlir._mlir import ir
from numba_cuda_mlir._mlir.dialects import arith, llvm, memref
from numba_cuda_mlir._mlir.extras import types as mlir
from numba_cuda_mlir.numba_cuda import extending
from numba_cuda_mlir.numba_cuda.core.errors import TypingError

from vtlite.cuda.lang.primitive import Primitive

RESULT = {"f": types.float32, "u": types.uint32, "i": types.int32, "h": types.uint16, "l": types.uint64, "b": types.boolean}
REGISTER = {"f": "f", "u": "r", "i": "r", "h": "h", "l": "l", "b": "r", "p": "l", "s": "l"}     # PTX constraint letters
REGISTER_TYPE = {"f": mlir.f32, "r": mlir.i32, "h": mlir.i16, "l": mlir.i64}                    # called within a context


def as_intrinsic(primitive: Primitive, chip: str):
    """What stands for a primitive in a kernel compiled for a chip. TypingError where it is called with the wrong types."""
    template = primitive.template(chip)

    def typed(*arguments):
        if template is None:
            raise TypingError(f"{primitive.name} needs {primitive.needs}; this kernel is compiled for {chip}")
        for name, letter, kind in zip(primitive.parameters, primitive.inputs, arguments, strict=True):
            if not _fits(letter, kind):
                raise TypingError(f"{primitive.name}: {name} is a {kind}, expected {_expected(letter)}")
        given = [_register(letter, kind) for letter, kind in zip(primitive.inputs, arguments, strict=True)]
        results = [_result(letter, primitive.inputs, arguments) for letter in primitive.outputs]
        signature = _returned(results)(*arguments)
        literals = {name: kind.literal_value for name, letter, kind
                    in zip(primitive.parameters, primitive.inputs, arguments, strict=True) if letter == "n"}
        assembly = _assembly(primitive, template, literals)

        def lower(builder, target, operands, _):
            values = [_operand(builder, variable, register) for variable, register in zip(operands, given, strict=True)
                      if register is not None]
            outputs = [_constraint(kind) for kind in results]
            constraints = ",".join(["=" + letter for letter in outputs] + [letter for letter in given if letter is not None])
            produced = _emit(assembly, constraints, outputs, values, not primitive.pure)
            values = [_as_bool(value) if kind is types.boolean else value for value, kind in zip(produced, results, strict=True)]
            builder.store_var(target, tuple(values) if len(values) > 1 else values[0] if values else None)

        return signature, lower

    # Numba reads the arity and the names from the definition's signature.
    parameters = "".join(f", {name}" for name in primitive.parameters)
    scope = {"typed": typed}
    exec(f"def {primitive.name}(typing_context{parameters}):\n    return typed({parameters.lstrip(', ')})", scope)
    return extending._intrinsic(prefer_literal="n" in primitive.inputs, target="cuda")(scope[primitive.name])


def _fits(letter: str, kind) -> bool:
    match letter:
        case "f":
            return kind == types.float32
        case "x":
            return kind in (types.float32, types.uint32, types.int32)
        case "b":
            return isinstance(kind, (types.Boolean, types.Integer))
        case "p":
            return isinstance(kind, (types.CPointer, types.Array))
        case "s":
            return isinstance(kind, types.Array)
        case "n":
            return isinstance(kind, types.IntegerLiteral)
        case _:
            return isinstance(kind, types.Integer)


def _expected(letter: str) -> str:
    return {"f": "a float32: write f32(...)", "x": "a float32, uint32 or int32: cast it", "b": "a boolean", "p": "a pointer",
            "s": "a shared array", "n": "an integer literal or constant"}.get(letter, "an integer")


def _constraint(kind) -> str:
    return {types.float32: "f", types.uint16: "h", types.uint64: "l"}.get(kind, "r")


def _register(letter: str, kind) -> str | None:
    """Constraint letter of an input; None for literals, which are part of the text."""
    if letter == "n":
        return None
    return _constraint(kind) if letter == "x" else REGISTER[letter]


def _result(letter: str, inputs: str, arguments):
    return arguments[inputs.index("x")] if letter == "x" else RESULT[letter]


def _returned(results):
    if not results:
        return types.none
    if len(results) == 1:
        return results[0]
    return types.UniTuple(results[0], len(results)) if len(set(results)) == 1 else types.Tuple(results)


def _assembly(primitive: Primitive, template: str, literals: dict[str, int]) -> str:
    """The template with LLVM's operand numbers: results first, then the inputs that are registers."""
    inputs = [name for name in primitive.parameters if name not in literals]
    numbers = {str(i): f"${i}" for i in range(len(primitive.outputs))}
    numbers |= {name: f"${len(primitive.outputs) + i}" for i, name in enumerate(inputs)}
    numbers |= {name: str(value) for name, value in literals.items()}
    return re.sub(r"\$(\w+)", lambda match: numbers[match[1]], template)


def _operand(builder, variable, register: str):
    value, wanted = builder.load_var(variable), REGISTER_TYPE[register]()
    if isinstance(value.type, llvm.PointerType):
        return llvm.ptrtoint(wanted, value)
    if isinstance(value.type, ir.MemRefType):
        return arith.index_cast(wanted, memref.extract_aligned_pointer_as_index(value))
    return builder.mlir_convert(value, wanted)


def _emit(assembly: str, constraints: str, outputs: list[str], values, volatile: bool) -> list:
    kinds = [REGISTER_TYPE[letter]() for letter in outputs]
    if not kinds:
        llvm.inline_asm(None, values, assembly, constraints, has_side_effects=True)
        return []
    if len(kinds) == 1:
        return [llvm.inline_asm(kinds[0], values, assembly, constraints, has_side_effects=volatile)]
    struct = llvm.inline_asm(llvm.StructType.get_literal(kinds), values, assembly, constraints, has_side_effects=volatile)
    return [llvm.extractvalue(kind, struct, [i]) for i, kind in enumerate(kinds)]


def _as_bool(value):
    return arith.trunci(mlir.bool(), value)

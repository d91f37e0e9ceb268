"""Primitives as numba-cuda-mlir intrinsics: each call becomes one LLVM inline-assembly operation.

The compiler's own inline_ptx takes at most 14 operands, returns only signed integers and marks everything volatile; this
lowering has no such limits, and primitives that are pure stay free to be moved, merged or dropped. (imports the compiler)
"""

import re

from numba_cuda_mlir import types
from numba_cuda_mlir._mlir import ir
from numba_cuda_mlir._mlir.dialects import arith, llvm, memref
from numba_cuda_mlir._mlir.extras import types as mlir
from numba_cuda_mlir.lowering_utilities import index_of
from numba_cuda_mlir.numba_cuda import extending
from numba_cuda_mlir.numba_cuda.core.errors import TypingError

from vtlite.cuda.lang.primitive import Primitive

RESULT = {"f": types.float32, "u": types.uint32, "i": types.int32, "h": types.uint16, "l": types.uint64, "b": types.boolean}
REGISTER = {"f": "f", "u": "r", "i": "r", "h": "h", "l": "l", "b": "r", "p": "l", "s": "l", "t": "l"}     # PTX constraint letters
TENSOR_MAP = types.grid_constant(types.CUTensorMap)     # 128 bytes among the parameters; a kernel has their address
REGISTER_TYPE = {"f": mlir.f32, "r": mlir.i32, "h": mlir.i16, "l": mlir.i64}                    # called within a context


def as_intrinsic(primitive: Primitive, chip: str):
    """What stands for a primitive in a kernel compiled for a chip. TypingError where it is called with the wrong types."""
    template = primitive.template(chip)

    def typed(*arguments):
        if template is None:
            raise TypingError(f"{primitive.name} needs {primitive.needs}; this kernel is compiled for {chip}")
        for name, operand, kind in zip(primitive.parameters, primitive.operands, arguments, strict=True):
            if not _fits(operand, kind):
                raise TypingError(f"{primitive.name}: {name} is a {kind}, expected {_expected(operand)}")
        call = _Call(primitive, template, arguments)
        return call.signature, call.lower

    # Numba reads the arity and the names from the definition's signature.
    parameters = "".join(f", {name}" for name in primitive.parameters)
    scope = {"typed": typed}
    exec(f"def {primitive.name}(typing_context{parameters}):\n    return typed({parameters.lstrip(', ')})", scope)
    return extending._intrinsic(prefer_literal="n" in primitive.operands, target="cuda")(scope[primitive.name])


class _Call:
    """A primitive called with arguments of certain types."""

    def __init__(self, primitive: Primitive, template: str, arguments):
        self._operands, self._pure = primitive.operands, primitive.pure
        self._results = [arguments[primitive.operands.index("x")] if letter == "x" else RESULT[letter] for letter in primitive.outputs]
        self._registers = [_register(operand, kind) for operand, kind in zip(primitive.operands, arguments, strict=True)]
        self.signature = _returned(self._results)(*arguments)
        self._number_operands(primitive, template, arguments)

    def _number_operands(self, primitive: Primitive, template: str, arguments) -> None:
        """LLVM counts the results first (those into arrays after those returned), then the inputs; an array's inputs are tied
        to its results by their numbers.
        """
        lengths = [int(operand) for operand in primitive.operands if operand.isdigit()]
        self._outputs = [_constraint(kind) for kind in self._results] + ["f"] * sum(lengths)
        texts = {str(i): f"${i}" for i in range(len(self._results))}
        inputs, next_result = [], len(self._results)
        for name, operand, register, kind in zip(primitive.parameters, primitive.operands, self._registers, arguments, strict=True):
            if operand == "n":
                texts[name] = str(kind.literal_value)
            elif operand.isdigit():
                numbers = [str(number) for number in range(next_result, next_result + int(operand))]
                texts[name] = "{" + ", ".join(f"${number}" for number in numbers) + "}"
                inputs += numbers
                next_result += int(operand)
            else:
                texts[name] = f"${len(self._outputs) + len(inputs)}"
                inputs.append(register)
        self._assembly = re.sub(r"\$(\w+)", lambda match: texts[match[1]], template)
        self._constraints = ",".join([f"={letter}" for letter in self._outputs] + inputs)

    def lower(self, builder, target, variables, _) -> None:
        values, arrays = [], []
        for operand, register, variable in zip(self._operands, self._registers, variables, strict=True):
            if operand.isdigit():
                array = builder.load_var(variable)
                arrays.append((array, int(operand)))
                values += [memref.load(memref=array, indices=[index_of(i)]) for i in range(int(operand))]
            elif operand != "n":
                values.append(_operand(builder, variable, register))
        produced = _emit(self._assembly, self._constraints, self._outputs, values, not self._pure)
        results, rest = produced[: len(self._results)], produced[len(self._results) :]
        for array, length in arrays:
            for i in range(length):
                memref.store(value=rest.pop(0), memref=array, indices=[index_of(i)])
        results = [_as_bool(value) if kind is types.boolean else value for value, kind in zip(results, self._results, strict=True)]
        builder.store_var(target, tuple(results) if len(results) > 1 else results[0] if results else None)


def _fits(operand: str, kind) -> bool:
    if operand.isdigit():
        return isinstance(kind, types.Array) and kind.dtype == types.float32 and kind.ndim == 1
    match operand:
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
        case "t":
            return kind == TENSOR_MAP
        case "n":
            return isinstance(kind, types.IntegerLiteral)
        case _:
            return isinstance(kind, types.Integer)


def _expected(operand: str) -> str:
    if operand.isdigit():
        return f"a local array of {operand} float32"
    return {"f": "a float32: write f32(...)", "x": "a float32, uint32 or int32: cast it", "b": "a boolean", "p": "a pointer",
            "s": "a shared array", "t": "a parameter of type tensor_map", "n": "an integer literal or constant"}.get(operand, "an integer")


def _constraint(kind) -> str:
    return {types.float32: "f", types.uint16: "h", types.uint64: "l"}.get(kind, "r")


def _register(operand: str, kind) -> str | None:
    """Constraint letter of an input; None for literals, which are part of the text, and arrays."""
    if operand == "n" or operand.isdigit():
        return None
    return _constraint(kind) if operand == "x" else REGISTER[operand]


def _returned(results):
    if not results:
        return types.none
    if len(results) == 1:
        return results[0]
    return types.UniTuple(results[0], len(results)) if len(set(results)) == 1 else types.Tuple(results)


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

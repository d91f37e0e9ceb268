"""Eight float32 lanes for Numba kernels, with the order of every sum written down.

Numba alone vectorises a sum only if it may reassociate it, and then the order follows the machine. Here the order
is in the source: an `F32x8` holds eight partial sums, `fma` adds to all of them, `hsum` joins them by a fixed tree.
LLVM maps the type to whatever registers the machine has; the bits are the same on all of them, because each
operation below is one IEEE operation per lane.

Kernels read through bare pointers (`kernel.pointer_to`) and flat element indices, so arrays must be C-contiguous and
stay alive in the caller; there is no bounds check, and no need for alignment. 16-bit weights travel under the integer
type of their size: bfloat16 as uint16, float16 as int16 (`strided.bits`).
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 8

_I16, _I32, _F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()


class F32x8Type(types.Type):
    def __init__(self):
        super().__init__("F32x8")


f32x8 = F32x8Type()


@register_model(F32x8Type)
class _F32x8Model(models.PrimitiveModel):
    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, ir.VectorType(_F32, LANES))


@intrinsic
def splat(typingctx, value):
    """[value] * 8."""
    def generate(context, builder, signature, args):
        return _splat(builder, context.cast(builder, args[0], signature.args[0], types.float32))
    return f32x8(value), generate


@intrinsic
def load(typingctx, source, index):
    """source[index : index + 8] widened to float32 (exactly)."""
    def generate(context, builder, signature, args):
        return _widened(builder, source.dtype, *args, LANES)
    return f32x8(source, types.intp), generate


@intrinsic
def load_one(typingctx, source, index):
    """source[index] widened to float32 (exactly)."""
    def generate(context, builder, signature, args):
        return _widened(builder, source.dtype, *args, 1)
    return types.float32(source, types.intp), generate


@intrinsic
def store(typingctx, target, index, value):
    """target[index : index + 8] = value, for float32."""
    def generate(context, builder, signature, args):
        target, index, value = args
        builder.store(value, builder.bitcast(builder.gep(target, [index]), value.type.as_pointer()), align=4)
        return context.get_dummy_value()
    return types.void(target, types.intp, f32x8), generate


@intrinsic
def store_bf16(typingctx, target, index, value):
    """target[index] = a float32 rounded to bfloat16, to nearest even; `target` holds uint16."""
    def generate(context, builder, signature, args):
        target, index, value = args
        bits = builder.bitcast(value, _I32)
        is_odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
        rounded = builder.add(bits, builder.add(is_odd, _I32(0x7FFF)))                 # of a NaN it could overflow
        rounded = builder.select(builder.fcmp_unordered("uno", value, value), builder.or_(bits, _I32(1 << 22)), rounded)
        builder.store(builder.trunc(builder.lshr(rounded, _I32(16)), _I16), builder.gep(target, [index]))
        return context.get_dummy_value()
    return types.void(types.CPointer(types.uint16), types.intp, types.float32), generate


@intrinsic
def prefetch(typingctx, source, index):
    """Ask for the cache line of source[index]; reading past the end is harmless, no value depends on it."""
    def generate(context, builder, signature, args):
        byte = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(8).as_pointer())
        hint = ir.FunctionType(ir.VoidType(), [byte.type, _I32, _I32, _I32])
        builder.call(cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0"), [byte, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()
    return types.void(source, types.intp), generate


@intrinsic
def fma(typingctx, a, b, c):
    """a * b + c with one rounding; three F32x8, three float32 or three float64."""
    kind, name = {f32x8: (f32x8, "v8f32"), types.float64: (types.float64, "f64")}.get(a, (types.float32, "f32"))

    def generate(context, builder, signature, args):
        one = args[0].type
        fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(one, [one] * 3), f"llvm.fma.{name}")
        return builder.call(fma, args)
    return kind(kind, kind, kind), generate


@intrinsic
def add(typingctx, a, b):
    """a + b, lane by lane."""
    def generate(context, builder, signature, args):
        return builder.fadd(*args)
    return f32x8(f32x8, f32x8), generate


@intrinsic
def maximum(typingctx, a, b):
    """a where a > b, else b, lane by lane."""
    def generate(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)
    return f32x8(f32x8, f32x8), generate


@intrinsic
def hsum(typingctx, a):
    """((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))."""
    def generate(context, builder, signature, args):
        return _tree(builder, args[0], builder.fadd)
    return types.float32(f32x8), generate


@intrinsic
def hmax(typingctx, a):
    """The largest lane."""
    def generate(context, builder, signature, args):
        return _tree(builder, args[0], lambda x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))
    return types.float32(f32x8), generate


def _splat(builder, value):
    vector = ir.VectorType(_F32, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def _widened(builder, dtype, source, index, lanes):
    """Load `lanes` elements of `dtype` and make them float32."""
    wide = (lambda scalar: scalar) if lanes == 1 else (lambda scalar: ir.VectorType(scalar, lanes))
    scalar = _F32 if dtype == types.float32 else _I16
    address = builder.bitcast(builder.gep(source, [index]), wide(scalar).as_pointer())
    value = builder.load(address, align=1)
    if dtype == types.uint16:                               # bfloat16 is the upper half of a float32
        sixteen = ir.Constant(wide(_I32), 16 if lanes == 1 else [16] * lanes)
        return builder.bitcast(builder.shl(builder.zext(value, wide(_I32)), sixteen), wide(_F32))
    if dtype == types.int16:
        return builder.fpext(builder.bitcast(value, wide(ir.HalfType())), wide(_F32))
    return value


def _tree(builder, vector, join):
    """Join the upper half of the lanes to the lower half until one is left."""
    width = LANES
    while width > 1:
        width //= 2
        low, high = (ir.Constant(ir.VectorType(_I32, width), list(range(start, start + width))) for start in (0, width))
        vector = join(builder.shuffle_vector(vector, vector, low), builder.shuffle_vector(vector, vector, high))
    return builder.extract_element(vector, _I32(0))

"""Gated activations    y = silu(gate) * up,   y = gelu_tanh(gate) * up,   y = x * sigmoid(gate)

gate_up [T, 2 F] bf16, gate first; x, gate, y [T, F] bf16; computed in f32, one rounding to bf16. No sums.
Bytes: 6 T F; bound by memory, and nearly by instructions: 36 per element (silu), 40 (gelu), 37 (sigmoid gate) of about 50 that an
H200 issues in the time of 6 bytes. So divisions have no branch (vtlite/cuda/lang/quick.py); the gate kernel divides a vector
of 8 the long way if one of its outputs is subnormal or 0, or NaN as of a huge x.
"""

from vtlite import reference
from vtlite.cuda.device import current
from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (INFINITE_QUARTER, bf16, bf16x2_high, bf16x2_low, consteval, cuda, div, f32, f32_to_bf16x2, fabs,
                              load_u32x4, mul, ptr, quarter_of_one_plus_exp_minus, quotient, reciprocal, select, store_u32x4, u32)
from vtlite.cuda.layout import need_contiguous, vectors_between_heads
from vtlite.elementary import exp, gelu_tanh, silu
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

THREADS = 256
PER_THREAD = 2                   # vectors of 8 outputs per thread: 64 bytes of loads in flight

INTERMEDIATE = 14336             # F, a multiple of 8
HEADS, HEAD_DIM = 16, 256        # of sigmoid_gate's F: where its gates lie in heads apart
GELU = False


@device
def activated(gate, up):
    """silu(gate) * up, or gelu, for pairs of bf16."""
    low, high = bf16x2_low(gate), bf16x2_high(gate)
    if GELU:
        return f32_to_bf16x2(mul(gelu_tanh(low), bf16x2_low(up)), mul(gelu_tanh(high), bf16x2_high(up)))
    return f32_to_bf16x2(mul(silu(low), bf16x2_low(up)), mul(silu(high), bf16x2_high(up)))


@device
def gated(x, gate):
    """x * sigmoid(gate) for pairs of bf16, as x / (1 + e^-gate)."""
    return f32_to_bf16x2(div(bf16x2_low(x), f32(1) + exp(-bf16x2_low(gate))),
                         div(bf16x2_high(x), f32(1) + exp(-bf16x2_high(gate))))


@device
def quickly_gated(x, gate):
    """x / (1 + e^-gate) without a branch, and whether these are the right bits: not of a quotient that is 0, subnormal or NaN.

    The factor 2^32 keeps the remainder in `quotient` from being subnormal. If e^-gate is infinite, the quotient is 0 and right.
    """
    h = quarter_of_one_plus_exp_minus(gate)
    q = quotient(mul(x, f32(2.0**32)), h, reciprocal(h))
    finite = h < INFINITE_QUARTER
    return mul(q, select(finite, f32(2.0**-34), f32(0))), fabs(q) >= select(finite, f32(2.0**-92), f32(0))


@kernel((ptr(bf16), ptr(bf16), u32), threads=THREADS, constants=("INTERMEDIATE", "GELU"),
        prebuild=[{"INTERMEDIATE": f, "GELU": False}
                  for f in (512, 1536, 2560, 3072, 4864, 6144, 8192, 9216, 9728, 11008, 12288, 14336, 17408)])
def activate_and_mul_kernel(gate_up, y, num_vectors):
    first = u32(cuda.blockIdx.x) * u32(THREADS * PER_THREAD) + u32(cuda.threadIdx.x)
    gates, ups = cuda.local.array((PER_THREAD, 4), u32), cuda.local.array((PER_THREAD, 4), u32)
    for n in consteval(range(PER_THREAD)):
        vector = first + u32(n * THREADS)
        if vector < num_vectors:
            row = vector // u32(INTERMEDIATE // 8)
            gate = vector + row * u32(INTERMEDIATE // 8)                   # a row of gate_up is twice as long
            gates[n, 0], gates[n, 1], gates[n, 2], gates[n, 3] = load_u32x4(gate_up, gate)
            ups[n, 0], ups[n, 1], ups[n, 2], ups[n, 3] = load_u32x4(gate_up, gate + u32(INTERMEDIATE // 8))
    for n in consteval(range(PER_THREAD)):
        vector = first + u32(n * THREADS)
        if vector < num_vectors:
            store_u32x4(y, vector, activated(gates[n, 0], ups[n, 0]), activated(gates[n, 1], ups[n, 1]),
                        activated(gates[n, 2], ups[n, 2]), activated(gates[n, 3], ups[n, 3]))


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), u32, u32, u32), threads=THREADS, constants=("HEADS", "HEAD_DIM"),
        prebuild=[{"HEADS": heads, "HEAD_DIM": dim} for heads, dim in ((4, 64), (8, 256), (16, 256), (24, 256), (32, 256))])
def sigmoid_gate_kernel(x, gate, y, num_vectors, token_stride, head_stride):
    """Strides: vectors from one token, and one head, of the gates to the next."""
    first = u32(cuda.blockIdx.x) * u32(THREADS * PER_THREAD) + u32(cuda.threadIdx.x)
    values, gates = cuda.local.array((PER_THREAD, 4), u32), cuda.local.array((PER_THREAD, 4), u32)
    words = cuda.local.array(4, u32)
    for n in consteval(range(PER_THREAD)):
        vector = first + u32(n * THREADS)
        if vector < num_vectors:
            values[n, 0], values[n, 1], values[n, 2], values[n, 3] = load_u32x4(x, vector)
            row = vector // u32(HEAD_DIM // 8)
            token = row // u32(HEADS)
            place = (token * token_stride + (row - token * u32(HEADS)) * head_stride
                     + vector - row * u32(HEAD_DIM // 8))
            gates[n, 0], gates[n, 1], gates[n, 2], gates[n, 3] = load_u32x4(gate, place)
    for n in consteval(range(PER_THREAD)):
        vector = first + u32(n * THREADS)
        if vector < num_vectors:
            right = True
            for i in consteval(range(4)):
                low, low_right = quickly_gated(bf16x2_low(values[n, i]), bf16x2_low(gates[n, i]))
                high, high_right = quickly_gated(bf16x2_high(values[n, i]), bf16x2_high(gates[n, i]))
                right = right & low_right & high_right
                words[i] = f32_to_bf16x2(low, high)
            if not right:
                for i in consteval(range(4)):
                    words[i] = gated(values[n, i], gates[n, i])
            store_u32x4(y, vector, words[0], words[1], words[2], words[3])


def silu_and_mul(gate_up, *, out=None):
    """gate_up [T, 2 F] bf16 -> silu(gate) * up [T, F] bf16."""
    return _activate_and_mul(gate_up, False, out)


def gelu_tanh_and_mul(gate_up, *, out=None):
    """gate_up [T, 2 F] bf16 -> gelu_tanh(gate) * up [T, F] bf16."""
    return _activate_and_mul(gate_up, True, out)


def sigmoid_gate(x, gate, *, out=None):
    """x, gate [T, D] or [T, H, D] bf16 -> x * sigmoid(gate) bf16. out may be x.

    gate may leave gaps between tokens and between heads.
    """
    y = current().empty(x.shape, bf16) if out is None else out
    need_contiguous(x=x, out=y)
    heads, *strides = vectors_between_heads("gate", gate)
    vectors = x.size // x.shape[-1] * _vectors(x.shape[-1])
    current().launch(sigmoid_gate_kernel.specialize(HEADS=heads, HEAD_DIM=x.shape[-1]), _grid(vectors), x, gate, y, vectors,
                     *strides)
    return y


def _activate_and_mul(gate_up, gelu: bool, out):
    tokens, width = gate_up.shape
    y = current().empty((tokens, width // 2), bf16) if out is None else out
    need_contiguous(gate_up=gate_up, out=y)
    vectors = tokens * _vectors(width // 2)
    specialized = activate_and_mul_kernel.specialize(INTERMEDIATE=width // 2, GELU=gelu)
    current().launch(specialized, _grid(vectors), gate_up, y, vectors)
    return y


def _vectors(elements: int) -> int:
    if elements % 8:
        raise DeviceError(f"the activation kernels take rows of a multiple of 8 elements, found {elements}")
    return elements // 8


def _grid(vectors: int) -> int:
    return -(-vectors // (THREADS * PER_THREAD))


def _normal(rng, *shape, spread=None):
    """Normal values; of no given spread over the range where activations bend, and far outside it."""
    return (rng.standard_normal(shape) * (spread or rng.choice([0.5, 4, 60], shape))).astype(bf16)


def _and_mul_spec(name: str, op) -> OpSpec:
    return OpSpec(
        f"act.{name}", cases=[{"T": 1, "F": 64}, {"T": 3, "F": 200}, {"T": 63, "F": 8}],
        gpu_cases=[{"T": t, "F": f} for t, f in ((1, 14336), (63, 1536), (500, 200))],
        bench_cases=[{"T": 4096, "F": 8192}], make_inputs=lambda rng, T, F: {"gate_up": _normal(rng, T, 2 * F)},
        outputs=lambda T, F: {"y": ((T, F), bf16)}, reference=getattr(reference, name),
        launch=lambda inputs, out: op(**inputs, out=out["y"]), num_bytes=lambda T, F: 6 * T * F, rows=("gate_up",))


SPECS = (
    _and_mul_spec("silu_and_mul", silu_and_mul),
    _and_mul_spec("gelu_tanh_and_mul", gelu_tanh_and_mul),
    OpSpec("act.sigmoid_gate", cases=[{"T": 1, "F": 64}, {"T": 3, "F": 200}, {"T": 63, "F": 8}],
           gpu_cases=[{"T": t, "F": f} for t, f in ((1, 4096), (63, 1536), (500, 200))],
           bench_cases=[{"T": 8192, "F": 4096, "spread": spread} for spread in (4, 60)],          # 60: most gates open or closed
           make_inputs=lambda rng, T, F, spread=None: {name: _normal(rng, T, F, spread=spread) for name in ("x", "gate")},
           outputs=lambda T, F, **_: {"y": ((T, F), bf16)}, reference=reference.sigmoid_gate,
           launch=lambda inputs, out: sigmoid_gate(**inputs, out=out["y"]), num_bytes=lambda T, F, **_: 6 * T * F,
           rows=("x", "gate")),
)

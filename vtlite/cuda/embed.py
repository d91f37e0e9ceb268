"""Embedding    y[t] = w[ids[t]],   and rows of activations    y[i] = x[rows[i]]

ids [T] i64, w [V, D] bf16, y [T, D] bf16. An id outside 0..V-1 reads row 0 or V - 1 and is noted in the device's `faults`,
which `check_ids` turns into an error when the host next waits for the device anyway: a bad id never stalls the step.
Bytes: 4 T D + 8 T; bound by memory, for few tokens by latency.
"""

import numpy as np

from vtlite import reference
from vtlite.cuda.device import current
from vtlite.cuda.kernel import kernel
from vtlite.cuda.lang import atomic_max_u32, bf16, cuda, i64, load_u32x4, ptr, store_u32x4, u32
from vtlite.cuda.layout import need_contiguous
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec

THREADS = 256

ROW = 512                        # 16-byte vectors of a row: D / 8


@kernel((ptr(i64), ptr(bf16), ptr(bf16), ptr(u32), i64, u32), threads=THREADS, constants=("ROW",),
        prebuild=[{"ROW": hidden // 8} for hidden in (64, 576, 960, 1024, 1536, 2048, 2560, 3072, 4096, 5120)])
def embedding_kernel(input_ids, weight, y, faults, vocab_size, num_vectors):
    """faults[0] becomes 1 + the last row with an id out of range, if there is one."""
    vector = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    if vector < num_vectors:
        token = vector // u32(ROW)
        column = vector - token * u32(ROW)
        row = input_ids[token]
        if row < 0 or row >= vocab_size:
            row = i64(0) if row < 0 else vocab_size - 1
            if column == u32(0):
                atomic_max_u32(faults, u32(0), token + u32(1))
        a0, a1, a2, a3 = load_u32x4(weight, u32(row) * u32(ROW) + column)
        store_u32x4(y, vector, a0, a1, a2, a3)


def embedding(input_ids, weight, dtype=bf16, *, out=None):
    """input_ids [T] i64, weight [V, D] bf16 -> [T, D] bf16. Ids out of range: see `check_ids`."""
    vocab_size, hidden = weight.shape
    if hidden % 8 or np.dtype(dtype) != bf16 or weight.size // 8 >= 1 << 32:
        raise DeviceError("the embedding kernel takes and gives bfloat16 rows of a multiple of 8 elements, less than 64 GiB in "
                          f"all; found {list(weight.shape)} as {np.dtype(dtype)}")
    y = current().empty((input_ids.size, hidden), bf16) if out is None else out
    need_contiguous(input_ids=input_ids, weight=weight, out=y)
    vectors = input_ids.size * hidden // 8
    current().launch(embedding_kernel.specialize(ROW=hidden // 8), -(-vectors // THREADS),
                     input_ids, weight, y, current().faults, vocab_size, vectors)
    return y


def gather_rows(x, rows, *, out=None):
    """x [T, D] bf16, rows [L] i64 -> [L, D] bf16. An embedding by another name: rows out of range are noted likewise."""
    return embedding(rows, x, out=out)


@kernel((ptr(i64), ptr(i64), u32), threads=THREADS)
def fill_drawn_kernel(input_ids, drawn, num_tokens):
    token = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    if token < num_tokens and input_ids[token] < 0:
        input_ids[token] = drawn[i64(-1) - input_ids[token]]


def fill_drawn(input_ids, drawn) -> None:
    """Each input_ids[t] = -1 - i becomes drawn[i], in place: tokens that the last step drew and the host need not know yet.

    input_ids [T], drawn [S] i64.
    """
    need_contiguous(input_ids=input_ids, drawn=drawn)
    current().launch(fill_drawn_kernel.specialize(), -(-input_ids.size // THREADS), input_ids, drawn, input_ids.size)


def check_ids(row: int | None = None) -> None:
    """DeviceError if an id was out of range since the last check: `row` is what device.faults held, read here if it is None."""
    row = int(current().faults.numpy()[0]) if row is None else row
    if row:
        current().faults.fill(0)
        raise DeviceError(f"input_ids[{row - 1}] of an earlier step was outside the vocabulary; its output is meaningless")


def _inputs(rng, T: int, V: int, D: int) -> dict:
    return {"input_ids": rng.integers(0, V, T), "weight": rng.standard_normal((V, D)).astype(bf16)}


SPECS = (
    OpSpec("embed.embedding", cases=[{"T": 1, "V": 5, "D": 576}, {"T": 3, "V": 100, "D": 64}, {"T": 63, "V": 7, "D": 8}],
           gpu_cases=[{"T": 500, "V": 1000, "D": 4096}], bench_cases=[{"T": 16384, "V": 32768, "D": 4096}],
           make_inputs=_inputs, outputs=lambda T, V, D: {"y": ((T, D), bf16)},
           reference=lambda input_ids, weight: reference.embedding(input_ids, weight, weight.dtype),
           launch=lambda inputs, out: embedding(**inputs, out=out["y"]), num_bytes=lambda T, V, D: 4 * T * D + 8 * T,
           rows=("input_ids",)),
)

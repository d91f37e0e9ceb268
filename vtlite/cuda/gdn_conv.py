"""Causal convolution before a gated delta net    y_t = silu(sum_j w_j x_{t-3+j}),   each channel by itself

x, y [T, C] bf16; w [4, C] f32, the last tap meets the current token; conv_state [slots, 3, C] bf16, in place: the last three
inputs of each sequence, oldest first. Sums in f32, one rounding to bf16.
Order: taps join by fma from the oldest on. A token's bits depend on its four inputs alone.
Bytes: 4 T C, and 12 C per sequence; bound by memory. A thread holds four channels, of one token (decode) or of ROWS
neighbouring tokens (prefill), whose inputs are all in flight at once. The thread that needs a sequence's old state is the one
that replaces it.
"""

from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (bf16, bf16x2_high, bf16x2_low, consteval, cuda, f32, f32_to_bf16x2, fma, i32, i64, load_f32x4,
                              load_u32x2, ptr, store_u32x2, u32)
from vtlite.elementary import silu

WIDTH = 4                        # taps
CHUNK = 64                       # tokens
ROWS = 16                        # tokens per thread in prefill, a divisor of CHUNK
THREADS = 128


@device
def load_taps(taps, weight, column, columns):
    """w of four channels."""
    for j in consteval(range(WIDTH)):
        taps[j, 0], taps[j, 1], taps[j, 2], taps[j, 3] = load_f32x4(weight, u32(j) * columns + column)


@device
def store_output(y, i, window, first, taps):
    """y of four channels, from the rows first .. first + 3 of the window."""
    y0, y1, y2, y3 = f32(0), f32(0), f32(0), f32(0)
    for j in consteval(range(WIDTH)):
        y0 = fma(taps[j, 0], bf16x2_low(window[first + j, 0]), y0)
        y1 = fma(taps[j, 1], bf16x2_high(window[first + j, 0]), y1)
        y2 = fma(taps[j, 2], bf16x2_low(window[first + j, 1]), y2)
        y3 = fma(taps[j, 3], bf16x2_high(window[first + j, 1]), y3)
    store_u32x2(y, i, f32_to_bf16x2(silu(y0), silu(y1)), f32_to_bf16x2(silu(y2), silu(y3)))


@kernel((ptr(bf16), ptr(f32), ptr(bf16), ptr(i32), ptr(i64), ptr(bf16), u32, u32), threads=THREADS)
def conv_step_kernel(x, weight, conv_state, token_rows, state_slots, y, columns, token_stride):
    """One token of each sequence: row token_rows[s]. In 8-byte vectors: `columns` of a row, token_stride from one row of x to the
    next."""
    column, s = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x), u32(cuda.blockIdx.y)
    taps, window = cuda.local.array((WIDTH, 4), f32), cuda.local.array((WIDTH, 2), u32)
    if column < columns:
        row, state = u32(token_rows[s]), u32(state_slots[s]) * u32(WIDTH - 1) * columns + column
        for j in consteval(range(WIDTH - 1)):
            window[j, 0], window[j, 1] = load_u32x2(conv_state, state + u32(j) * columns)
        window[WIDTH - 1, 0], window[WIDTH - 1, 1] = load_u32x2(x, row * token_stride + column)
        load_taps(taps, weight, column, columns)
        store_output(y, row * columns + column, window, 0, taps)
        for j in consteval(range(WIDTH - 1)):
            store_u32x2(conv_state, state + u32(j) * columns, window[j + 1, 0], window[j + 1, 1])


@device
def load_input(x, conv_state, state, row, column, columns, token_stride):
    """Row `row` of a sequence as the pointer x begins it; a negative row lies in the state."""
    if row >= i32(0):
        return load_u32x2(x, u32(row) * token_stride + column)
    return load_u32x2(conv_state, state + u32(row + i32(WIDTH - 1)) * columns)


@kernel((ptr(bf16), ptr(f32), ptr(bf16), ptr(i32), ptr(i32), ptr(bf16), u32, u32), threads=THREADS)
def conv_chunk_kernel(x, weight, conv_state, sequences, chunks, y, columns, token_stride):
    """ROWS tokens of a chunk (gdn_plan.py). columns, token_stride: as above."""
    column = u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)
    chunk, part = u32(cuda.blockIdx.y) // u32(CHUNK // ROWS), u32(cuda.blockIdx.y) % u32(CHUNK // ROWS)
    sequence, saved_slot = u32(chunks[chunk * u32(2)]), chunks[chunk * u32(2) + u32(1)]
    first_row, num_rows = u32(sequences[sequence * u32(4)]), sequences[sequence * u32(4) + u32(1)]
    slot, first_chunk = u32(sequences[sequence * u32(4) + u32(2)]), u32(sequences[sequence * u32(4) + u32(3)])
    start = i32((chunk - first_chunk) * u32(CHUNK) + part * u32(ROWS))                 # row of the sequence
    state = slot * u32(WIDTH - 1) * columns + column
    x_column, y_column = first_row * token_stride + column, first_row * columns + column
    taps, window = cuda.local.array((WIDTH, 4), f32), cuda.local.array(consteval((WIDTH - 1 + ROWS, 2)), u32)
    if column < columns and start < num_rows:
        for j in consteval(range(WIDTH - 1 + ROWS)):
            row = start + i32(j - (WIDTH - 1))
            window[j, 0], window[j, 1] = u32(0), u32(0)
            if row < num_rows:
                window[j, 0], window[j, 1] = load_input(x, conv_state, state, row, x_column, columns, token_stride)
        load_taps(taps, weight, column, columns)
        for i in consteval(range(ROWS)):
            if start + i32(i) < num_rows:
                store_output(y, y_column + u32(start + i32(i)) * columns, window, i, taps)
        if start == i32(0):
            last = cuda.local.array(consteval((WIDTH - 1, 2)), u32)
            for j in consteval(range(WIDTH - 1)):                                      # all read before the first is replaced
                last[j, 0], last[j, 1] = load_input(x, conv_state, state, num_rows + i32(j - (WIDTH - 1)), x_column, columns,
                                                    token_stride)
            for j in consteval(range(WIDTH - 1)):
                store_u32x2(conv_state, state + u32(j) * columns, last[j, 0], last[j, 1])
        if saved_slot >= i32(0) and part == u32(CHUNK // ROWS - 1):
            saved = u32(saved_slot) * u32(WIDTH - 1) * columns + column
            for j in consteval(range(WIDTH - 1)):
                store_u32x2(conv_state, saved + u32(j) * columns, window[ROWS + j, 0], window[ROWS + j, 1])

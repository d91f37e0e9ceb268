"""The sampler's first part: largest logits, and rows changed by allowed ids, biases and penalties.

Order within a row: allowed ids, biases, repetition penalty, frequency and presence penalties; one kernel each, so that the
next sees all of the last. Only rows that ask for a change are copied to `adjusted`; the others are read where they are.
Bytes: 4 S V, and 12 V per changed row.

Tokens are counted by their lists, not by walking the vocabulary: largest_kernel adds to `counts` [S, V] u32 (bit 31: in the
prompt), and penalise_kernel takes each count by exchanging it for 0, so that one thread gets it and the array is zero again.
"""

from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (atomic_add_u32, atomic_exch_u32, atomic_or_u32, cuda, div, f32, mul, ptr, u32, u32_as_f32, u32_to_f32, u64)
from vtlite.cuda.sampling_rows import (ADJUSTED, ALIGNED, ALLOWED, BIAS, BIAS_VALUES, DENSE, FREQUENCY, LOWEST, OUTPUT, PRESENCE,
                                       PROMPT, REPETITION, THREADS, load_logits, max_u32, parameter, prebuilt, store_logits,
                                       to_key, warp_max_to)

IN_PROMPT = 0x80000000


@device
def first_item():
    """The first item of this thread in a list that the blocks of a row share."""
    return u32(cuda.blockIdx.x) * u32(THREADS) + u32(cuda.threadIdx.x)


@device
def item_stride():
    return u32(cuda.gridDim.x) * u32(THREADS)


@kernel((ptr(u64), u32), threads=lambda THREADS: THREADS,
        constants=("THREADS",), prebuild=prebuilt("THREADS"))
def clear_kernel(state, count):
    i = first_item()
    while i < count:
        state[i] = u64(0)
        i += item_stride()


@device
def largest_key(key, a, b, c, d):
    return max_u32(max_u32(key, max_u32(to_key(a), to_key(b))), max_u32(to_key(c), to_key(d)))


@kernel((ptr(u32), ptr(u32), ptr(f32), ptr(f32), ptr(u32), ptr(u32), u32, u32), threads=lambda THREADS, **_: THREADS,
        constants=DENSE, prebuild=prebuilt(*DENSE))
def largest_kernel(table, values, logits, adjusted, counts, keys, vocab_size, num_rows):
    """keys[S + row] = key of the largest logit; copies of rows that will be changed; counts of their tokens."""
    row = u32(cuda.blockIdx.y)
    changed = parameter(table, row, ADJUSTED) != u32(0)
    masked = parameter(table, row, ALLOWED) != parameter(table, row, BIAS)
    key, group = u32(0), first_item()
    while group * u32(4) < vocab_size:
        a, b, c, d = load_logits(logits, row, group, vocab_size)
        key = largest_key(key, a, b, c, d)
        if changed:
            if masked:
                a, b, c, d = LOWEST, LOWEST, LOWEST, LOWEST
            store_logits(adjusted, row, group, vocab_size, a, b, c, d)
        group += item_stride()
    warp_max_to(keys, num_rows + row, key)

    i, end = parameter(table, row, PROMPT) + first_item(), parameter(table, row, OUTPUT)
    while i < end:
        atomic_or_u32(counts, row * vocab_size + values[i], u32(IN_PROMPT))
        i += item_stride()
    i, end = parameter(table, row, OUTPUT) + first_item(), parameter(table, row, ALLOWED)
    while i < end:
        atomic_add_u32(counts, row * vocab_size + values[i], u32(1))
        i += item_stride()


@kernel((ptr(u32), ptr(u32), ptr(f32), ptr(f32), u32), threads=lambda THREADS: THREADS,
        constants=("THREADS",), prebuild=prebuilt("THREADS"))
def allow_kernel(table, values, logits, adjusted, vocab_size):
    """Allowed ids get their logits back; largest_kernel has forbidden them all."""
    row = u32(cuda.blockIdx.y)
    i, end = parameter(table, row, ALLOWED) + first_item(), parameter(table, row, BIAS)
    while i < end:
        place = row * vocab_size + values[i]
        adjusted[place] = logits[place]
        i += item_stride()


@kernel((ptr(u32), ptr(u32), ptr(f32), u32), threads=lambda THREADS: THREADS,
        constants=("THREADS",), prebuild=prebuilt("THREADS"))
def bias_kernel(table, values, adjusted, vocab_size):
    """adjusted[id] += bias; the ids of a row are distinct."""
    row = u32(cuda.blockIdx.y)
    i, end = parameter(table, row, BIAS) + first_item(), parameter(table, row, BIAS_VALUES)
    length = end - parameter(table, row, BIAS)
    while i < end:
        place = row * vocab_size + values[i]
        adjusted[place] = adjusted[place] + u32_as_f32(values[i + length])
        i += item_stride()


@kernel((ptr(u32), ptr(u32), ptr(f32), ptr(u32), u32), threads=lambda THREADS: THREADS,
        constants=("THREADS",), prebuild=prebuilt("THREADS"))
def penalise_kernel(table, values, adjusted, counts, vocab_size):
    """Repetition divides or multiplies what was seen; frequency and presence are taken off what was answered."""
    row = u32(cuda.blockIdx.y)
    repetition = u32_as_f32(parameter(table, row, REPETITION))
    frequency, presence = u32_as_f32(parameter(table, row, FREQUENCY)), u32_as_f32(parameter(table, row, PRESENCE))
    i, end = parameter(table, row, PROMPT) + first_item(), parameter(table, row, ALLOWED)
    while i < end:
        place = row * vocab_size + values[i]
        seen = atomic_exch_u32(counts, place, u32(0))
        if seen != u32(0):
            z = adjusted[place]
            z = div(z, repetition) if z > f32(0) else mul(z, repetition)
            count = seen & u32(IN_PROMPT - 1)
            if count != u32(0):
                z = z - (mul(frequency, u32_to_f32(count)) + presence)
            adjusted[place] = z
        i += item_stride()


@kernel((ptr(u32), ptr(f32), ptr(u32), u32), threads=lambda THREADS, **_: THREADS, constants=DENSE, prebuild=prebuilt(*DENSE))
def adjusted_largest_kernel(table, adjusted, keys, vocab_size):
    """keys[row] = key of the largest logit of a changed row."""
    row = u32(cuda.blockIdx.y)
    if parameter(table, row, ADJUSTED) != u32(0):
        key, group = u32(0), first_item()
        while group * u32(4) < vocab_size:
            a, b, c, d = load_logits(adjusted, row, group, vocab_size)
            key = largest_key(key, a, b, c, d)
            group += item_stride()
        warp_max_to(keys, row, key)

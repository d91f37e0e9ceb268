"""What the sampler's kernels share: the table of row parameters, ordered keys, distances from the largest logit, masses.

A kernel looks at a row in one of two ways: *adjusted*, as the token is drawn from it, and *raw*, as logprobs are read from
it. Rows 0 .. S-1 of a grid are the adjusted ones, S .. 2S-1 the raw ones; `view` counts both.

The distance of an id is the f32 largest - z >= 0, kept as its bits: ascending bits are falling probability. It is infinite
for forbidden ids.
"""

from types import SimpleNamespace

import numpy as np

from vtlite.cuda.kernel import device
from vtlite.cuda.lang import (as_u32, atomic_max_u32, consteval, cuda, div, f32, f32_to_u32_rz, fabs, load_f32x4, mul, redux_max, select,
                              shfl_xor, store_f32x4, u32, u32_as_f32, u64)
from vtlite.elementary import exp
from vtlite.errors import DeviceError

ALIGNED = True                   # V is a multiple of 4: rows are read 16 bytes at a time
THREADS = 512                    # per block, of kernels that read whole rows
BINS = 2048                      # of the first histogram; they divide distances 0 .. 64 evenly
CAPACITY = 4096                  # ids listed per view
RADIX, RADIX_BITS = 256, 8       # values and bits of a digit of the radix select, which has a thread per value
DENSE = ("ALIGNED", "THREADS")   # constants of kernels that read whole rows


def layout(vocab_size: int) -> dict[str, int]:
    """The constants for a vocabulary. No result depends on them."""
    big = {"THREADS": 512, "BINS": 2048, "CAPACITY": 4096, "RADIX": 256, "RADIX_BITS": 8}
    small = {"THREADS": 32, "BINS": 128, "CAPACITY": 64, "RADIX": 32, "RADIX_BITS": 5}
    return {"ALIGNED": vocab_size % 4 == 0, **(big if vocab_size > 4096 else small)}


def prebuilt(*names: str) -> list[dict]:
    """Every set of values that layout() gives these constants."""
    return [dict(values) for values in dict.fromkeys(tuple((name, layout(v)[name]) for name in names) for v in (8192, 8191, 32, 31))]


INFINITE = 0x7F800000            # bits of an infinite distance
LOWEST = np.float32(-np.inf)
MASS_ONE = np.float32(2.0**40)
SAFE_LARGEST = np.float32(2.0**24)
SAFE_DISTANCE = np.float32(28.0)   # e^-28 is 0.76 of a unit of mass

# Columns of the table [S, COLUMNS] u32: f32 as bits, 64-bit numbers in halves, then where each list of the row begins in `values`.
COLUMNS = 20
TEMPERATURE, TOP_K, TOP_P, MIN_P, REPETITION, FREQUENCY, PRESENCE = range(7)
SEED_LOW, SEED_HIGH, POSITION_LOW, POSITION_HIGH = range(7, 11)
ADJUSTED = 11                    # whether masks, biases or penalties may change the row: whether it has a list
PROMPT, OUTPUT, ALLOWED, BIAS, BIAS_VALUES, END = range(12, 18)

_FLOATS = {"temperature": TEMPERATURE, "top_p": TOP_P, "min_p": MIN_P, "repetition_penalty": REPETITION,
           "frequency_penalty": FREQUENCY, "presence_penalty": PRESENCE}
_LISTS = ("prompt_ids", "output_ids", "allowed", "bias_ids", "bias_values")


# -- the table, on the host

def pack(sampling, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """A `vtlite.engine.batch.SamplingBatch` of S rows -> table [S, COLUMNS] u32 and values [L] u32, L >= 1."""
    size = len(sampling.temperature)
    table = np.zeros((size, COLUMNS), np.uint32)
    for name, column in _FLOATS.items():
        table[:, column] = np.ascontiguousarray(getattr(sampling, name), np.float32).view(np.uint32)
    table[:, TOP_K] = np.where(sampling.top_k < vocab_size, sampling.top_k, 0)
    for first, numbers in ((SEED_LOW, sampling.seeds), (POSITION_LOW, sampling.positions.astype(np.uint64))):
        table[:, first], table[:, first + 1] = numbers & np.uint64(0xFFFFFFFF), numbers >> np.uint64(32)

    lists = [getattr(sampling, name) for name in _LISTS]
    if not any(len(ragged.values) for ragged in lists):
        return table, np.zeros(1, np.uint32)
    lengths = np.stack([np.diff(ragged.start_loc) for ragged in lists], axis=1)                   # [S, 5]
    ends = np.cumsum(lengths).reshape(size, len(lists))
    table[:, PROMPT : END] = ends - lengths
    table[:, END] = ends[:, -1]
    table[:, ADJUSTED] = lengths.any(axis=1)

    values = np.zeros(max(int(lengths.sum()), 1), np.uint32)
    for ragged, start in zip(lists, range(PROMPT, END)):
        if len(ragged.values):
            if ragged.values.dtype.kind == "i" and not 0 <= ragged.values.min() <= ragged.values.max() < vocab_size:
                raise DeviceError(f"{_LISTS[start - PROMPT]} holds ids {ragged.values.min()} .. {ragged.values.max()}; the vocabulary "
                                  f"has {vocab_size}: check the request's ids before it is batched")
            bits = ragged.values.astype(np.uint32) if ragged.values.dtype.kind == "i" else ragged.values.view(np.uint32)
            shift = table[:, start].astype(np.int64) - ragged.start_loc[:-1]
            values[np.arange(len(bits)) + np.repeat(shift, np.diff(ragged.start_loc))] = bits
    return table, values


def unpack(table: np.ndarray, values: np.ndarray, num_logprobs: int) -> SimpleNamespace:
    """What the definition reads of a SamplingBatch, out of a table: for tests and benches."""
    def rows(start: int, dtype, cast) -> SimpleNamespace:
        return SimpleNamespace(row=lambda i: cast(values[table[i, start] : table[i, start + 1]], dtype))

    def number(first: int) -> np.ndarray:
        return table[:, first].astype(np.uint64) | table[:, first + 1].astype(np.uint64) << np.uint64(32)

    ids = {name: rows(PROMPT + i, np.int64, np.ndarray.astype) for i, name in enumerate(_LISTS[:-1])}
    return SimpleNamespace(**{name: table[:, column].view(np.float32) for name, column in _FLOATS.items()}, **ids,
                           top_k=table[:, TOP_K].astype(np.int32), seeds=number(SEED_LOW),
                           positions=number(POSITION_LOW).astype(np.int64),
                           bias_values=rows(BIAS_VALUES, np.float32, np.ndarray.view), num_logprobs=num_logprobs)


# -- the table, in kernels

@device
def parameter(table, row, column):
    return table[row * u32(COLUMNS) + u32(column)]


@device
def row_of(view, num_rows):
    """The row of logits that a view looks at."""
    return view - select(view >= num_rows, num_rows, u32(0))


@device
def is_raw(view, num_rows):
    return view >= num_rows


@device
def reads_adjusted(table, view, num_rows):
    """Whether a view reads the copy that masks, biases and penalties have changed."""
    return view < num_rows and parameter(table, row_of(view, num_rows), ADJUSTED) != u32(0)


@device
def divisor_of(table, view, num_rows):
    """The temperature, 1 for greedy rows and raw views."""
    temperature = u32_as_f32(parameter(table, row_of(view, num_rows), TEMPERATURE))
    return select(is_raw(view, num_rows) or temperature == f32(0), f32(1), temperature)


@device
def largest_of(table, keys, view, num_rows):
    """The largest z of a view, temperature included; not finite if the row cannot draw."""
    changed = reads_adjusted(table, view, num_rows)
    key = keys[row_of(view, num_rows) + select(changed, u32(0), num_rows)]
    return div(from_key(key), divisor_of(table, view, num_rows))


@device
def is_finite(x):
    return fabs(x) < f32(np.inf)


@device
def can_draw(table, keys, row, num_rows):
    """Whether the logits have a finite maximum, as given and adjusted."""
    return is_finite(largest_of(table, keys, row, num_rows)) and is_finite(from_key(keys[num_rows + row]))


# -- logits, four at a time

@device
def load_logits(source, row, group, vocab_size):
    """Logits of ids 4 group .. 4 group + 3; -inf beyond the vocabulary."""
    a, b, c, d = LOWEST, LOWEST, LOWEST, LOWEST
    first = group * u32(4)
    if ALIGNED:
        if first < vocab_size:
            a, b, c, d = load_f32x4(source, row * (vocab_size >> u32(2)) + group)
    else:
        start = row * vocab_size + first
        if first < vocab_size:
            a = source[start]
        if first + u32(1) < vocab_size:
            b = source[start + u32(1)]
        if first + u32(2) < vocab_size:
            c = source[start + u32(2)]
        if first + u32(3) < vocab_size:
            d = source[start + u32(3)]
    return a, b, c, d


@device
def store_logits(target, row, group, vocab_size, a, b, c, d):
    """The counterpart of load_logits."""
    first = group * u32(4)
    if ALIGNED:
        if first < vocab_size:
            store_f32x4(target, row * (vocab_size >> u32(2)) + group, a, b, c, d)
    else:
        start = row * vocab_size + first
        if first < vocab_size:
            target[start] = a
        if first + u32(1) < vocab_size:
            target[start + u32(1)] = b
        if first + u32(2) < vocab_size:
            target[start + u32(2)] = c
        if first + u32(3) < vocab_size:
            target[start + u32(3)] = d


@device
def to_key(x):
    """A u32 that orders f32 values as numbers: -0 equals 0, NaN is above all."""
    bits = as_u32(x + f32(0))
    key = bits ^ select(bits >= u32(0x80000000), u32(0xFFFFFFFF), u32(0x80000000))
    return select(x != x, u32(0xFFFFFFFF), key)


@device
def from_key(key):
    return u32_as_f32(key ^ select(key >= u32(0x80000000), u32(0x80000000), u32(0xFFFFFFFF)))


@device
def scaled(x, divisor):
    if divisor != f32(1):
        x = div(x, divisor)
    return x


@device
def distance_of(x, divisor, largest):
    """Bits of largest - x / divisor."""
    return as_u32(largest - scaled(x, divisor))


@device
def probability(distance):
    """e^-distance, relative to the most likely id."""
    return exp(-u32_as_f32(distance))


@device
def mass_of(distance, min_p):
    """Probability in units of 2^-40, truncated; 0 for what min-p drops, and from 28 away on."""
    mass = u64(0)
    if distance < as_u32(f32(SAFE_DISTANCE)):
        p = probability(distance)
        if p >= min_p:
            mass = u64(mul(p, MASS_ONE))
    return mass


@device
def bin_of(distance):
    """The bin of the first histogram; what is 64 away or farther is in the last one."""
    return min_u32(f32_to_u32_rz(mul(u32_as_f32(distance), f32(BINS // 64))), u32(BINS - 1))


@device
def last_bin(view, largest, num_rows):
    """The last bin that can matter. An id 28 away has no mass, and no draw: Gumbel noise lies between -2.9 and 16.7.

    Beyond 2^24 a sum with noise is too coarse for that argument, and raw views list ids however unlikely.
    """
    near = view < num_rows and fabs(largest) < f32(SAFE_LARGEST)
    return select(near, u32(BINS // 64 * 28 - 1), u32(BINS - 1))


# -- small things

@device
def min_u32(a, b):
    return select(a < b, a, b)


@device
def max_u32(a, b):
    return select(a > b, a, b)


@device
def warp_sum_u64(value):
    """The sum over the warp, in every lane."""
    for distance in consteval((16, 8, 4, 2, 1)):
        low, high = shfl_xor(u32(value & u64(0xFFFFFFFF)), u32(distance)), shfl_xor(u32(value >> u64(32)), u32(distance))
        value = value + (u64(high) << u64(32) | u64(low))
    return value


@device
def warp_max_to(target, index, value):
    """target[index] = max(target[index], value of any lane), by one atomic."""
    best = redux_max(value)
    if u32(cuda.laneid) == u32(0):
        atomic_max_u32(target, index, best)

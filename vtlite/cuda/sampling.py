"""Drawing a token on the device: vtlite/reference/sampling.py, bit for bit.

logits [S, V] f32, S rows, V ids. The parts: sampling_rows (row parameters, keys, distances, masses), sampling_adjust (masks,
biases, penalties), sampling_select (top-k and top-p), sampling_draw (min-p, Gumbel-max, logprobs). Thirteen launches, twelve
without logprobs, the same for every batch of S rows, so that they fit in a graph; blocks of rows that ask for nothing return at once.

Order: none. Sums are of integers, the rest are maxima and minima, so any split of a row over blocks gives the same bits.
Bytes: 4 V per pass over a row, from L2 if S V fits there: one pass, one more to draw without top-k, two for top-k or top-p, one for
logprobs, one more for their top N, one for the rank of an unlikely id, three for a row that changes. Bound by the passes, and by
the noise if no filter thins out the ids.
"""

import weakref
from functools import cache
from types import SimpleNamespace

import numpy as np

from vtlite import reference
from vtlite.cuda.device import current
from vtlite.cuda.lang import f32, i64, u8, u32, u64
from vtlite.cuda.sampling_adjust import (adjusted_largest_kernel, allow_kernel, bias_kernel, clear_kernel, largest_kernel,
                                         penalise_kernel)
from vtlite.cuda.sampling_draw import draw_kernel, rank_kernel, report_kernel
from vtlite.cuda.sampling_rows import layout, pack, unpack
from vtlite.cuda.sampling_select import bound_kernel, collect_kernel, histogram_kernel, select_kernel
from vtlite.errors import DeviceError
from vtlite.opspec import OpSpec
from vtlite.reference import Samples

BLOCKS_PER_SM = 4                # of 512 threads: what a multiprocessor holds
LIST_BLOCKS = 4                  # per row at most, for its lists
MOST_LOGPROBS = 1024
MOST_ROWS = 32767                # two views of each: a grid has up to 65535 of them


class Workspace:
    """What the sampler needs between its launches, for up to `max_rows` rows of `vocab_size` ids.

    8 V bytes and 100 KiB per row: a copy for rows that change, a counter per id, and lists. Launches that share it must not
    overlap. Make it outside a step, or within `device.lasting()`.
    """

    def __init__(self, max_rows: int, vocab_size: int):
        if max_rows * vocab_size >= 1 << 32 or max_rows > MOST_ROWS:
            raise DeviceError(f"the sampler takes up to {MOST_ROWS} rows and less than 2^32 logits at once; "
                              f"found {max_rows} rows of {vocab_size}: sample in parts")
        device = current()
        self.max_rows, self.vocab_size, self.layout = max_rows, vocab_size, layout(vocab_size)
        self.adjusted = device.empty((max_rows, vocab_size), f32)
        self.token_counts = device.zeros((max_rows, vocab_size), u32)        # the kernels leave it zero
        self.state = device.empty(2 * max_rows * (self.layout["BINS"] + 4), u64)
        self.above = device.empty(2 * max_rows, u64)
        self.lists = device.empty((2 * max_rows, self.layout["CAPACITY"]), u64)
        self.bins = device.empty((2 * max_rows, 2), u32)
        self.cuts = device.empty(2 * max_rows, u32)
        self._parts = cache(self._divide)

    def state_of(self, num_rows: int) -> tuple:
        """(all of it, histogram, totals, best, keys, counts, ranks) for S rows: what every call starts with as zeros."""
        return self._parts(num_rows)

    def _divide(self, num_rows: int) -> tuple:
        views, bins = 2 * num_rows, self.layout["BINS"]
        histogram, rest = self.state[: views * bins], self.state[views * bins : views * (bins + 4)]
        totals, best, narrow = rest[:views], rest[views : views + num_rows], rest[views + num_rows :].view(u32)
        keys, counts, ranks = narrow[:views], narrow[views : 2 * views], narrow[2 * views : 2 * views + num_rows]
        return self.state[: views * (bins + 4)], histogram, totals, best, keys, counts, ranks


_workspaces: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()       # device -> {(rows, V): Workspace}


def workspace_for(rows: int, vocab_size: int) -> Workspace:
    """The device's own workspace for up to this many rows, kept for the next call. Not for launches that overlap."""
    size = max(rows, min(1 << (rows - 1).bit_length(), MOST_ROWS))
    kept, key = _workspaces.setdefault(current(), {}), (size, vocab_size)
    if key not in kept:
        with current().lasting():
            kept[key] = Workspace(*key)
    return kept[key]


def sample(logits, sampling) -> Samples:
    """logits [S, V] f32 on the device, a `vtlite.engine.batch.SamplingBatch` -> Samples on the device, `valid` as u8."""
    table, values = pack(sampling, logits.shape[1])
    return sample_rows(logits, current().array(table), current().array(values), sampling.num_logprobs)


def token_logprobs(logits, token_ids, num_logprobs: int) -> tuple:
    """logits [S, V] f32 and token_ids [S] i64 on the device -> logprobs [S] f32 of the ids, ranks [S] i64, top_ids [S, N],
    top_logprobs [S, N]. Each row draws from one id, the given one."""
    return tuple(sample(logits, forced(token_ids.numpy(), num_logprobs)))[2:]


def forced(token_ids: np.ndarray, num_logprobs: int) -> SimpleNamespace:
    """A SamplingBatch of greedy rows that allow one id each."""
    size = len(token_ids)
    zeros, ones, none = np.zeros(size, f32), np.ones(size, f32), SimpleNamespace(start_loc=np.zeros(size + 1, np.int64), values=token_ids[:0])
    return SimpleNamespace(
        temperature=zeros, top_k=zeros.astype(np.int32), top_p=ones, min_p=zeros, repetition_penalty=ones, frequency_penalty=zeros,
        presence_penalty=zeros, seeds=np.zeros(size, np.uint64), positions=np.zeros(size, np.int64), prompt_ids=none, output_ids=none,
        allowed=SimpleNamespace(start_loc=np.arange(size + 1), values=token_ids), bias_ids=none,
        bias_values=SimpleNamespace(start_loc=none.start_loc, values=zeros[:0]), num_logprobs=num_logprobs)


def sample_rows(logits, table, values, num_logprobs: int, *, workspace: Workspace | None = None, out: Samples | None = None) -> Samples:
    """logits [S, V] f32, table [S, COLUMNS] u32 and values [L] u32 as `pack` makes them -> Samples.

    N = `num_logprobs`, -1 if no row wants logprobs. What is drawn depends on nothing but the arrays, so a graph of this call
    serves every batch of S rows.
    """
    (rows, vocab_size), top = logits.shape, max(num_logprobs, 0)
    if top > min(vocab_size, MOST_LOGPROBS):
        raise DeviceError(f"{num_logprobs} logprobs of {vocab_size} ids were asked for; the kernels give up to {MOST_LOGPROBS}, and no "
                          f"more than there are ids")
    workspace = workspace_for(rows, vocab_size) if workspace is None else workspace
    if rows > workspace.max_rows or vocab_size != workspace.vocab_size:
        raise DeviceError(f"the sampler's workspace is for {workspace.max_rows} rows of {workspace.vocab_size} ids; "
                          f"found {rows} of {vocab_size}")
    out = empty_samples(rows, top) if out is None else out
    if rows == 0:
        return out
    views = rows if num_logprobs < 0 else 2 * rows
    state, histogram, totals, best, keys, counts, ranks = workspace.state_of(rows)
    adjusted, lists, bins, cuts, above = workspace.adjusted, workspace.lists, workspace.bins, workspace.cuts, workspace.above
    constants = workspace.layout

    def launch(kernel, grid, *arguments):
        current().launch(kernel.specialize(**{name: constants[name] for name in kernel.constants}), grid, *arguments)

    blocks = -(-vocab_size // (4 * constants["THREADS"]))                       # that a row can be spread over
    dense, viewed = (max(1, min(blocks, current().num_sms * BLOCKS_PER_SM // n)) for n in (rows, views))
    launch(clear_kernel, min(-(-state.size // constants["THREADS"]), current().num_sms), state, state.size)
    launch(largest_kernel, (dense, rows), table, values, logits, adjusted, workspace.token_counts, keys, vocab_size, rows)
    launch(allow_kernel, (min(dense, LIST_BLOCKS), rows), table, values, logits, adjusted, vocab_size)
    launch(bias_kernel, (min(dense, LIST_BLOCKS), rows), table, values, adjusted, vocab_size)
    launch(penalise_kernel, (min(dense, LIST_BLOCKS), rows), table, values, adjusted, workspace.token_counts, vocab_size)
    launch(adjusted_largest_kernel, (dense, rows), table, adjusted, keys, vocab_size)
    launch(histogram_kernel, (viewed, views), table, logits, adjusted, keys, histogram, totals, vocab_size, rows, top)
    launch(bound_kernel, views, table, keys, histogram, totals, bins, above, rows, top)
    launch(collect_kernel, (viewed, views), table, logits, adjusted, keys, bins, counts, lists, vocab_size, rows)
    launch(select_kernel, views, table, logits, adjusted, keys, totals, bins, above, counts, lists, cuts, vocab_size, rows, top)
    launch(draw_kernel, (dense, rows), table, logits, adjusted, keys, bins, counts, lists, cuts, best, vocab_size, rows)
    if num_logprobs >= 0:
        launch(rank_kernel, (dense, rows), table, logits, keys, best, bins, counts, lists, ranks, vocab_size, rows)
    tops = (out.top_ids, out.top_logprobs) if top else (out.token_ids, out.logprobs)       # of N = 0: pointers nobody follows
    launch(report_kernel, rows, table, logits, keys, totals, bins, counts, lists, best, ranks,
           out.token_ids, out.valid, out.logprobs, out.ranks, *tops, vocab_size, rows, num_logprobs)
    return out


def empty_samples(rows: int, top: int) -> Samples:
    """Where `sample_rows` writes: as reference.Samples, but `valid` u8; top [S, N]."""
    return Samples(**{name: current().empty(shape, dtype) for name, (shape, dtype) in _outputs(rows, top).items()})


def _outputs(rows: int, top: int) -> dict[str, tuple]:
    return {"token_ids": (rows, i64), "valid": (rows, u8), "logprobs": (rows, f32), "ranks": (rows, i64),
            "top_ids": ((rows, top), i64), "top_logprobs": ((rows, top), f32)}


# -- the spec

def _batch(rng, S: int, V: int, N: int, sampled: bool, filtered: bool, changed: bool) -> SimpleNamespace:
    """A SamplingBatch of one kind of request: greedy or sampled, with top-k and top-p, with penalties and biases."""
    def ragged(lengths, dtype, values) -> SimpleNamespace:
        return SimpleNamespace(start_loc=np.concatenate([[0], np.cumsum(lengths)]),
                               values=np.concatenate([values(n) for n in lengths]).astype(dtype))

    def ids(n: int) -> np.ndarray:
        return rng.integers(0, V, n)

    lengths = rng.integers(1, 500, S) if changed else np.zeros(S, np.int64)
    biased = np.minimum(lengths, min(V, 8))
    return SimpleNamespace(
        temperature=np.full(S, 0.7 if sampled else 0, f32), top_k=np.full(S, 20 if filtered else 0, np.int32),
        top_p=np.full(S, 0.95 if filtered else 1, f32), min_p=np.zeros(S, f32),
        repetition_penalty=np.full(S, 1.1 if changed else 1, f32), frequency_penalty=np.zeros(S, f32),
        presence_penalty=np.full(S, 0.5 if changed else 0, f32), seeds=rng.integers(0, 2**64, S, np.uint64),
        positions=rng.integers(0, 2**40, S), prompt_ids=ragged(lengths, np.int64, ids), output_ids=ragged(lengths, np.int64, ids),
        allowed=ragged(np.zeros(S, np.int64), np.int64, ids),
        bias_ids=ragged(biased, np.int64, lambda n: rng.choice(V, n, replace=False)), bias_values=ragged(biased, f32, rng.standard_normal), num_logprobs=N)


def _inputs(rng, S: int, V: int, N: int, **kind: bool) -> dict:
    """Logits with a long tail and a few likely ids, as a language model's."""
    logits = rng.standard_normal((S, V), f32) * f32(2) + rng.gamma(0.05, 6, (S, V)).astype(f32)
    table, values = pack(_batch(rng, S, V, N, **kind), V)
    return {"logits": logits, "table": table, "values": values, "num_logprobs": N}


def _reference(logits, table, values, num_logprobs: int) -> tuple:
    return tuple(reference.sample(logits.astype(f32), unpack(table, values, num_logprobs)))


def _launch(inputs, out) -> None:
    tops = {"top_ids": None, "top_logprobs": None}                           # absent if N is 0 or -1
    sample_rows(**inputs, out=Samples(**{**tops, **out}))


GREEDY = {"sampled": False, "filtered": False, "changed": False}
PLAIN = {"sampled": True, "filtered": False, "changed": False}
MIXED = {"sampled": True, "filtered": True, "changed": True}

SPECS = (
    OpSpec("sample",
           cases=[{"S": 1, "V": 500, "N": -1, **PLAIN}, {"S": 3, "V": 63, "N": 2, **MIXED}, {"S": 2, "V": 3, "N": 1, **GREEDY}],
           gpu_cases=[{"S": 5, "V": 151936, "N": 20, **MIXED}, {"S": 63, "V": 50257, "N": 1, **MIXED},
                      {"S": 1, "V": 248320, "N": -1, **PLAIN}],
           bench_cases=[{"S": 32, "V": 248320, "N": 5, **MIXED}, {"S": 32, "V": 248320, "N": -1, **MIXED},
                        {"S": 32, "V": 248320, "N": -1, **PLAIN}, {"S": 32, "V": 248320, "N": -1, **GREEDY}],
           make_inputs=_inputs, outputs=lambda S, V, N, **_: {name: value for name, value in _outputs(S, max(N, 0)).items()
                                                              if N > 0 or not name.startswith("top")},
           reference=_reference, launch=_launch, num_bytes=lambda S, V, **_: 4 * S * V, rows=("logits", "table"), tolerance=0.0),
)

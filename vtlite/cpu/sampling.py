"""The reference's sampler with its loops over the vocabulary compiled: the same source around them, the same bits.

Masses are integers, noise is a function of (seed, position, id), and exp and log have one source, so nothing here has
an order to keep; tests/cpu/test_sampling.py compares every bit with the reference.
"""

from functools import update_wrapper
from types import FunctionType

import numpy as np
from numba import njit

from vtlite.cpu.elementary import exp, log
from vtlite.cpu.kernel import Kernel, pointer_to, run
from vtlite.cpu.simd import LANES, hmax, load, maximum, splat
from vtlite.reference import Samples, sampling as definition

MASS_ONE = definition.MASS_ONE

_f32, _u32, _u64 = np.float32, np.uint32, np.uint64
_LOW, _SHIFT = _u64(0xFFFFFFFF), _u64(32)
_MULTIPLY_0, _MULTIPLY_1 = _u64(0xD2511F53), _u64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = _u64(0x9E3779B9), _u64(0xBB67AE85)


def gumbel_noise(seed: int, position: int, token_ids: np.ndarray) -> np.ndarray:
    """Standard Gumbel noise f32 for each id of token_ids [n] i64."""
    noise = np.empty(len(token_ids), np.float32)
    _gumbel_noise(_u64(seed), _u64(position), token_ids, noise)
    return noise


def filter_ids(z: np.ndarray, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Ids, ascending, that survive min-p, then top-k, then top-p, for scaled logits z [V] f32.

    Top-p keeps the values down to a threshold, found by one walk down the sorted values.
    """
    z = z - z.max()
    keep = z > -np.inf
    if min_p > 0:
        keep &= _exp(z) >= _f32(min_p)
    if 0 < top_k < len(z):
        keep &= z >= np.partition(z, len(z) - top_k)[len(z) - top_k]
    if top_p < 1:
        values = np.sort(z[keep])
        mass = _mass(values)
        keep &= z >= _top_p_threshold(values, mass, top_p * float(mass.sum()))
    return np.flatnonzero(keep)


@njit(cache=True)
def _top_p_threshold(values, mass, enough):
    """The lowest of the ascending values whose strictly larger values hold less mass than `enough`."""
    above, i = 0, values.size - 1
    threshold = values[i]
    while i >= 0 and above < enough:
        threshold = values[i]
        while i >= 0 and values[i] == threshold:
            above += mass[i]
            i -= 1
    return threshold


@njit(error_model="numpy", cache=True)
def _exp_into(z, out):
    for i in range(z.size):
        out[i] = exp(z[i])


def _exp(z):
    out = np.empty(z.shape, np.float32)
    _exp_into(z, out)
    return out


def _mass(z):
    return (_exp(z) * MASS_ONE).astype(np.int64)


@njit(error_model="numpy", cache=True)
def _gumbel_noise(seed, position, token_ids, noise):
    block, w0, w1, w2, w3 = np.int64(-1), _u64(0), _u64(0), _u64(0), _u64(0)
    for i in range(token_ids.size):
        if token_ids[i] >> 2 != block:
            block = token_ids[i] >> 2
            w0, w1, w2, w3 = _philox4x32(_u64(block), position & _LOW, position >> _SHIFT, seed & _LOW, seed >> _SHIFT)
        word = token_ids[i] & 3
        bits = w0 if word == 0 else w1 if word == 1 else w2 if word == 2 else w3
        noise[i] = (_f32(_u32(bits >> _u64(9))) + _f32(0.5)) * _f32(2.0**-23)
    for i in range(noise.size):
        noise[i] = -log(-log(noise[i]))


@njit(cache=True)
def _philox4x32(c0, c1, c2, k0, k1):
    """Philox4x32-10 of the counter (c0, c1, c2, 0) and the key (k0, k1): four words in u64."""
    c3 = _u64(0)
    for _ in range(10):
        p0, p1 = c0 * _MULTIPLY_0, c2 * _MULTIPLY_1
        c0, c1, c2, c3 = (p1 >> _SHIFT) ^ c1 ^ k0, p1 & _LOW, (p0 >> _SHIFT) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _WEYL_0) & _LOW, (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


_names = vars(definition) | {"gumbel_noise": gumbel_noise, "filter_ids": filter_ids, "_mass": _mass}


def _here(function):
    """`function` of the reference, reading the names of this module where both have one."""
    ours = FunctionType(function.__code__, _names, function.__name__, function.__defaults__)
    return update_wrapper(ours, function)


def sample(logits: np.ndarray, sampling) -> Samples:
    """logits [S, V] f32 -> Samples; see the definition. The usual greedy step is one pass over the logits."""
    if not _takes_the_largest(sampling):
        return _sample(logits, sampling)
    S, V = logits.shape
    token_ids, valid = np.empty(S, np.int64), np.empty(S, bool)
    run(_largest, S, logits, token_ids, valid, V, parallel=S > 1)
    return Samples(token_ids, valid, *definition.token_logprobs(logits, token_ids, -1))


def _takes_the_largest(sampling) -> bool:
    """Whether every row wants the id of its largest logit as it is, and nothing else."""
    changes = sampling.prompt_ids, sampling.output_ids, sampling.allowed, sampling.bias_ids
    return sampling.num_logprobs < 0 and not sampling.temperature.any() and not any(ragged.values.size for ragged in changes)


@Kernel
def _largest(task, args):
    """The lowest id of the largest logit of one row, 0 unless that is finite; NaN is larger than any."""
    logits, token_ids, valid, V = pointer_to(args[0], np.float32), pointer_to(args[1], np.int64), pointer_to(args[2], np.uint8), args[3]
    row, nans, peak = task * V, 0, splat(-np.inf)
    for i in range(row, row + V):
        nans += logits[i] != logits[i]
    for i in range(row, row + V - V % LANES, LANES):
        peak = maximum(load(logits, i), peak)
    largest = hmax(peak)
    for i in range(row + V - V % LANES, row + V):
        largest = max(largest, logits[i])
    valid[task] = nans == 0 and abs(largest) < np.inf
    token_ids[task] = 0
    if valid[task]:
        while logits[row + token_ids[task]] != largest:
            token_ids[task] += 1


_names["_draw"] = _here(definition._draw)
_names["token_logprobs"] = token_logprobs = _here(definition.token_logprobs)
_sample = _here(definition.sample)

__all__ = ["Samples", "filter_ids", "gumbel_noise", "sample", "token_logprobs"]

"""Drawing a token: penalties, masks, temperature, top-k, top-p, min-p, and a draw that depends on the request alone.

Order, as in vLLM: allowed ids -> biases (bad words and min_tokens are biases of -inf) -> repetition, frequency,
presence penalties -> greedy, or: temperature -> min-p -> top-k (ties kept) -> top-p (ties kept) -> draw.

Two choices make a row's result independent of how the work is split, on any device:

* **Probability mass is an integer.** exp(z - max z) lies in [0, 1]; its mass is that times 2^40, truncated to an
  integer, so a sum of masses has no rounding and no order. Top-p and the log of the normaliser are sums of masses.
* **The draw is Gumbel-max** (Maddison et al. 2014, arXiv:1411.0030) with noise from Philox4x32-10 (Salmon et al. 2011,
  "Parallel random numbers: as easy as 1, 2, 3") keyed by the request's seed and counted by (token id, position).

`sampling` is a `vtlite.engine.batch.SamplingBatch`; S rows, V ids.
"""

from typing import NamedTuple

import numpy as np

from vtlite.elementary import exp, log

MASS_ONE = np.float32(2.0**40)


class Samples(NamedTuple):
    """One drawn token per row, and what was asked for about the raw distribution."""

    token_ids: np.ndarray        # [S] i64
    valid: np.ndarray            # [S] bool: False where the logits, as given or adjusted, hold NaN or no finite maximum
    logprobs: np.ndarray         # [S] f32 of token_ids; zeros if no row asked, NaN where the logits have no finite maximum
    ranks: np.ndarray            # [S] i64, 1 = most likely
    top_ids: np.ndarray          # [S, N] i64, by falling logit, then rising id
    top_logprobs: np.ndarray     # [S, N] f32


def sample(logits: np.ndarray, sampling) -> Samples:
    """logits [S, V] f32 -> Samples. `sampling.num_logprobs` is N, or -1 if no row wants logprobs."""
    token_ids = np.zeros(len(logits), np.int64)
    valid = np.isfinite(logits.max(axis=-1))                 # NaN propagates through max
    for row in np.flatnonzero(valid):
        with np.errstate(over="ignore", divide="ignore"):
            z = _adjust(logits[row], sampling, row)
        valid[row] = np.isfinite(z.max())                    # masks may leave no id, tiny divisors overflow
        if valid[row]:
            token_ids[row] = _draw(z, sampling, row)
    return Samples(token_ids, valid, *token_logprobs(logits, token_ids, sampling.num_logprobs))


def token_logprobs(logits: np.ndarray, token_ids: np.ndarray, num_logprobs: int) -> tuple[np.ndarray, ...]:
    """Raw log-softmax at token_ids and the top `num_logprobs` of each row.

    logits [S, V] f32, token_ids [S] -> logprobs [S] f32, ranks [S], top_ids [S, N], top_logprobs [S, N] f32;
    with num_logprobs -1, zeros and N = 0. A row whose maximum is not finite has NaN, and zeros for ranks and ids.
    """
    size, top = len(logits), max(num_logprobs, 0)
    logprobs, ranks = np.zeros(size, np.float32), np.zeros(size, np.int64)
    top_ids, top_logprobs = np.zeros((size, top), np.int64), np.zeros((size, top), np.float32)
    if num_logprobs >= 0:
        finite = np.isfinite(logits.max(axis=-1))
        logprobs[~finite] = top_logprobs[~finite] = np.nan
        for row in np.flatnonzero(finite):
            z = logits[row] - logits[row].max()
            log_sum = log(np.float32(_mass(z).sum()) / MASS_ONE)
            chosen = z[token_ids[row]]
            logprobs[row] = chosen - log_sum
            ranks[row] = 1 + np.count_nonzero(z > chosen)
            top_ids[row] = _largest(z, top)
            top_logprobs[row] = z[top_ids[row]] - log_sum
    return logprobs, ranks, top_ids, top_logprobs


def gumbel_noise(seed: int, position: int | np.ndarray, token_ids: np.ndarray) -> np.ndarray:
    """Standard Gumbel noise f32 for each id (and position: they broadcast): -log(-log u), u from 23 random bits, never 0 or 1.

    Four neighbouring ids share one Philox block: counter (id // 4, position low, position high, 0), word id % 4.
    """
    block = token_ids.astype(np.uint64) >> np.uint64(2)
    words = philox4x32((block, position & 0xFFFFFFFF, position >> 32, 0), (seed & 0xFFFFFFFF, seed >> 32))
    bits = np.choose(token_ids & 3, words).astype(np.uint32)
    u = ((bits >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    return -log(-log(u))


def _adjust(logits: np.ndarray, sampling, row: int) -> np.ndarray:
    """A copy of one row of logits [V] with masks, biases, penalties and, unless it is 0, temperature applied."""
    z = logits.astype(np.float32, copy=True)
    allowed = sampling.allowed.row(row)
    if len(allowed):
        hidden = np.ones(len(z), bool)
        hidden[allowed] = False
        z[hidden] = -np.inf
    z[sampling.bias_ids.row(row)] += sampling.bias_values.row(row)           # ids are distinct within a row
    repetition = sampling.repetition_penalty[row]
    if repetition != 1:
        seen = np.union1d(sampling.prompt_ids.row(row), sampling.output_ids.row(row))
        z[seen] = np.where(z[seen] > 0, z[seen] / repetition, z[seen] * repetition)
    frequency, presence = sampling.frequency_penalty[row], sampling.presence_penalty[row]
    if frequency != 0 or presence != 0:
        ids, counts = np.unique(sampling.output_ids.row(row), return_counts=True)
        z[ids] -= frequency * counts.astype(np.float32) + presence
    temperature = sampling.temperature[row]
    return z / temperature if temperature > 0 else z


def _draw(z: np.ndarray, sampling, row: int) -> int:
    """The token id drawn from adjusted logits z [V]."""
    if sampling.temperature[row] == 0:
        return int(z.argmax())                                              # argmax returns the lowest id among ties
    kept = filter_ids(z, int(sampling.top_k[row]), float(sampling.top_p[row]), float(sampling.min_p[row]))
    noise = gumbel_noise(int(sampling.seeds[row]), int(sampling.positions[row]), kept)
    return int(kept[(z[kept] + noise).argmax()])


def filter_ids(z: np.ndarray, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    """Ids, ascending, that survive min-p, then top-k, then top-p, for scaled logits z [V]."""
    z = z - z.max()
    keep = z > -np.inf
    if min_p > 0:
        keep &= exp(z) >= np.float32(min_p)
    if 0 < top_k < len(z):
        keep &= z >= np.partition(z, len(z) - top_k)[len(z) - top_k]
    ids = np.flatnonzero(keep)
    if top_p < 1:
        values, group = np.unique(-z[ids], return_inverse=True)              # ascending -z: most likely first
        mass = np.zeros(len(values), np.int64)
        np.add.at(mass, group, _mass(z[ids]))
        above = np.cumsum(mass) - mass                                       # mass strictly more likely
        ids = ids[(above < top_p * mass.sum())[group]]
    return ids


def _mass(z: np.ndarray) -> np.ndarray:
    """exp(z) in units of 2^-40, truncated; z <= 0."""
    return (exp(z) * MASS_ONE).astype(np.int64)


def _largest(z: np.ndarray, count: int) -> np.ndarray:
    """Ids of the `count` largest values: falling value, then rising id."""
    if count == 0:
        return np.zeros(0, np.int64)
    count = min(count, len(z))
    threshold = np.partition(z, len(z) - count)[len(z) - count]
    candidates = np.flatnonzero(z >= threshold)
    return candidates[np.argsort(-z[candidates], kind="stable")][:count]


def philox4x32(counter: tuple, key: tuple[int, int]) -> list[np.ndarray]:
    """Philox4x32-10: four counter words (at least one an array) and two key words, all < 2^32 -> four u64 arrays < 2^32."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(word, np.uint64) for word in counter))
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & low, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [c0, c1, c2, c3]

"""vtlite/reference/sampling.py: the distribution of its draws, each filter and penalty, and what rows share (nothing)."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtlite.engine.batch import Ragged, SamplingBatch
from vtlite.reference import sample, token_logprobs
from vtlite.reference.sampling import filter_ids, gumbel_noise, philox4x32

V = 32


def sampling_batch(*rows: dict, num_logprobs: int = -1) -> SamplingBatch:
    """One row per dict: fields of SamplingBatch by name, plus `biases` {id: value}; the rest are off. Greedy by default."""
    def column(name, dtype, default):
        return np.array([row.get(name, default) for row in rows], dtype)

    def ragged(name, dtype=np.int64):
        return Ragged.of([row.get(name, ()) for row in rows], dtype)

    return SamplingBatch(
        temperature=column("temperature", np.float32, 0), top_k=column("top_k", np.int32, 0),
        top_p=column("top_p", np.float32, 1), min_p=column("min_p", np.float32, 0),
        repetition_penalty=column("repetition_penalty", np.float32, 1),
        frequency_penalty=column("frequency_penalty", np.float32, 0),
        presence_penalty=column("presence_penalty", np.float32, 0),
        seeds=column("seed", np.uint64, 0), positions=column("position", np.int64, 0),
        prompt_ids=ragged("prompt_ids"), output_ids=ragged("output_ids"), allowed=ragged("allowed"),
        bias_ids=Ragged.of([list(row.get("biases", {})) for row in rows], np.int64),
        bias_values=Ragged.of([list(row.get("biases", {}).values()) for row in rows], np.float32),
        num_logprobs=num_logprobs)


def draw(logits, **row) -> int:
    """The token that one row draws."""
    samples = sample(np.array([logits], np.float32), sampling_batch(row))
    assert samples.valid[0]
    return int(samples.token_ids[0])


def reachable(logits, **row) -> set[int]:
    """Ids drawn at 400 positions at a temperature that makes every surviving id likely."""
    logits = np.tile(np.array(logits, np.float32), (400, 1))
    rows = [{"temperature": 1.0, "position": position, **row} for position in range(len(logits))]
    return set(sample(logits, sampling_batch(*rows)).token_ids.tolist())


# -- the generator

@pytest.mark.parametrize("counter, key, expected", [   # the known answers published with Random123
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
])
def test_philox_gives_the_published_known_answers(counter, key, expected):
    assert tuple(map(int, philox4x32(counter, key))) == expected


def test_noise_is_a_function_of_seed_position_and_id_alone():
    ids = np.arange(V)
    whole = gumbel_noise(7, 3, ids)
    np.testing.assert_array_equal(gumbel_noise(7, 3, ids[[31, 4, 20]]), whole[[31, 4, 20]])
    for seed, position in [(8, 3), (7, 4), (7 + 2**32, 3), (7, 3 + 2**32)]:
        assert (gumbel_noise(seed, position, ids) != whole).mean() > 0.9
    assert len(np.unique(whole)) == V


def test_noise_is_finite_at_both_ends_and_gumbel_between():
    noise = np.sort(gumbel_noise(1, 0, np.arange(100_000)).astype(np.float64))
    assert np.isfinite(noise).all()
    cdf = np.exp(-np.exp(-noise))                                            # uniform, if the noise is Gumbel
    distance = np.abs(cdf - (np.arange(len(noise)) + 0.5) / len(noise)).max()
    assert distance < 1.95 / math.sqrt(len(noise))                           # Kolmogorov-Smirnov at 0.001


# -- the distribution of the draws

def surviving(z: np.ndarray, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> list[int]:
    """The filters, one after another, from their definitions: float64, no ties expected at a boundary."""
    p = {i: math.exp(v - max(z)) for i, v in enumerate(z)}
    p = {i: v for i, v in p.items() if v >= min_p}
    order = sorted(p, key=p.get, reverse=True)
    if top_k:
        order = order[:top_k]
    total, before, kept = sum(p[i] for i in order), 0.0, []
    for i in order:
        if before < top_p * total:
            kept.append(i)
        before += p[i]
    return sorted(kept)


FILTERS = [
    {"temperature": 1.0}, {"temperature": 0.5}, {"temperature": 2.0}, {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.0, "top_p": 0.7}, {"temperature": 1.5, "top_p": 0.95}, {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.9}, {"temperature": 1.3, "top_k": 10, "min_p": 0.05},
    {"temperature": 1.0, "top_k": 30, "top_p": 0.8, "min_p": 0.02},
]
DRAWS = 200_000


@pytest.fixture(scope="module")
def logits():
    return np.random.Generator(np.random.PCG64(0)).standard_normal(V).astype(np.float32) * np.float32(2)


@pytest.fixture(scope="module")
def noise():
    """Noise of every id at positions 0 .. DRAWS - 1: [DRAWS, V]."""
    batches = np.arange(DRAWS).reshape(-1, 1000, 1)
    return np.concatenate([gumbel_noise(42, positions, np.arange(V)[None]) for positions in batches])


@pytest.mark.parametrize("settings", FILTERS, ids=str)
def test_draws_follow_the_filtered_distribution(settings, logits, noise):
    """Chi-square of 200,000 draws at as many positions, below a bound that one true sampler in 30,000 would exceed."""
    filters = {name: value for name, value in settings.items() if name != "temperature"}
    z = logits / np.float32(settings["temperature"])
    kept = filter_ids(z, **{"top_k": 0, "top_p": 1.0, "min_p": 0.0, **filters})
    assert kept.tolist() == surviving(z.astype(np.float64).tolist(), **filters)
    drawn = kept[(z[kept] + noise[:, kept]).argmax(axis=1)]
    rows = [{**settings, "seed": 42, "position": position} for position in range(100)]
    np.testing.assert_array_equal(sample(np.tile(logits, (100, 1)), sampling_batch(*rows)).token_ids, drawn[:100])

    weights = np.exp(z[kept].astype(np.float64))
    expected = DRAWS * weights / weights.sum()
    observed = np.bincount(drawn, minlength=V)[kept]
    rare = expected < 5                                                      # pooled into one cell
    cells = [(o, e) for o, e in zip(observed[~rare], expected[~rare])]
    cells += [(observed[rare].sum(), expected[rare].sum())] if rare.any() else []
    chi_square, freedom = sum((o - e) ** 2 / e for o, e in cells), len(cells) - 1
    deviations = ((chi_square / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / math.sqrt(2 / (9 * freedom))   # Wilson-Hilferty
    assert deviations < 4


# -- filters and ties

def test_greedy_ties_go_to_the_lowest_id():
    assert draw([0, 3, 1, 3, 3]) == 1


def test_top_k_keeps_ties_of_the_kth_value():
    assert reachable([1, 2, 1, 0, 1], top_k=2) == {0, 1, 2, 4}


@pytest.mark.parametrize("top_k", [0, 5, 6, 1000])
def test_top_k_of_zero_or_of_the_vocabulary_and_more_is_off(top_k):
    assert reachable([0, 0, 0, 0, 0], top_k=top_k) == {0, 1, 2, 3, 4}


def test_top_p_counts_integer_mass_and_keeps_ties():
    half = math.log(0.5)                                                     # masses 2^40, 2^39, 2^39, 2^38
    z = np.array([0, half, half, 2 * half], np.float32)
    assert filter_ids(z, 0, 4 / 9 - 1e-6, 0.0).tolist() == [0]
    assert filter_ids(z, 0, 4 / 9 + 1e-6, 0.0).tolist() == [0, 1, 2]
    assert filter_ids(z, 0, 8 / 9 - 1e-6, 0.0).tolist() == [0, 1, 2]
    assert filter_ids(z, 0, 8 / 9 + 1e-6, 0.0).tolist() == [0, 1, 2, 3]
    assert filter_ids(z, 0, 1e-9, 0.0).tolist() == [0]                       # never nothing


def test_min_p_is_relative_to_the_most_likely():
    z = np.log(np.array([0.5, 0.26, 0.24], np.float32))
    assert filter_ids(z, 0, 1.0, 0.5).tolist() == [0, 1]
    assert filter_ids(z, 0, 1.0, 1.0).tolist() == [0]


@settings(max_examples=100)
@given(st.lists(st.sampled_from([-math.inf, -3.0, -1.0, 0.0, 0.5, 2.0]), max_size=11), st.sampled_from([-3.0, 0.5, 2.0]),
       st.integers(0, 14), st.floats(0.01, 1.0), st.floats(0.0, 1.0))
def test_filters_keep_the_best_treat_equals_alike_and_never_a_forbidden_id(z, finite, top_k, top_p, min_p):
    z = [*z, finite]
    kept = filter_ids(np.array(z, np.float32), top_k, top_p, min_p).tolist()
    best, worst_kept = max(z), min(z[i] for i in kept)
    assert best in [z[i] for i in kept] and worst_kept > -math.inf
    assert kept == [i for i, value in enumerate(z) if value >= worst_kept]   # everything at or above one threshold


# -- masks, biases, penalties

def test_allowed_ids_are_the_only_ones_drawn():
    assert draw([5, 4, 3, 2], allowed=[2, 3]) == 2
    assert reachable([5, 4, 3, 2], allowed=[1, 3]) == {1, 3}


def test_biases_are_added_and_minus_infinity_forbids():
    assert draw([3, 2, 1], biases={2: 2.5}) == 2
    assert draw([3, 2, 1], biases={0: -math.inf}) == 1
    assert reachable([3, 3, 3], biases={1: -math.inf}) == {0, 2}


def expected_penalised(logits, prompt_ids, output_ids, repetition, frequency, presence) -> list[float]:
    z = list(map(float, logits))
    for i in set(prompt_ids) | set(output_ids):
        z[i] = z[i] / repetition if z[i] > 0 else z[i] * repetition
    for i in set(output_ids):
        z[i] -= frequency * output_ids.count(i) + presence
    return z


@settings(max_examples=100)
@given(st.lists(st.integers(0, 9), max_size=6), st.lists(st.integers(0, 9), max_size=8), st.sampled_from([0.5, 1.0, 1.3, 2.0]),
       st.sampled_from([-0.7, 0.0, 0.6]), st.sampled_from([-0.4, 0.0, 1.1]), st.integers(0, 50))
def test_penalties_are_those_of_vllm(prompt_ids, output_ids, repetition, frequency, presence, seed):
    """Repetition looks at prompt and answer, frequency and presence at the answer; seen through the greedy choice."""
    logits = np.random.default_rng(seed).standard_normal(10).astype(np.float32)
    z = expected_penalised(logits, prompt_ids, output_ids, repetition, frequency, presence)
    best, second = sorted(z)[-1], sorted(z)[-2]
    if best - second > 1e-5:
        assert draw(logits, prompt_ids=prompt_ids, output_ids=output_ids, repetition_penalty=repetition,
                    frequency_penalty=frequency, presence_penalty=presence) == z.index(best)


def test_order_is_allowed_ids_then_biases_then_penalties():
    assert draw([9, 1, 0.9], allowed=[1, 2], biases={0: 50}) == 1            # a bias does not bring back an id
    assert draw([1, -1, -9], biases={1: 3.5}, output_ids=[1], repetition_penalty=2.0) == 1   # -1 + 3.5, then halved: 1.25
    assert draw([1.3, -1, -9], biases={1: 3.5}, output_ids=[1], repetition_penalty=2.0) == 0


# -- rows that cannot draw

@pytest.mark.parametrize("row", [[math.nan, 1, 2], [0, math.inf, 1], [-math.inf] * 3, [math.nan] * 3], ids=str)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_without_a_finite_maximum_are_invalid_and_harm_no_neighbour(row, temperature):
    logits = np.array([[1, 3, 2], row, [1, 2, 3]], np.float32)
    samples = sample(logits, sampling_batch(*[{"temperature": temperature, "top_k": 1}] * 3, num_logprobs=2))
    assert samples.valid.tolist() == [True, False, True]
    assert samples.token_ids[[0, 2]].tolist() == [1, 2]
    assert np.isnan(samples.logprobs[1]) and np.isfinite(samples.logprobs[[0, 2]]).all()
    assert samples.top_ids[[0, 2]].tolist() == [[1, 2], [2, 1]]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("row", [
    {"allowed": [1], "biases": {1: -math.inf}}, {"biases": {0: -math.inf, 1: -math.inf, 2: -math.inf}},
    {"repetition_penalty": 1e-38, "prompt_ids": [0, 1]},
], ids=str)
def test_a_request_that_leaves_no_id_or_overflows_is_invalid(row, temperature):
    samples = sample(np.array([[40, 3, 2]], np.float32), sampling_batch({"temperature": temperature, **row}, num_logprobs=0))
    assert not samples.valid[0]


# -- logprobs

@given(st.integers(2, 60), st.floats(0.1, 30), st.integers(0, 99))
def test_logprobs_and_ranks_are_those_of_the_raw_distribution(size, spread, seed):
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((3, size)) * spread).astype(np.float32)
    logits[:, -1] = logits[:, 0]                                             # ties count as equally ranked
    token_ids, top = rng.integers(0, size, 3), min(size, 5)
    exact = logits.astype(np.float64) - np.logaddexp.reduce(logits.astype(np.float64), axis=1)[:, None]
    logprobs, ranks, top_ids, top_logprobs = token_logprobs(logits, token_ids, top)
    for s in range(3):
        order = sorted(range(size), key=lambda i: (-logits[s, i], i))
        assert ranks[s] == 1 + sum(logits[s] > logits[s, token_ids[s]])
        assert top_ids[s].tolist() == order[:top]
        tolerance = 2.0**-22 * (1 + abs(exact[s]).max())
        np.testing.assert_allclose(logprobs[s], exact[s, token_ids[s]], rtol=0, atol=tolerance)
        np.testing.assert_allclose(top_logprobs[s], exact[s, order[:top]], rtol=0, atol=tolerance)


def test_logprobs_ignore_masks_penalties_and_temperature():
    logits = np.array([[3, 2, 1]], np.float32)
    plain = sample(logits, sampling_batch({"allowed": [1]}, num_logprobs=1))
    changed = sample(logits, sampling_batch({"temperature": 2.0, "allowed": [1], "biases": {1: 4}, "output_ids": [1],
                                             "presence_penalty": 1.0}, num_logprobs=1))
    assert plain.token_ids == changed.token_ids == 1 and plain.ranks == 2 and plain.top_ids == 0
    assert plain.logprobs == changed.logprobs == pytest.approx(2 - math.log(math.exp(3) + math.exp(2) + math.exp(1)), abs=1e-6)


def test_without_logprobs_none_are_computed():
    samples = sample(np.ones((2, 3), np.float32), sampling_batch({}, {}))
    assert not samples.logprobs.any() and not samples.ranks.any() and samples.top_ids.shape == (2, 0)
    assert token_logprobs(np.ones((2, 3), np.float32), np.array([0, 1]), 0)[1].tolist() == [1, 1]


# -- one request, one answer

ROWS = st.fixed_dictionaries({
    "temperature": st.sampled_from([0.0, 0.7, 1.5]), "top_k": st.sampled_from([0, 3, 40]), "top_p": st.sampled_from([1.0, 0.8]),
    "min_p": st.sampled_from([0.0, 0.1]), "seed": st.integers(0, 2**64 - 1), "position": st.integers(0, 2**40),
    "repetition_penalty": st.sampled_from([1.0, 1.2]), "frequency_penalty": st.sampled_from([0.0, 0.5]),
    "prompt_ids": st.lists(st.integers(0, V - 1), max_size=4), "output_ids": st.lists(st.integers(0, V - 1), max_size=4),
    "allowed": st.just([]) | st.lists(st.integers(0, V - 1), min_size=1, unique=True),
    "biases": st.dictionaries(st.integers(0, V - 1), st.sampled_from([-5.0, 2.0]), max_size=3)})


@settings(max_examples=30)
@given(st.lists(ROWS, min_size=2, max_size=6), st.integers(0, 99))
def test_a_row_alone_gets_the_bits_it_gets_in_a_batch(rows, seed):
    logits = np.random.default_rng(seed).standard_normal((len(rows), V)).astype(np.float32)
    together = sample(logits, sampling_batch(*rows, num_logprobs=4))
    for s, row in enumerate(rows):
        alone = sample(logits[s : s + 1], dataclasses.replace(sampling_batch(row), num_logprobs=4))
        for name, in_batch, by_itself in zip(alone._fields, together, alone):
            assert in_batch[s].tobytes() == by_itself[0].tobytes(), name

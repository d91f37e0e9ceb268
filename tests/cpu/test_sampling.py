"""The compiled sampler has the reference's bits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from vtlite import cpu, reference
from vtlite.cpu.sampling import filter_ids, gumbel_noise
from vtlite.engine.batch import Ragged, SamplingBatch
from vtlite.reference import sampling as definition


@settings(max_examples=30)
@given(seed=st.integers(0, 2**64 - 1), position=st.integers(0, 2**40), vocab_size=st.integers(1, 300), data=st.data())
def test_noise(seed, position, vocab_size, data):
    ids = np.flatnonzero(np.random.default_rng(data.draw(st.integers(0, 99))).random(vocab_size) < data.draw(st.floats(0, 1)))
    assert np.array_equal(gumbel_noise(seed, position, ids), definition.gumbel_noise(seed, position, ids))


@settings(max_examples=60)
@given(size=st.integers(1, 400), distinct=st.sampled_from((3, 50, 10**6)), top_k=st.integers(0, 40),
       top_p=st.sampled_from((1e-9, 0.1, 0.5, 0.95, 1.0)), min_p=st.sampled_from((0.0, 0.05, 1.0)), seed=st.integers(0, 2**16))
def test_filters_with_ties_and_masked_ids(size, distinct, top_k, top_p, min_p, seed):
    rng = np.random.default_rng(seed)
    z = (rng.integers(-distinct, distinct, size) * np.float32(8 / distinct)).astype(np.float32)
    z[1:][rng.random(size - 1) < 0.2] = -np.inf
    assert np.array_equal(filter_ids(z, top_k, top_p, min_p), definition.filter_ids(z, top_k, top_p, min_p))


@pytest.mark.parametrize("num_logprobs", (-1, 0, 5))
def test_whole_rows(rng, num_logprobs):
    S, V = 12, 5003
    logits = (3 * rng.standard_normal((S, V))).astype(np.float32)
    logits[3, 7], logits[4, :] = np.nan, -np.inf
    ids = [rng.choice(V, 20, replace=False) for _ in range(S)]
    none = Ragged.of([[]] * S, np.int64)
    batch = SamplingBatch(
        temperature=np.float32([0, 1, 0.7] * 4), top_k=np.int32([0, 20] * 6), top_p=np.float32([1, 0.9, 0.5, 1] * 3),
        min_p=np.float32([0] * 9 + [0.1] * 3), repetition_penalty=np.float32([1, 1.3] * 6),
        frequency_penalty=np.float32([0] * 8 + [0.5] * 4), presence_penalty=np.float32([0] * 8 + [0.2] * 4),
        seeds=rng.integers(0, 2**64, S, np.uint64), positions=rng.integers(0, 1000, S), prompt_ids=Ragged.of(ids, np.int64),
        output_ids=Ragged.of(ids[::-1], np.int64), allowed=Ragged.of([[]] * 10 + [[5, 9], []], np.int64),
        bias_ids=none, bias_values=Ragged.of([[]] * S, np.float32), num_logprobs=num_logprobs)
    for found, expected in zip(cpu.sample(logits, batch), reference.sample(logits, batch), strict=True):
        assert np.array_equal(found, expected, equal_nan=found.dtype == np.float32)
    assert not reference.sample(logits, batch).valid[[3, 4]].any()


@settings(max_examples=60)
@given(rows=st.integers(1, 4), size=st.integers(1, 100), seed=st.integers(0, 2**16))
def test_the_largest_of_plain_rows(rows, size, seed):
    """Ties, zeros of both signs, infinities and NaN included; one bias sends the whole batch through the definition."""
    rng = np.random.default_rng(seed)
    logits = rng.choice(np.float32([0, -0.0, 1, 2, -3, -np.inf]), (rows, size))
    logits[rng.random(logits.shape) < 0.3 / size] = rng.choice(np.float32([np.nan, np.inf, 5]))
    zeros, ones, none = np.zeros(rows, np.float32), np.ones(rows, np.float32), Ragged.of([[]] * rows, np.int64)
    batch = SamplingBatch(
        temperature=zeros, top_k=np.zeros(rows, np.int32), top_p=ones, min_p=zeros, repetition_penalty=ones, frequency_penalty=zeros,
        presence_penalty=zeros, seeds=np.zeros(rows, np.uint64), positions=np.zeros(rows, np.int64), prompt_ids=none, output_ids=none,
        allowed=none, bias_ids=none, bias_values=Ragged.of([[]] * rows, np.float32), num_logprobs=-1)
    biased = replace(batch, bias_ids=Ragged.of([[0]] + [[]] * (rows - 1), np.int64),
                     bias_values=Ragged.of([[4.0]] + [[]] * (rows - 1), np.float32))
    for sampling in (batch, biased):
        for found, expected in zip(cpu.sample(logits, sampling), reference.sample(logits, sampling), strict=True):
            assert found.dtype == expected.dtype and np.array_equal(found, expected)

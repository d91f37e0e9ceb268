"""Values outside vLLM's ranges are refused by the name of their field; the rest means what vLLM means by it."""

import math

import pytest

from vtlite.engine.sampling_params import LOWEST_TEMPERATURE, SamplingParams
from vtlite.errors import RequestError

REFUSED = [
    ("temperature", -0.1), ("temperature", 2.1), ("temperature", math.nan), ("temperature", "hot"), ("temperature", True),
    ("top_p", 0.0), ("top_p", 1.5), ("top_k", -2), ("top_k", 1.5), ("min_p", -0.1), ("min_p", 1.1),
    ("presence_penalty", 2.5), ("frequency_penalty", -2.5), ("repetition_penalty", 0.0), ("repetition_penalty", math.inf),
    ("n", 0), ("n", 10**7), ("n", True), ("seed", 2**63), ("seed", 0.5), ("max_tokens", 0), ("min_tokens", -1),
    ("logprobs", -1), ("prompt_logprobs", -1), ("stop", [""]), ("stop", [1]), ("stop", 5), ("stop_token_ids", [-1]),
    ("stop_token_ids", "ab"), ("allowed_token_ids", []), ("bad_words", [""]), ("logit_bias", {1: 101.0}), ("logit_bias", {-1: 0.0}),
]


@pytest.mark.parametrize("name, value", REFUSED)
def test_a_bad_value_is_refused_by_name(name, value):
    with pytest.raises(RequestError, match=name) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name


def test_contradictions_are_refused():
    with pytest.raises(RequestError, match="min_tokens is 9, more than max_tokens 3"):
        SamplingParams(min_tokens=9, max_tokens=3)
    with pytest.raises(RequestError, match="n is 2 with temperature 0"):
        SamplingParams(n=2, temperature=0)


def test_edges_are_accepted():
    params = SamplingParams(temperature=2, top_p=1e-9, top_k=-1, min_p=1, seed=-(2**63), stop="end", stop_token_ids=[3],
                            logit_bias={0: -100, 1: 100}, max_tokens=None)
    assert params.stop == ("end",) and params.stop_token_ids == (3,) and not params.greedy


def test_a_tiny_temperature_is_raised_and_zero_is_greedy():
    assert SamplingParams(temperature=0.001).temperature == LOWEST_TEMPERATURE
    assert SamplingParams(temperature=0).greedy and SamplingParams(temperature=1e-6).greedy

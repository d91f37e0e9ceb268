"""LLM: the calls a script makes, and that nothing is left running after them."""

import pytest

from vtlite import LLM, SamplingParams
from vtlite.errors import ConfigError, DeviceError, RequestError

GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tiny_checkpoint):
    return LLM(tiny_checkpoint("qwen3"), device="cpu", num_blocks=40, block_size=4, max_model_len=100)


def test_outputs_come_in_the_order_of_the_prompts(llm):
    prompts = ["hello", [1, 2, 3], "x" * 40]
    outputs = llm.generate(prompts, GREEDY)
    assert [o.prompt for o in outputs] == ["hello", None, "x" * 40]
    assert outputs[1].prompt_token_ids == [1, 2, 3]
    assert [o.outputs[0].token_ids for o in outputs] == [llm.generate(p, GREEDY)[0].outputs[0].token_ids for p in prompts]
    assert all(o.finished and o.outputs[0].finish_reason == "length" for o in outputs)


def test_each_prompt_may_have_parameters_of_its_own(llm):
    few, many = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True), GREEDY
    assert [len(o.outputs[0].token_ids) for o in llm.generate(["a", "b"], [few, many])] == [2, 5]
    with pytest.raises(RequestError, match="2 prompts came with 1"):
        llm.generate(["a", "b"], [few])


def test_a_stream_is_the_answer_piece_by_piece(llm):
    deltas = list(llm.stream("hello", GREEDY))
    whole = llm.generate("hello", GREEDY)[0].outputs[0]
    assert "".join(d.text for d in deltas) == whole.text
    assert [t for d in deltas for t in d.token_ids] == whole.token_ids
    assert [d.finish_reason for d in deltas] == [None] * 4 + ["length"]


def test_closing_a_stream_frees_what_it_held(llm):
    stream = llm.stream("hello", SamplingParams(max_tokens=50, ignore_eos=True))
    next(stream)
    assert llm.engine.pool.num_free < llm.engine.pool.num_usable
    stream.close()
    assert llm.engine.pool.num_free == llm.engine.pool.num_usable and not llm.engine.has_work


def test_one_bad_prompt_refuses_the_call_before_any_of_it_runs(llm):
    with pytest.raises(RequestError, match="maximum context length is 100 tokens"):
        llm.generate(["fine", "x" * 100], GREEDY)
    with pytest.raises(RequestError, match="forbid every id of allowed_token_ids, so no token could be drawn"):
        llm.generate(["fine", "x"], [GREEDY, SamplingParams(temperature=0, allowed_token_ids=llm.tokenizer.encode("A"), bad_words=["A"])])
    with pytest.raises(RequestError, match="forbid every token of this model, so no token could be drawn"):
        llm.generate(["fine", "x"], [GREEDY, SamplingParams(min_tokens=1, stop_token_ids=[*range(300)])])
    assert not llm.engine.has_work


@pytest.mark.parametrize("prompt, said", [("", "prompt is empty"), ([300], "not a token id"), ([-1], "not a token id")])
def test_prompts_that_cannot_be_served_say_why(llm, prompt, said):
    with pytest.raises(RequestError, match=said):
        llm.generate([prompt], GREEDY)


def test_an_answer_fills_the_models_length_and_no_more(llm):
    answer = llm.generate([[1] * 98], SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))[0].outputs[0]
    assert len(answer.token_ids) == 2 and answer.finish_reason == "length"


def test_chat_without_a_template_is_refused(llm):
    with pytest.raises(RequestError, match="chat template"):
        llm.chat([{"role": "user", "content": "hello"}])


def test_cumulative_logprob_is_the_sum(llm):
    answer = llm.generate("hello", SamplingParams(temperature=0, max_tokens=3, logprobs=1, ignore_eos=True))[0].outputs[0]
    assert answer.cumulative_logprob == sum(at[t].logprob for at, t in zip(answer.logprobs, answer.token_ids))


def test_engine_options_that_cannot_work_are_refused(tiny_checkpoint, monkeypatch):
    directory = tiny_checkpoint("qwen3")
    with pytest.raises(ConfigError, match="max_model_len is 513, but the model was made for 512"):
        LLM(directory, device="cpu", max_model_len=513)
    with pytest.raises(ConfigError, match="a request of 100 tokens needs 26 KV blocks .* and 5 fit"):
        LLM(directory, device="cpu", max_model_len=100, block_size=4, num_blocks=5)
    monkeypatch.setenv("VTLITE_DEVICE", "tpu")
    with pytest.raises(DeviceError, match="VTLITE_DEVICE is 'tpu'"):
        LLM(directory, device="cuda")

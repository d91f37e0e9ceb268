"""vtlite/serve/completions.py through the official client: every way to ask, and the same answer for each."""

import math
from uuid import uuid4

import pytest

MODEL = "tiny"


@pytest.fixture
def complete(client, letters):
    """complete(prompt, max_tokens=..., vLLM extras too) with answers made of letters and spaces."""

    def run(prompt="Once upon", **options):
        known = ("max_tokens", "n", "seed", "stop", "stream", "stream_options", "logprobs", "echo", "temperature", "best_of")
        extra = {"allowed_token_ids": letters, **{k: options.pop(k) for k in list(options) if k not in known}}
        options = {"temperature": 0, "max_tokens": 12} | options
        return client.completions.create(model=MODEL, prompt=prompt, extra_body=extra, **options)

    return run


def collect(stream):
    """Texts and finish reasons by index."""
    texts, reasons = {}, {}
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            if choice.finish_reason:
                assert choice.index not in reasons
                reasons[choice.index] = choice.finish_reason
    return texts, reasons


def test_a_completion_says_what_it_used(complete):
    answer = complete()
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-") and answer.model == MODEL
    assert len(answer.choices[0].text) == 12 and answer.choices[0].finish_reason == "length"
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (len("Once upon"), 12, 21)


def test_max_tokens_is_16_by_default_and_ends_at_the_models_length(complete, live):
    assert complete(max_tokens=None).usage.completion_tokens == 16
    prompt = "x" * (live.engine.max_model_len - 5)
    assert complete(prompt, max_tokens=1000, ignore_eos=True).usage.completion_tokens == 5


def test_a_stream_joins_to_the_whole_text(complete):
    whole = complete(n=3, seed=5, temperature=1.0)
    texts, reasons = collect(complete(n=3, seed=5, temperature=1.0, stream=True))
    assert texts == {choice.index: choice.text for choice in whole.choices}
    assert reasons == {0: "length", 1: "length", 2: "length"}


def test_n_answers_of_a_seed_are_the_answers_of_the_seeds_alone(complete):
    first, second = (complete(n=4, seed=11, temperature=1.0) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2, 3]
    assert texts == [choice.text for choice in second.choices]
    assert texts == [complete(seed=11 + i, temperature=1.0).choices[0].text for i in range(4)]
    assert len(set(texts)) == 4
    assert first.usage.prompt_tokens == len("Once upon") and first.usage.completion_tokens == 48


def test_all_spellings_of_a_prompt_are_answered_alike(complete, live):
    texts = ["Once upon", "a time"]
    ids = [live.engine.tokenizer.encode(text) for text in texts]
    alone = [complete(text).choices[0].text for text in texts]
    assert complete(ids[0]).choices[0].text == alone[0]
    for many in (texts, ids):
        answer = complete(many)
        assert [choice.text for choice in answer.choices] == alone
        assert answer.usage.prompt_tokens == sum(map(len, texts))
        assert collect(complete(many, stream=True))[0] == dict(enumerate(alone))


def test_answer_j_of_prompt_i_has_index_i_n_plus_j(complete):
    answer = complete(["Once upon", "a time"], n=2, seed=3, temperature=1.0)
    expected = [complete(p, seed=3 + j, temperature=1.0).choices[0].text for p in ("Once upon", "a time") for j in range(2)]
    assert [choice.text for choice in answer.choices] == expected


def test_stop_strings_match_across_tokens_and_never_show_in_a_stream(complete):
    text = complete(max_tokens=40, seed=2, temperature=1.0).choices[0].text
    stop = text[17:21]                                    # four tokens
    expected = text[: text.index(stop)]
    options = {"max_tokens": 40, "seed": 2, "temperature": 1.0, "stop": [stop, "never seen"]}
    choice = complete(**options).choices[0]
    assert (choice.text, choice.finish_reason, choice.stop_reason) == (expected, "stop", stop)
    pieces = [c.choices[0].text for c in complete(**options, stream=True) if c.choices]
    assert "".join(pieces) == expected and len(pieces) > 5
    included = complete(**options, include_stop_str_in_output=True).choices[0]
    assert included.text == expected + stop


def test_a_stop_token_is_counted_but_not_shown(complete, live):
    text = complete(max_tokens=20).choices[0].text
    stop_id = live.engine.tokenizer.encode(text[8])[0]
    answer = complete(max_tokens=20, stop_token_ids=[stop_id], return_token_ids=True)
    shown = text[: text.index(text[8])]
    assert answer.choices[0].text == shown and answer.choices[0].stop_reason == stop_id
    assert answer.usage.completion_tokens == len(shown) + 1 == len(answer.choices[0].token_ids)


@pytest.mark.parametrize("character", ["é", "€"])
def test_characters_split_across_tokens_arrive_whole(client, live, character):
    """Every token is a byte here; drawn from the bytes of one character, some make characters and some do not."""
    tokenizer = live.engine.tokenizer
    ids = tokenizer.encode(character)
    assert len(ids) == len(character.encode())
    options = {"model": MODEL, "prompt": "x", "max_tokens": 40, "seed": 1, "temperature": 2.0, "n": 4,
               "extra_body": {"allowed_token_ids": ids, "return_token_ids": True, "ignore_eos": True}}
    expected = {choice.index: b"".join(map(tokenizer.token_bytes, choice.token_ids)).decode(errors="replace")
                for choice in client.completions.create(**options).choices}
    assert any(len(c.encode()) == len(ids) and c != "\ufffd" for text in expected.values() for c in text)
    assert collect(client.completions.create(**options, stream=True))[0] == expected


def test_logit_bias_names_tokens_by_strings(client, live):
    z = live.engine.tokenizer.encode("z")[0]
    answer = client.completions.create(model=MODEL, prompt="a", max_tokens=4, logit_bias={str(z): 100}, temperature=0)
    assert answer.choices[0].text == "zzzz"


def test_logprobs_hold_the_token_and_the_likeliest(complete):
    choice = complete(logprobs=3, max_tokens=6).choices[0]
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text and logprobs.text_offset == [0, 1, 2, 3, 4, 5]
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert top[token] == logprob <= 0 and 1 <= len(top) <= 4
        assert sum(map(math.exp, top.values())) <= 1.000001


def test_streamed_logprobs_join_to_the_whole(complete):
    whole = complete(logprobs=2, seed=4, temperature=1.0, echo=True).choices[0]
    chunks = [c.choices[0] for c in complete(logprobs=2, seed=4, temperature=1.0, echo=True, stream=True)]
    assert "".join(chunk.text for chunk in chunks) == whole.text
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        assert sum((getattr(chunk.logprobs, name) for chunk in chunks), []) == getattr(whole.logprobs, name)


def test_echo_puts_the_prompt_and_its_logprobs_first(complete, live):
    plain = complete().choices[0].text
    assert complete(echo=True).choices[0].text == "Once upon" + plain
    assert complete(live.engine.tokenizer.encode("Once upon"), echo=True).choices[0].text == "Once upon" + plain
    logprobs = complete(echo=True, logprobs=1).choices[0].logprobs
    assert "".join(logprobs.tokens) == "Once upon" + plain
    assert logprobs.token_logprobs[0] is None and None not in logprobs.token_logprobs[1:]


@pytest.mark.parametrize("stream", [False, True])
def test_echo_with_max_tokens_0_scores_a_prompt(complete, stream):
    """As evaluation harnesses ask for it."""
    expected = complete(echo=True, logprobs=1, max_tokens=1).choices[0].logprobs
    answer = complete(echo=True, logprobs=1, max_tokens=0, stream=stream)
    [choice] = [chunk.choices[0] for chunk in answer] if stream else answer.choices
    assert choice.text == "Once upon" and choice.finish_reason == "length"
    assert choice.logprobs.token_logprobs == expected.token_logprobs[:-1]
    assert choice.logprobs.tokens == list("Once upon")
    if not stream:
        assert answer.usage.completion_tokens == 0


def test_prompt_logprobs_are_by_token_id(complete, live):
    choice = complete(prompt_logprobs=2).choices[0]
    ids = live.engine.tokenizer.encode("Once upon")
    assert choice.prompt_logprobs[0] is None and len(choice.prompt_logprobs) == len(ids)
    for i, entry in zip(ids[1:], choice.prompt_logprobs[1:], strict=True):
        assert entry[str(i)]["logprob"] <= 0 and 2 <= len(entry) <= 3
        assert {1, 2} <= {candidate["rank"] for candidate in entry.values()}


def test_token_ids_come_back_if_asked_for(complete, live):
    ids = live.engine.tokenizer.encode("Once upon")
    choice = complete(return_token_ids=True).choices[0]
    assert choice.prompt_token_ids == ids and live.engine.tokenizer.decode(choice.token_ids) == choice.text
    chunks = [c.choices[0] for c in complete(return_token_ids=True, stream=True)]
    assert chunks[0].prompt_token_ids == ids and not hasattr(chunks[1], "prompt_token_ids")
    assert sum((chunk.token_ids for chunk in chunks), []) == choice.token_ids
    named = complete(logprobs=0, return_tokens_as_token_ids=True).choices[0].logprobs.tokens
    assert named == [f"token_id:{i}" for i in choice.token_ids]


def test_usage_at_the_end_of_a_stream_and_all_along(complete):
    chunks = list(complete(stream=True, max_tokens=5, stream_options={"include_usage": True}))
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 5
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(complete(stream=True, max_tokens=5, stream_options=options))
    assert [chunk.usage.completion_tokens for chunk in chunks] == [1, 2, 3, 4, 5, 5]


def test_cached_prompt_tokens_are_reported(complete):
    prompt = f"{uuid4()} was never seen before."                   # two blocks of tokens and some
    assert complete(prompt).usage.prompt_tokens_details.cached_tokens == 0
    assert complete(prompt).usage.prompt_tokens_details.cached_tokens == len(prompt) // 16 * 16


def test_best_of_n_is_n(complete):
    assert complete(best_of=1).choices[0].text == complete().choices[0].text


def test_everything_vllm_bench_sends_is_taken(client):
    stream = client.completions.create(
        model=MODEL, prompt="abc", max_tokens=4, temperature=0, stream=True, stream_options={"include_usage": True},
        extra_body={"repetition_penalty": 1.0, "ignore_eos": True, "logprobs": None})
    assert list(stream)[-1].usage.completion_tokens == 4

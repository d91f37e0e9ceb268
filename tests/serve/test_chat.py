"""vtlite/serve/chat.py through the official client."""

import asyncio

import openai
import pytest

MODEL = "tiny"
USER = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def chat(client, letters):
    def run(messages=USER, extra=None, **options):
        options = {"temperature": 0, "max_tokens": 12} | options
        return client.chat.completions.create(model=MODEL, messages=messages, **options,
                                              extra_body={"allowed_token_ids": letters, **(extra or {})})

    return run


def prompt_of(live, answer):
    return live.engine.tokenizer.decode(answer.prompt_token_ids)


def test_an_answer_is_an_assistant_message(chat):
    answer = chat()
    [choice] = answer.choices
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert choice.message.role == "assistant" and len(choice.message.content) == 12 and choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 12


def test_a_stream_begins_with_the_role_and_joins_to_the_whole(chat):
    whole = chat(n=2, seed=1, temperature=1.0)
    pieces, reasons = {}, {}
    for chunk in chat(n=2, seed=1, temperature=1.0, stream=True):
        [choice] = chunk.choices
        assert chunk.object == "chat.completion.chunk"
        pieces.setdefault(choice.index, []).append(choice.delta)
        reasons[choice.index] = choice.finish_reason
    for choice in whole.choices:
        first, *rest = pieces[choice.index]
        assert (first.role, first.content) == ("assistant", "") and all(delta.role is None for delta in rest)
        assert "".join(delta.content or "" for delta in rest) == choice.message.content
    assert reasons == {0: "length", 1: "length"}


def test_a_chat_answers_as_its_rendered_prompt_does(chat, client, live, letters):
    rendered = "<system>Be brief</>\n<user>Hello</>\n<assistant>"
    messages = [{"role": "developer", "content": "Be brief"},
                {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    answer = chat(messages, extra={"return_token_ids": True})
    assert prompt_of(live, answer) == rendered
    completion = client.completions.create(model=MODEL, prompt=rendered, temperature=0, max_tokens=12,
                                           extra_body={"allowed_token_ids": letters})
    assert answer.choices[0].message.content == completion.choices[0].text


def test_without_max_tokens_an_answer_fills_the_models_length(chat, live):
    answer = chat(max_tokens=None, extra={"ignore_eos": True})
    assert answer.usage.total_tokens == live.engine.max_model_len
    assert chat(max_completion_tokens=3, max_tokens=5).usage.completion_tokens == 3


def test_template_variables_and_tools_reach_the_template(chat, live):
    tools = [{"type": "function", "function": {"name": "clock", "parameters": {}}}]
    extra = {"return_token_ids": True, "chat_template_kwargs": {"enable_thinking": False}}
    prompt = prompt_of(live, chat(extra=extra, tools=tools, reasoning_effort="low", tool_choice="auto"))
    assert prompt.startswith('tools:[{"type": "function"') and prompt.endswith("Falselow")
    answer = chat(extra={"return_token_ids": True}, tools=tools, tool_choice="none")
    assert prompt_of(live, answer).startswith("<user>")


def test_a_final_message_can_be_continued(chat, live):
    messages = [*USER, {"role": "assistant", "content": "I am"}]
    answer = chat(messages, extra={"continue_final_message": True, "return_token_ids": True})
    assert prompt_of(live, answer) == "<user>Hello</>\n<assistant>I am"


def test_an_assistant_message_may_have_no_content_beside_tool_calls(chat, live):
    call = {"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "noon"}]
    assert "<assistant></>\n<tool>noon</>" in prompt_of(live, chat(messages, extra={"return_token_ids": True}))


def test_logprobs_hold_tokens_bytes_and_the_likeliest(chat):
    answer = chat(logprobs=True, top_logprobs=2, max_tokens=5).choices[0]
    entries = answer.logprobs.content
    assert "".join(entry.token for entry in entries) == answer.message.content
    for entry in entries:
        assert bytes(entry.bytes).decode() == entry.token and len(entry.top_logprobs) == 2
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob
        assert entry.top_logprobs[0].logprob >= entry.logprob
    streamed = [entry for chunk in chat(logprobs=True, top_logprobs=2, max_tokens=5, stream=True)
                if chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content]
    assert streamed == entries
    assert chat(logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
    assert chat().choices[0].logprobs is None


def test_prompt_logprobs_come_with_the_response(chat):
    answer = chat(extra={"prompt_logprobs": 0, "return_token_ids": True})
    assert [None, *answer.prompt_token_ids[1:]] == [entry and int(next(iter(entry))) for entry in answer.prompt_logprobs]


@pytest.mark.parametrize("options, word", [
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "clock"}}}, "tool_choice"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}, "response_format"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}]}, "image_url"),
    ({"top_logprobs": 2}, "logprobs"),
    ({"extra": {"continue_final_message": True, "add_generation_prompt": True}}, "add_generation_prompt"),
    ({"extra": {"chat_template_kwargs": {"messages": []}}}, "chat_template_kwargs"),
    ({"extra": {"guided_regex": "a*"}}, "guided_regex"),
])
def test_what_is_not_there_yet_is_refused_by_name(chat, options, word):
    with pytest.raises(openai.BadRequestError, match=word):
        chat(**options)


def test_what_asks_for_nothing_is_taken(chat):
    chat(response_format={"type": "text"}, user="me", store=False, metadata={}, parallel_tool_calls=True,
         modalities=["text"], extra={"unheard_of": 1, "use_beam_search": False, "length_penalty": 1.0, "guided_json": None})


def test_32_streams_at_once_get_the_texts_they_get_alone(live, client, letters):
    def options(i):
        return {"model": MODEL, "messages": [{"role": "user", "content": f"Number {i}, {'please ' * (i % 5)}"}],
                "max_tokens": 6 + i % 9, "seed": i, "temperature": 0.0 if i % 4 == 0 else 1.0,
                "extra_body": {"allowed_token_ids": letters}}

    alone = [client.chat.completions.create(**options(i)).choices[0].message.content for i in range(32)]

    async def stream(async_client, i):
        chunks = await async_client.chat.completions.create(**options(i), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    async def together():
        async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as async_client:
            return await asyncio.gather(*(stream(async_client, i) for i in range(32)))

    assert asyncio.run(together()) == alone
    assert len(set(alone)) > 25

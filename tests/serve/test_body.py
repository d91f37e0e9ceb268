"""vtlite/serve/body.py: whatever is sent, the answer is a 4xx that says why, and nobody else notices."""

import json
import logging
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serve.conftest import MAX_MODEL_LEN, MAX_NUM_SEQS
from tests.tiny_checkpoints import EOS, VOCAB_SIZE
from vtlite.errors import RequestError
from vtlite.serve.body import MAX_BODY_BYTES, _logged, decode
from vtlite.serve.protocol import ChatRequest, CompletionRequest

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
GOOD = {COMPLETIONS: {"prompt": "Hi", "max_tokens": 2},
        CHAT: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}}
DEEP = "[" * 100_000


def raw(field: str, text: str, path: str = COMPLETIONS) -> bytes:
    """The good body with one more field, spelled as it stands."""
    return (json.dumps(GOOD[path])[:-1] + f', "{field}": {text}}}').encode()


NOT_JSON = [
    b"", b" ", b"{", b"}", b"[", b'{"prompt"}', b'{"prompt": }', b'{"prompt": "x",}', b"{'prompt': 'x'}",
    b'{"prompt": "x"} {}', b'{"prompt": "x', b'{"prompt": "\\x41"}', b'{"prompt": "\n"}', b'{prompt: "x"}',
    b'// x\n{"prompt": "x"}', b"\x00", b"\xff\xfe",
    b'\xef\xbb\xbf{"prompt": "x"}', b'{"prompt": "\xff"}', b'{"prompt": "x", "user": "\xc3"}', b'{"prompt": "\xed\xa0\x80"}',
    b'{"prompt": "\\ud800"}', b'{"prompt": "\\udc00x"}', b'{"prompt": "a\\ud800b"}', b'{"prompt": ["x", "\\ud83d"]}',
    b'{"prompt": "x", "\\ud800": 1}', b'{"prompt": "x", "stop": "\\ud800"}', b'{"prompt": "x", "bad_words": ["\\udfff"]}',
    b'{"prompt": "x", "user": "\\ud800"}', b'{"prompt": "\\u12"}', b'{"prompt": "x", "n": 01}', b'{"prompt": "x", "n": +1}',
    b'{"prompt": "x", "n": .5}', b'{"prompt": "x", "n": 0x1}', b'{"prompt": "x", "stream": True}', b'{"prompt": "x", "n": 1e}',
    DEEP.encode(), DEEP.encode() + b"]" * 100_000, b'{"a":' * 100_000, raw("user", DEEP), raw("prompt", DEEP),
    raw("user", DEEP + "]" * 100_000), raw("logit_bias", '{"1":' * 5000 + "1" + "}" * 5000),
    '{"prompt": "x"}'.encode("utf-16"),
] + [raw(field, constant) for field in ("temperature", "top_p", "n", "seed", "user")
     for constant in ("NaN", "Infinity", "-Infinity", "nan")]

NOT_OBJECTS = [b"null", b"1", b"true", b'"x"', b"[]", b'[{"prompt": "x"}]', b"{}", b'{"model": "tiny"}', b'{"prompt": null}']

# field -> values it cannot have, in completions and in chat alike
SHARED = {
    "n": [0, -1, 10**7, 10**30, MAX_NUM_SEQS + 1, 1.5, "1", True, [1], {}],
    "temperature": [-0.1, 2.1, 1e300, "1", True, [], {}],
    "top_p": [0, -1, 1.01, "x", False, [0.5]],
    "top_k": [-2, 2**31, 10**40, 0.5, "all"],
    "min_p": [-0.1, 1.1, "x"],
    "presence_penalty": [-2.1, 2.1, "x"],
    "frequency_penalty": [-3, 3, [1]],
    "repetition_penalty": [0, -1, 1e7, "x"],
    "seed": [2**63, -(2**63) - 1, 10**100, 0.5, "x"],
    "stop": ["", [""], ["a", ""], 1, [1], [["a"]], {"a": 1}, ["x"] * 100, "x" * 5000],
    "stop_token_ids": [1, [-1], [VOCAB_SIZE], ["a"], [0.5], [10**20], [1] * (VOCAB_SIZE + 1)],
    "allowed_token_ids": [[], [-1], [VOCAB_SIZE], ["a"], 5, [0] * 10**5],
    "bad_words": ["x", [""], [1], ["x"] * 100, ["x" * 5000]],
    "logit_bias": [[], {"x": 1}, {"-1": 1}, {str(VOCAB_SIZE): 1}, {"1": "x"}, {"1": 101}, {"1": -101}, {"1.5": 1}, {"": 1},
                   {str(10**30): 1}, {"1": None}],
    "max_tokens": [-1, 2**31, 10**50, 1.5, "2", True],
    "min_tokens": [-1, 3, 2**31, "x"],
    "ignore_eos": [1, "true", []],
    "skip_special_tokens": ["no"],
    "include_stop_str_in_output": [0],
    "prompt_logprobs": [-1, 21, 10**9, True, "x"],
    "stream": [1, "true", [], {}],
    "stream_options": [{"include_usage": True}, {}, 1, "x", []],
    "model": [1, [], {}, "gpt-4", ""],
    "priority": ["high", 0.5, 10**400],
    "request_id": [1],
    "structured_outputs": [{"regex": "a"}],
    "use_beam_search": [True],
    "truncate_prompt_tokens": [5],
}
FIELDS = {
    COMPLETIONS: SHARED | {
        "prompt": ["", [], [[]], [""], ["a", ""], [[1], []], [1, "a"], ["a", 1], [[1], "a"], [["a"]], [1.5], [True], [None], {}, 5,
                   [-1], [VOCAB_SIZE], [10**30], [[VOCAB_SIZE]], ["x"] * 5000, [[1]] * 5000,
                   [1] * MAX_MODEL_LEN, [1] * (MAX_MODEL_LEN + 1), "x" * MAX_MODEL_LEN, "x" * (MAX_MODEL_LEN + 1),
                   ["x", "x" * MAX_MODEL_LEN], "x" * 10**6, [1] * 10**6],
        "max_tokens": [0, *SHARED["max_tokens"]],
        "logprobs": [-1, 21, 10**7, True, "x", 0.5],
        "echo": ["x", 1],
        "best_of": [0, 2, -1, "x"],
        "suffix": ["end"],
    },
    CHAT: SHARED | {
        "messages": [[], {}, "Hi", None, [None], ["Hi"], [[]], [{}], [{"role": "user"}], [{"content": "Hi"}],
                     [{"role": 1, "content": "x"}], [{"role": "", "content": "x"}], [{"role": "user", "content": 5}],
                     [{"role": "user", "content": None}], [{"role": "user", "content": {}}],
                     [{"role": "user", "content": [5]}],
                     [{"role": "user", "content": [{"type": "image_url"}]}],
                     [{"role": "user", "content": [{"type": "text"}]}],
                     [{"role": "user", "content": "x" * MAX_MODEL_LEN}], [{"role": "user", "content": "x" * 10**6}],
                     [{"role": "assistant", "content": "x", "tool_calls": 5}],
                     [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}],
                     [{"role": "user", "content": "x", "deep": json.loads("[" * 300 + "]" * 300)}]],
        "logprobs": [1, "x"],
        "top_logprobs": [-1, 21, 1, True],
        "max_completion_tokens": [0, -1, "x"],
        "tools": [{}, [1], "x"],
        "tool_choice": ["required", "any", {"type": "function"}, 1],
        "response_format": [{"type": "json_object"}, "json", {}],
        "chat_template_kwargs": [[], "x", {"tools": 1}, {"x": json.loads("[" * 300 + "]" * 300)}],
        "continue_final_message": ["x", 1],
        "reasoning_effort": [1],
        "chat_template": ["{{ messages }}"],
    },
}
NAMED = [(path, field) for path, fields in FIELDS.items() for field in fields]
REPORTED_AS = {"max_completion_tokens": "max_tokens", "messages": "prompt"}     # once it is made into one


def post(live, path: str, body: bytes, **headers):
    return live.http.post(path, content=body, headers={"Content-Type": "application/json"} | headers)


def refused(live, path: str, body: bytes) -> dict:
    """The error of a response that must be one, and must not take long: in seconds of work, of client and server."""
    start = time.process_time()
    response = post(live, path, body)
    assert 400 <= response.status_code < 500, response.text[:300]
    error = response.json()["error"]
    assert error["code"] == response.status_code and 10 < len(error["message"]) < 1100
    assert time.process_time() - start < 5
    return error


@pytest.fixture(scope="module")
def unharmed(live):
    """unharmed() fails unless a good request gets the tokens it got at first."""
    def answer():
        body = {"prompt": "The same as ever", "max_tokens": 2, "seed": 1, "logprobs": 1}
        return live.http.post(COMPLETIONS, json=body).json()["choices"]

    first = answer()

    def check():
        assert answer() == first

    return check


def test_the_list_is_long_enough():
    assert len(NOT_JSON) + len(NOT_OBJECTS) + sum(len(FIELDS[path][field]) for path, field in NAMED) > 400


@pytest.mark.parametrize("body", NOT_JSON + NOT_OBJECTS, ids=lambda body: repr(body[:40]))
def test_what_is_not_a_json_object_of_the_right_shape_is_refused(live, unharmed, body):
    error = refused(live, COMPLETIONS, body)
    assert "body" in error["message"] or "prompt" in error["message"] or "logit_bias" in error["message"]
    unharmed()


@pytest.mark.parametrize("path, field", NAMED)
def test_a_bad_field_is_refused_by_name(live, unharmed, path, field):
    for value in FIELDS[path][field]:
        error = refused(live, path, json.dumps(GOOD[path] | {field: value}).encode())
        assert error["param"] in (field, REPORTED_AS.get(field)) or field in error["message"], (value, error)
    unharmed()


def test_a_request_that_allows_no_token_is_the_clients_error(live, unharmed):
    for options in ({"allowed_token_ids": [EOS], "min_tokens": 1},
                    {"allowed_token_ids": live.engine.tokenizer.encode("x"), "bad_words": ["x"]},
                    {"stop_token_ids": [*range(VOCAB_SIZE)], "min_tokens": 1}):
        for stream in (False, True):                      # before a stream begins, too
            body = GOOD[COMPLETIONS] | options | {"stream": stream}
            assert "no token could be drawn" in refused(live, COMPLETIONS, json.dumps(body).encode())["message"]
    unharmed()


def test_the_longest_prompt_that_leaves_room_for_a_token_is_answered(live):
    for prompt in ([1] * (MAX_MODEL_LEN - 1), "x" * (MAX_MODEL_LEN - 1)):
        answer = live.http.post(COMPLETIONS, json={"prompt": prompt, "max_tokens": 5}).json()
        assert answer["usage"]["completion_tokens"] == 1 and answer["choices"][0]["finish_reason"] in ("length", "stop")


def test_a_message_names_the_place_and_the_types():
    for body, message, param in [
        (b'{"prompt": "x", "n": "1"}', "n: expected int, got str", "n"),
        (b'{"prompt": "x", "stop": ["a", 2]}', "stop[1]: expected str, got int", "stop"),
        (b'{"prompt": "x", "stream_options": {"include_usage": 1}}', "stream_options.include_usage: expected bool, got int",
         "stream_options"),
        (b'{"prompt": "x", "logit_bias": {"x": 1}}', "logit_bias: expected int, got str as a key", "logit_bias"),
        (b"{}", "prompt: object missing required field prompt", "prompt"),
        (b"[]", "the body: expected object, got array", None),
    ]:
        with pytest.raises(RequestError) as caught:
            decode(body, CompletionRequest)
        assert (str(caught.value), caught.value.param) == (message, param)


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonp"])
def test_another_content_type_is_refused_with_the_header_to_send(live, content_type):
    response = post(live, COMPLETIONS, b'{"prompt": "x"}', **{"Content-Type": content_type})
    assert response.status_code == 400 and "Content-Type: application/json" in response.json()["error"]["message"]


def test_json_may_name_its_charset(live):
    assert post(live, COMPLETIONS, b'{"prompt":"x"}', **{"Content-Type": "Application/JSON; charset=utf-8"}).status_code == 200


def test_a_body_over_the_limit_is_too_large(live, unharmed):
    response = post(live, COMPLETIONS, b" " * (MAX_BODY_BYTES + 1))
    assert response.status_code == 413 and str(MAX_BODY_BYTES) in response.json()["error"]["message"]
    unharmed()


def test_the_last_of_two_equal_keys_counts(live):
    answer = post(live, COMPLETIONS, b'{"prompt": "x", "max_tokens": 9, "max_tokens": 2, "ignore_eos": true}').json()
    assert answer["usage"]["completion_tokens"] == 2


def test_null_is_the_same_as_leaving_out(live):
    for path, kind in ((COMPLETIONS, CompletionRequest), (CHAT, ChatRequest)):
        body = GOOD[path] | {"seed": 3}
        nulls = {name: None for name in kind.__struct_fields__ if name not in body}
        with_nulls = live.http.post(path, json=body | nulls | {"suffix": None}).json()
        assert live.http.post(path, json=body).json()["choices"] == with_nulls["choices"]


def test_an_unknown_field_is_logged_once(live, caplog):
    _logged.discard("novelty")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert live.http.post(COMPLETIONS, json=GOOD[COMPLETIONS] | {"novelty": 1}).status_code == 200
    assert sum("novelty" in record.getMessage() for record in caplog.records) == 1


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                    max_leaves=5)
KINDS = {COMPLETIONS: CompletionRequest, CHAT: ChatRequest}


@settings(max_examples=60)
@given(data=st.data(), path=st.sampled_from([COMPLETIONS, CHAT]))
def test_no_value_of_any_field_is_an_internal_error(live, data, path):
    fields = data.draw(st.lists(st.sampled_from(sorted(KINDS[path].__struct_fields__)), min_size=1, max_size=3))
    body = GOOD[path] | {field: data.draw(JSON) for field in fields}
    response = post(live, path, json.dumps(body).encode("utf-8", "surrogatepass"))
    assert response.status_code < 500, (body, response.text)
    if response.status_code != 200:
        assert response.json()["error"]["message"]

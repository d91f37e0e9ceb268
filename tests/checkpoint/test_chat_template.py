"""vtlite/checkpoint/chat_template.py: the right template, rendered as in training; a bad one is a sentence."""

import json

import pytest

from vtlite.checkpoint import chat_template
from vtlite.checkpoint.chat_template import ChatTemplate
from vtlite.errors import CheckpointError, RequestError

USER = [{"role": "user", "content": "Hi"}]
CHATML = """{% for m in messages %}
    {{- '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' -}}
    {% if loop.last and add_generation_prompt %}
        {{- '<|im_start|>assistant\n' -}}
    {% endif %}
{% endfor %}
"""


def directory(path, jinja=None, config=None, **additional):
    if jinja is not None:
        (path / "chat_template.jinja").write_text(jinja)
    (path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}}
                                                           | ({} if config is None else {"chat_template": config})))
    for name, source in additional.items():
        (path / "additional_chat_templates").mkdir(exist_ok=True)
        (path / "additional_chat_templates" / f"{name}.jinja").write_text(source)
    return path


def render(path, jinja, messages=USER, **kwargs):
    return ChatTemplate(directory(path, jinja)).render(messages, **kwargs)


def test_block_tags_leave_no_blanks(tmp_path):
    assert render(tmp_path, CHATML) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert render(tmp_path, CHATML, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_the_jinja_file_wins_over_tokenizer_config_over_chat_template_json(tmp_path):
    (tmp_path / "chat_template.json").write_text('{"chat_template": "oldest"}')
    assert ChatTemplate(directory(tmp_path)).render(USER) == "oldest"
    assert ChatTemplate(directory(tmp_path, config="config")).render(USER) == "config"
    assert ChatTemplate(directory(tmp_path, "file", config="config")).render(USER) == "file"


def test_tools_choose_the_template_named_tool_use(tmp_path):
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }}"}]
    template = ChatTemplate(directory(tmp_path, config=named, rag="documents"))
    assert sorted(template.templates) == ["default", "rag", "tool_use"]
    assert template.render(USER, tools=[{}, {}]) == "2"
    assert template.render(USER, tools=[]) == template.render(USER) == "plain"


def test_special_tokens_and_further_variables_reach_the_template(tmp_path):
    source = "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ documents is none }}{{ enable_thinking }}"
    assert render(tmp_path, source, enable_thinking=False) == "<s></s>TrueTrueFalse"


def test_variables_of_the_request_may_replace_special_tokens_but_not_the_messages(tmp_path):
    source = "{{ bos_token }}{{ messages[0].content }}"
    assert render(tmp_path, source, bos_token="<b>", **{"self": 1}) == "<b>Hi"
    assert ChatTemplate(tmp_path).render(USER, **{"messages": "!"}) == "<s>Hi"


def test_tojson_is_json_without_html_escapes(tmp_path):
    assert render(tmp_path, "{{ {'b': '<é&>', 'a': 1} | tojson }}") == '{"b": "<é&>", "a": 1}'
    assert render(tmp_path, "{{ {'b': 1} | tojson(indent=1) }}") == '{\n "b": 1\n}'


def test_loop_controls_and_generation_blocks_work(tmp_path):
    source = ("{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
              "{% generation %}<{{ m.content }}>{% endgeneration %}{% endfor %}")
    assert render(tmp_path, source, USER * 3) == "<Hi>"


def test_strftime_now_prints_a_date(tmp_path):
    year = render(tmp_path, "{{ strftime_now('%Y') }}")
    assert year.isdigit() and len(year) == 4


def test_text_parts_are_joined_and_arguments_are_parsed_without_touching_the_request(tmp_path):
    message = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
               "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}]}
    before = json.dumps(message)
    source = "{{ messages[0].content }}|{{ messages[0].tool_calls[0].function.arguments.x + 1 }}"
    assert render(tmp_path, source, [message]) == "a\nb|2"
    assert json.dumps(message) == before


@pytest.mark.parametrize("message, found", [
    ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "only text parts"),
    ({"role": "user", "content": [{"type": "text", "text": 3}]}, "only text parts"),
    ({"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}, "arguments are not valid JSON"),
    ({"role": "assistant", "tool_calls": [{"function": {"arguments": "[1]"}}]}, "should be a JSON object"),
    ("hello", "expected objects with role and content"),
])
def test_messages_no_template_can_show_are_refused(tmp_path, message, found):
    with pytest.raises(RequestError, match=found) as caught:
        render(tmp_path, CHATML, [message])
    assert caught.value.param == "messages"


@pytest.mark.parametrize("source, found", [
    ("{{ raise_exception('roles must alternate') }}", "refuses these messages: roles must alternate"),
    ("line\n{% if %}", "broken at line 2"),
    ("{% for m in messages %}", "is broken at line"),
    ("{{ messages | no_such_filter }}", "no_such_filter"),
    ("{{ messages[0].content + 1 }}", "fails on these messages: TypeError"),
    ("{{ 1 // 0 }}", "ZeroDivisionError"),
    ("{{ nothing.at.all }}", "UndefinedError"),
    ("{{ ''.__class__.__mro__ }}", "fails on these messages"),
    ("{{ messages.append(1) }}", "SecurityError"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ("{% for i in range(10**9) %}{% endfor %}", "more than 1000000 range items"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 1000000 range items"),
    ("{% include 'other' %}", "fails on these messages"),
])
def test_a_template_that_fails_is_a_sentence(tmp_path, source, found):
    with pytest.raises(RequestError, match=found):
        render(tmp_path, source)


def test_a_template_that_never_stops_printing_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_PROMPT_CHARS", 1000)
    with pytest.raises(RequestError, match="was stopped"):
        render(tmp_path, "{% for i in range(99999) %}{{ i }}{% endfor %}")


def test_without_a_template_a_chat_is_refused_with_the_next_action(tmp_path):
    with pytest.raises(RequestError, match="has no chat template.*put a chat_template.jinja"):
        ChatTemplate(directory(tmp_path)).render(USER)
    with pytest.raises(RequestError, match="no chat template named 'default', only rag"):
        ChatTemplate(directory(tmp_path, rag="x")).render(USER)


def test_files_that_hold_no_template_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="'chat_template' should be a string or a list"):
        ChatTemplate(directory(tmp_path, config={"default": "x"}))
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match="chat_template.jinja: cannot be read"):
        ChatTemplate(tmp_path)

"""A checkpoint's chat template: found where transformers finds it, rendered in jinja2's sandbox as it does."""

import copy
import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vtlite.strict_json import quote, read_object
from vtlite.checkpoint.tokenizer import special_tokens
from vtlite.errors import CheckpointError, RequestError

MAX_PROMPT_CHARS = 32_000_000
MAX_RENDER_SECONDS = 10.0       # of this thread's work: a machine that was busy elsewhere refuses no good template
MAX_RANGE_ITEMS = 1_000_000


class ChatTemplate:
    """The chat template of a checkpoint directory; a directory without one can still complete plain text.

    Looked for in chat_template.jinja, then "chat_template" of tokenizer_config.json (a string, or a list of named
    templates), then chat_template.json; additional_chat_templates/NAME.jinja add named ones.
    `templates` maps names to sources. Of several, "tool_use" serves requests with tools, "default" the others.
    """

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self.templates = _find_templates(self.directory)
        self._special_tokens = special_tokens(directory)
        self._compiled: dict[str, jinja2.Template] = {}

    def render(self, messages: list[dict], /, add_generation_prompt: bool = True,
               tools: list[dict] | None = None, **kwargs: Any) -> str:
        """The prompt for `messages` in OpenAI's form; `kwargs` are further variables such as enable_thinking.

        Encode the result with add_special_tokens=False: the template writes BOS itself.
        RequestError if there is no template, if it is broken, or if it refuses these messages.
        """
        variables = {**self._special_tokens, "documents": None, **kwargs, "messages": [_plain(m) for m in messages],
                     "tools": tools or None, "add_generation_prompt": add_generation_prompt, "range": _CountedRange()}
        try:
            template = self._compile("tool_use" if tools and "tool_use" in self.templates else "default")
            return _bounded(template.generate(variables))
        except RequestError:
            raise
        except jinja2.TemplateSyntaxError as error:
            raise RequestError(f"the chat template of {self.directory} is broken at line {error.lineno}: "
                               f"{error.message}") from None
        except Exception as error:   # a template is a program of the checkpoint's author: it can fail in any way
            raise RequestError(f"the chat template of {self.directory} fails on these messages: "
                               f"{type(error).__name__}: {error}", "messages") from None

    def _compile(self, name: str) -> jinja2.Template:
        if not self.templates:
            raise RequestError(f"{self.directory} has no chat template, so it cannot chat; "
                               "use plain completions, or put a chat_template.jinja into it")
        if name not in self.templates:
            raise RequestError(f"{self.directory} has no chat template named {name!r}, "
                               f"only {', '.join(sorted(self.templates))}")
        if name not in self._compiled:
            self._compiled[name] = _environment().from_string(self.templates[name])
        return self._compiled[name]


def _find_templates(directory: Path) -> dict[str, str]:
    named = {path.stem: _read(path) for path in sorted(directory.glob("additional_chat_templates/*.jinja"))}
    if (directory / "chat_template.jinja").is_file():
        return {**named, "default": _read(directory / "chat_template.jinja")}
    for path in (directory / "tokenizer_config.json", directory / "chat_template.json"):
        value = read_object(path).get("chat_template") if path.is_file() else None
        if isinstance(value, str):
            return {**named, "default": value}
        if isinstance(value, list) and all(isinstance(v, dict) and isinstance(v.get("name"), str)
                                           and isinstance(v.get("template"), str) for v in value):
            return {**named, **{v["name"]: v["template"] for v in value}}
        if value is not None:
            raise CheckpointError(f"{path}: 'chat_template' should be a string or a list of {{name, template}}, "
                                  f"found {quote(value)}")
    return named


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from None


def _plain(message: dict) -> dict:
    """A copy of one message as templates expect it: content a string, tool call arguments a dict."""
    if not isinstance(message, dict):
        raise RequestError(f"messages: expected objects with role and content, found {quote(message)}", "messages")
    message = copy.deepcopy(message)
    if isinstance(message.get("content"), list):
        message["content"] = "\n".join(_text_of(part) for part in message["content"])
    for call in message.get("tool_calls") or []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            function["arguments"] = _arguments(function["arguments"])
    return message


def _text_of(part: object) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    raise RequestError(f"messages: only text parts are implemented in content, found {quote(part)}", "messages")


def _arguments(text: str) -> dict:
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise RequestError(f"messages: tool call arguments are not valid JSON ({error}): {quote(text)}",
                           "messages") from None
    if not isinstance(arguments, dict):
        raise RequestError(f"messages: tool call arguments should be a JSON object, found {quote(text)}", "messages")
    return arguments


def _bounded(pieces) -> str:
    """The pieces a template yields, joined; a template that never stops printing is stopped."""
    prompt, length, deadline = [], 0, time.thread_time() + MAX_RENDER_SECONDS
    for piece in pieces:
        prompt.append(piece)
        length += len(piece)
        if length > MAX_PROMPT_CHARS or time.thread_time() > deadline:
            raise RequestError(f"the chat template printed {length} characters and was stopped "
                               f"(limits: {MAX_PROMPT_CHARS} characters, {MAX_RENDER_SECONDS:g} seconds of work)", "messages")
    return "".join(prompt)


class _CountedRange:
    """`range` for one rendering: nested loops over ranges share a budget, so that they end even if they print nothing."""

    def __init__(self):
        self._left = MAX_RANGE_ITEMS

    def __call__(self, *args) -> range:
        items = range(*args)
        self._left -= len(items)
        if self._left < 0:
            raise RequestError(f"the chat template loops over more than {MAX_RANGE_ITEMS} range items and was stopped",
                               "messages")
        return items


class _GenerationBlock(Extension):
    """{% generation %}...{% endgeneration %} marks what a model is trained on; for a prompt it is transparent."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[_GenerationBlock, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return environment


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False) -> str:
    """json.dumps: jinja2's own filter would escape <, > and & for HTML, which models never saw in training."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str):
    raise RequestError(f"the chat template refuses these messages: {message}", "messages")

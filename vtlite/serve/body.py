"""A request's body: read within a size limit, and decoded into a Struct or an error that names the field."""

import functools
import logging
import re
from typing import TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from vtlite.errors import RequestError

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 16 << 20
MAX_DEPTH = 64                  # of lists and objects in fields of free form
T = TypeVar("T", bound=msgspec.Struct)

# What changes the answer and is not implemented, with the values (beside null) that ask for nothing.
NOT_IMPLEMENTED = {
    "audio": [], "cache_salt": [], "chat_template": [], "documents": [[]], "echo": [False], "function_call": ["none"],
    "functions": [[]], "guided_choice": [], "guided_grammar": [], "guided_json": [], "guided_regex": [],
    "length_penalty": [1], "logits_processors": [[]], "logprob_token_ids": [[]], "modalities": [["text"]],
    "prompt_embeds": [], "response_format": [{"type": "text"}], "spaces_between_special_tokens": [True],
    "structured_outputs": [], "suffix": [""], "thinking_token_budget": [], "truncate_prompt_tokens": [],
    "use_beam_search": [False], "web_search_options": [],
}
# What clients send without expecting it to change the answer.
IGNORED = {"include_reasoning", "kv_transfer_params", "metadata", "mm_processor_kwargs", "parallel_tool_calls",
           "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store",
           "user", "verbosity", "vllm_xargs"}

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_logged: set[str] = set()


async def read_body(request: Request) -> bytes:
    """The bytes of a JSON body. 400 if it is declared to be something else, 413 if it is too large."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestError(f"unsupported media type: expected the header 'Content-Type: application/json', "
                           f"found {content_type[:100] or 'none'}")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is larger than the {MAX_BODY_BYTES} bytes this server reads")
    return bytes(body)


def decode(body: bytes, kind: type[T]) -> T:
    """`body` as a `kind`. RequestError if it is not JSON, not of that type, or asks for what is not implemented."""
    try:
        body.decode("utf-8")                            # msgspec does not look into the fields it skips
        request = _decoder(kind).decode(body)
        foreign = {name: raw for name, raw in _members.decode(body).items() if name not in kind.__struct_fields__}
        for name in NOT_IMPLEMENTED.keys() & foreign.keys():
            value = msgspec.json.decode(foreign[name])
            if value is not None and value not in NOT_IMPLEMENTED[name]:
                raise RequestError(f"{name} is not implemented; leave it out", name)
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise RequestError("the body is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from None
    except msgspec.DecodeError as error:
        surrogate = re.search(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", body)
        hint = f"; perhaps the lone surrogate {surrogate[0].decode()}" if surrogate else ""
        raise RequestError(f"the body is not valid JSON: {error}{hint}") from None
    for name in foreign.keys() - NOT_IMPLEMENTED.keys() - IGNORED:
        _log_once(name)
    return request


def check_depth(value: object, name: str, depth: int = MAX_DEPTH) -> None:
    """RequestError if lists and objects nest deeper than `depth`, so that nobody after us need fear recursion."""
    if isinstance(value, (list, dict)):
        if depth == 0:
            raise RequestError(f"{name} is nested deeper than {MAX_DEPTH} levels", name)
        for part in value.values() if isinstance(value, dict) else value:
            check_depth(part, name, depth - 1)


@functools.cache
def _decoder(kind: type) -> msgspec.json.Decoder:
    return msgspec.json.Decoder(kind)


def _explain(message: str) -> RequestError:
    """msgspec's "Expected `int | null`, got `str` - at `$.n`" as "n: expected int, got str", param n."""
    text, _, place = message.partition(" - at ")
    path = re.search(r"`\$\.?([^`]*)`$", place)
    missing = re.search(r"missing required field `(\w+)`", text)
    name = path[1] if path else missing[1] if missing else ""
    text = text.replace(" | null", "").replace("`", "")
    if place.startswith("`key`"):
        text += " as a key"
    if not name:
        return RequestError(f"the body: {text[0].lower()}{text[1:]}")
    return RequestError(f"{name}: {text[0].lower()}{text[1:]}", re.split(r"[.\[]", name)[0])


def _log_once(name: str) -> None:
    """Say once that an unknown field is ignored; a client that invents names cannot flood the log."""
    if name not in _logged and len(_logged) < 100:
        _logged.add(name)
        log.warning("requests hold the unknown field %.100r, which is ignored", name)

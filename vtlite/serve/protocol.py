"""The OpenAI-style wire format: what a request may say and what a response looks like.

Every optional field may be null, which means the same as leaving it out. Field names are OpenAI's, and vLLM's for
what OpenAI does not have.
"""

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field


class SamplingFields(Struct, kw_only=True):
    """Fields that go to SamplingParams under the same name; None = generation_config.json's value, then the default."""

    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    skip_special_tokens: bool | None = None


class StreamOptions(Struct):
    include_usage: bool | None = None                   # one more chunk with the usage, at the end
    continuous_usage_stats: bool | None = None          # the usage so far in every chunk, too


class GenerationRequest(SamplingFields, kw_only=True):
    """What completions and chat completions have in common."""

    model: str | None = None                            # None = the one that is served
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    priority: int | None = None                         # lower = earlier, if the engine schedules by priority
    request_id: str | None = None                       # X-Request-Id wins over it
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None      # logprobs name tokens "token_id:17" instead of by text


class CompletionRequest(GenerationRequest, kw_only=True):
    """POST /v1/completions"""

    prompt: str | list[str | int | list[int]]           # a text, texts, token ids, or lists of token ids
    add_special_tokens: bool | None = None              # default: true
    best_of: int | None = None
    echo: bool | None = None
    logprobs: int | None = None


class ChatRequest(GenerationRequest, kw_only=True):
    """POST /v1/chat/completions"""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None            # wins over max_tokens
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    reasoning_effort: str | None = None                 # a variable of the chat template
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None           # default: true, unless continue_final_message
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None              # default: false, templates write BOS themselves


class TokenizeRequest(Struct, kw_only=True):
    """POST /tokenize"""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    add_special_tokens: bool | None = None              # default: true for a prompt, false for messages
    return_token_strs: bool | None = None


class DetokenizeRequest(Struct, kw_only=True):
    """POST /detokenize"""

    tokens: list[int]
    model: str | None = None


class PromptTokensDetails(Struct):
    cached_tokens: int                                  # served by the prefix cache


class Usage(Struct):
    """Tokens of a request: each prompt counts once, whatever n."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(Struct):
    """Parallel lists, one entry per token; offsets count characters of `tokens`, joined."""

    text_offset: list[int] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)


class TopLogprob(Struct):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct):
    content: list[ChatTokenLogprob]


class PromptLogprob(Struct):
    """One candidate at one position of the prompt."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]  # by token id, in decimal


class CompletionChoice(Struct, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class Message(Struct, kw_only=True):
    role: str = "assistant"
    content: str
    refusal: None = None
    tool_calls: list = field(default_factory=list)


class MessageDelta(Struct, kw_only=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None


class ChatChoice(Struct, kw_only=True):
    """`message` in a whole response, `delta` in a chunk."""

    index: int
    message: Message | UnsetType = UNSET
    delta: MessageDelta | UnsetType = UNSET
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET


class Response(Struct, kw_only=True):
    """A whole response, or one chunk of a stream."""

    id: str
    object: str
    created: int                                        # Unix seconds
    model: str
    choices: list[CompletionChoice] | list[ChatChoice]
    usage: Usage | None = None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET     # chat only
    prompt_token_ids: list[int] | UnsetType = UNSET         # chat only


class Error(Struct):
    message: str
    type: str
    param: str | None
    code: int                                           # the HTTP status


class ErrorResponse(Struct):
    error: Error


class ModelCard(Struct, kw_only=True):
    id: str
    object: str = "model"
    created: int
    owned_by: str = "vtlite"
    root: str
    parent: None = None
    max_model_len: int


class ModelList(Struct):
    data: list[ModelCard]
    object: str = "list"


class Tokens(Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None

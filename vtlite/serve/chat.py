"""POST /v1/chat/completions: messages rendered with the checkpoint's template; answers as assistant messages.

Tools are shown to the template, if the request brings some and does not say tool_choice "none". Calls are not parsed
yet: what the model writes, calls included, is the message's content. A tool_choice that demands a call is refused.
The role "developer" is "system" under its newer name, and is rendered as such.
"""

from typing import Any

from vtlite.engine.outputs import CompletionOutput, Delta, RequestOutput
from vtlite.engine.sampling_params import SamplingParams
from vtlite.errors import RequestError
from vtlite.serve.body import check_depth
from vtlite.serve.call import Call
from vtlite.serve.protocol import ChatChoice, Message, MessageDelta
from vtlite.serve.served_model import ServedModel

RESERVED = {"messages", "tools", "add_generation_prompt"}   # fields of their own, not chat_template_kwargs


class ChatCall(Call):
    """Without max_tokens or max_completion_tokens an answer may fill the model's length."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def read_prompts(self) -> list[list[int]]:
        request = self.request
        if request.tool_choice not in (None, "auto", "none"):
            raise RequestError("tool_choice can be none or auto: forced tool calls are not implemented",
                               "tool_choice")
        tools = None if request.tool_choice == "none" else request.tools
        ask = request.add_generation_prompt
        if request.continue_final_message:
            if ask:
                raise RequestError("continue_final_message excludes add_generation_prompt", "continue_final_message")
            ask = False
        options = dict(request.chat_template_kwargs or {})
        if request.reasoning_effort is not None:
            options.setdefault("reasoning_effort", request.reasoning_effort)
        text = render(self.model, request.messages, tools, options, add_generation_prompt=ask is not False)
        if request.continue_final_message:
            text = _up_to_end_of(request.messages[-1], text)
        return [self.model.encode(text, bool(request.add_special_tokens), "messages")]

    def read_params(self) -> SamplingParams:
        request = self.request
        max_tokens = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
        if max_tokens is None:
            max_tokens = self.model.engine.model_config.generation.get("max_new_tokens")
        top, most = request.top_logprobs, self.model.engine.config.max_logprobs
        if top is not None and not 0 <= top <= most:
            raise RequestError(f"top_logprobs should be in [0, {most}], found {top}", "top_logprobs")
        if top and not request.logprobs:
            raise RequestError("top_logprobs goes with logprobs: true only", "top_logprobs")
        logprobs = (top or 0) if request.logprobs else None
        return self.model.sampling_params(request, max_tokens=max_tokens, logprobs=logprobs)

    def choice(self, index: int, prompt: int, output: CompletionOutput, whole: RequestOutput) -> ChatChoice:
        return self._write(index, output, message=Message(content=output.text))

    def whole(self, outputs: list[RequestOutput]) -> dict:
        fields = self.first_fields()
        if self.request.prompt_logprobs is not None:
            fields["prompt_logprobs"] = self.logprobs.prompt(outputs[0].prompt_logprobs)
        return fields

    def first_fields(self) -> dict:
        return {"prompt_token_ids": self.prompts[0]} if self.request.return_token_ids else {}

    def chunks(self, index: int, prompt: int, delta: Delta, first: bool) -> list[ChatChoice]:
        choices = [ChatChoice(index=index, delta=MessageDelta(role="assistant", content=""))] if first else []
        if delta.text or delta.finish_reason or delta.logprobs or self.request.return_token_ids:
            choices.append(self._write(index, delta, delta=MessageDelta(content=delta.text or None)))
        return choices

    def _write(self, index: int, output: CompletionOutput | Delta, **content) -> ChatChoice:
        choice = ChatChoice(index=index, finish_reason=output.finish_reason, stop_reason=output.stop_reason, **content)
        if self.params.logprobs is not None:
            choice.logprobs = self.logprobs.chat(output.token_ids, output.logprobs or [], self.params.logprobs)
        if self.request.return_token_ids:
            choice.token_ids = output.token_ids
        return choice


def render(model: ServedModel, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None,
           options: dict[str, Any], add_generation_prompt: bool) -> str:
    """The prompt text of a conversation. RequestError naming the message that is not one."""
    for name, value in (("messages", messages), ("tools", tools), ("chat_template_kwargs", options)):
        check_depth(value, name)
    if reserved := RESERVED & options.keys():
        raise RequestError(f"{min(reserved)} is a field of the request, not of chat_template_kwargs",
                           "chat_template_kwargs")
    if not messages:
        raise RequestError("messages is empty; at least one message is needed", "messages")
    checked = [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    return model.chat_template.render(checked, add_generation_prompt=add_generation_prompt, tools=tools, **options)


def _message(message: dict[str, Any], name: str) -> dict[str, Any]:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise RequestError(f"{name}.role should be system, user, assistant or tool, found {role!r}", "messages")
    if content is None and role == "assistant":         # as it is beside tool calls
        content = ""
    if not isinstance(content, (str, list)):
        raise RequestError(f"{name}.content should be a text or a list of parts, found {content!r}", "messages")
    if message.get("tool_calls") is not None and not isinstance(message["tool_calls"], list):
        raise RequestError(f"{name}.tool_calls should be a list, found {message['tool_calls']!r}", "messages")
    return {**message, "role": "system" if role == "developer" else role, "content": content}


def _up_to_end_of(message: dict[str, Any], text: str) -> str:
    """The rendered conversation without what the template writes after its last message, for the model to go on."""
    content = message.get("content")
    if not isinstance(content, str) or content.strip() not in text:
        raise RequestError("continue_final_message needs a last message whose content is a text that the template "
                           "shows", "continue_final_message")
    return text[: text.rindex(content.strip()) + len(content.strip())]

"""One request for generation: from a decoded body to the engine, and from deltas to responses and chunks.

completions.py and chat.py say how their endpoint reads a prompt and writes a choice; what they share is here.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from uuid import uuid4

from vtlite.engine.outputs import CompletionOutput, Delta, RequestOutput
from vtlite.engine.sampling_params import SamplingParams
from vtlite.errors import RequestError
from vtlite.serve.errors import GenerationError, as_error
from vtlite.serve.logprobs import LogprobWriter
from vtlite.serve.protocol import (ChatChoice, CompletionChoice, ErrorResponse, GenerationRequest, PromptTokensDetails,
                                   Response, StreamOptions, Usage)
from vtlite.serve.served_model import ServedModel
from vtlite.serve.stream import DONE, event

Choice = CompletionChoice | ChatChoice
MAX_ID_CHARS = 200


class Call(ABC):
    """A checked request. Constructing one does all that can fail: decoding, tokenising, checking."""

    prefix: str             # of the id
    kind: str               # "object" of a whole response
    chunk_kind: str         # "object" of a chunk
    prompt_only = False     # the answer is not wanted, only what was learnt about the prompt

    def __init__(self, model: ServedModel, request: GenerationRequest, request_id: str | None):
        self.model, self.request = model, request
        self.model_name = model.check_name(request.model)
        given = request_id if request_id is not None else request.request_id
        self.request_id = _usable(given) or uuid4().hex
        self.id = f"{self.prefix}-{self.request_id}"
        self.created = int(time.time())
        self.stream = bool(request.stream)
        if not self.stream and request.stream_options is not None:
            raise RequestError("stream_options goes with stream: true only", "stream_options")
        if self.stream and request.prompt_logprobs is not None:
            raise RequestError("prompt_logprobs cannot be streamed; leave out stream", "prompt_logprobs")
        self.priority = request.priority or 0
        if abs(self.priority) >= 2**31:
            raise RequestError(f"priority should be in (-2^31, 2^31), found {self.priority}", "priority")
        self.stream_options = request.stream_options or StreamOptions()
        self.logprobs = LogprobWriter(model.tokenizer, bool(request.return_tokens_as_token_ids))
        self.params = self.read_params()
        self.prompts = self.read_prompts()
        self._requests = [model.prepare(prompt, self.params, self.priority)
                          for prompt in self.prompts]   # all of a request runs, or none of it
        self.usage = Usage(0, 0, 0, PromptTokensDetails(0))
        self._count(prompt_tokens=sum(map(len, self.prompts)))

    @abstractmethod
    def read_prompts(self) -> list[list[int]]:
        """Token ids of each prompt."""

    @abstractmethod
    def read_params(self) -> SamplingParams: ...

    @abstractmethod
    def choice(self, index: int, prompt: int, output: CompletionOutput, whole: RequestOutput) -> Choice:
        """A whole answer."""

    @abstractmethod
    def chunks(self, index: int, prompt: int, delta: Delta, first: bool) -> list[Choice]:
        """What a delta adds to answer `index`; `first` if it is that answer's first. Possibly nothing."""

    def whole(self, outputs: list[RequestOutput]) -> dict:
        """Fields of a whole response beside its choices."""
        return {}

    def first_fields(self) -> dict:
        """Fields of a stream's first chunk beside its choice."""
        return {}

    async def respond(self) -> Response:
        """Run the request; the whole response."""
        n = self.params.n
        outputs = [RequestOutput(self.id, None, prompt, [CompletionOutput(i) for i in range(n)])
                   for prompt in self.prompts]
        async with aclosing(self._deltas()) as deltas:
            async for prompt, delta in deltas:
                outputs[prompt].add(delta)
        choices = [self.choice(prompt * n + output.index, prompt, output, whole)
                   for prompt, whole in enumerate(outputs) for output in whole.outputs]
        return self._response(self.kind, choices, usage=self.usage, **self.whole(outputs))

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Run the request; server-sent events. Headers are out, so an error is an event, too."""
        started = set()
        usage_so_far = self.usage if self.stream_options.continuous_usage_stats else None
        try:
            async with aclosing(self._deltas()) as deltas:
                async for prompt, delta in deltas:
                    index = prompt * self.params.n + delta.index
                    fields = {} if started else self.first_fields()
                    for choice in self.chunks(index, prompt, delta, first=index not in started):
                        yield event(self._response(self.chunk_kind, [choice], usage=usage_so_far, **fields))
                    started.add(index)
            if self.stream_options.include_usage:
                yield event(self._response(self.chunk_kind, [], usage=self.usage))
        except Exception as error:
            yield event(ErrorResponse(as_error(error)))
        yield DONE

    async def _deltas(self) -> AsyncGenerator[tuple[int, Delta], None]:
        """Deltas by prompt, with their tokens counted. GenerationError if the engine gives an answer up."""
        async with aclosing(self.model.deltas(self._requests)) as deltas:
            async for prompt, delta in deltas:
                if delta.error is not None:
                    raise GenerationError(delta.error)
                if self.prompt_only:
                    delta = replace(delta, text="", token_ids=[], logprobs=delta.logprobs and [],
                                    finish_reason="length", stop_reason=None)
                self.usage.prompt_tokens_details.cached_tokens += delta.num_cached_tokens if delta.index == 0 else 0
                self._count(completion_tokens=len(delta.token_ids))
                yield prompt, delta

    def _count(self, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        self.usage.prompt_tokens += prompt_tokens
        self.usage.completion_tokens += completion_tokens
        self.usage.total_tokens += prompt_tokens + completion_tokens

    def _response(self, kind: str, choices: list[Choice], **fields) -> Response:
        return Response(id=self.id, object=kind, created=self.created, model=self.model_name, choices=choices, **fields)


def _usable(request_id: str | None) -> str | None:
    """An id that can go into a header; None if there is none or it cannot."""
    if request_id and len(request_id) <= MAX_ID_CHARS and request_id.isascii() and request_id.isprintable():
        return request_id
    return None

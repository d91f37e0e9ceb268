"""POST /v1/completions: a prompt as text or ids, or many of them; answers as text, after the prompt with `echo`."""

from msgspec import UNSET

from vtlite.engine.outputs import CompletionOutput, Delta, RequestOutput, TokenLogprobs
from vtlite.engine.sampling_params import SamplingParams
from vtlite.errors import RequestError
from vtlite.serve.call import Call
from vtlite.serve.protocol import CompletionChoice, CompletionRequest
from vtlite.serve.served_model import ServedModel

DEFAULT_MAX_TOKENS = 16
MAX_ANSWERS = 4096              # prompts times n, in one request


class CompletionCall(Call):
    """Answer j of prompt i is choice i * n + j. With `echo`, max_tokens 0 asks for the prompt and its logprobs only."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: ServedModel, request: CompletionRequest, request_id: str | None):
        self.echo = bool(request.echo)
        self.prompt_only = self.echo and request.max_tokens == 0
        self._offsets: dict[int, int] = {}              # choice -> characters of its tokens so far
        super().__init__(model, request, request_id)

    def read_prompts(self) -> list[list[int]]:
        prompt = self.request.prompt
        if not prompt:
            raise RequestError("the prompt is empty; at least one token is needed", "prompt")
        self._given = [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt
        if (answers := len(self._given) * self.params.n) > MAX_ANSWERS:
            raise RequestError(f"{len(self._given)} prompts with n {self.params.n} ask for {answers} answers, more than "
                               f"the {MAX_ANSWERS} of one request; split it", "prompt")
        kinds = {type(one) for one in self._given}
        if kinds == {str}:
            special = self.request.add_special_tokens is not False
            return [self.model.encode(text, special, "prompt") for text in self._given]
        if kinds == {list}:
            return self._given
        raise RequestError("prompt should be a text, a list of texts, a list of token ids or a list of such lists; "
                           "found a mixture", "prompt")

    def read_params(self) -> SamplingParams:
        request, n = self.request, self.request.n or 1
        if request.best_of is not None and request.best_of != n:
            raise RequestError(f"best_of is {request.best_of}, but only n ({n}) is implemented; leave it out",
                               "best_of")
        max_tokens = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
        given = {"max_tokens": 1 if self.prompt_only else max_tokens, "logprobs": request.logprobs}
        if self.echo and request.prompt_logprobs is None:
            given["prompt_logprobs"] = request.logprobs
        return self.model.sampling_params(request, **given)

    def choice(self, index: int, prompt: int, output: CompletionOutput, whole: RequestOutput) -> CompletionChoice:
        choice = self._write(index, prompt, output, whole.prompt_logprobs, first=True)
        if self.request.prompt_logprobs is not None:
            choice.prompt_logprobs = self.logprobs.prompt(whole.prompt_logprobs)
        return choice

    def chunks(self, index: int, prompt: int, delta: Delta, first: bool) -> list[CompletionChoice]:
        echo = first and self.echo
        if delta.text or delta.finish_reason or delta.logprobs or self.request.return_token_ids or echo:
            return [self._write(index, prompt, delta, delta.prompt_logprobs, first)]
        return []

    def _write(self, index: int, prompt: int, output: CompletionOutput | Delta,
               prompt_logprobs: list[TokenLogprobs | None] | None, first: bool) -> CompletionChoice:
        """A choice of what `output` holds, after the prompt if it is the `first` part of the answer and wanted."""
        choice = CompletionChoice(index=index, text=output.text, finish_reason=output.finish_reason,
                                  stop_reason=output.stop_reason)
        echo = first and self.echo
        if echo:
            choice.text = self._text_of(prompt) + choice.text
        if self.params.logprobs is not None:
            entries = list(zip(output.token_ids, output.logprobs or [], strict=True))
            if echo:
                entries = list(zip(self.prompts[prompt], prompt_logprobs, strict=True)) + entries
            choice.logprobs = self.logprobs.completion(entries, self._offsets.get(index, 0))
            self._offsets[index] = self._offsets.get(index, 0) + sum(map(len, choice.logprobs.tokens))
        if self.request.return_token_ids:
            choice.token_ids = output.token_ids
            choice.prompt_token_ids = self.prompts[prompt] if first else UNSET
        return choice

    def _text_of(self, prompt: int) -> str:
        given = self._given[prompt]
        return given if isinstance(given, str) else self.model.tokenizer.decode(given, self.params.skip_special_tokens)

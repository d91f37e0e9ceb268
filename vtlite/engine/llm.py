"""`LLM`: the engine in your own thread, for scripts and notebooks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vtlite.checkpoint.chat_template import ChatTemplate
from vtlite.config import EngineConfig
from vtlite.engine.engine import Engine
from vtlite.engine.outputs import CompletionOutput, Delta, RequestOutput
from vtlite.engine.sampling_params import SamplingParams
from vtlite.errors import RequestError

Prompt = str | Sequence[int]           # text, or token ids
Messages = Sequence[dict]              # one conversation: [{"role": ..., "content": ...}, ...]


class LLM:
    """A loaded model.

    >>> llm = LLM()
    >>> llm.generate("Once upon a time", SamplingParams(max_tokens=32))[0].outputs[0].text

    `model` is a checkpoint directory, a name vtlite knows, or a hub id; None is the default model. Further options
    are those of `EngineConfig`. Sampling parameters left out come from the checkpoint's generation_config.json.
    """

    def __init__(self, model: str | Path | None = None, *, on_load: Callable[[int, int], None] | None = None, **options):
        """`on_load` as in Engine."""
        self.engine = Engine(model, EngineConfig(**options), on_load)
        self.tokenizer = self.engine.tokenizer
        self._ids = count()

    def generate(self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None,
                 *, progress: bool | None = None) -> list[RequestOutput]:
        """Answer every prompt, in order; `params` is one for all or one for each.

        A progress bar is shown on standard error for several prompts on a terminal; `progress` says otherwise.
        """
        prompts = [prompts] if _is_one_prompt(prompts) else list(prompts)
        return self._run([self._encode(p) for p in prompts], [p if isinstance(p, str) else None for p in prompts],
                         params, progress)

    def chat(self, conversations: Messages | Sequence[Messages], params: SamplingParams | Sequence[SamplingParams] | None = None,
             *, progress: bool | None = None, **template_options) -> list[RequestOutput]:
        """Answer one conversation or several, rendered with the checkpoint's chat template."""
        if conversations and isinstance(conversations[0], dict):
            conversations = [conversations]
        texts = [self.render(messages, **template_options) for messages in conversations]
        return self._run([self.tokenizer.encode(t, add_special_tokens=False) for t in texts], texts, params, progress)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[Delta]:
        """Yield an answer as it grows, one Delta per token. Closing the iterator stops the request."""
        return self._stream(self._encode(prompt), params)

    def stream_chat(self, messages: Messages, params: SamplingParams | None = None, **template_options) -> Iterator[Delta]:
        """`stream` for a conversation."""
        return self._stream(self.tokenizer.encode(self.render(messages, **template_options), add_special_tokens=False), params)

    def render(self, messages: Messages, **template_options) -> str:
        """The prompt text of a conversation. RequestError if the checkpoint has no chat template."""
        return self._chat_template.render(list(messages), **template_options)

    @property
    def _chat_template(self) -> ChatTemplate:
        if "_template" not in self.__dict__:
            self._template = ChatTemplate(self.engine.directory)
        return self._template

    def _encode(self, prompt: Prompt) -> list[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)

    def _stream(self, prompt_ids: list[int], params: SamplingParams | None) -> Iterator[Delta]:
        request_id = str(next(self._ids))
        params = params or self.engine.sampling_params()
        self.engine.add(request_id, prompt_ids, params)
        unfinished = params.n
        try:
            while unfinished:
                for delta in self.engine.step():
                    if delta.request_id == request_id:
                        unfinished -= delta.finish_reason is not None
                        yield delta
        finally:
            self.engine.abort(request_id)

    def _run(self, prompt_ids: list[list[int]], texts: list[str | None], params, progress: bool | None) -> list[RequestOutput]:
        if params is None:
            params = self.engine.sampling_params()
        each = [params] * len(prompt_ids) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(prompt_ids):
            raise RequestError(f"{len(prompt_ids)} prompts came with {len(each)} sampling parameters")
        outputs: dict[str, RequestOutput] = {}
        requests = []                                    # all are checked before any is added: the whole call runs, or nothing
        for ids, text, p in zip(prompt_ids, texts, each):
            request_id = str(next(self._ids))
            requests += self.engine.prepare(request_id, ids, p)
            outputs[request_id] = RequestOutput(request_id, text, ids, [CompletionOutput(i) for i in range(p.n)])
        for request in requests:
            self.engine.loop.add(request)
        shown = len(outputs) > 1 and sys.stderr.isatty() if progress is None else progress
        bar = _progress_bar() if shown else nullcontext()
        try:
            with bar:
                task = bar.add_task("answers", total=sum(p.n for p in each), tokens=0) if shown else None
                while self.engine.has_work:
                    deltas = self.engine.step()
                    for delta in deltas:
                        outputs[delta.request_id].add(delta)
                    if shown:
                        tokens = bar.tasks[task].fields["tokens"] + sum(len(d.token_ids) for d in deltas)
                        bar.update(task, advance=sum(d.finish_reason is not None for d in deltas), tokens=tokens)
        finally:
            for request_id in outputs:                   # after Ctrl-C, leave nothing behind
                self.engine.abort(request_id)
        return list(outputs.values())


def _is_one_prompt(prompts) -> bool:
    return isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int))


def _progress_bar() -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[tokens]} tokens"),
                    TimeRemainingColumn(), console=Console(stderr=True))

"""The model behind the routes: names, texts to token ids, sampling parameters, and deltas of many prompts at once."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import count
from typing import TypeVar

from starlette.exceptions import HTTPException

from vtlite.checkpoint.chat_template import ChatTemplate
from vtlite.engine.async_llm import AsyncLLM
from vtlite.engine.outputs import Delta
from vtlite.engine.request import Request
from vtlite.engine.sampling_params import SamplingParams
from vtlite.errors import RequestError
from vtlite.serve.metrics import Metrics
from vtlite.serve.protocol import SamplingFields

MAX_STRINGS = 64                # stop strings, and bad words
MAX_STRING_CHARS = 256          # of one of them: they are looked for after every token
LONG_BODY_BYTES = 16_384        # from here on, work on a body leaves the event loop
T = TypeVar("T")


class ServedModel:
    """What every route of one server shares. RequestError for anything beyond a limit."""

    def __init__(self, llm: AsyncLLM, names: Sequence[str]):
        self.llm, self.engine, self.names = llm, llm.engine, list(names)
        self.tokenizer = self.engine.tokenizer
        self.max_model_len = self.engine.max_model_len
        self.created = int(time.time())
        self.chat_template = ChatTemplate(self.engine.directory)
        self.metrics = Metrics(llm, self.names[0])
        vocabulary = self.tokenizer.backend.get_vocab(with_added_tokens=True)
        self._max_chars = self.max_model_len * max(map(len, vocabulary))
        self._ids = count()

    def check_name(self, name: str | None) -> str:
        """The model's name as the client calls it; 404 if it is not one of ours."""
        if name is None:
            return self.names[0]
        if name not in self.names:
            raise HTTPException(404, f"the model {name!r} does not exist here; this server has {', '.join(self.names)}")
        return name

    def encode(self, text: str, add_special_tokens: bool, param: str) -> list[int]:
        """Token ids of a text. One that must be too long is refused before any work is done on it."""
        if len(text) > self._max_chars:
            raise RequestError(f"This model's maximum context length is {self.max_model_len} tokens. However, {param} "
                               f"has {len(text)} characters, which cannot be fewer tokens than that.", param)
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def sampling_params(self, request: SamplingFields, **given) -> SamplingParams:
        """SamplingParams of a request; `given` are the fields its endpoint has worked out."""
        fields = {name: value for name in SamplingFields.__struct_fields__
                  if (value := getattr(request, name)) is not None}
        most = self.engine.config.max_num_seqs
        if fields.get("n", 1) > most:
            raise RequestError(f"n is {fields['n']}, more than the {most} answers this server runs at once "
                               "(max_num_seqs)", "n")
        for name in ("stop", "bad_words"):
            strings = fields.get(name, [])
            strings = [strings] if isinstance(strings, str) else strings
            if len(strings) > MAX_STRINGS or any(len(string) > MAX_STRING_CHARS for string in strings):
                raise RequestError(f"{name} should hold at most {MAX_STRINGS} strings of at most {MAX_STRING_CHARS} "
                                   f"characters; found {len(strings)}, the longest of "
                                   f"{max(map(len, strings))} characters", name)
        for name in ("stop_token_ids", "allowed_token_ids"):
            if len(fields.get(name, [])) > self.engine.model_config.vocab_size:
                raise RequestError(f"{name} holds {len(fields[name])} ids, more than there are tokens", name)
        return self.engine.sampling_params(**fields, **given)

    def prepare(self, prompt: list[int], params: SamplingParams, priority: int) -> list[Request]:
        """The checked requests of a prompt, one per answer."""
        return self.engine.prepare(str(next(self._ids)), prompt, params, priority)

    async def deltas(self, prompts: list[list[Request]]) -> AsyncGenerator[tuple[int, Delta], None]:
        """(index of the prompt, delta), as they come, until all is answered. Close it early to abort all."""
        streams = [self.metrics.watch(self.llm.run(requests), requests[0].prompt_len, len(requests)) for requests in prompts]
        async with aclosing(_merge(streams)) as merged:
            async for item in merged:
                yield item


async def off_loop(size: int, work: Callable[..., T], *args) -> T:
    """`work(*args)`, in a thread if its input of `size` bytes is long enough to hold up the other streams."""
    return work(*args) if size < LONG_BODY_BYTES else await asyncio.to_thread(work, *args)


async def _merge(streams: list[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """(index of the stream, item) of every item, in order of arrival. However it ends, all streams end with it."""
    items: asyncio.Queue = asyncio.Queue()

    async def pump(index: int, stream: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(stream):
                async for item in stream:
                    items.put_nowait((index, item))
            items.put_nowait(None)
        except Exception as error:
            items.put_nowait(error)

    pumps = [asyncio.create_task(pump(index, stream)) for index, stream in enumerate(streams)]
    try:
        unfinished = len(streams)
        while unfinished:
            item = await items.get()
            if item is None:
                unfinished -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

"""`AsyncLLM`: the engine in a thread of its own, for servers.

The event loop and the engine thread share two things only: an inbox of commands, and one asyncio queue per request
that the engine thread fills through `call_soon_threadsafe`.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial

from vtlite.engine.engine import Engine
from vtlite.engine.outputs import Delta
from vtlite.engine.request import Request
from vtlite.engine.sampling_params import SamplingParams

log = logging.getLogger(__name__)


class EngineDeadError(RuntimeError):
    """The engine thread has ended: by an error it could not continue from, or by `shutdown`."""


class AsyncLLM:
    """Serves many coroutines from one Engine. Close with `shutdown`."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.error: BaseException | None = None             # why the engine thread has ended, once it has
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._streams: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Queue]] = {}
        self._thread = threading.Thread(target=self._work, name="vtlite-engine", daemon=True)
        self._thread.start()

    def generate(self, request_id: str, prompt_token_ids: list[int], params: SamplingParams,
                 priority: int = 0) -> AsyncGenerator[Delta, None]:
        """`run` of a prompt. RequestError, at once, for a request beyond the model's limits."""
        return self.run(self.engine.prepare(request_id, prompt_token_ids, params, priority))

    async def run(self, requests: list[Request]) -> AsyncGenerator[Delta, None]:
        """Yield deltas of all answers to a prompt (`engine.prepare`), interleaved, until each has a finish_reason.

        Leaving the iterator early, or cancelling the task, aborts the request: its blocks are free before the
        next step. EngineDeadError if the engine is gone.
        """
        request_id, unfinished = requests[0].request_id, len(requests)
        deltas: asyncio.Queue = asyncio.Queue()
        self._streams[request_id] = asyncio.get_running_loop(), deltas
        for request in requests:
            self._inbox.put(partial(self.engine.loop.add, request))
        try:
            if self.error is not None:                      # read after _streams is set, or the end could be missed
                deltas.put_nowait(self.error)
            while unfinished:
                delta = await deltas.get()
                if isinstance(delta, BaseException):
                    raise EngineDeadError("the engine has been shut down" if isinstance(delta, EngineDeadError) else
                                          "the engine has stopped after an internal error") from delta
                unfinished -= delta.finish_reason is not None
                yield delta
        finally:
            del self._streams[request_id]
            if unfinished:
                self._inbox.put(partial(self.engine.abort, request_id))

    def shutdown(self) -> None:
        """Stop after the step in progress and wait for the thread to end. Open streams raise EngineDeadError."""
        self._inbox.put(None)
        self._thread.join()

    def _work(self) -> None:
        end: BaseException = EngineDeadError("shut down")
        try:
            while self._take_commands():
                if self.engine.has_work:
                    for delta in self.engine.step():
                        self._send(delta.request_id, delta)
        except BaseException as error:
            log.exception("the engine thread has died")
            end = error
        self.error = end
        for request_id in list(self._streams):
            self._send(request_id, end)

    def _take_commands(self) -> bool:
        """Run what is in the inbox, waiting for something if the engine is idle. False = shut down."""
        wait = not self.engine.has_work
        while True:
            try:
                command = self._inbox.get(block=wait)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
            wait = False

    def _send(self, request_id: str, item: Delta | BaseException) -> None:
        """Hand an item to the coroutine that waits for it, if it still does."""
        loop, deltas = self._streams.get(request_id, (None, None))
        if loop is not None:
            with suppress(RuntimeError):             # its event loop has been closed
                loop.call_soon_threadsafe(deltas.put_nowait, item)

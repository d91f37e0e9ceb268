"""Server-sent events, and work that ends when its client goes away."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, suppress
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"
T = TypeVar("T")


def event(content: msgspec.Struct) -> bytes:
    """One event: the content as one line of JSON."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


class EventStream(Response):
    """Sends events as they come. When the client goes away, the generator of events is closed at once, not at its
    next event: a request that waits for its first token must stop, too."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], headers: dict[str, str]):
        self.events, self.status_code, self.background = events, 200, None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):
            await while_connected(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self.events):
            async for data in self.events:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def while_connected(receive: Receive, work: Coroutine[None, None, T]) -> T:
    """The result of `work`; ClientDisconnect, with the work cancelled and cleaned up, if the client leaves first.
    The request's body must have been read: `receive` is taken over."""
    task, watch = asyncio.create_task(work), asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect()
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

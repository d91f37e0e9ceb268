"""`serve`: the application under uvicorn, from the friendly line to the clean end."""

import asyncio
import json
import socket
from collections.abc import Sequence
from contextlib import suppress

import uvicorn
from rich.console import Console

from vtlite.engine.async_llm import AsyncLLM
from vtlite.engine.engine import Engine
from vtlite.errors import ConfigError
from vtlite.serve.app import create_app

GRACE_SECONDS = 5       # for connections to take their last bytes
KEEP_ALIVE_SECONDS = 75
# of a connection without a request. Clients keep theirs for less (httpx and openai: 5), so that they close it: a server that
# does may do so at the moment when the next request is on its way.


def serve(engine: Engine, host: str, port: int, served_model_names: Sequence[str], api_key: str | None = None) -> None:
    """Serve `engine` on host:port until Ctrl-C or SIGTERM; port 0 takes a free one. Running requests are then told and
    aborted. ConfigError if nothing can listen there."""
    llm = AsyncLLM(engine)
    try:
        listener = _listen(host, port)
        server = Server(llm, served_model_names, api_key)
        _greet(listener, served_model_names[0], api_key)
        with suppress(KeyboardInterrupt):               # uvicorn raises it again when it has shut down
            server.run(sockets=[listener])
    finally:
        llm.shutdown()


class Server(uvicorn.Server):
    """uvicorn, with an engine that ends before the connections do, so that no stream holds up the shutdown."""

    def __init__(self, llm: AsyncLLM, served_model_names: Sequence[str], api_key: str | None = None):
        self._llm = llm
        app = create_app(llm, served_model_names, api_key)
        super().__init__(uvicorn.Config(app, log_level="warning", lifespan="off",
                                        timeout_graceful_shutdown=GRACE_SECONDS, timeout_keep_alive=KEEP_ALIVE_SECONDS))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._llm.shutdown)
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host} port {port} ({error}); "
                          "choose others with --host and --port") from None


def _greet(listener: socket.socket, model: str, api_key: str | None) -> None:
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello!"}]})
    key = "-H 'Authorization: Bearer YOUR_KEY' " if api_key else ""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(f"[bold]{model}[/] is served at [bold]{url}/v1[/] (Ctrl-C ends it). Try:")
    console.print(f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' {key}-d '{body}'",
                  markup=False)

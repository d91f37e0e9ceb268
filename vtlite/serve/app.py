"""The routes of the server, as a Starlette application."""

import secrets
from collections.abc import Sequence

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from vtlite import __version__
from vtlite.engine.async_llm import AsyncLLM, EngineDeadError
from vtlite.errors import RequestError
from vtlite.serve.body import decode, read_body
from vtlite.serve.call import Call
from vtlite.serve.chat import ChatCall, render
from vtlite.serve.completions import CompletionCall
from vtlite.serve.errors import GenerationError, json_response, make_error, respond
from vtlite.serve.protocol import (ChatRequest, CompletionRequest, DetokenizeRequest, ErrorResponse, ModelCard,
                                   ModelList, TokenizeRequest, Tokens)
from vtlite.serve.served_model import ServedModel, off_loop
from vtlite.serve.stream import EventStream, while_connected

OPEN_PATHS = ("/health", "/ping", "/version", "/metrics")       # need no API key


def create_app(llm: AsyncLLM, served_model_names: Sequence[str], api_key: str | None = None) -> Starlette:
    """The application that serves `llm`; its own user shuts `llm` down. The first name is the one in responses
    and metrics. With `api_key`, everything but OPEN_PATHS asks for `Authorization: Bearer API_KEY`."""
    routes = Routes(ServedModel(llm, served_model_names))
    return Starlette(
        routes=[
            Route("/health", routes.health), Route("/ping", routes.health, methods=["GET", "POST"]),
            Route("/version", routes.version), Route("/metrics", routes.metrics),
            Route("/v1/models", routes.models), Route("/v1/models/{name:path}", routes.one_model),
            Route("/v1/completions", routes.completions, methods=["POST"]),
            Route("/v1/chat/completions", routes.chat_completions, methods=["POST"]),
            Route("/tokenize", routes.tokenize, methods=["POST"]),
            Route("/detokenize", routes.detokenize, methods=["POST"]),
        ],
        middleware=[Middleware(RequireKey, api_key)] if api_key else [],
        exception_handlers=dict.fromkeys((HTTPException, RequestError, EngineDeadError, GenerationError,
                                          ClientDisconnect, Exception), respond),
    )


class RequireKey:
    """Middleware: 401 without the right key."""

    def __init__(self, app: ASGIApp, key: str):
        self.app, self._expected = app, f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not secrets.compare_digest(given, self._expected):
                error = make_error(401, "the API key is missing or wrong; send it as 'Authorization: Bearer KEY'")
                await json_response(ErrorResponse(error), 401)(scope, receive, send)
                return
        await self.app(scope, receive, send)


class Routes:
    """One method for each route."""

    def __init__(self, model: ServedModel):
        self.model = model

    async def health(self, request: Request) -> Response:
        return Response(status_code=200 if self.model.llm.error is None else 503)

    async def version(self, request: Request) -> Response:
        return json_response({"version": __version__})

    async def metrics(self, request: Request) -> Response:
        encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(self.model.metrics.registry), headers={"Content-Type": content_type})

    async def models(self, request: Request) -> Response:
        return json_response(ModelList([self._card(name) for name in self.model.names]))

    async def one_model(self, request: Request) -> Response:
        return json_response(self._card(self.model.check_name(request.path_params["name"])))

    async def completions(self, request: Request) -> Response:
        return await self._generate(request, CompletionCall, CompletionRequest)

    async def chat_completions(self, request: Request) -> Response:
        return await self._generate(request, ChatCall, ChatRequest)

    async def tokenize(self, request: Request) -> Response:
        body = await read_body(request)
        return json_response(await off_loop(len(body), self._tokenize, decode(body, TokenizeRequest)))

    async def detokenize(self, request: Request) -> Response:
        body = await read_body(request)
        return json_response(await off_loop(len(body), self._detokenize, decode(body, DetokenizeRequest)))

    async def _generate(self, request: Request, call_type: type[Call], body_type: type) -> Response:
        body = await read_body(request)
        if self.model.llm.error is not None:
            raise EngineDeadError("the engine has stopped and this server with it; start it again")
        call = await off_loop(len(body), lambda: call_type(self.model, decode(body, body_type),
                                                           request.headers.get("x-request-id")))
        headers = {"X-Request-Id": call.request_id}
        if call.stream:
            return EventStream(call.events(), headers)
        return json_response(await while_connected(request.receive, call.respond()), headers=headers)

    def _tokenize(self, asked: TokenizeRequest) -> Tokens:
        self.model.check_name(asked.model)
        if (asked.prompt is None) == (asked.messages is None):
            raise RequestError("expected either prompt or messages", "prompt")
        text, special, param = asked.prompt, asked.add_special_tokens is not False, "prompt"
        if asked.messages is not None:
            text = render(self.model, asked.messages, asked.tools, asked.chat_template_kwargs or {},
                          asked.add_generation_prompt is not False)
            special, param = bool(asked.add_special_tokens), "messages"
        ids = self.model.encode(text, special, param)
        names = [self.model.tokenizer.token_text(i) for i in ids] if asked.return_token_strs else None
        return Tokens(len(ids), self.model.max_model_len, ids, names)

    def _detokenize(self, asked: DetokenizeRequest) -> dict:
        self.model.check_name(asked.model)
        vocab_size = self.model.engine.model_config.vocab_size
        for token in asked.tokens:
            if not 0 <= token < vocab_size:
                raise RequestError(f"tokens holds {token}, which is not a token id of this model "
                                   f"(0 .. {vocab_size - 1})", "tokens")
        return {"prompt": self.model.tokenizer.decode(asked.tokens, skip_special_tokens=False)}

    def _card(self, name: str) -> ModelCard:
        return ModelCard(id=name, created=self.model.created, root=self.model.names[0],
                         max_model_len=self.model.max_model_len)

"""Errors as HTTP: OpenAI's shape, {"error": {"message", "type", "param", "code"}}, with the status that fits."""

import logging

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from vtlite.engine.async_llm import EngineDeadError
from vtlite.errors import RequestError
from vtlite.serve.protocol import Error, ErrorResponse

log = logging.getLogger(__name__)

MAX_MESSAGE_CHARS = 1000
CLIENT_CLOSED_REQUEST = 499     # nobody reads it; it shows in access logs
TYPES = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 405: "MethodNotAllowedError",
         413: "PayloadTooLargeError", 500: "InternalServerError", 503: "ServiceUnavailableError"}


class GenerationError(Exception):
    """The engine ended this request, and only this one, with an error."""


def as_error(error: Exception) -> Error:
    """What the client is told; the details of an unexpected error go to the log only."""
    match error:
        case RequestError():
            return make_error(400, str(error), error.param)
        case HTTPException():
            return make_error(error.status_code, error.detail)
        case EngineDeadError():
            return make_error(503, str(error))
        case GenerationError():
            return make_error(500, str(error))
    log.error("a request failed unexpectedly", exc_info=error)
    return make_error(500, "an internal error, which is a bug of the server; its log has the details")


def make_error(status: int, message: str, param: str | None = None) -> Error:
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[:MAX_MESSAGE_CHARS] + " ..."
    return Error(message, TYPES.get(status, "BadRequestError"), param, status)


def json_response(content: msgspec.Struct | dict, status: int = 200, headers: dict | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


async def respond(request: Request, error: Exception) -> Response:
    """Starlette's handler for every error that leaves a route."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    told = as_error(error)
    headers = getattr(error, "headers", None)           # 405 says what is allowed
    return json_response(ErrorResponse(told), told.code, dict(headers) if headers else None)

"""Errors that are meant for a person: each says the thing, the value, the limit and the next action.

The command line prints them as one sentence and the server maps `RequestError` to HTTP 400;
anything else that escapes is a bug and keeps its traceback.
"""


class VtliteError(Exception):
    """Base of every error that vtlite raises at its boundaries."""


class CheckpointError(VtliteError):
    """A checkpoint directory, one of its files or one of its tensors is not what it must be."""


class ConfigError(VtliteError):
    """config.json, generation_config.json or an engine option asks for something that cannot be done."""


class RequestError(VtliteError, ValueError):
    """A request is malformed or beyond a limit. `param` names the offending field, if one does."""

    def __init__(self, message: str, param: str | None = None):
        super().__init__(message)
        self.param = param


class DeviceError(VtliteError):
    """The device that was asked for is missing, too old or out of memory."""

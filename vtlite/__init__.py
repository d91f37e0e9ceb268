"""vtlite: a pure-Python LLM inference engine whose kernels are readable Python."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("vtlite")
except PackageNotFoundError:      # run from a checkout that is not installed
    __version__ = "0+unknown"

_HOMES = {
    "LLM": "vtlite.engine.llm",
    "AsyncLLM": "vtlite.engine.async_llm",
    "SamplingParams": "vtlite.engine.sampling_params",
}
__all__ = ["LLM", "AsyncLLM", "SamplingParams", "__version__"]


def __getattr__(name: str):
    """Import the public classes on first use, so that `import vtlite` costs nothing."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'vtlite' has no attribute {name!r}")

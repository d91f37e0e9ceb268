"""vtlite: a pure-Python LLM inference engine whose kernels are readable Python."""

from importlib import import_module

_HOMES = {
    "LLM": "vtlite.engine.llm",
    "AsyncLLM": "vtlite.engine.async_llm",
    "SamplingParams": "vtlite.engine.sampling_params",
}
__all__ = ["LLM", "AsyncLLM", "SamplingParams", "__version__"]


def __getattr__(name: str):
    """Find the public classes and the version on first use, so that `import vtlite` costs nothing."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        return _version()
    raise AttributeError(f"module 'vtlite' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version("vtlite")
    except PackageNotFoundError:      # run from a checkout that is not installed
        return "0+unknown"

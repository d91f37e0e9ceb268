"""The op wing for NVIDIA GPUs: kernels in Python, one file per family, and the tools that compile, launch and emulate them.

Importing a kernel module imports no compiler and needs no GPU. FAMILIES names the modules that define kernels.
"""

from importlib import import_module
from importlib.util import find_spec

FAMILIES = ("bandwidth", "probes", "probe_arithmetic", "norm", "rope", "embed", "activation", "kv_cache", "sampling")


def all_kernels() -> list:
    """Every kernel of the package, by family and name."""
    from vtlite.cuda.kernel import KERNELS
    _families()
    return [kernel for name, kernel in sorted(KERNELS.items()) if name.startswith(f"{__name__}.")]


def all_specs() -> dict:
    """Every op's OpSpec by name."""
    return {spec.name: spec for family in _families() for spec in getattr(family, "SPECS", ())}


def _families() -> list:
    return [import_module(f"{__name__}.{family}") for family in FAMILIES if find_spec(f"{__name__}.{family}")]

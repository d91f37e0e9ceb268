"""The op wing for NVIDIA GPUs: kernels in Python, one file per family, and the tools that compile, launch and emulate them.

Importing a kernel module imports no compiler and needs no GPU. FAMILIES names the modules that define kernels.
"""

from importlib import import_module

FAMILIES = ("bandwidth", "tensor_rate", "probes", "probe_arithmetic", "norm", "rope", "embed", "activation",
            "kv_cache", "attention_inputs", "attention", "gdn", "sampling", "uniform", "linear", "same_bits")


def all_kernels() -> list:
    """Every kernel of the package, by family and name."""
    from vtlite.cuda.kernel import KERNELS
    _families()
    return [kernel for name, kernel in sorted(KERNELS.items()) if name.startswith(f"{__name__}.")]


def all_specs() -> dict:
    """Every op's OpSpec by name. TypeError for a family that does not say which it has."""
    specs = {}
    for family in _families():
        if not hasattr(family, "SPECS"):
            raise TypeError(f"{family.__name__} is one of FAMILIES and has no SPECS: list its OpSpecs there, () if its definition lies elsewhere")
        specs |= {spec.name: spec for spec in family.SPECS}
    return specs


def _families() -> list:
    return [import_module(f"{__name__}.{family}") for family in FAMILIES]

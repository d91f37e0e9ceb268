"""Which wing of the operations serves, and how much memory its KV cache may take."""

import os
from pathlib import Path

import numpy as np

from vtlite.errors import DeviceError

MOST_KV_BYTES = 4 << 30


def select_ops(device: str):
    """The operations module and activation type for "auto", "cpu", "cuda" or "reference"."""
    if device == "cuda":
        raise DeviceError("no model runs on a GPU yet, only kernels do (vtlite kernels); use --device cpu")
    if device == "reference":
        import vtlite.reference as ops
    else:
        import vtlite.cpu as ops
        from vtlite.cpu.compile_ahead import start_if_first_run
        start_if_first_run()
    return ops, np.dtype(np.float32)


def default_kv_cache_bytes() -> int:
    """A quarter of the memory that is free now, at most 4 GiB."""
    return min(available_bytes() // 4, MOST_KV_BYTES)


def available_bytes() -> int:
    """Memory that can be had without swapping, in bytes."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2        # no better figure on this system

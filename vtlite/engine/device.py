"""Which wing of the operations serves, on what, and how much memory its KV cache may take."""

import logging
import os
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from vtlite.engine.first_run import compile_ahead
from vtlite.engine.host_memory import available_bytes
from vtlite.errors import DeviceError

log = logging.getLogger(__name__)

MOST_KV_BYTES = 4 << 30
CPU_BATCHED_TOKENS, DEVICE_BATCHED_TOKENS = 512, 8192      # per step, where nobody says


@dataclass(frozen=True)
class Wing:
    """Operations, the type of the activations, and the device they run on: None = NumPy arrays in this process."""

    ops: ModuleType
    dtype: np.dtype
    device: Any = None

    @property
    def default_batched_tokens(self) -> int:
        return CPU_BATCHED_TOKENS if self.device is None else DEVICE_BATCHED_TOKENS


def select_wing(device: str) -> Wing:
    """The wing for "auto", "cpu", "cuda", "reference" or "sm_90"; auto takes a GPU that is there.

    DeviceError if "cuda" cannot be had; VTLITE_DEVICE says which GPU, or the emulator.
    """
    if device == "auto":
        device = "cuda" if gpu_is_there() else "cpu"
    if device == "cuda":
        from vtlite.cuda import device as devices, ops
        from vtlite.cuda.lang import bf16
        try:
            return Wing(ops, np.dtype(bf16), devices.current())
        except DeviceError as error:
            raise DeviceError(f"{error}; or leave the GPU out with --device cpu") from error
    if device == "sm_90":
        from vtlite.cuda import sm_90
        return Wing(sm_90, np.dtype(sm_90.bf16))
    if device == "reference":
        import vtlite.reference as ops
    else:
        compile_ahead()
        import vtlite.cpu as ops
    return Wing(ops, np.dtype(np.float32))


def cpu_threads() -> int:
    """Threads that share the work on a CPU."""
    from vtlite.cpu.cores import num_threads
    return num_threads()


def gpu_is_there() -> bool:
    """Whether a GPU can be opened here. Where something for it is installed but does not work, the log says what."""
    if os.environ.get("VTLITE_DEVICE") == "emulator" or find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return False
    from vtlite.cuda import device
    try:
        device.current()
        return True
    except DeviceError as error:
        log.info("running on the CPU: %s", error)
        return False


def let_cublas_help(device, option: str) -> None:
    """Prefill through the extra `cublas` from now on, or not: EngineConfig.cublas says which."""
    if device.name != "emulator":
        from vtlite.cuda.linear_cublas import open_cublas
        device.cublas = open_cublas(device) if option == "auto" else None


def default_kv_cache_bytes() -> int:
    """A quarter of the memory that is free now, at most 4 GiB."""
    return min(available_bytes() // 4, MOST_KV_BYTES)

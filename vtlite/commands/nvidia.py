"""What the NVIDIA driver says about itself and its devices, asked through libcuda alone: no package needed."""

import ctypes
import sys
from dataclasses import dataclass

DRIVER_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = 75, 76      # CUdevice_attribute
NO_DEVICE = 100                                                  # CUDA_ERROR_NO_DEVICE


class DriverError(Exception):
    """No driver, or one that does not work; the message says which."""


@dataclass(frozen=True)
class Device:
    name: str
    compute_capability: tuple[int, int]
    memory: int                                                  # bytes


def driver() -> tuple[tuple[int, int], list[Device]]:
    """The newest CUDA version that the driver can run, as (major, minor), and its devices. DriverError without one."""
    try:
        cuda = ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        raise DriverError(f"no NVIDIA driver ({DRIVER_LIBRARY} cannot be loaded)") from None
    status = cuda.cuInit(0)
    if status not in (0, NO_DEVICE):
        raise DriverError(f"the NVIDIA driver does not start (cuInit gives error {status})")
    version, count = ctypes.c_int(), ctypes.c_int()
    _check(cuda, "cuDriverGetVersion", ctypes.byref(version))
    if status != NO_DEVICE:
        _check(cuda, "cuDeviceGetCount", ctypes.byref(count))
    return (version.value // 1000, version.value % 1000 // 10), [_device(cuda, i) for i in range(count.value)]


def _device(cuda: ctypes.CDLL, index: int) -> Device:
    handle, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
    _check(cuda, "cuDeviceGet", ctypes.byref(handle), index)
    _check(cuda, "cuDeviceGetName", name, len(name), handle)
    _check(cuda, "cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
    capability = []
    for attribute in (COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR):
        value = ctypes.c_int()
        _check(cuda, "cuDeviceGetAttribute", ctypes.byref(value), attribute, handle)
        capability.append(value.value)
    return Device(name.value.decode(errors="replace"), tuple(capability), memory.value)


def _check(cuda: ctypes.CDLL, function: str, *arguments) -> None:
    status = getattr(cuda, function)(*arguments)
    if status:
        raise DriverError(f"the NVIDIA driver answers {function} with error {status}")

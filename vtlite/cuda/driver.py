"""The CUDA driver, through cuda.bindings: each call checked, each failure a sentence with the next action.

    context = check(cu.cuDevicePrimaryCtxRetain(device))

(needs the package cuda-bindings and NVIDIA's driver; nothing here needs a CUDA toolkit)
"""

from vtlite.errors import DeviceError

try:
    from cuda.bindings import driver as cu
except ImportError as missing:
    raise DeviceError(f'running on a GPU needs the package cuda-bindings, which is not installed ({missing}): '
                      'pip install "vtlite[gpu]", or set VTLITE_DEVICE=emulator') from missing

OLDEST_DRIVER = 12000                   # cuDriverGetVersion(): CUDA 12.0
NEXT_ACTION = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free memory on the device, or ask for less (a smaller model, fewer cache blocks, a shorter context)",
    "CUDA_ERROR_NO_DEVICE": "check nvidia-smi and CUDA_VISIBLE_DEVICES, or set VTLITE_DEVICE=emulator",
    "CUDA_ERROR_INVALID_DEVICE": "set VTLITE_DEVICE to the number of a device that nvidia-smi lists",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "reboot after the driver's update, so that kernel module and library agree",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the cubin is for another chip: remove the folder that VTLITE_CUBINS names, or compile for this one",
    "CUDA_ERROR_INVALID_CONTEXT": "call device.make_current() once in every thread that uses the device",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel left its arrays; run the same with VTLITE_DEVICE=emulator, which names the line",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a vector access is not aligned; run the same with VTLITE_DEVICE=emulator, which names the line",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "the kernel's registers or shared memory exceed the chip's: vtlite kernels list shows them",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "inside capture() nothing may wait for the device or copy to the host",
}


class OutOfMemory(DeviceError):
    """The device has not enough free memory."""


def check(result: tuple, doing: str = ""):
    """The values of a driver call, without its status: none, one, or a tuple. DeviceError if it failed."""
    status, *values = result
    if status != cu.CUresult.CUDA_SUCCESS:
        raise _error(status, doing)
    return values[0] if len(values) == 1 else tuple(values) or None


def initialise() -> int:
    """Start the driver and return its version (13000 is CUDA 13.0). DeviceError without one, or with one too old."""
    try:
        check(cu.cuInit(0), "starting the driver")
        version = check(cu.cuDriverGetVersion())
    except RuntimeError as error:           # cuda.bindings finds no libcuda
        raise DeviceError(f"there is no NVIDIA driver on this machine ({_first_line(error)}): install one, "
                          "or set VTLITE_DEVICE=emulator") from error
    if version < OLDEST_DRIVER:
        raise DeviceError(f"the NVIDIA driver is for CUDA {_version(version)}, vtlite needs {_version(OLDEST_DRIVER)}: update the driver")
    return version


def _error(status, doing: str) -> DeviceError:
    name = getattr(status, "name", str(status))
    text = cu.cuGetErrorString(status)[1]
    message = f"{doing or 'the CUDA driver'}: {text.decode() if isinstance(text, bytes) else text} ({name})"
    if name in NEXT_ACTION:
        message += f"; {NEXT_ACTION[name]}"
    return (OutOfMemory if name == "CUDA_ERROR_OUT_OF_MEMORY" else DeviceError)(message)


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

"""Which device kernels run on: a GPU, or the emulator. Both have the same face.

VTLITE_DEVICE says which: a number (an ordinal of the driver, default 0) or `emulator`. A device has

    name, chip ("sm_90a"), num_sms
    faults [1] u32: where a kernel notes an input that it must not trust, read after the step (see embed.check_ids)
    empty(shape, dtype)  zeros(shape, dtype)  array(ndarray)  -> an array in its memory
    step()  lasting()                                         contexts: arrays made in a step are temporaries, unless made in lasting()
    launch(specialized, grid, *args, shared=None)             one kernel on the current stream; arrays pass as pointers
    capture()  capturing                                      a context; the graph it gives has replay(). Whether it is open
    cublas                                                    None, or what may take linear layers over: linear_cublas.py
    start_download(array)                                     what wait() gives the bytes of, once all before it is done
    memory()  make_current()                                  (free, total) bytes; let the calling thread use the device
    synchronize()

and an array has shape, dtype, nbytes, size, ndim, numpy(), copy_from(ndarray), view(dtype), reshape(...), x[a:b], fill(byte).
"""

import contextlib
import os
from functools import cache

from vtlite.errors import DeviceError


_chosen = None                          # set by using()


def current():
    """The device of this process, opened at the first call."""
    return _chosen or open_device(os.environ.get("VTLITE_DEVICE", "0"))


@contextlib.contextmanager
def using(device):
    """Make a device the current one for a while."""
    global _chosen
    before, _chosen = _chosen, device
    try:
        yield device
    finally:
        _chosen = before


@cache
def open_device(name: str):
    """The device with this name: "emulator" or an ordinal. DeviceError with the next action if it cannot be had."""
    if name == "emulator":
        from vtlite.cuda.emulated_device import EmulatedDevice
        return EmulatedDevice()
    if not name.isdecimal():
        raise DeviceError(f"VTLITE_DEVICE is {name!r}; it must be a device's number, such as 0, or emulator")
    from vtlite.cuda.runtime import GpuDevice
    return GpuDevice(int(name))

"""What the driver's C interface answers, read right; a driver is not needed."""

import ctypes

import pytest

from vtlite.commands import nvidia
from vtlite.commands.nvidia import Device, DriverError, driver

HOPPER = {75: 9, 76: 0}


class Driver:
    """libcuda of a machine with some H200s, or one that answers `failing` with an error."""

    def __init__(self, count=2, failing=None, error=999):
        self.count, self.failing, self.error = count, failing, error

    def __getattr__(self, function):
        def call(*arguments):
            if function == self.failing:
                return self.error
            getattr(self, f"_{function}")(*(getattr(a, "_obj", a) for a in arguments))       # what byref points to
            return 0
        return call

    def _cuInit(self, flags): pass
    def _cuDriverGetVersion(self, version): version.value = 13020
    def _cuDeviceGetCount(self, count): count.value = self.count
    def _cuDeviceGet(self, handle, index): handle.value = index
    def _cuDeviceGetName(self, name, length, handle): name.value = f"NVIDIA H200 #{handle.value}".encode()[: length - 1]
    def _cuDeviceTotalMem_v2(self, memory, handle): memory.value = 139 << 30
    def _cuDeviceGetAttribute(self, value, attribute, handle): value.value = HOPPER[attribute]


def install(monkeypatch, library):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)


def test_devices_have_names_capabilities_and_memory(monkeypatch):
    install(monkeypatch, Driver())
    assert driver() == ((13, 2), [Device(f"NVIDIA H200 #{i}", (9, 0), 139 << 30) for i in range(2)])


def test_a_driver_without_devices_is_not_an_error(monkeypatch):
    install(monkeypatch, Driver(count=0))
    assert driver() == ((13, 2), [])
    install(monkeypatch, Driver(failing="cuInit", error=nvidia.NO_DEVICE))
    assert driver() == ((13, 2), [])


def test_a_missing_or_broken_driver_says_which(monkeypatch):
    monkeypatch.setattr(nvidia, "DRIVER_LIBRARY", "libcuda-that-is-not-there.so")
    with pytest.raises(DriverError, match=r"no NVIDIA driver \(libcuda-that-is-not-there.so cannot be loaded\)"):
        driver()
    install(monkeypatch, Driver(failing="cuInit", error=803))
    with pytest.raises(DriverError, match=r"does not start \(cuInit gives error 803\)"):
        driver()
    install(monkeypatch, Driver(failing="cuDeviceGetName"))
    with pytest.raises(DriverError, match="answers cuDeviceGetName with error 999"):
        driver()

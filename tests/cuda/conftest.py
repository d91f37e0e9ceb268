"""The device that a test of kernels runs on: the emulator with race detection, and with `-m gpu` a GPU."""

import pytest

from vtlite.cuda import device as devices

DEVICES = {"emulator": "emulator", "gpu": "0"}             # VTLITE_DEVICE


def marks(label: str):
    return pytest.mark.gpu if label == "gpu" else ()


@pytest.fixture
def device(request, monkeypatch):
    """Indirectly parametrised with a key of DEVICES."""
    monkeypatch.setenv("VTLITE_DEVICE", DEVICES[request.param])
    device = devices.current()
    if request.param == "emulator":
        monkeypatch.setattr(device, "races", True)
    return device


def pytest_generate_tests(metafunc):
    """A test that takes `device` runs on each; one that takes `op` as well does so from its own list."""
    if "device" in metafunc.fixturenames and "op" not in metafunc.fixturenames:
        metafunc.parametrize("device", [pytest.param(label, marks=marks(label)) for label in DEVICES], indirect=True)

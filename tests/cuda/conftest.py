"""The device that a test of kernels runs on: the emulator with race detection, and with `-m gpu` a GPU.

A GPU machine without a compiler has the cubins of `vtlite kernels compile --specs` and no others. So a test on the emulator
fails if it launches a kernel that those are without: on the GPU its twin could not run.
"""

from functools import cache

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
    if request.param == "gpu":
        yield device
        return
    monkeypatch.setattr(device, "races", True)
    launched, prepare = set(), device.prepare

    def note(specialized, *arguments, **options):
        launched.add(specialized)
        return prepare(specialized, *arguments, **options)

    monkeypatch.setattr(device, "prepare", note)
    yield device
    lacking = sorted(specialized.name for specialized in launched - compiled_ahead())
    assert not lacking, f"no OpSpec launches and no kernel prebuilds {', '.join(lacking)}: take the sizes of an OpSpec's case, or add them there"


@cache
def compiled_ahead() -> frozenset:
    """What `vtlite kernels compile --specs` compiles, but for the sizes of benches, which no test has."""
    from vtlite.cuda.prebuild import to_prebuild
    from vtlite.cuda.recorder import launched_by_specs
    return frozenset(to_prebuild()) | frozenset(launched_by_specs(("cases", "gpu_cases")))


def pytest_generate_tests(metafunc):
    """A test that takes `device` runs on each; one that takes `op` as well does so from its own list."""
    if "device" in metafunc.fixturenames and "op" not in metafunc.fixturenames:
        metafunc.parametrize("device", [pytest.param(label, marks=marks(label)) for label in DEVICES], indirect=True)

"""EngineConfig.cublas says whether a device may leave prefill to the extra `cublas`."""

from types import SimpleNamespace

import pytest

from vtlite.config import EngineConfig
from vtlite.cuda import linear_cublas
from vtlite.engine.device import let_cublas_help
from vtlite.errors import ConfigError


@pytest.mark.parametrize("name, option, expected", [("a GPU", "auto", "opened"), ("a GPU", "off", None), ("emulator", "auto", "before")])
def test_a_gpu_is_helped_unless_that_is_switched_off(monkeypatch, name, option, expected):
    monkeypatch.setattr(linear_cublas, "open_cublas", lambda device: "opened")
    device = SimpleNamespace(name=name, cublas="before")
    let_cublas_help(device, option)
    assert device.cublas == expected


def test_another_word_is_refused():
    with pytest.raises(ConfigError, match="cublas should be auto or off, found 'on'"):
        EngineConfig(cublas="on")

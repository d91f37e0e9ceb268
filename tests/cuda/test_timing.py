"""What bounds an op, and the table that `vtlite kernels time` prints of it."""

import numpy as np
import pytest

from vtlite.cli import main
from vtlite.cuda import device, tensor_rate, timing
from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.cuda.timing import Ceilings


@pytest.mark.parametrize("flops, matmul, expected", [
    (None, 800.0, ("bytes", 0.5)),                     # no flops to speak of
    (10**9, 800.0, ("bytes", 0.5)),                    # 1e9 in 1 ms: 1 TFLOP/s
    (600 * 10**9, 800.0, ("flops", 0.75)),             # 600 TFLOP/s, nearer to its ceiling
    (600 * 10**9, None, ("bytes", 0.5)),               # a chip whose tensor core is not measured
])
def test_the_nearer_ceiling_bounds(flops, matmul, expected):
    assert Ceilings(4.0, 4.2, matmul).share(1000.0, 2 * 10**9, flops) == expected


def test_rounds_of_the_tensor_core_compute_what_they_count(monkeypatch):
    gpu = EmulatedDevice()
    monkeypatch.setattr(gpu, "num_sms", 1)
    with device.using(gpu):
        out = gpu.zeros((256,), np.float32)
        assert tensor_rate.run_rounds(1, out=out) == 2 * 2 * 64 * 256 * 64
    totals = out.numpy()
    assert np.array_equal(totals[:128], totals[128:]) and np.isfinite(totals).all() and len(np.unique(totals)) > 64


def test_kernels_time_prints_the_rate_that_bounds(monkeypatch, capsys):
    gpu = EmulatedDevice()
    monkeypatch.setattr(gpu, "name", "a GPU", raising=False)
    monkeypatch.setattr(timing, "measure_ceilings", lambda gpu: Ceilings(4.0, 4.2, 800.0))
    rows = {"memory.copy": {"bytes": 3 * 10**9, "share": 0.75}, "sample": {"flops": 600 * 10**9, "share": 0.7511}}
    monkeypatch.setattr(timing, "time_op", lambda gpu, spec, case, ceilings: {"name": spec.name, "case": {}, "us": 1000.0, "ok": True, **rows[spec.name]})
    with device.using(gpu):
        assert main(["kernels", "time", "memory", "sample"]) == 0
    shown = capsys.readouterr().out
    assert "a GPU (sm_90a): copy 4.00 TB/s, read 4.20 TB/s, matmul 800 TFLOP/s" in shown
    assert "3000 GB/s" in shown and "600 TFLOP/s" in shown and "75%" in shown

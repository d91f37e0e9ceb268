"""A linear layer's outputs are one chain of tensor core steps each, whatever launch makes them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cuda.conftest import DEVICES, marks
from vtlite.cuda import linear as linear_room
from vtlite.cuda import linear_skinny, sm_90
from vtlite.cuda.activation import silu_and_mul
from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.cuda.lang import bf16, f32, u16
from vtlite.cuda.linear import SPECS, linear, linear_silu_and_mul
from vtlite.cuda.linear_epilogue import OUT_F32
from vtlite.cuda.linear_skinny import MOST_ROWS, linear_skinny_kernel
from vtlite.cuda.linear_tiled import linear_tiled_kernel
from vtlite.cuda.linear_wgmma import linear_wgmma_kernel
from vtlite.errors import DeviceError
from vtlite.opspec import Trial, case_name

LINEAR, PREFILL, GATED = SPECS
COLUMNS = 24                            # of the outputs of real sizes, what is checked
SMALL = 50_000                          # products
SHARED_ON_EVERY_CHIP = 99 << 10         # bytes that a block may have


def pytest_generate_tests(metafunc):
    """Every case on a GPU, those of many rows also by wgmma; on the emulator the small ones, with one that test_ops.py spares it."""
    if "op" in metafunc.fixturenames:
        cases = [(label, spec, case, wgmma) for label in DEVICES for spec in SPECS for case in (*spec.cases, *spec.gpu_cases)
                 for wgmma in (False, True) if label == "gpu" and (case["T"] > MOST_ROWS or not wgmma)
                 or case["T"] * case["N"] * case["K"] < SMALL and not wgmma]
        metafunc.parametrize("device, op", [
            pytest.param(label, (spec, case, wgmma), id=f"{spec.name}-{case_name(case)}{'-wgmma' * wgmma}-{label}", marks=marks(label))
            for label, spec, case, wgmma in cases], indirect=["device"])


def test_its_bits_are_those_of_the_chain(device, op, monkeypatch):
    spec, case, wgmma = op
    monkeypatch.setattr(linear_room, "WGMMA", wgmma)
    trial = Trial.of(device, spec, case)
    y, host = trial.run()["y"], dict(trial.host)
    columns = np.random.default_rng(0).permutation(case["N"])[:COLUMNS]
    rows = np.concatenate([columns, columns + case["N"]]) if spec is GATED else columns
    host |= {name: host[name][rows] for name in ("weight", "bias") if name in host}
    host |= {"residual": host["residual"][:, columns]} if "residual" in host else {}
    expected = sm_90.silu_and_mul(sm_90.linear(**host)) if spec is GATED else sm_90.linear(**host, out_dtype=y.dtype)
    assert np.array_equal(y[:, columns], expected)


def test_the_gated_epilogue_composes_of_linear_and_silu_and_mul(device):
    inputs = GATED.inputs({"T": 3, "N": 8, "K": 200})
    x, weight, bias = device.array(inputs["x"]), device.array(inputs["weight"]), device.array(inputs["weight"][:, 0].copy())
    fused = linear_silu_and_mul(x, weight, bias).numpy()
    assert np.array_equal(fused, silu_and_mul(linear(x, weight, bias)).numpy())


SKINNY = [(linear_skinny_kernel, dict(zip(linear_skinny.CONSTANTS, sizes)))
          for sizes in ((8, 24, 1, 3, 0, 128, 2, False), (16, 16, 1, 2, 0, 512, 3, False), (8, 16, 1, 1, 2, 256, 4, True),
                        (32, 24, 2, 1, 0, 256, 3, False), (32, 32, 1, 1, 1, 128, 2, True), (64, 16, 2, 1, 0, 128, 2, True))]
TILED = [(kernel, dict(zip(("TILE_T", "TILE_N", "WARPS_T", "WARPS_N", "STAGES", "GATED"), sizes)))
         for kernel, *sizes in ((linear_tiled_kernel, 16, 32, 1, 2, 2, False), (linear_tiled_kernel, 32, 16, 2, 1, 3, False),
                                (linear_tiled_kernel, 16, 32, 1, 2, 3, True), (linear_wgmma_kernel, 64, 32, 4, 1, 3, False),
                                (linear_wgmma_kernel, 64, 32, 4, 1, 2, True))]


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(SKINNY + TILED), st.integers(1, 32), st.integers(1, 20), st.integers(1, 32), st.integers(0, 99))
def test_no_kernel_no_constant_of_one_and_no_size_changes_a_bit(launch, T, N, eighths, seed):
    (kernel, sizes), K, device = launch, 8 * eighths, EmulatedDevice()
    gated = sizes["GATED"]
    grid = -(-N * (1 + gated) // sizes["TILE_N"])
    if kernel is linear_skinny_kernel:
        T = min(T, sizes["TILE_T"])
    else:
        grid = -(-T // sizes["TILE_T"]), grid
    host = LINEAR.make_inputs(np.random.default_rng(seed), T, N * (1 + gated), K)
    x, weight, y = device.array(host["x"]), device.array(host["weight"]), device.zeros((T, N), bf16 if gated else f32)
    device.launch(kernel.specialize(**sizes), grid, x, weight, weight, weight, y.view(u16), T, N, K, 0 if gated else OUT_F32)
    expected = sm_90.silu_and_mul(sm_90.linear(**host)) if gated else sm_90.linear(**host, out_dtype=f32)
    assert np.array_equal(y.numpy(), expected)


@pytest.mark.parametrize("T", [1, 16, 17, 64])
@pytest.mark.parametrize("N, gated", [(1, False), (1, True), (5120, False), (17408, True), (248320, False)])
def test_every_shape_of_few_rows_gets_a_kernel_that_is_compiled_ahead_and_runs_on_every_chip(T, N, gated):
    chosen = linear_skinny_kernel.specialize(**linear_skinny.chosen(T, N, gated))
    assert chosen.constants["TILE_T"] >= T and chosen in linear_skinny_kernel.to_prebuild()
    assert chosen.shared <= SHARED_ON_EVERY_CHIP


def test_what_does_not_fit_is_refused_with_the_numbers(device):
    x, weight = device.zeros((2, 64), bf16), device.zeros((3, 64), bf16)
    refused = [
        ((device.zeros((2, 72), bf16), weight), "x [2, 72] has 72 columns, weight [3, 64] has 64"),
        ((device.zeros((2, 12), bf16), device.zeros((3, 12), bf16)), "rows of 12 elements; .* K must be a multiple of 8"),
        ((x, weight, device.zeros((2,), bf16)), "bias has shape [2], expected [3]"),
        ((x, weight, None, device.zeros((3, 2), bf16)), "residual has shape [3, 2], expected [2, 3]"),
        ((x, weight, None, None, np.float64), "the output is float64, it can be bfloat16 or float32"),
    ]
    for arguments, message in refused:
        with pytest.raises(DeviceError, match=message.replace("[", r"\[").replace("]", r"\]")):
            linear(*arguments)

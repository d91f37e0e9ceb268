"""vtlite/cuda/gdn*.py: the arithmetic that gdn_arithmetic.py states, and bits that follow a sequence wherever it is computed.

The emulator runs one small case of each; the whole variety runs on gdn_arithmetic.py, and on a GPU.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from vtlite.cuda import gdn, gdn_arithmetic
from vtlite.cuda.device import open_device, using
from vtlite.cuda.gdn_scan import scan_kernel
from vtlite.cuda.gdn_plan import ChunkPlan, plan_chunks, plan_step
from vtlite.cuda.lang.types import bf16
from vtlite.errors import DeviceError

SMALL = {"Hk": 1, "Hv": 1, "K": 64, "V": 32}
REAL = [{"Hk": 4, "Hv": 8, "K": 64, "V": 64}, {"Hk": 2, "Hv": 6, "K": 128, "V": 128}]
BF16_STATE = {"bf16_state": True}
SPEC = {spec.name: spec for spec in gdn.SPECS}["gdn.prefill"]


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def plan_of(lengths, slots, starts=None, saved=None) -> ChunkPlan:
    starts = np.zeros(len(lengths), int) if starts is None else starts
    return plan_chunks(np.cumsum([0, *lengths]), np.array(lengths) + starts, np.array(slots), range(len(lengths)), saved)


def expected(op, host: dict, *rest) -> tuple[np.ndarray, np.ndarray]:
    """o and the states by gdn_arithmetic."""
    state, (_, Hv, _, V) = host["state"].copy(), host["state"].shape
    o = np.zeros((len(host["qkv"]), Hv, V), bf16)
    op(*(host[name] for name in ("qkv", "a", "b", "A_log", "dt_bias")), state, *rest, o)
    return o, state


def launched(device, op, host: dict, step: dict, **choices) -> tuple[np.ndarray, np.ndarray]:
    """o and the states by the kernels."""
    arrays = {name: device.array(value) for name, value in host.items()}
    step = {name: value.on(device) if isinstance(value, ChunkPlan) else device.array(value) for name, value in step.items()}
    _, Hv, _, V = host["state"].shape
    o = device.zeros((len(host["qkv"]), Hv, V), bf16)
    op(**arrays, **step, out=o, **choices)
    return o.numpy(), arrays["state"].numpy()


def assert_same(got, wanted) -> None:
    for name, ours, theirs in zip(("o", "state"), got, wanted):
        assert ours.tobytes() == theirs.tobytes(), name


def part(host: dict, rows: slice, state: np.ndarray) -> dict:
    return {name: value[rows] if name in ("qkv", "a", "b") else value for name, value in host.items()} | {"state": state}


# -- the kernels against the arithmetic

def test_a_decode_step_has_the_stated_arithmetic(device, rng):
    for dims, state in product([SMALL] if device.name == "emulator" else REAL, ({}, BF16_STATE)):
        host = gdn.random_inputs(rng, 5, 5, **dims, **state)
        rows, slots = np.array([4, 0, 2], np.int32), np.array([5, 1, 0])
        assert_same(launched(device, gdn.decode, host, {"token_rows": rows, "state_slots": slots}),
                    expected(gdn_arithmetic.decode, host, rows, slots))


def test_the_rest_of_a_prompt_gets_the_bits_that_it_has_in_the_whole_one(device, rng):
    """The expected bits are those of one pass over the whole prompt, and the state in between comes from there too."""
    for dims, rest in [(SMALL, 2)] if device.name == "emulator" else product(REAL, (1, 64, 300)):
        host = gdn.random_inputs(rng, 64 + rest, 1, **dims)
        o, state = expected(gdn_arithmetic.prefill, host, plan_of([64 + rest], [1], saved={(0, 64): 0}))
        later = part(host, slice(64, None), host["state"].copy())
        later["state"][1] = state[0]
        got, states = launched(device, gdn.prefill, later, {"plan": plan_of([rest], [1], [64])})
        assert np.array_equal(got.view(np.uint16), o[64:].view(np.uint16)) and np.array_equal(states[1], state[1])


def test_a_bf16_state_is_rounded_after_every_chunk(device, rng):
    """And kept as it was then, in a slot of its own."""
    for dims, tail in [(SMALL, 2)] if device.name == "emulator" else product(REAL, (1, 64, 300)):
        host = gdn.random_inputs(rng, 64 + tail, 2, **dims, **BF16_STATE)
        plan = plan_of([64 + tail], [1], saved={(0, 64): 2})
        assert_same(launched(device, gdn.prefill, host, {"plan": plan}), expected(gdn_arithmetic.prefill, host, plan))


def test_a_convolution_has_the_stated_arithmetic(device, rng):
    lengths, slots, C = [1, 70, 2, 130], [3, 0, 4, 2], 24
    starts = np.cumsum([0, *lengths])
    x, weight = rng.standard_normal((203, C)).astype(bf16), rng.standard_normal((4, C)).astype(np.float32)
    conv_state = rng.standard_normal((6, 3, C)).astype(bf16)
    y, state = np.zeros((203, C), bf16), conv_state.copy()
    for first, last, slot in zip(starts, starts[1:], slots):
        gdn_arithmetic.convolve(x, weight, state, slice(first, last), slot, y)
    state[5] = x[starts[3] + 125 : starts[3] + 128]
    out, on_device = device.zeros(y.shape, bf16), device.array(conv_state)
    plan = plan_of(lengths, slots, saved={(3, 128): 5})
    gdn.conv_chunks(device.array(x), device.array(weight), on_device, plan.on(device), out=out)
    assert_same((out.numpy(), on_device.numpy()), (y, state))
    gdn_arithmetic.convolve(x, weight, state, slice(7, 8), 2, y)
    rows, slots = device.array(np.array([7], np.int32)), device.array(np.array([2]))
    gdn.conv_step(device.array(x), device.array(weight), on_device, rows, slots, out=out)
    assert_same((out.numpy()[7], on_device.numpy()), (y[7], state))


@pytest.mark.gpu
def test_choices_of_speed_change_no_bit(rng):
    with using(open_device("0")) as gpu:
        for dims, state in product(REAL, ({}, BF16_STATE)):
            host, plan = gdn.random_inputs(rng, 500, 3, **dims, **state), plan_of([200, 236, 64], [2, 0, 1])
            wanted = expected(gdn_arithmetic.prefill, host, plan)
            compiled = {made.constants["WARPS"] for made in scan_kernel.to_prebuild() if made.constants["V"] == dims["V"]}
            for warps, stages in product(compiled, (1, 2)):
                assert_same(launched(gpu, gdn.prefill, host, {"plan": plan}, warps=warps, stages=stages), wanted)
            host = gdn.random_inputs(rng, 3, 3, **dims, **state)
            step = {"token_rows": np.arange(3, dtype=np.int32), "state_slots": np.array([1, 0, 3])}
            wanted = expected(gdn_arithmetic.decode, host, *step.values())
            for v_tile in (32, 64):
                assert_same(launched(gpu, gdn.decode, host, step, v_tile=v_tile), wanted)


# -- the whole variety, on arrays

@pytest.mark.parametrize("case, rounding", [
    ({"Hk": 1, "Hv": 2, "K": 64, "V": 64}, gdn.PREFILL_ROUNDING), ({"Hk": 1, "Hv": 1, "K": 128, "V": 128}, gdn.PREFILL_ROUNDING),
    ({"Hk": 1, "Hv": 2, "K": 64, "V": 64, **BF16_STATE}, 2.0**-8)],                # rounded twice on the way
    ids=["64", "128", "bf16 state"])
def test_a_prompt_gets_the_same_bits_at_every_cut_and_stays_near_its_definition(rng, case, rounding):
    """The worst of the units that the OpSpec counts errors in, over 150 tokens; then the prompt again, in two steps."""
    host = SPEC.inputs({"T": 150, "S": 1, **case})
    plan = ChunkPlan(host.pop("sequences"), host.pop("chunks"))
    o, state = expected(gdn_arithmetic.prefill, host, plan)
    assert replace(SPEC, intermediate=rounding).error({**host, **vars(plan)}, {"o": o, "state": state}) <= SPEC.tolerance
    slot = int(plan.sequences[0, 2])
    for cut in (64, 128):
        states = host["state"]
        for first, last in ((0, cut), (cut, 150)):
            piece = part(host, slice(first, last), states)
            found, states = expected(gdn_arithmetic.prefill, piece, plan_of([last - first], [slot], [first]))
            assert found.tobytes() == o[first:last].tobytes()
        assert states.tobytes() == state.tobytes()


# -- what is refused

def test_a_prompt_cut_off_the_grid_is_refused():
    with pytest.raises(DeviceError, match="sequence 1 of the step computes its prompt from position 60 on"):
        plan_of([3, 5], [0, 1], [64, 60])


def test_a_state_that_no_chunk_ends_at_cannot_be_kept():
    with pytest.raises(DeviceError, match="after 70 tokens are to be kept in slot 3, but no chunk"):
        plan_of([100], [0], saved={(0, 70): 3})


def test_generated_tokens_come_one_at_a_time():
    starts, ends, slots = np.array([0, 1, 3]), np.array([9, 66]), np.array([4, 5])
    plan = plan_step(starts, ends, slots, np.array([True, False]))
    assert plan.token_rows.tolist() == [0] and plan.state_slots.tolist() == [4]
    with pytest.raises(DeviceError, match="one generated token"):
        plan_step(starts, ends, slots, np.array([True, True]))


def test_sizes_that_the_kernels_do_not_have_are_refused(device, rng):
    host = gdn.random_inputs(rng, 1, 1, Hk=1, Hv=1, K=32, V=32)
    with pytest.raises(DeviceError, match=r"K of 64 or 128.*found a state \[2, 1, 32, 32\]"):
        launched(device, gdn.decode, host, {"token_rows": np.zeros(1, np.int32), "state_slots": np.zeros(1, np.int64)})

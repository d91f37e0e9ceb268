"""OpSpec and Trial notice what they are there to notice."""

import ml_dtypes
import numpy as np
import pytest

from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.opspec import GUARD, OpSpec, Trial, same_bits

BF16 = ml_dtypes.bfloat16


def doubling(launch=None, **changes) -> OpSpec:
    """y = 2 x on the host's view of an emulated array, or whatever `launch(x, y, buffer)` does instead."""
    def run(inputs, out):
        (launch or (lambda x, y: np.multiply(x, 2, out=y)))(inputs["x"]._host, out["y"]._host)

    return OpSpec(**{"name": "double", "cases": [{"T": 3}], "gpu_cases": [], "bench_cases": [],
                     "make_inputs": lambda rng, T: {"x": rng.standard_normal((T, 4)).astype(BF16)},
                     "outputs": lambda T: {"y": ((T, 4), BF16)}, "reference": lambda x: 2 * x, "launch": run,
                     "num_bytes": lambda T: 16 * T, "rows": ("x",), **changes})


def trial(spec: OpSpec) -> Trial:
    return Trial.of(EmulatedDevice(), spec, spec.cases[0])


def test_inputs_of_a_case_are_always_the_same():
    spec = doubling()
    assert same_bits(spec.inputs({"T": 3}), spec.inputs({"T": 3}))
    assert not same_bits(spec.inputs({"T": 3}), {"x": spec.inputs({"T": 4})["x"][:3]})


def test_a_right_rounding_has_at_most_one_unit_of_error():
    x = np.random.default_rng(0).standard_normal((100, 8))
    spec = doubling(reference=lambda x: x / 3)
    rounded = (x / 3).astype(BF16)
    assert 0.9 < spec.error({"x": x}, {"y": rounded}) <= 1
    assert spec.error({"x": x}, {"y": np.nextafter(rounded, BF16(np.inf))}) > 1.9


@pytest.mark.parametrize("got, true, error", [([np.nan], [np.nan], 0), ([np.nan], [1.0], np.inf), ([1.0], [np.nan], np.inf)])
def test_nan_belongs_where_the_definition_has_it(got, true, error):
    assert doubling(reference=lambda x: np.array(true)).error({"x": 0}, {"y": np.array(got, BF16)}) == error


def test_integers_must_be_equal():
    spec = doubling(reference=lambda x: np.array([1, 2]))
    assert spec.error({"x": 0}, {"y": np.array([1, 2])}) == 0 and spec.error({"x": 0}, {"y": np.array([1, 3])}) == np.inf


def test_an_output_that_was_not_written_is_poison():
    outputs = trial(doubling(lambda x, y: np.multiply(x[:2], 2, out=y[:2]))).run()
    assert np.isnan(outputs["y"][2]).all() and not np.isnan(outputs["y"][:2]).any()


@pytest.mark.parametrize("where", [GUARD - 1, -GUARD])
def test_a_touched_guard_is_noticed(where):
    checked = trial(doubling())
    checked.run()
    assert checked.guards_are_intact()
    checked.buffers["y"]._host[where] = 0
    assert not checked.guards_are_intact()


def test_a_row_alone_is_that_row():
    whole = trial(doubling())
    outputs = whole.run()
    assert same_bits(whole.row(1).run(), {"y": outputs["y"][1:2]})


def test_an_op_in_place_starts_from_its_input():
    spec = doubling(lambda x, y: np.add(y, x, out=y), in_place={"y": "x"})
    in_place = trial(spec)
    first = in_place.run()
    assert spec.error(in_place.host, first) <= 1 and same_bits(first, in_place.run())

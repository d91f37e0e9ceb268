"""What every op promises, driven by its OpSpec: its definition, and the same bits in every circumstance."""

from pathlib import Path

import numpy as np
import pytest

from tests.cuda.conftest import DEVICES, marks
from vtlite.cuda import all_specs
from vtlite.opspec import Trial, case_name, same_bits


RECORDED = np.load(Path(__file__).parents[1] / "golden" / "ops_h200.npz")          # by bench/record_ops.py


def pytest_generate_tests(metafunc):
    """The small cases on the emulator; those and real sizes on a GPU. A recording holds the small ones of the ops of its day."""
    specs = [spec for spec in all_specs().values() if spec.rows or "batch" not in metafunc.function.__name__]

    def cases(spec, label: str) -> list:
        if "recorded" in metafunc.function.__name__:
            return [case for case in spec.cases if f"{spec.name}/{case_name(case)}/inputs" in RECORDED]
        return [*spec.cases, *(spec.gpu_cases if label == "gpu" else ())]

    metafunc.parametrize("device, op", [
        pytest.param(label, (spec, case), id=f"{spec.name}-{case_name(case)}-{label}", marks=marks(label))
        for label in DEVICES for spec in specs for case in cases(spec, label)
    ], indirect=["device"])


@pytest.fixture
def trial(device, op):
    return Trial.of(device, *op)


def test_it_computes_its_definition_and_nothing_outside_its_output(trial):
    error = trial.spec.error(trial.host, trial.run())
    assert error <= trial.spec.tolerance
    assert trial.guards_are_intact()


def test_twice_in_a_row_and_in_a_graph_it_gives_the_same_bits(trial, monkeypatch):
    first = trial.run()
    assert same_bits(first, trial.run())
    graph = trial.graph()
    for replay in range(2):
        if trial.device.name == "emulator":
            monkeypatch.setattr(trial.device, "seed", replay)          # blocks and threads in another order
        trial.poison()
        graph.replay()
        assert same_bits(first, trial.results())


def test_a_row_alone_gives_the_bits_it_has_in_a_batch(trial):
    batch = trial.run()
    num_rows = len(trial.host[trial.spec.rows[0]])
    for row in sorted({0, num_rows // 2, num_rows - 1}):
        assert same_bits(trial.row(row).run(), {name: value[row : row + 1] for name, value in batch.items()})


def test_it_gives_the_recorded_bits_of_an_h200(trial):
    assert all(np.array_equal(RECORDED[name], value) for name, value in trial.recording().items())

"""What every op promises, driven by its OpSpec: its definition, and the same bits in every circumstance."""

import zlib

import numpy as np
import pytest

from tests.cuda.conftest import DEVICES, marks
from vtlite.cuda import activation, embed, kv_cache, norm, rope

SPECS = {spec.name: spec for family in (activation, embed, kv_cache, norm, rope) for spec in family.SPECS}
GUARD = 256                                        # bytes before and after each output
POISON = 0xFF                                      # NaN as bf16 and f32, -1 as an integer


def text(case) -> str:
    return ",".join(f"{name}={value}" for name, value in case.items())


def pytest_generate_tests(metafunc):
    """The small cases on the emulator; those and real sizes on a GPU."""
    if "op" in metafunc.fixturenames:
        specs = [spec for spec in SPECS.values() if spec.rows or "batch" not in metafunc.function.__name__]
        metafunc.parametrize("device, op", [
            pytest.param(label, (spec, case), id=f"{spec.name}-{text(case)}-{label}", marks=marks(label))
            for label in DEVICES for spec in specs for case in (*spec.cases, *(spec.gpu_cases if label == "gpu" else ()))
        ], indirect=["device"])


def make_inputs(spec, case) -> dict:
    return spec.make_inputs(np.random.default_rng(zlib.crc32(f"{spec.name} {text(case)}".encode())), **case)


class Run:
    """One op on one device: its inputs there, and outputs between guards."""

    def __init__(self, device, spec, inputs: dict, outputs: dict):
        self.device, self.spec, self.host = device, spec, inputs
        self.inputs = {name: device.array(value) if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
        self.buffers, self.out = {}, {}
        for name, (shape, dtype) in outputs.items():
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            self.buffers[name] = device.empty(size + 2 * GUARD, np.uint8)
            self.out[name] = self.buffers[name][GUARD : GUARD + size].view(dtype).reshape(*shape)
        self.poison()

    def poison(self) -> None:
        for name, buffer in self.buffers.items():
            buffer.fill(POISON)
            if name in self.spec.in_place:
                self.out[name].copy_from(self.host[self.spec.in_place[name]])

    def launch(self) -> dict[str, np.ndarray]:
        self.spec.launch(self.inputs, self.out)
        return self.results()

    def results(self) -> dict[str, np.ndarray]:
        self.device.synchronize()
        return {name: array.numpy() for name, array in self.out.items()}

    def guards(self) -> set[int]:
        return {int(byte) for buffer in self.buffers.values() for byte in np.r_[buffer.numpy()[:GUARD], buffer.numpy()[-GUARD:]]}


@pytest.fixture
def run(device, op):
    spec, case = op
    return Run(device, spec, make_inputs(spec, case), spec.outputs(**case))


def assert_same_bits(a: dict, b: dict) -> None:
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name


def test_it_computes_its_definition_and_nothing_outside_its_output(run):
    outputs = run.launch()
    assert run.spec.error(run.host, outputs) <= run.spec.tolerance
    assert run.guards() == {POISON}


def test_twice_in_a_row_and_in_a_graph_it_gives_the_same_bits(run):
    first = run.launch()
    run.poison()
    assert_same_bits(first, run.launch())
    with run.device.capture() as graph:
        run.spec.launch(run.inputs, run.out)
    for _ in range(2):
        run.poison()
        graph.replay()
        assert_same_bits(first, run.results())


def test_a_row_alone_gives_the_bits_it_has_in_a_batch(run, op):
    spec, case = op
    batch = run.launch()
    num_rows = len(run.host[spec.rows[0]])
    for row in sorted({0, num_rows // 2, num_rows - 1}):
        alone = {name: value[row : row + 1] if name in spec.rows else value for name, value in run.host.items()}
        outputs = {name: ((1, *value.shape[1:]), value.dtype) for name, value in batch.items()}
        got = Run(run.device, spec, alone, outputs).launch()
        assert_same_bits(got, {name: value[row : row + 1] for name, value in batch.items()})

"""Which kernels the OpSpecs launch, found by running them on a device that only takes notes.

A GPU machine without a compiler gets exactly these cubins for its tests and benches. (needs greenlet, as the emulator does)
"""

import numpy as np

from vtlite.cuda import all_specs
from vtlite.cuda.device import using
from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.cuda.kernel import Specialized


def launched_by_specs() -> list[Specialized]:
    """What the cases of all OpSpecs launch on a GPU, sizes for tests and benches included."""
    recorder = _Recorder()
    for spec in all_specs().values():
        for case in (*spec.cases, *spec.gpu_cases, *spec.bench_cases):
            recorder.follow(spec, case)
    return recorder.launched


class _Recorder(EmulatedDevice):
    """A device that only notes what would be launched."""

    def __init__(self):
        super().__init__()
        self.launched: list[Specialized] = []

    def launch(self, specialized, grid, *arguments, shared=None) -> None:
        if specialized not in self.launched:
            self.launched.append(specialized)

    def follow(self, spec, case) -> None:
        with using(self):
            inputs = spec.make_inputs(np.random.default_rng(0), **case)
            inputs = {name: self.array(value) if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
            spec.launch(inputs, {name: self.empty(shape, dtype) for name, (shape, dtype) in spec.outputs(**case).items()})

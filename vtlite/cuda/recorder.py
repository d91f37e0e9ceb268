"""Which kernels the OpSpecs launch: found by running them on a device that only takes notes. (Those of a model:
vtlite/engine/model_kernels.py.)

A GPU machine without a compiler gets exactly these cubins for its tests and benches, besides what the kernels' files prebuild.
(needs greenlet, as the emulator does)
"""

from collections.abc import Sequence

import numpy as np

from vtlite.cuda import all_specs
from vtlite.cuda.device import using
from vtlite.cuda.emulated_device import DeviceArray, EmulatedDevice
from vtlite.cuda.kernel import Specialized

ENOUGH = 1 << 40                                   # bytes
KINDS = ("cases", "gpu_cases", "bench_cases")      # of an OpSpec


def launched_by_specs(kinds: Sequence[str] = KINDS) -> list[Specialized]:
    """What the cases of all OpSpecs launch on a GPU, sizes for tests and benches included."""
    recorder = Recorder()
    for spec in all_specs().values():
        for case in (case for kind in kinds for case in getattr(spec, kind)):
            recorder.follow(spec, case)
    return recorder.launched


class Recorder(EmulatedDevice):
    """A device that only notes what would be launched. Its arrays are zeros, and keep nothing."""

    def __init__(self):
        super().__init__()
        self.launched: list[Specialized] = []

    def memory(self) -> tuple[int, int]:
        return ENOUGH, ENOUGH

    def zeros(self, shape, dtype) -> DeviceArray:
        return self.empty(shape, dtype)                # they are

    def launch(self, specialized, grid, *arguments, shared=None) -> None:
        if specialized not in self.launched:
            self.launched.append(specialized)

    def follow(self, spec, case) -> None:
        with using(self):
            inputs = spec.make_inputs(np.random.default_rng(0), **case)
            inputs = {name: self.array(value) if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
            spec.launch(inputs, {name: self.empty(shape, dtype) for name, (shape, dtype) in spec.outputs(**case).items()})

    def _array(self, shape, dtype, data) -> DeviceArray:
        host = np.zeros(shape, dtype)                  # memory that nobody touches costs nothing
        return DeviceArray(_Untouched(host), host)


class _Untouched:
    """What an array asks of its memory, where no kernel runs."""

    def __init__(self, host: np.ndarray):
        self.data = host.reshape(-1).view(np.uint8)

    def mark_written(self, first: int, size: int) -> None:
        """Nobody reads it."""

"""OpSpec: what is known of an operation besides its code. Tests, benches, recordings and documents are driven by it.

From one OpSpec an op gets, on the emulator and on a GPU: a comparison with its definition, twice the same bits, each row
alone the same bits as in a batch, a graph's bits equal to a plain launch's, guard bytes around its outputs untouched, and its
share of the memory ceiling. `Trial` runs one case on a device. (leaf)
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Case = Mapping[str, int | bool]          # sizes by name: {"T": 3, "D": 64}
Arrays = Mapping[str, Any]               # inputs by name: NumPy arrays or device arrays, and plain numbers

F32_ROUNDING = 2.0**-22                  # what float32 intermediates may add, of a row's largest value
GUARD = 256                              # bytes before and after each output of a Trial
POISON = 0xFF                            # every output byte before a launch: NaN as bf16 and f32, -1 as an integer


@dataclass(frozen=True)
class OpSpec:
    """One operation.

    `launch(inputs, out)` runs it with device arrays: `inputs` as make_inputs names them, `out` as `outputs` does.
    """

    name: str                                                    # "norm.rms_norm": the row names of benches
    cases: Sequence[Case]                                        # small: they run on the emulator too
    gpu_cases: Sequence[Case]                                    # sizes of real models, and awkward ones
    bench_cases: Sequence[Case]                                  # 64 MB and more
    make_inputs: Callable[..., dict]                             # (rng, **case) -> inputs on the host
    outputs: Callable[..., dict[str, tuple]]                     # (**case) -> {name: (shape, dtype)}
    reference: Callable[..., Any]                                # (**inputs) -> the output, or a tuple as `outputs` has them
    launch: Callable[[Arrays, Arrays], Any]
    num_bytes: Callable[..., int]                                # (**case): read and written, each byte once
    rows: Sequence[str] = ()                                     # inputs whose first axis is the outputs' first axis
    in_place: Mapping[str, str] = field(default_factory=dict)    # output -> input whose values it starts with
    flops: Callable[..., int] | None = None                      # (**case), for what arithmetic bounds
    tolerance: float = 1.01                                      # largest error, see `error`; a right rounding has 1
    intermediate: float = F32_ROUNDING                           # of a row's largest value: what roundings inside may add

    def inputs(self, case: Case) -> dict:
        """The inputs of a case, the same at every call and on every machine."""
        return self.make_inputs(np.random.default_rng(zlib.crc32(f"{self.name} {case_name(case)}".encode())), **case)

    def error(self, inputs: Arrays, outputs: Mapping[str, np.ndarray]) -> float:
        """The largest error of `outputs` against the definition in float64, in units of expected rounding.

        The unit is half a spacing of the output's type at the true value, plus `intermediate` of the largest value in the row.
        """
        wide = {name: value.astype(np.float64) if _is_float_array(value) else value for name, value in inputs.items()}
        expected = self.reference(**wide)
        expected = expected if isinstance(expected, tuple) else (expected,)
        return max(_largest_error(got, true, self.intermediate) for got, true in zip(outputs.values(), expected))


class Trial:
    """One op on one device: inputs there, and outputs full of poison between guards."""

    def __init__(self, device, spec: OpSpec, inputs: Arrays, outputs: Mapping[str, tuple], name: str = ""):
        self.device, self.spec, self.host, self.name = device, spec, inputs, name
        self.inputs = {name: device.array(value) if isinstance(value, np.ndarray) else value
                       for name, value in inputs.items()}
        self.buffers, self.out = {}, {}
        for name, (shape, dtype) in outputs.items():
            shape = (shape,) if isinstance(shape, int) else shape
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            self.buffers[name] = device.empty(size + 2 * GUARD, np.uint8)
            self.out[name] = self.buffers[name][GUARD : GUARD + size].view(dtype).reshape(*shape)
        self.poison()

    @classmethod
    def of(cls, device, spec: OpSpec, case: Case) -> "Trial":
        return cls(device, spec, spec.inputs(case), spec.outputs(**case), f"{spec.name}/{case_name(case)}")

    def poison(self) -> None:
        """Make the outputs as if nothing had run."""
        for name, buffer in self.buffers.items():
            buffer.fill(POISON)
            if name in self.spec.in_place:
                self.out[name].copy_from(self.host[self.spec.in_place[name]])

    def run(self) -> dict[str, np.ndarray]:
        """Launch once, from poisoned outputs; the outputs on the host."""
        self.poison()
        self.spec.launch(self.inputs, self.out)
        return self.results()

    def graph(self):
        """The launch as a graph."""
        with self.device.capture() as graph:
            self.spec.launch(self.inputs, self.out)
        return graph

    def results(self) -> dict[str, np.ndarray]:
        self.device.synchronize()
        return {name: array.numpy() for name, array in self.out.items()}

    def row(self, index: int) -> "Trial":
        """The same op on one row of the inputs alone."""
        alone = {name: value[index : index + 1] if name in self.spec.rows else value for name, value in self.host.items()}
        return Trial(self.device, self.spec, alone, {name: ((1, *x.shape[1:]), x.dtype) for name, x in self.out.items()})

    def recording(self) -> dict[str, np.ndarray]:
        """What one run gives, by names that a file can hold: the outputs' bytes, and a checksum of the inputs."""
        outputs = {f"{self.name}/{name}": np.frombuffer(value.tobytes(), np.uint8) for name, value in self.run().items()}
        return {f"{self.name}/inputs": np.array(checksum(self.host), np.uint32), **outputs}

    def guards_are_intact(self) -> bool:
        hosts = [buffer.numpy() for buffer in self.buffers.values()]
        return all((x[:GUARD] == POISON).all() and (x[-GUARD:] == POISON).all() for x in hosts)


def case_name(case: Case) -> str:
    """T=3,D=64"""
    return ",".join(f"{name}={value}" for name, value in case.items())


def checksum(inputs: Arrays) -> int:
    """CRC-32 of the arrays' bytes: inputs come from NumPy's generators, which a new NumPy may change."""
    total = 0
    for value in inputs.values():
        if isinstance(value, np.ndarray):
            total = zlib.crc32(value.tobytes(), total)
    return total


def same_bits(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> bool:
    return all(a[name].tobytes() == b[name].tobytes() for name in a)


def _largest_error(got: np.ndarray, true: np.ndarray, intermediate: float) -> float:
    if not _is_float_array(got):
        return 0.0 if np.array_equal(got, true) else np.inf
    if not np.array_equal(np.isnan(got), np.isnan(true)):
        return np.inf
    true, wide = np.nan_to_num(true), np.nan_to_num(got.astype(np.float64))
    half_spacing = np.abs(np.spacing(np.abs(true).astype(got.dtype)).astype(np.float64)) / 2
    unit = half_spacing + intermediate * np.abs(true).max(axis=-1, keepdims=True, initial=0)
    return float((np.abs(wide - true) / unit).max(initial=0))


def _is_float_array(value) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind not in "iub"

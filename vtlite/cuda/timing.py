"""How fast kernels are: the time of an op by graph replay, beside the memory ceiling measured in the same run.

One row per op and case, in the form that every bench writes:

    {"name", "case", "us", "bytes" or "flops", "share" (of the ceiling), "ok" (checked against the definition in the same run)}

A row has flops where the tensor core's ceiling is the nearer one, bytes where memory's is.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from vtlite.cuda import bandwidth, tensor_rate
from vtlite.opspec import Case, OpSpec

CEILING_BYTES = 1 << 30
CEILING_ROUNDS = 2000                   # about a millisecond
LARGER_THAN_L2 = 256 << 20              # what the arrays of one graph hold together, at least


@dataclass(frozen=True)
class Ceilings:
    """Terabytes per second of this device, and 10^12 operations on bf16 by its tensor core, now."""

    copy_tbps: float                    # read and written
    read_tbps: float
    matmul_tflops: float | None = None  # None: not measured on this chip

    def share(self, us: float, num_bytes: int, flops: int | None) -> tuple[str, float]:
        """What bounds work that took so long, "bytes" or "flops", and the share of that ceiling that was reached."""
        of_copy = num_bytes / us / 1e6 / self.copy_tbps
        of_matmul = flops / us / 1e6 / self.matmul_tflops if flops and self.matmul_tflops else 0.0
        return ("flops", of_matmul) if of_matmul > of_copy else ("bytes", of_copy)


def time_kernel(device, launches: list[Callable[[], object]], repeats: int = 20) -> float:
    """Median microseconds of one launch, by replays of a graph that holds them all.

    Give several launches over different buffers, together larger than the L2 cache, so that none finds its data there.
    """
    for launch in launches:
        launch()                                # kernels load, and fail if they must, outside the capture
    device.synchronize()
    with device.capture() as graph:
        for launch in launches:
            launch()
    times = []
    for _ in range(repeats):
        graph.replay()                          # keeps the device busy until the timed one is queued
        times.append(device.elapsed_us(graph.replay))
    return statistics.median(times) / len(launches)


def measure_ceilings(device) -> Ceilings:
    """Copy and read rates over 1 GiB; and of the tensor core, where a kernel for it runs."""
    x, y = (device.zeros((CEILING_BYTES // 4,), np.uint32) for _ in range(2))
    copy_us = time_kernel(device, [lambda: bandwidth.copy(x, out=y), lambda: bandwidth.copy(y, out=x)])
    read_us = time_kernel(device, [lambda: bandwidth.read(x), lambda: bandwidth.read(y)])
    matmul_tflops = None
    if tensor_rate.tensor_rate_kernel.specialize().runs_on(device.chip):
        out = device.empty((device.num_sms * tensor_rate.THREADS,), np.float32)
        flops = tensor_rate.run_rounds(CEILING_ROUNDS, out=out)
        matmul_tflops = flops / time_kernel(device, [lambda: tensor_rate.run_rounds(CEILING_ROUNDS, out=out)]) / 1e6
    return Ceilings(2 * CEILING_BYTES / copy_us / 1e6, CEILING_BYTES / read_us / 1e6, matmul_tflops)


def time_op(device, spec: OpSpec, case: Case, ceilings: Ceilings) -> dict:
    """The row of one op and case."""
    host = spec.make_inputs(np.random.default_rng(crc32(spec.name.encode())), **case)
    outputs = spec.outputs(**case)
    num_bytes = spec.num_bytes(**case)
    sets = [_place(device, spec, host, outputs) for _ in range(max(2, math.ceil(LARGER_THAN_L2 / num_bytes)))]
    inputs, out = sets[0]
    spec.launch(inputs, out)
    ok = spec.error(host, {name: array.numpy() for name, array in out.items()}) <= spec.tolerance
    us = time_kernel(device, [lambda inputs=inputs, out=out: spec.launch(inputs, out) for inputs, out in sets])
    work = {"bytes": num_bytes, "flops": spec.flops(**case) if spec.flops else None}
    bound, share = ceilings.share(us, num_bytes, work["flops"])
    return {"name": spec.name, "case": dict(case), "us": round(us, 3), bound: work[bound], "share": round(share, 4), "ok": bool(ok)}


def _place(device, spec: OpSpec, host: dict, outputs: dict) -> tuple[dict, dict]:
    """One set of device arrays: inputs, and outputs with the contents that an op in place starts from."""
    inputs = {name: device.array(value) if isinstance(value, np.ndarray) else value for name, value in host.items()}
    out = {name: device.array(host[spec.in_place[name]]) if name in spec.in_place else device.empty(shape, dtype)
           for name, (shape, dtype) in outputs.items()}
    return inputs, out

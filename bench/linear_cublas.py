"""Prefill's linear layers through cuBLASLt, the extra `cublas`: its speed beside torch's, its bits beside ours, in one run.

Rows, run by bench/gpu_checks.py: linear.bf16.prefill.cublas, for the shapes and rows of linear.bf16.prefill, with torch's beside
each; and linear.bf16.prefill.cublas.residual and .gated with our kernel's time beside. A row is ok if the class is used and every
output has the bits of our kernel. Nothing is measured without the extra.

    python -m bench.linear_cublas [--rows 256 1024 4096 8192]

prints for each shape what the library offers: each algorithm's tile, stages, splits, time, and how many outputs differ from ours.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec

from bench.linear_bf16 import MANY, PREFILL, SEED, Layer, torch_linear
from vtlite.cuda import cublas_record, device, linear_cublas
from vtlite.cuda.cublas_lt import Algorithm, CublasLt, Product
from vtlite.cuda.lang import bf16
from vtlite.cuda.linear import launch, linear, linear_silu_and_mul
from vtlite.cuda.linear_cublas import Inputs, open_cublas
from vtlite.cuda.same_bits import count_differing
from vtlite.cuda.timing import LARGER_THAN_L2, Ceilings, time_kernel
from vtlite.cuda.uniform import uniform

NAME = "linear.bf16.prefill.cublas"
CASES = [(T, layer, "plain") for layer in PREFILL for T in MANY]
CASES += [(T, layer, kind) for layer, kind in ((Layer(5120, 17408), "residual"), (Layer(4096, 4096), "residual"),
                                               (Layer(12288, 4096, True), "gated")) for T in (300, 1024, 8192)]
SHOWN = {"ID": "", "TILE_ID": "MatmulTile", "STAGES_ID": "MatmulStages", "CLUSTER_SHAPE_ID": "ClusterShape", "CTA_SWIZZLING": "",
         "CUSTOM_OPTION": "", "SPLITK_NUM": "", "REDUCTION_SCHEME": "ReductionScheme"}         # attribute -> its enumeration


def checks(gpu) -> dict[str, list[Callable[[Ceilings], list[dict]]]]:
    """Group -> checks, as gpu_checks.groups has them."""
    if find_spec("nvmath") is None:
        return {}
    return {NAME: [lambda ceilings, case=case: measure(gpu, ceilings, *case) for case in CASES]}


def measure(gpu, ceilings: Ceilings, T: int, layer: Layer, kind: str) -> list[dict]:
    N, K, gated = layer
    rows = N * (1 + gated)
    num_bytes, flops = 2 * (rows * K + T * K + T * N * (1 + (kind == "residual"))), 2 * T * rows * K
    sets = max(2, -(-LARGER_THAN_L2 // (2 * rows * K)))
    x, y, expected = uniform((T, K), SEED, 0.0, 1.0), gpu.zeros((T, N), bf16), gpu.zeros((T, N), bf16)
    residual = uniform((T, N), SEED, 0.0, 1.0) if kind == "residual" else None
    weights = [uniform((rows, K), SEED + 1 + i, 0.0, 0.05) for i in range(sets)]

    def run(weight) -> None:
        linear_silu_and_mul(x, weight, out=y) if gated else linear(x, weight, None, residual, out=y)

    def row(what: str) -> dict:
        us = time_kernel(gpu, [lambda weight=weight: run(weight) for weight in weights])
        bound, share = ceilings.share(us, num_bytes, flops)
        return {"name": name, "case": case | {"what": what}, "us": round(us, 2), "bytes": num_bytes, "flops": flops, "bound": bound,
                "share": round(share, 4), "ok": True}

    name, case = NAME + f".{kind}" * (kind != "plain"), {"T": T, "N": N, "K": K, "gated": gated}
    launch(x, weights[0], None, residual, expected, gated)
    gpu.cublas = open_cublas(gpu)
    try:
        run(weights[0])
        differing = int(count_differing(y, expected).numpy().sum())
        problem = problem_of(gpu, linear_cublas.Layer(rows, K, kind), T)
        made = row("cublas") | {"ok": not problem and not differing, "differing": differing} | ({"problem": problem} if problem else {})
    finally:
        gpu.cublas = None
    return [made] + (torch_linear(x, weights, case) if kind == "plain" else [row("ours")])


def problem_of(gpu, layer: linear_cublas.Layer, T: int) -> str:
    """Why our kernel was timed instead; empty if it was not."""
    if gpu.cublas is None:
        return cublas_record.read()["problem"]
    found = [c for c in gpu.cublas.classes if c.items() >= layer._asdict().items() and c["most_rows"] // 2 < T <= c["most_rows"]]
    return found[0]["why"] if found else "the class was not met"


def survey(gpu, all_rows: list[int]) -> Iterator[str]:
    """A line for each algorithm; with the workspace that vtlite gives, with none, and those that may split sums."""
    library, without = CublasLt(gpu), CublasLt(gpu, workspace_bytes=0)
    yield f"{gpu.name}, cuBLASLt {library.version}"
    for layer in PREFILL:
        for T in all_rows:
            inputs = Inputs(gpu, linear_cublas.Layer(layer.N, layer.K, "plain"), T)
            yield f"{T} x {layer.N} x {layer.K}: ours {time_kernel(gpu, [lambda: ours(inputs)], repeats=5):.1f} us"
            for what, source, may_split in (("", library, False), ("no workspace", without, False), ("may split", library, True)):
                product = Product(source, layer.N, layer.K, may_split)
                try:
                    for algorithm in product.algorithms(T):
                        if algorithm.splits_sums == may_split:
                            yield f"    {line(gpu, library.lt, inputs, product, algorithm, T)}  {what}"
                except source.Error as error:
                    yield f"    {what or 'as asked'}: {error}"


def ours(inputs: Inputs) -> None:
    launch(inputs.x, inputs.weight, None, None, inputs.expected, False)


def line(gpu, lt, inputs: Inputs, product: Product, algorithm: Algorithm, T: int) -> str:
    def compute(x, weight, residual, y) -> None:
        product.run(algorithm, x, weight, residual, y)

    values = {}
    for name, names in SHOWN.items():
        try:
            value = algorithm.attribute(name)
            values[name] = getattr(lt, names)(value).name if names else value
        except ValueError:              # the library is newer than the names
            values[name] = value
    text = ", ".join(f"{name.lower().removesuffix('_id')} {value}" for name, value in values.items())
    try:
        differing = inputs.count_differing(T, compute)
        us = time_kernel(gpu, [lambda: compute(inputs.x, inputs.weight, None, inputs.y)], repeats=5)
    except Exception as error:          # the next one may run
        return f"{text}: {type(error).__name__}: {error}"
    return f"{us:8.1f} us, {differing:10,d} differ, workspace {algorithm.workspace_bytes:,d}: {text}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[256, *MANY])
    args = parser.parse_args()
    for text in survey(device.current(), args.rows):
        print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

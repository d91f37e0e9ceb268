"""Linear layers in bf16 on a GPU: how near few rows come to the copy ceiling, many rows to the tensor core's, and torch beside them.

Rows, run by bench/gpu_checks.py: linear.bf16 and linear.silu_and_mul (up to 64 rows) and linear.bf16.prefill, for each shape as
the op launches it, then, for some, with other constants of the kernels; peer.torch.linear if torch can be imported (torch.mv for one row; of
silu_and_mul the product alone). Weights are drawn on the device, in several sets where one would stay in L2. A row is ok if
outputs of what was timed have the chain's bits.

    python -m bench.linear_bf16 --chip sm_90a --out FOLDER          compiles the other constants' kernels, where there is a compiler
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bench import variants
from bench.peers import graph_us
from vtlite.cuda import linear_skinny, linear_tiled, linear_wgmma, sm_90
from vtlite.cuda.kernel import Specialized
from vtlite.cuda.lang import bf16, u16
from vtlite.cuda.linear import linear, linear_silu_and_mul
from vtlite.cuda.timing import LARGER_THAN_L2, Ceilings, time_kernel
from vtlite.cuda.uniform import uniform


class Layer(NamedTuple):
    N: int                              # outputs
    K: int
    gated: bool = False


LAYERS = [Layer(*sizes) for sizes in (
    (1024, 5120), (5120, 5120), (17408, 5120),
    (6144, 4096), (4096, 4096), (12288, 4096, True), (4096, 12288), (151936, 4096),                         # Qwen3-8B
    (12352, 2560), (2560, 4096), (9216, 2560, True), (2560, 9216), (248320, 2560),                          # Qwen3.5-4B
    (16480, 5120), (5120, 6144), (14336, 5120), (17408, 5120, True), (5120, 17408), (248320, 5120))]        # Qwen3.6-27B
OTHERS = {                              # tokens -> layer -> changes of the constants that the op chooses
    1: {Layer(1024, 5120): ({"COPIERS": 4},), Layer(248320, 5120): ({"STAGES": 3},)},
    32: {Layer(5120, 17408): ({"WARPS_T": 2, "WARPS_N": 1},), Layer(4096, 4096): ({"WARPS_T": 1, "WARPS_N": 2},)},
    64: {Layer(5120, 17408): ({"WARPS_T": 2},)}}
FEW = {1: LAYERS, 8: [*LAYERS[:3], *LAYERS[-2:]], 16: LAYERS, 32: LAYERS, 64: LAYERS}            # tokens -> layers
PREFILL = [Layer(*sizes) for sizes in ((17408, 5120), (5120, 17408), (5120, 5120), (4096, 4096), (1024, 5120))]
MANY = (1024, 4096, 8192)
CHECKED = 16                            # outputs of each of four tokens
SEED = 7


def checks(gpu) -> dict[str, list[Callable[[Ceilings], list[dict]]]]:
    """Group -> checks, as gpu_checks.groups has them."""
    return {
        "linear.bf16": [lambda ceilings, T=T, layer=layer: measure(gpu, ceilings, T, layer)
                        for T, layers in FEW.items() for layer in layers],
        "linear.bf16.prefill": [lambda ceilings, T=T, layer=layer: measure(gpu, ceilings, T, layer) for layer in PREFILL for T in MANY],
    }


def others(T: int, layer: Layer) -> dict[str, Specialized]:
    """Kernels with constants that the op does not choose, by what is different."""
    if T > linear_skinny.MOST_ROWS:
        mma = {"mma 128x256": linear_tiled.linear_tiled_kernel.specialize(**linear_tiled.LARGE)}
        return mma | {f"wgmma {tile['TILE_T']}x{tile['TILE_N']}": linear_wgmma.linear_wgmma_kernel.specialize(**tile)
                      for tile in (linear_wgmma.LARGE, linear_wgmma.MEDIUM, linear_wgmma.SMALL)}
    base = linear_skinny.chosen(T, layer.N, layer.gated)
    return {", ".join(f"{name} {value}" for name, value in change.items()):
            linear_skinny.linear_skinny_kernel.specialize(**base | change) for change in OTHERS.get(T, {}).get(layer, ())}


def measure(gpu, ceilings: Ceilings, T: int, layer: Layer) -> list[dict]:
    N, K, gated = layer
    name = "linear.bf16.prefill" if T > linear_skinny.MOST_ROWS else "linear.silu_and_mul" if gated else "linear.bf16"
    weight_rows = N * (1 + gated)
    num_bytes, flops = 2 * (weight_rows * K + T * K + T * N), 2 * T * weight_rows * K
    sets = max(2, -(-LARGER_THAN_L2 // (2 * weight_rows * K)))
    x, y = uniform((T, K), SEED, 0.0, 1.0), gpu.zeros((T, N), bf16)
    weights = [uniform((weight_rows, K), SEED + 1 + i, 0.0, 0.05) for i in range(sets)]
    tokens, outputs, expected = some_outputs(x, weights[0], layer)

    def row(what: str, launch: Callable) -> dict:
        y.fill(0xFF)
        launch(weights[0])
        found = np.concatenate([y[t : t + 1].numpy() for t in tokens])[:, outputs]
        launches = [lambda weight=weight: launch(weight) for weight in weights]
        us = time_kernel(gpu, launches)
        made = {"name": name, "case": {"T": T, "N": N, "K": K, "gated": gated, "what": what}, "us": round(us, 2)}
        bound, share = ceilings.share(us, num_bytes, flops)
        return made | {"bytes": num_bytes, "flops": flops, "bound": bound, "share": round(share, 4),
                       "ok": bool(np.array_equal(found, expected))}

    op = linear_silu_and_mul if gated else linear
    rows = [row("linear", lambda weight: op(x, weight, out=y))]
    rows += [row(what, lambda weight, kernel=kernel: launch_with(gpu, kernel, x, weight, y)) for what, kernel in others(T, layer).items()]
    return rows + torch_linear(x, weights, {"T": T, "N": N, "K": K, "gated": gated})


def launch_with(gpu, kernel: Specialized, x, weight, y) -> None:
    (T, K), N, sizes = x.shape, y.shape[1], kernel.constants
    grid = -(-len(weight) // sizes["TILE_N"])
    if T > linear_skinny.MOST_ROWS:
        grid = -(-T // sizes["TILE_T"]), grid
    gpu.launch(kernel, grid, x, weight, weight, weight, y.view(u16), T, N, K, 0)


def some_outputs(x, weight, layer: Layer) -> tuple[list[int], list[int], np.ndarray]:
    """Some tokens and outputs, those at the edges among them, and the bits of their chains."""
    rng = np.random.default_rng(SEED)
    tokens, outputs = (sorted({0, n - 1, *rng.integers(0, n, k).tolist()}) for n, k in ((len(x), 2), (layer.N, CHECKED - 2)))
    some_x = np.concatenate([x[t : t + 1].numpy() for t in tokens])
    weight_rows = outputs + [layer.N + n for n in outputs] * layer.gated
    sums = sm_90.linear(some_x, np.concatenate([weight[n : n + 1].numpy() for n in weight_rows]))
    return tokens, outputs, sm_90.silu_and_mul(sums) if layer.gated else sums


def torch_linear(x, weights: list, case: dict) -> list[dict]:
    """torch on the same arrays, in a CUDA graph, where it is installed."""
    try:
        import torch
    except ImportError:
        return []
    x, weights = torch.from_dlpack(x), [torch.from_dlpack(weight) for weight in weights]
    one = len(x) == 1
    y = torch.empty((len(x), len(weights[0])), dtype=torch.bfloat16, device=x.device)

    def run() -> None:
        for weight in weights:
            if one:
                torch.mv(weight, x[0], out=y[0])
            else:
                torch.mm(x, weight.T, out=y)                # what torch.nn.functional.linear calls

    us = graph_us(torch, run) / len(weights)
    return [{"name": "peer.torch.linear", "case": case, "us": round(us, 2), "ok": True}]


def launched() -> dict[Specialized, None]:
    """Every kernel with other constants that the rows need."""
    return dict.fromkeys(kernel for T, layers in [*FEW.items(), (MANY[0], PREFILL[:1])] for layer in layers
                         for kernel in others(T, layer).values())


if __name__ == "__main__":
    sys.exit(variants.main(__doc__, launched()))

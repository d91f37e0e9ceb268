"""Linear layers in bf16 on a GPU: how near few rows come to the copy ceiling, many rows to the tensor core's, and torch beside them.

Rows, run by bench/gpu_checks.py: linear.bf16 (1 to 64 rows) and linear.bf16.prefill, for each shape as `linear` launches it, then
with other constants of the kernels; peer.torch.linear if torch can be imported (torch.mv for one row). Weights are drawn on the
device, in several sets where one would stay in L2. A row is ok if outputs of what was timed have the chain's bits.

    python -m bench.linear_bf16 --chip sm_90a --out FOLDER          compiles the other constants' kernels, where there is a compiler
"""

import sys
from collections.abc import Callable

import numpy as np

from bench import variants
from bench.peers import graph_us
from vtlite.cuda import linear_skinny, linear_tiled, linear_wgmma, sm_90
from vtlite.cuda.kernel import Specialized
from vtlite.cuda.lang import bf16, u16
from vtlite.cuda.linear import linear
from vtlite.cuda.timing import LARGER_THAN_L2, Ceilings, time_kernel
from vtlite.cuda.uniform import uniform

WEIGHTS = ((17408, 5120), (5120, 17408), (5120, 5120), (4096, 4096), (1024, 5120), (248320, 5120))       # N, K
FEW = (1, 8, 16, 32, 64)
TUNED = (1, 8)                           # rows at which other constants are tried
MANY = (1024, 4096, 8192)
CHECKED = 16                             # outputs of each of four tokens
SEED = 7


def checks(gpu) -> dict[str, list[Callable[[Ceilings], list[dict]]]]:
    """Group -> checks, as gpu_checks.groups has them."""
    return {
        "linear.bf16": [lambda ceilings, T=T, N=N, K=K: measure(gpu, ceilings, "linear.bf16", T, N, K) for N, K in WEIGHTS for T in FEW],
        "linear.bf16.prefill": [lambda ceilings, T=T, N=N, K=K: measure(gpu, ceilings, "linear.bf16.prefill", T, N, K)
                                for N, K in WEIGHTS if N < 100_000 for T in MANY],
    }


def others(T: int, N: int) -> dict[str, Specialized]:
    """Kernels with constants that `linear` does not choose for T rows and N outputs, by what is different."""
    if T > linear_skinny.MOST_ROWS:
        tiles = {"tile 128x256": linear_tiled.LARGE, "tile 128x256, 4 stages": linear_tiled.LARGE | {"STAGES": 4},
                 "tile 128x128": linear_tiled.MEDIUM, "tile 64x128": linear_tiled.SMALL}
        return ({name: linear_tiled.linear_tiled_kernel.specialize(**tile) for name, tile in tiles.items()}
                | {f"wgmma 128x{tile['TILE_N']}": linear_wgmma.linear_wgmma_kernel.specialize(**tile)
                   for tile in (linear_wgmma.LARGE, linear_wgmma.SMALL)})
    if T not in TUNED:
        return {}
    base = linear_skinny.chosen(T, N, 1)
    warps, stages = base["WARPS"], base["STAGES"]
    changes = {f"row {row}": {"ROW_BYTES": row, "STAGES": max(2, stages * 256 // row)} for row in (128, 512)}
    changes |= {f"{n} stages": {"STAGES": n} for n in (stages * 2 // 3, stages * 3 // 2) if n >= 3}
    changes |= {f"{n} warps": linear_skinny.constants(base["ROWS"], n, 1) for n in (warps // 2, warps + 1, 2 * warps) if 1 <= n <= 8}
    return {name: linear_skinny.linear_skinny_kernel.specialize(**base | change) for name, change in changes.items()}


def measure(gpu, ceilings: Ceilings, name: str, T: int, N: int, K: int) -> list[dict]:
    num_bytes, flops = 2 * (N * K + T * K + T * N), 2 * T * N * K
    sets = max(2, -(-LARGER_THAN_L2 // (2 * N * K)))
    x, y = uniform((T, K), SEED, 0.0, 1.0), gpu.zeros((T, N), bf16)
    weights = [uniform((N, K), SEED + 1 + i, 0.0, 0.05) for i in range(sets)]

    def row(what: str, launch: Callable, **more) -> dict:
        y.fill(0xFF)
        launch(weights[0])
        ok = is_right(x, weights[0], y)
        us = time_kernel(gpu, [lambda weight=weight: launch(weight) for weight in weights])
        bound, share = ceilings.share(us, num_bytes, flops)
        return {"name": name, "case": {"T": T, "N": N, "K": K, "what": what}, "us": round(us, 2), "bytes": num_bytes, "flops": flops,
                "bound": bound, "share": round(share, 4), "ok": ok}

    rows = [row("linear", lambda weight: linear(x, weight, out=y))]
    rows += [row(what, lambda weight, kernel=kernel: launch_with(gpu, kernel, x, weight, y)) for what, kernel in others(T, N).items()]
    return rows + torch_linear(x, weights, {"T": T, "N": N, "K": K})


def launch_with(gpu, kernel: Specialized, x, weight, y) -> None:
    (T, K), N, sizes = x.shape, len(weight), kernel.constants
    grid = -(-N // (8 * sizes["WARPS"])) if "WARPS" in sizes else (-(-T // sizes["TILE_T"]), -(-N // sizes["TILE_N"]))
    gpu.launch(kernel, grid, x, weight, weight, weight, y.view(u16), T, N, K, 0)


def is_right(x, weight, y) -> bool:
    """Some outputs, those at the edges among them, have the bits of the chain."""
    (T, N), rng = y.shape, np.random.default_rng(SEED)
    tokens, outputs = (sorted({0, n - 1, *rng.integers(0, n, k).tolist()}) for n, k in ((T, 2), (N, CHECKED - 2)))
    some_x = np.concatenate([x[t : t + 1].numpy() for t in tokens])
    some_weight = np.concatenate([weight[n : n + 1].numpy() for n in outputs])
    found = np.concatenate([y[t : t + 1].numpy() for t in tokens])[:, outputs]
    return bool(np.array_equal(found, sm_90.linear(some_x, some_weight)))


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
    return dict.fromkeys(kernel for N, _ in WEIGHTS for T in (*TUNED, *MANY[:1]) for kernel in others(T, N).values())


if __name__ == "__main__":
    sys.exit(variants.main(__doc__, launched()))

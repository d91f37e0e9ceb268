"""Attention on a GPU at the sizes of serving, in several variants, beside torch's flash attention where torch is installed.

    python -m bench.gpu_checks --out FILE --only attention            the rows of this file are among those
    python -m bench.attention --out DIR --chip sm_90a        the cubins that they need, made without a GPU

A variant is what TUNED has: (threads, stages[, blocks per multiprocessor]), the first being the tuned one. All must give the same
bits. Rows are right if decoded tokens agree with the definition, and prefilled tokens with decoded ones bit for bit.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from bench import variants
from bench.peers import graph_us
from vtlite.cuda import attention_decode, attention_prefill
from vtlite.cuda.attention import SPECS, paged_attention
from vtlite.cuda.attention_merge import attention_merge_kernel
from vtlite.cuda.timing import LARGER_THAN_L2, Ceilings, time_kernel

DECODE, PREFILL = SPECS
SHAPES = ((32, 8, 128), (24, 4, 256))                               # H, Hkv, D of Qwen3-8B and of Qwen3.6-27B
DECODES = ((1, 8192), (32, 1024), (32, 8192), (1, 262144))          # sequences, keys
PREFILLS = (4096, 16384)                                            # tokens
DECODE_VARIANTS = {128: [(128, 3, 4), (128, 4, 3)], 256: [(128, 2, 3), (128, 3, 2)]}
PREFILL_VARIANTS = {128: [(256, 2), (128, 2)], 256: [(128, 2)]}


@contextmanager
def tuned(room, head_dim: int, entry):
    """A kernel's launchers with another entry of TUNED."""
    before, room.TUNED[head_dim] = room.TUNED[head_dim], entry
    try:
        yield
    finally:
        room.TUNED[head_dim] = before


def inputs_on(gpu, spec, sets: int, **case) -> tuple[dict, list[SimpleNamespace]]:
    """Device arrays of one cache that holds `sets` times the case's sequences, and a batch for each set."""
    host = spec.make_inputs(np.random.default_rng(0), **{**case, "S": case["S"] * sets})
    tokens = case["S"] * case["T"]
    start_loc = gpu.array(host["query_start_loc"][: case["S"] + 1])
    seq_lens, table = gpu.array(host["seq_lens"]), gpu.array(host["block_table"])
    parts = [slice(i * case["S"], (i + 1) * case["S"]) for i in range(sets)]
    batches = [SimpleNamespace(query_start_loc=start_loc, seq_lens=seq_lens[p], block_table=table[p]) for p in parts]
    return {"host": host, "q": gpu.array(host["q"][:tokens]), "kv": gpu.array(host["kv"]), "scale": host["scale"]}, batches


def is_defined(host: dict, row: int, sequence: int, keys: int, got: np.ndarray) -> bool:
    """Whether `got` [1, H D] is the attention of q's row over the first `keys` keys of a sequence."""
    table = host["block_table"][sequence : sequence + 1]
    alone = {"q": host["q"][row : row + 1], "kv": host["kv"][:, table[0]], "query_start_loc": np.array([0, 1]),
             "seq_lens": np.array([keys]), "block_table": np.arange(table.size, dtype=np.int32)[None], "scale": host["scale"]}
    return DECODE.error(alone, {"o": got}) <= DECODE.tolerance


def decode_rows(gpu, ceilings: Ceilings, S: int, keys: int, H: int, Hkv: int, D: int) -> Iterator[dict]:
    """A row per variant; `share` is of the read ceiling."""
    case = {"S": S, "T": 1, "keys": keys, "H": H, "Hkv": Hkv, "D": D}
    num_bytes, first = DECODE.num_bytes(**case), None
    x, batches = inputs_on(gpu, DECODE, max(1, -(-LARGER_THAN_L2 // num_bytes)), **case)
    for variant in DECODE_VARIANTS[D]:
        with tuned(attention_decode, D, variant):
            def launch(batch):
                return paged_attention(x["q"], x["kv"], batch, x["scale"])

            got = launch(batches[0]).numpy()
            first = got if first is None else first
            ok = got.tobytes() == first.tobytes() and is_defined(x["host"], S - 1, S - 1, x["host"]["seq_lens"][S - 1], got[S - 1 :])
            us = time_kernel(gpu, [lambda batch=batch: launch(batch) for batch in batches])
        yield {"name": "attention.decode", "case": {**case, "variant": variant}, "us": round(us, 3), "bytes": num_bytes,
               "share": round(num_bytes / us / 1e6 / ceilings.read_tbps, 4), "ok": ok}


def prefill_rows(gpu, ceilings: Ceilings, T: int, H: int, Hkv: int, D: int) -> Iterator[dict]:
    """A row per variant; `share` is of the tensor core's ceiling."""
    case = {"S": 1, "T": T, "keys": T, "H": H, "Hkv": Hkv, "D": D}
    flops, first = PREFILL.flops(**case), None
    x, (batch,) = inputs_on(gpu, PREFILL, 1, **case)
    out = gpu.empty((T, H * D), x["q"].dtype)
    for variant in PREFILL_VARIANTS[D]:
        with tuned(attention_prefill, D, [variant]):
            def launch():
                return paged_attention(x["q"], x["kv"], batch, x["scale"], out=out)

            launch()
            got = out.numpy()
            first = got if first is None else first
            decoded = (_decodes_to(gpu, x, row, got[row : row + 1]) for row in (0, T // 3, T - 1))
            ok = got.tobytes() == first.tobytes() and all(decoded)
            us = time_kernel(gpu, [launch])
        tflops = flops / us / 1e6
        share = {"share": round(tflops / ceilings.matmul_tflops, 4)} if ceilings.matmul_tflops else {}
        yield {"name": "attention.prefill", "case": {**case, "variant": variant}, "us": round(us, 3), "flops": flops,
               "tflops": round(tflops, 1), **share, "ok": ok}
    yield from _torch_rows(gpu, case, flops)


def _decodes_to(gpu, x: dict, row: int, got: np.ndarray) -> bool:
    """Whether the token at position `row` has these bits when it is decoded, and they are its definition's."""
    batch = SimpleNamespace(query_start_loc=gpu.array(np.array([0, 1])), seq_lens=gpu.array(np.array([row + 1])),
                            block_table=gpu.array(x["host"]["block_table"]))
    decoded = paged_attention(x["q"][row : row + 1], x["kv"], batch, x["scale"]).numpy()
    return decoded.tobytes() == got.tobytes() and is_defined(x["host"], row, 0, row + 1, decoded)


def _torch_rows(gpu, case: dict, flops: int) -> Iterator[dict]:
    try:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return
    shape = (1, case["H"], case["T"], case["D"])
    q, k, v = (torch.randn(shape, device=f"cuda:{gpu.ordinal}", dtype=torch.bfloat16) for _ in range(3))

    def run() -> None:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    us = graph_us(torch, run)
    yield {"name": "peer.torch.attention.prefill", "case": {**case, "keys": "repeated per query head"}, "us": round(us, 3),
           "flops": flops, "tflops": round(flops / us / 1e6, 1), "ok": True}


def checks(gpu) -> dict[str, list]:
    """Name -> functions of the ceilings that make rows, for bench.gpu_checks."""
    return {"attention.decode": [lambda ceilings, s=s, n=n, shape=shape: list(decode_rows(gpu, ceilings, s, n, *shape))
                                 for shape in SHAPES for s, n in DECODES],
            "attention.prefill": [lambda ceilings, t=t, shape=shape: list(prefill_rows(gpu, ceilings, t, *shape))
                                  for shape in SHAPES for t in PREFILLS]}


def launched() -> list:
    """Every kernel that the rows need."""
    made = []
    for _, _, D in SHAPES:
        made.append(attention_merge_kernel.specialize(HEAD_DIM=D))
        for variant in DECODE_VARIANTS[D]:
            with tuned(attention_decode, D, variant):
                layout = attention_decode.layout(D, 4, 16, False, "sm_90a")
            made.append(attention_decode.attention_decode_kernel.specialize(**layout))
        for variant in PREFILL_VARIANTS[D]:
            with tuned(attention_prefill, D, [variant]):
                layout, = attention_prefill.layouts(D, 16, False)
            made.append(attention_prefill.attention_prefill_kernel.specialize(**layout))
    return made


if __name__ == "__main__":
    sys.exit(variants.main(__doc__, launched()))

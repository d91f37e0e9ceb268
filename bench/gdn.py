"""Gated delta nets on a GPU: how near decode comes to the copy ceiling, what prefill takes, and flash-linear-attention beside it.

Rows, run by bench/gpu_checks.py: gdn.decode (delta rule of one token of each sequence; with the convolution where it says so;
gdn.decode.bf16_state with states in bfloat16),
gdn.decode.one (all launches of a mixer between its projections, for one sequence), gdn.prefill (the two kernels, each choice of
`warps` and `stages`), and peer.fla.* if torch and fla can be imported. Sizes are those of Qwen3.6-27B and Qwen3.5-4B. A row is ok
if value heads 0 and Hv - 1 of what was timed agree with the definition; `error` is their OpSpec's.
"""

from collections.abc import Callable
from itertools import product

import numpy as np

from bench.peers import graph_us
from vtlite.cuda import gdn
from vtlite.cuda.gdn_plan import plan_chunks
from vtlite.cuda.lang import bf16, f32
from vtlite.cuda.norm import gated_rms_norm
from vtlite.cuda.timing import Ceilings, time_kernel

Hk, K, V = 16, 128, 128
HV = (48, 32)                            # 27B, 4B
STATES = 256 << 20                       # bytes of states that a graph goes through, at least: more than L2 holds
PREFILL = ((1, 1024), (1, 4096), (1, 32768), (8, 8192))          # sequences, tokens
SPECS = {spec.name: spec for spec in gdn.SPECS}


def checks(gpu) -> dict[str, list[Callable[[Ceilings], list[dict]]]]:
    """Group -> checks, as gpu_checks.groups has them."""
    return {"gdn.decode": [lambda ceilings, S=S, Hv=Hv: decode(gpu, ceilings, S, Hv) for Hv in HV for S in (1, 32, 128)],
            "gdn.decode.bf16_state": [lambda ceilings, S=S, Hv=Hv: decode(gpu, ceilings, S, Hv, bf16)
                                      for Hv in HV for S in (32, 128)],
            "gdn.decode.one": [lambda ceilings, Hv=Hv: decode_one(gpu, Hv) for Hv in HV],
            "gdn.prefill": [lambda ceilings, S=S, T=T, Hv=Hv: prefill(gpu, S, T, Hv) for Hv in HV for S, T in PREFILL],
            "peer.fla": [lambda ceilings, Hv=Hv: fla(Hv) for Hv in HV]}


def checked(name: str, error: float) -> dict:
    """The columns of a row that say whether it is right."""
    return {"error": round(error, 4), "ok": error <= SPECS[name].tolerance}


class Decode:
    """S sequences in several sets of slots, one after another, so that no launch finds its states in L2."""

    def __init__(self, gpu, S: int, Hv: int, dtype=f32):
        rng = np.random.default_rng(3)
        self.S, self.state_bytes = S, S * Hv * K * V * np.dtype(dtype).itemsize
        self.sets = max(2, -(-STATES // self.state_bytes))
        self.host = gdn.random_inputs(rng, S, 3, Hk, Hv, K, V, dtype == bf16)
        block, slots = self.host.pop("state"), self.sets * S
        self.gates = [gpu.array(self.host[name]) for name in ("a", "b", "A_log", "dt_bias")]
        self.qkv, self.o = gpu.array(self.host["qkv"]), gpu.zeros((S, Hv, V), bf16)
        self.state = gpu.zeros((slots, Hv, K, V), dtype)
        for first in range(0, slots, len(block)):
            self.state[first : first + len(block)].copy_from(block[: slots - first])
        self.before, self.rows = block, gpu.array(np.arange(S, dtype=np.int32))
        self.slots = [gpu.array(np.arange(i * S, (i + 1) * S)) for i in range(self.sets)]

    def rule(self, i: int, **choices) -> None:
        gdn.decode(self.qkv, *self.gates, self.state, self.rows, self.slots[i], out=self.o, **choices)

    def error(self) -> float:
        """Runs the rule once on the first set, whose states are still as they were: the error of its last sequence."""
        self.rule(0)
        last = self.S - 1
        host = {name: x[last:] if name in ("qkv", "a", "b") else x for name, x in self.host.items()}
        host |= {"state": self.before[last % len(self.before)][None], "token_rows": np.array([0]), "state_slots": np.array([0])}
        found = {"o": self.o[last:].numpy(), "state": self.state[last : last + 1].numpy()}
        return SPECS["gdn.decode"].error(host, found)


def decode(gpu, ceilings: Ceilings, S: int, Hv: int, dtype=f32) -> list[dict]:
    work = Decode(gpu, S, Hv, dtype)
    check, num_bytes = checked("gdn.decode", work.error()), 2 * work.state_bytes
    launches = {f"v_tile {tile}": lambda i, tile=tile: work.rule(i, v_tile=tile) for tile in (32, 64)}
    if S > 1 and dtype == f32:
        launches["with convolution"] = _with_convolution(gpu, work)
    row_name, rows = "gdn.decode" if dtype == f32 else "gdn.decode.bf16_state", []
    for name, launch in launches.items():
        us = time_kernel(gpu, [lambda i=i: launch(i) for i in range(work.sets)])
        rows.append({"name": row_name, "case": {"S": S, "Hv": Hv, "what": name}, "us": round(us, 3),
                     "bytes": num_bytes, "share": round(num_bytes / us / 1e6 / ceilings.copy_tbps, 4), **check})
    return rows


def _with_convolution(gpu, work: Decode) -> Callable[[int], None]:
    channels = work.qkv.shape[1]
    x, weight = gpu.array(work.qkv.numpy()), gpu.array(np.full((4, channels), 0.5, f32))
    conv_state = gpu.zeros((len(work.state), 3, channels), bf16)

    def launch(i: int) -> None:
        gdn.conv_step(x, weight, conv_state, work.rows, work.slots[i], out=work.qkv)
        work.rule(i)

    return launch


def decode_one(gpu, Hv: int) -> list[dict]:
    """Convolution, delta rule and gated norm of one token."""
    work = Decode(gpu, 1, Hv)
    check, mixer = checked("gdn.decode", work.error()), _with_convolution(gpu, work)
    z, norm, y = gpu.array(work.o.numpy()), gpu.array(np.ones(V, f32)), gpu.zeros(work.o.shape, bf16)

    def launch(i: int) -> None:
        mixer(i)
        gated_rms_norm(work.o, z, norm, 1e-6, out=y)

    us = time_kernel(gpu, [lambda i=i: launch(i) for i in range(work.sets)])
    return [{"name": "gdn.decode.one", "case": {"Hv": Hv}, "us": round(us, 3), "bytes": 8 * Hv * K * V, **check}]


def prefill(gpu, S: int, T: int, Hv: int) -> list[dict]:
    host = _repeated(gdn.random_inputs(np.random.default_rng(4), min(T, 1000), S, Hk, Hv, K, V), T)
    starts = gdn.ragged(T, S)
    plan = plan_chunks(starts, np.diff(starts), np.arange(S), range(S))
    arrays, on_device = {name: gpu.array(x) for name, x in host.items()}, plan.on(gpu)
    o, rows = gpu.zeros((T, Hv, V), bf16), []
    gdn.prefill(**arrays, plan=on_device, out=o)
    found, states = o.numpy(), arrays["state"].numpy()
    check = checked("gdn.prefill", max(_error_of_head(host, plan, h, found, states) for h in (0, Hv - 1)))
    for warps, stages in product((4, 8), (1, 2)):
        choices = {"warps": warps, "stages": stages}
        us = time_kernel(gpu, [lambda: gdn.prefill(**arrays, plan=on_device, out=o, **choices)] * 2, repeats=5)
        rows.append({"name": "gdn.prefill", "case": {"S": S, "T": T, "Hv": Hv, **choices}, "us": round(us, 2), **check})
    return rows


def _repeated(host: dict, T: int) -> dict:
    """The same rows of activations over and over: made faster than T different ones."""
    return {name: np.resize(x, (T, *x.shape[1:])) if name in ("qkv", "a", "b") else x for name, x in host.items()}


def _error_of_head(host: dict, plan, h: int, o: np.ndarray, state: np.ndarray) -> float:
    """One value head against the definition: all of them would take minutes."""
    Hv, columns = host["state"].shape[1], host["qkv"].shape[1]
    k_head, v_first = h // (Hv // Hk), columns - Hv * V
    firsts, widths = (k_head * K, (Hk + k_head) * K, v_first + h * V), (K, K, V)
    columns_of_h = np.concatenate([np.arange(first, first + width) for first, width in zip(firsts, widths)])
    one = {"qkv": host["qkv"][:, columns_of_h], "state": host["state"][:, h : h + 1],
           **{name: host[name][..., h : h + 1] for name in ("a", "b", "A_log", "dt_bias")}, **vars(plan)}
    return SPECS["gdn.prefill"].error(one, {"o": o[:, h : h + 1], "state": state[:, h : h + 1]})


def fla(Hv: int) -> list[dict]:
    """flash-linear-attention's kernels on tensors of the same sizes, in CUDA graphs, where it is installed."""
    try:
        import torch
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
    except ImportError:
        return []

    def tensors(S: int, T: int) -> dict:
        q, k = torch.randn(2, S, T, Hk, K, device="cuda", dtype=torch.bfloat16)
        v = torch.randn(S, T, Hv, V, device="cuda", dtype=torch.bfloat16)
        g, beta = -torch.rand(S, T, Hv, device="cuda"), torch.rand(S, T, Hv, device="cuda")
        return {"q": q, "k": k, "v": v, "g": g, "beta": beta, "output_final_state": True, "use_qk_l2norm_in_kernel": True}

    rows = []
    for S, T in PREFILL:
        starts = torch.tensor(gdn.ragged(T, S), device="cuda", dtype=torch.long)
        arguments, state = tensors(1, T), torch.zeros(S, Hv, K, V, device="cuda")
        us = graph_us(torch, lambda: chunk_gated_delta_rule(**arguments, initial_state=state, cu_seqlens=starts))
        rows.append({"name": "peer.fla.prefill", "case": {"S": S, "T": T, "Hv": Hv}, "us": us, "ok": True})
    for S in (1, 32, 128):
        sets = max(2, -(-STATES // (S * Hv * K * V * 4)))
        arguments, states = tensors(S, 1), torch.zeros(sets, S, Hv, K, V, device="cuda")
        us = graph_us(torch, lambda: [fused_recurrent_gated_delta_rule(**arguments, initial_state=s) for s in states]) / sets
        rows.append({"name": "peer.fla.decode", "case": {"S": S, "Hv": Hv}, "us": round(us, 2), "ok": True})
    return rows

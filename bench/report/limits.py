"""What the issues promise of the rows of bench/results, one entry for each line of their tables."""

from dataclasses import dataclass
from fnmatch import fnmatch

from bench.report.rows import Row

AT_LEAST = ("share", "ratio", "passed")             # of the other metrics less is better


@dataclass(frozen=True)
class Limit:
    """`metric` must not fall short of `limit` in rows of these names whose case has all parts of one of `cases`."""

    issue: str
    what: str
    names: str                                      # separated by spaces; * stands for anything
    metric: str                                     # "ratio" is times the speed of `peer`; of vLLM where peer is None
    limit: float | None                             # None: to be reported, no more
    aim: float | None = None
    cases: tuple[dict, ...] = ({},)
    peer: str | None = None

    def applies(self, row: Row) -> bool:
        return matches(row.name, self.names) and any(part.items() <= row.case.items() for part in self.cases)

    def is_missed(self, row: Row) -> bool:
        found = row.value(self.metric, self.peer) if self.applies(row) else None
        return None not in (found, self.limit) and (found < self.limit if self.metric in AT_LEAST else found > self.limit)


def matches(name: str, patterns: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns.split())


def cases(*parts: dict, **lists: tuple) -> tuple[dict, ...]:
    """Each of `parts` (or an empty one) with every combination of what `lists` names."""
    found = list(parts) or [{}]
    for name, values in lists.items():
        found = [part | {name: value} for part in found for value in values]
    return tuple(found)


LARGE = [{"N": N, "K": K} for N, K in ((17408, 5120), (5120, 17408), (248320, 5120))]
SMALL = [{"N": N, "K": K} for N, K in ((5120, 5120), (4096, 4096), (1024, 5120))]
HEADS = [{"Hkv": 8, "D": 128}, {"Hkv": 4, "D": 256}]
PROMPTS = [{"S": S, "T": T, "Hv": 48} for S, T in ((1, 1024), (1, 4096), (1, 32768), (8, 8192))]
ONE_8B, ONE_4B, ONE_27B = ({"shape": shape, "concurrency": 1} for shape in ("qwen3-8b", "qwen3.5-4b", "qwen3.6-27b"))
TORCH, FLASH, FLA = "peer.torch.linear", "peer.torch.attention.prefill", "peer.fla.prefill"
INVARIANT = "peer.vllm.batch_invariant.closed_loop"

LIMITS = [
    Limit("2", "CPU, decode of SmolLM2: share of the copy ceiling", "cpu.model", "share", 0.6, None,
          cases({"case": "decode, 1 token"})),
    Limit("4", "kernels for every chip: bytes of registers spilled", "kernel", "spill_bytes", 0),
    Limit("4", "norms: share of the copy ceiling", "norm.*", "share", 0.85),
    Limit("4", "rope: share of the copy ceiling", "rope.*", "share", 0.85),
    Limit("4", "activations: share of the copy ceiling", "act.*", "share", 0.85),
    Limit("4", "sampler, 32 rows of 248,320 logits", "sample", "us", 150, None, cases({"S": 32, "V": 248320})),
    Limit("4", "a node of a graph of 1,000", "graph.node", "us", 1),
    Limit("4", "host, for a prepared launch", "launch.host", "us", 8, None, cases({"case": "prepared"})),
    Limit("4", "a new process opens the device and loads all cubins", "start.warm", "us", 2e6),
    Limit("4", "compute-sanitizer: errors", "sanitizer.*", "errors", 0),
    Limit("4, 5, 6", "test suites on the GPU: failures", "tests.*", "failed", 0),
    Limit("5, 6", "one request, one answer: random mixes that passed", "tests.mixes", "passed", 300),
    Limit("5", "linear, 1 row, large: share of the copy ceiling", "linear.bf16", "share", 0.9, 1, cases(*LARGE, T=(1,))),
    Limit("5", "linear, 8 rows, large: share of the copy ceiling", "linear.bf16", "share", 0.9, 1, cases(*LARGE, T=(8,))),
    Limit("5", "linear, 1 and 8 rows, large: times torch", "linear.bf16", "ratio", 1, None, cases(*LARGE, T=(1, 8)), TORCH),
    Limit("5", "linear, 1 row, small: times torch", "linear.bf16", "ratio", 1, 1.3, cases(*SMALL, T=(1,)), TORCH),
    Limit("5", "linear, 1,024 to 8,192 rows: times torch", "linear.bf16.prefill", "ratio", 0.5, 0.75,
          cases(*LARGE[:2], *SMALL, T=(1024, 4096, 8192)), TORCH),
    Limit("5", "the same by cuBLAS, as an extra: times torch", "linear.bf16.prefill.cublas", "ratio", 0.95, 1, peer=TORCH),
    Limit("5", "decode attention, 32 x 8 k: share of the read ceiling", "attention.decode", "share", 0.75, 0.95,
          cases(*HEADS, S=(32,), keys=(8192,))),
    Limit("5", "decode attention, 1 x 8 k", "attention.decode", "us", 25, 14, cases(*HEADS, S=(1,), keys=(8192,))),
    Limit("5", "prefill attention, 4 k and 16 k: times torch's flash SDPA", "attention.prefill", "ratio", 0.5, 1,
          cases(*HEADS, T=(4096, 16384)), FLASH),
    Limit("5", "decode step of Qwen3-8B, 1 request: share of the bytes floor", "step.decode", "share", 0.8, 0.92, cases(ONE_8B)),
    Limit("5", "the same: faster than transformers, compiled", "step.decode", "us", 8300, 4150, cases(ONE_8B)),
    Limit("5", "closed loop of Qwen3-8B, 1 request: times vLLM", "serve.closed_loop", "ratio", None, 1, cases(ONE_8B)),
    Limit("5", "closed loop of Qwen3-8B: times vLLM's batch-invariant mode", "serve.closed_loop", "ratio", None, 1,
          cases({"shape": "qwen3-8b"}, concurrency=(1, 16)), INVARIANT),
    Limit("5", "host work of a decode step, 1 request", "step.host", "us", 400, None, cases(concurrency=(1,))),
    Limit("5", "host work of a decode step, 32 requests", "step.host", "us", 1500, None, cases(concurrency=(32,))),
    Limit("5", "process start to first token, Qwen3-8B", "start.first_token", "us", 8e6, 4e6, cases({"shape": "qwen3-8b"})),
    Limit("6", "gated delta decode, 32 and 128 sequences: share of the copy ceiling", "gdn.decode", "share", 0.75, 0.9,
          cases(S=(32, 128), Hv=(48,))),
    Limit("6", "a layer's mixer between its projections, 1 sequence", "gdn.decode.one", "us", 12, 6, cases({"Hv": 48})),
    Limit("6", "gated delta prefill: times flash-linear-attention", "gdn.prefill", "ratio", 0.6, 1, cases(*PROMPTS), FLA),
    Limit("6", "decode step of Qwen3.5-4B and Qwen3.6-27B, 1 request: share of the bytes floor", "step.decode", "share",
          0.78, 0.9, cases(ONE_4B, ONE_27B)),
    Limit("6", "the same of Qwen3.5-4B: a tenth of transformers' 44 ms", "step.decode", "us", 4400, 2444, cases(ONE_4B)),
    Limit("6", "closed loop of the same shapes: times vLLM", "serve.closed_loop", "ratio", None, 1,
          cases(shape=("qwen3.5-4b", "qwen3.6-27b"), concurrency=(1, 16, 32))),
]

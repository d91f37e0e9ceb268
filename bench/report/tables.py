"""The tables of bench/RESULTS.md: which rows each shows, in what columns, and what a reader must know."""

from collections.abc import Callable
from typing import NamedTuple

from bench.report.limits import FLA, FLASH, INVARIANT, LIMITS, TORCH
from bench.report.rows import TOKENS, Row

Column = tuple[str, Callable[[Row], str]]               # its header, and what stands under it


class Table(NamedTuple):
    title: str
    names: str                                          # of its rows, as matches() has them
    columns: list[Column]                               # one in which nothing stands is left out
    introduction: str


def number(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.1f}" if x >= 10 else f"{x:.2f}".replace("-0.00", "0.00")


def two(x: float) -> str:
    return f"{x:.2f}"


def ms(us: float) -> str:
    return number(us / 1e3)


def seconds(us: float) -> str:
    return number(us / 1e6)


def duration(us: float) -> str:
    return f"{us / 1e6:.3g} s" if us >= 1e6 else f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"


def text_of(case: dict) -> str:
    """A case in words: "T 8, N 64, interleaved"."""
    if "case" in case:
        return case["case"]
    return ", ".join(name if value is True else f"{name} {value}" for name, value in case.items() if value is not False)


def figure(row: Row, metric: str, peer: str | None = None, show: Callable[[float], str] = number) -> str:
    """A figure, bold where a limit on it is missed or the row is wrong."""
    found = row.value(metric, peer)
    if found is None:
        return "-"
    text = show(found) + "†" * (peer is not None and row.peers[peer].file != row.file)
    if metric == "us" and not row.ok:
        return f"**{text} (wrong)**"
    short = any(limit.is_missed(row) for limit in LIMITS if (limit.metric, limit.peer) == (metric, peer))
    return f"**{text}**" if short else text


def of(header: str, metric: str, show: Callable[[float], str] = number) -> Column:
    return header, lambda row: figure(row, metric, show=show)


def part(header: str, *names: str) -> Column:
    return header, lambda row: " x ".join(str(row.case.get(name, 1)) for name in names)


def rate(header: str, work: str) -> Column:
    """Tera of bytes or flops per second."""
    return header, lambda row: number(row.values[work] / row.values["us"] / 1e6) if work in row.values else "-"


def beside(who: str, peer: str, metric: str = "us", show: Callable[[float], str] = number) -> list[Column]:
    """The peer's figure, and how many times as fast the row is."""
    return [(who, lambda row: show(row.peers[peer].values[metric]) if peer in row.peers else "-"),
            (f"times {who.split(',')[0]}", lambda row: figure(row, "ratio", peer, two))]


def share_of_read(row: Row) -> str:
    return two(row.values["bytes"] / row.values["us"] / 1e6 / row.meta["ceilings"]["read_tbps"])


def fastest_other(row: Row) -> str:
    best = min((other for other in row.others if other.ok), key=lambda other: other.values["us"], default=None)
    return "-" if best is None else f"{number(best.values['us'])} ({how_text(best)})"


def how_text(row: Row) -> str:
    """A variant in words: "COPIERS 4", "128, 4, 3" or "warps 4, stages 2"."""
    numbers = ", ".join(map(str, row.how.get("variant", ())))
    return row.how.get("what") or numbers or text_of(row.how)


NAME, CASE, OTHER = ("op", lambda row: row.name), ("case", lambda row: text_of(row.case)), ("fastest other, us", fastest_other)
US, TBPS, TFLOPS = of("us", "us"), rate("TB/s", "bytes"), rate("TFLOP/s", "flops")
OF_COPY, OF_READ, OF_TENSOR = (of(f"share of {ceiling}", "share", two) for ceiling in ("copy", "read", "tensor core"))
MODEL, REQUESTS = part("model", "shape"), part("requests", "concurrency")
HEADS, LAYER = part("heads x KV heads x dim", "H", "Hkv", "D"), part("N x K", "N", "K")
ROWS, TOKENS_IN = part("rows", "T"), part("tokens", "T")
EXTRA = "extra", lambda row: "cublas" if row.name.endswith(".cublas") else "-"
SEQUENCES, VALUE_HEADS, VLLM = part("sequences", "S"), part("value heads", "Hv"), of("times vLLM", "ratio", two)

TABLES = [
    Table("Suites on the GPU", "tests.* sanitizer.*",
          [("suite", NAME[1]), CASE, of("passed", "passed", str), of("failed", "failed", str), of("errors", "errors", str)],
          """Random mixes, on tiny models, have 1 to 64 requests, chunk budgets, prefix hits, preemption, graphs and eager steps:
ids and logprob bits of a request must be those that it has alone. compute-sanitizer runs the op suite without the arena, so that it
sees every buffer."""),
    Table("Whole models: decode step", "step.decode",
          [MODEL, REQUESTS, of("ms", "us", ms), of("GB", "bytes", lambda x: number(x / 1e9)), of("floor, ms", "floor_us", ms),
           of("share of floor", "share", two), ("share of read", share_of_read), of("vLLM, ms", "peer_us", ms), VLLM,
           beside("batch-invariant vLLM", "peer.vllm.batch_invariant.step")[1],
           beside("transformers compiled", "peer.transformers.compiled")[1],
           beside("transformers eager", "peer.transformers.eager")[1]],
          """Random weights, prompts of 32 tokens. A step's floor is its bytes (weights, keys and values, recurrent states both
ways) at the copy ceiling; the share of the read ceiling stands beside, for most bytes are only read. vLLM 0.25, its
batch-invariant mode and transformers 5.17 ran on another H200, where torch's copy of 4 GiB reached 4.29 TB/s."""),
    Table("Whole models: host work of a decode step", "step.host", [MODEL, REQUESTS, US], "What a step takes beyond its graph."),
    Table("Whole models: closed loop", "serve.closed_loop serve.closed_loop.cublas",
          [MODEL, REQUESTS, EXTRA, of("output tokens/s", TOKENS), of("all tokens/s", "total_tokens_per_second"),
           of("first token, ms", "first_token_us", ms), of("per token, ms", "per_token_us", ms),
           of("vLLM, tokens/s", "peer_tokens_per_second"), VLLM, *beside("batch-invariant vLLM, tokens/s", INVARIANT, TOKENS)],
          "1,024 tokens in, 128 out; each client sends its next request when the last one ends. vLLM as above."),
    Table("Whole models: prefill", "prefill prefill.cublas",
          [MODEL, EXTRA, of("ms", "us", ms), of("tokens/s", "tokens_per_second"), TFLOPS, OF_TENSOR],
          "One prompt of 8,192 tokens."),
    Table("Whole models: process start to first token", "start.first_token",
          [MODEL, of("s", "us", seconds), *beside("vLLM, s", "peer.vllm.ready", show=seconds)],
          """Imports and the drawing of the weights included, kernels compiled before. vLLM: until it is ready, its compile cache
cold (Qwen3-8B with a warm one: about 80 s)."""),
    Table("Linear layers in bf16, few rows", "linear.bf16 linear.silu_and_mul",
          [NAME, ROWS, LAYER, US, TBPS, OF_COPY, *beside("torch, us", TORCH), OTHER],
          """Graph replays over weights larger than L2, which are only read, so that a share of copy can exceed 1. torch has
the same arrays (torch.mv for one row; of silu_and_mul the product alone)."""),
    Table("Linear layers in bf16, many rows", "linear.bf16.prefill*",
          [NAME, ROWS, LAYER, US, TFLOPS, OF_TENSOR, *beside("torch, us", TORCH), OTHER],
          """torch calls cuBLAS. The extra does too, where its bits are those of our kernels: for every row here they were. Rows with
a residual and gated ones have our kernel beside."""),
    Table("Attention, decode", "attention.decode",
          [part("sequences x keys", "S", "keys"), HEADS, US, TBPS, OF_READ, *beside("torch, us", "peer.torch.attention.decode"),
           *beside("FlashAttention 3, us", "peer.fa3.attention.decode"), OTHER],
          """One query token for each sequence over a paged cache in shuffled blocks. torch's flash SDPA reads a dense cache, of
which 1 x 8,192 stays in L2."""),
    Table("Attention, prefill", "attention.prefill",
          [TOKENS_IN, HEADS, US, TFLOPS, OF_TENSOR, *beside("torch, us", FLASH),
           *beside("FlashAttention 3, us", "peer.fa3.attention.prefill"), OTHER],
          "One sequence, causal; operations of the lower triangle. torch: SDPA by FlashAttention 2."),
    Table("Gated delta nets, decode", "gdn.decode gdn.decode,* gdn.decode.bf16_state gdn.decode.one",
          [NAME, SEQUENCES, VALUE_HEADS, US, TBPS, OF_COPY, *beside("fla, us", "peer.fla.decode"), OTHER],
          """The delta rule for one token of each sequence, f32 states of 128 x 128, whose bytes both ways are counted.
gdn.decode.one is all of a layer's mixer between its projections. fla: flash-linear-attention, with f32 states."""),
    Table("Gated delta nets, prefill", "gdn.prefill",
          [SEQUENCES, TOKENS_IN, VALUE_HEADS, US, *beside("fla, us", FLA),
           *beside("FlashInfer, us", "peer.flashinfer.prefill"), OTHER],
          "Both kernels, 16 key heads. FlashInfer is given q and k normalised."),
    Table("Kernels that move bytes", "memory.* norm.* rope.* embed.* act.* kv.* attention.inputs gdn.conv* sample",
          [NAME, CASE, US, TBPS, OF_COPY],
          """Over buffers larger than L2. rope.cos_sin computes nearly as long as it writes; the gates of act.sigmoid_gate
with spread 60 are open or closed, most of them; the sampler makes several passes."""),
    Table("Runtime", "launch.* graph.* start.warm", [NAME, CASE, of("measured", "us", duration), of("cubins", "cubins", str)],
          "Launches are timed on the host, nodes on the GPU; a warm start is a new process, imports included."),
    Table("CPU", "cpu.*", [NAME, CASE, of("time", "us", duration), of("share", "share", two)],
          "SmolLM2-135M and its parts. Shares are of a copy by all cores where bytes bind, else of NumPy's matrix product."),
]

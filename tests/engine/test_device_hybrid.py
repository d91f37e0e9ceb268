"""A hybrid model on the emulated GPU: the definition's answer; the same bits in a batch, from a kept state, uncut, and not ahead.

What would take the emulator most of the time takes its bits from arithmetic on arrays, which other tests hold equal to the
kernels': vtlite/cuda/sm_90.py. One run has the kernels of attention and delta nets.
"""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from tests.models.forward import forward
from tests.tiny_device import DEVICE_HYBRIDS
from vtlite import LLM, SamplingParams, reference
from vtlite.cuda import device as devices, gdn_arithmetic, ops, sm_90
from vtlite.cuda.gdn_plan import ChunkPlan, StepPlan

BF16 = np.dtype(ml_dtypes.bfloat16)
NAME = "hybrid_smallest"
LONG, SHORT = (np.random.default_rng(length).integers(0, 32, length).tolist() for length in (66, 3))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return DEVICE_HYBRIDS.build(NAME, tmp_path_factory.mktemp(NAME))


@pytest.fixture
def device(monkeypatch):
    """The emulator, with linear layers on arrays."""
    monkeypatch.setenv("VTLITE_DEVICE", "emulator")
    device = devices.current()

    def linear(x, weight, residual=None, out_dtype=None):
        y = device.empty((len(x), len(weight)), out_dtype or BF16)
        queue(device, lambda: y.copy_from(sm_90.linear(x.numpy(), weight.numpy(), out_dtype=y.dtype,
                                                       residual=None if residual is None else residual.numpy())))
        return y

    def linear_silu_and_mul(x, weight):
        y = device.empty((len(x), len(weight) // 2), BF16)
        queue(device, lambda: y.copy_from(sm_90.linear_silu_and_mul(x.numpy(), weight.numpy())))
        return y

    monkeypatch.setattr(ops, "linear", linear)
    monkeypatch.setattr(ops, "linear_silu_and_mul", linear_silu_and_mul)
    return device


def put_mixers_on_arrays(device, monkeypatch) -> None:
    """Attention and delta nets as well."""
    def paged_attention(q, kv, batch, scale):
        o = device.empty((len(q), q.shape[1] * q.shape[2]), BF16)
        names = ("query_start_loc", "seq_lens", "block_table")
        queue(device, lambda: o.copy_from(sm_90.paged_attention(
            q.numpy(), kv.numpy(), SimpleNamespace(**{name: getattr(batch, name).numpy() for name in names}), scale)))
        return o

    def gated_delta_net(qkv, a, b, weight, A_log, dt_bias, conv_state, state, batch):
        o = device.empty((len(qkv), state.shape[1], state.shape[3]), BF16)
        plan = batch.delta_net

        def run():
            inputs, S = conv_state.numpy(), state.numpy()
            chunks = plan.chunks and ChunkPlan(plan.chunks.sequences.numpy(), plan.chunks.chunks.numpy())
            on_host = StepPlan(*(x if x is None else x.numpy() for x in plan[:2]), chunks)
            y = gdn_arithmetic.by_plan(*(x.numpy() for x in (qkv, a, b, weight, A_log, dt_bias)), inputs, S, on_host)
            for array, values in ((conv_state, inputs), (state, S), (o, y)):
                array.copy_from(values)

        queue(device, run)
        return o

    monkeypatch.setattr(ops, "paged_attention", paged_attention)
    monkeypatch.setattr(ops, "gated_delta_net", gated_delta_net)


def queue(device, work) -> None:
    """Do it now, or at each replay of the graph that is being captured."""
    work() if device._graph is None else device._graph.launches.append(SimpleNamespace(run=work))


def load(checkpoint, **options) -> LLM:
    return LLM(checkpoint, device="cuda", max_num_seqs=2, num_blocks=32, **options)


def answers(llm: LLM, *prompts: list[int], max_tokens: int = 2) -> list[list[tuple]]:
    """Of each prompt its greedy tokens, each with the exact logprobs of that step."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, logprobs=1, ignore_eos=True)
    return [list(zip(output.outputs[0].token_ids, output.outputs[0].logprobs, strict=True))
            for output in llm.generate(list(prompts), params)]


def check_against_definition(checkpoint, prompt: list[int], answer: list[tuple]) -> None:
    """Logprobs within a few roundings of logits to bfloat16."""
    logits, _ = forward(checkpoint, prompt + [token for token, _ in answer], reference, BF16)
    expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    for (_, logprobs), row in zip(answer, expected[len(prompt) - 1 :]):
        for token, found in logprobs.items():
            assert abs(found.logprob - row[token]) < 0.03


def test_neighbours_kept_states_and_cuts_change_no_bit_of_the_definitions_answer(checkpoint, device, monkeypatch):
    (by_kernels,) = answers(load(checkpoint), SHORT, max_tokens=3)          # a prompt, a decode step, its replay one step ahead
    check_against_definition(checkpoint, SHORT, by_kernels)
    put_mixers_on_arrays(device, monkeypatch)
    assert answers(load(checkpoint, async_scheduling=False), SHORT, max_tokens=3) == [by_kernels]
    caching = load(checkpoint)
    (missed,) = answers(caching, LONG)                                      # cut at 64, where the state is kept
    check_against_definition(checkpoint, LONG, missed)
    together = answers(caching, LONG, SHORT)                                # goes on from there, beside the other prompt
    assert caching.engine.loop.scheduler.prefix_lookups == {"no_blocks": 1, "hit": 1, "short": 1}
    assert together == [missed, by_kernels[:2]]
    assert answers(load(checkpoint, enable_prefix_caching=False), LONG) == [missed]         # in one step

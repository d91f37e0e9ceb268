"""A whole model on the emulated GPU: the definition's answer, the same bits in a batch and alone, refusals that say how much."""

import json
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from vtlite import LLM, SamplingParams, reference
from vtlite.checkpoint.dummy import DummyWeights
from vtlite.config import EngineConfig, ModelConfig
from vtlite.engine.device_memory import room_for_caches
from vtlite.engine.engine import Engine
from vtlite.errors import ConfigError, DeviceError
from vtlite.models.registry import load_model

BF16 = np.dtype(ml_dtypes.bfloat16)
PROMPTS = [[3, 14, 15, 9, 26], [5, 31]]
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 32, "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 1,
          "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu",
          "max_position_embeddings": 512, "tie_word_embeddings": True, "rope_theta": 10000.0}      # what the emulator runs in seconds


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, logprobs=1, ignore_eos=True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A config.json alone: weights are drawn."""
    directory = tmp_path_factory.mktemp("device")
    (directory / "config.json").write_text(json.dumps(CONFIG))
    return directory


@pytest.fixture(autouse=True)
def emulator(monkeypatch):
    monkeypatch.setenv("VTLITE_DEVICE", "emulator")


def reference_logprobs(checkpoint, tokens: list[int]) -> np.ndarray:
    """Of each next token, from the definition in its bfloat16 mode: [T, vocab]."""
    weights = DummyWeights(reference.uniform, reference.uniform)
    model = load_model(ModelConfig.read(checkpoint), weights, reference, BF16)
    layers, heads, head_dim = model.kv_shape
    T = len(tokens)
    batch = SimpleNamespace(input_ids=np.array(tokens), positions=np.arange(T), slot_mapping=np.arange(T) + 16, seq_lens=np.array([T]),
                            query_start_loc=np.array([0, T]), logits_indices=np.arange(T), block_table=np.array([[1]]))
    logits = model.forward(batch, [np.zeros((2, 2, 16, heads, head_dim), BF16) for _ in range(layers)]).astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_a_batch_gives_what_each_request_gets_alone_which_is_the_definitions_answer(checkpoint):
    llm = LLM(checkpoint, device="cuda", load_format="dummy")
    together = llm.generate(PROMPTS, greedy(3))                              # the prompts, a decode step, its replay as a graph
    alone = llm.generate(PROMPTS[1], greedy(2))[0].outputs[0]
    assert alone.token_ids == together[1].outputs[0].token_ids[:2]
    assert alone.logprobs == together[1].outputs[0].logprobs[:2]             # every bit
    assert sorted(key[0] for key in llm.engine.loop.runner._decode_steps) == [1, 2]
    for prompt, output in zip(PROMPTS, together):
        answer = output.outputs[0]
        expected = reference_logprobs(checkpoint, prompt + answer.token_ids)[len(prompt) - 1 : -1]
        for logprobs, row in zip(answer.logprobs, expected):
            for token, found in logprobs.items():
                assert abs(found.logprob - row[token]) < 0.02                # logits up to 2: a few units of bfloat16 rounding


def test_what_does_not_fit_is_refused_with_the_amount(checkpoint):
    with pytest.raises(ConfigError, match=r"100000 KV blocks take 391 MiB, and 29 MiB of emulator are left for them: 362 MiB too little; "
                                          r"ask for at most \d+"):
        Engine(checkpoint, EngineConfig(device="cuda", load_format="dummy", num_blocks=100000))
    with pytest.raises(ConfigError, match=r"a request of 512 tokens needs 33 KV blocks \(0 MiB\) and 20 fit"):
        Engine(checkpoint, EngineConfig(device="cuda", load_format="dummy", num_blocks=20, max_model_len=512))


class Full:
    """A device on which others have taken most of the memory."""

    name = "emulator"

    def memory(self):
        return 2 << 30, 10 << 30


def test_a_share_that_is_used_up_is_refused_with_the_amount():
    wing = SimpleNamespace(device=Full())
    with pytest.raises(ConfigError, match=r"is 7\.5 of the 10\.0 GiB of emulator, and 8\.0 GiB are taken .*: 0\.5 GiB too much"):
        room_for_caches(None, wing, EngineConfig(gpu_memory_utilization=0.75), 64)


def test_weights_that_do_not_fit_are_refused_before_any_is_read(tiny_checkpoint, monkeypatch):
    monkeypatch.setattr("vtlite.cuda.emulated_device.EmulatedDevice.memory", lambda self: (1 << 10, 1 << 20))
    with pytest.raises(DeviceError, match=r"take 0\.0 GiB, and 0\.0 of the 0\.0 GiB of emulator are free: .* use a smaller model"):
        Engine(tiny_checkpoint("qwen3"), EngineConfig(device="cuda"))

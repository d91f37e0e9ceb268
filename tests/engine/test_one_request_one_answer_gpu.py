"""The promise on a GPU, whole models of its kernels: hundreds of mixes, each request with the ids and logprob bits it gets alone."""

from collections import OrderedDict
from functools import cache

import numpy as np
import pytest

from tests.engine.mixes import PARAMS, answer, collect, everything_is_free
from tests.tiny_device import DEVICE, DEVICE_HYBRIDS
from vtlite.checkpoint.resolve import BUNDLED
from vtlite.config import EngineConfig
from vtlite.engine.engine import Engine

pytestmark = pytest.mark.gpu

DENSE, HYBRIDS = ("two_layers", "window", "biases", "tiny-dense"), ("hybrid", "hybrid_narrow", "tiny-hybrid")
MODELS = (*DENSE, *HYBRIDS)
MIXES = 700                                    # 300 of them of hybrids
BF16_STATE_MIXES = 60
LONGEST, MOST_TOKENS = 1024, 700               # positions, and tokens of a prompt
PREFIX = np.random.default_rng(0).integers(0, 256, MOST_TOKENS).tolist()      # what most prompts begin with


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    root = tmp_path_factory.mktemp("device")

    def build(name: str):
        family = DEVICE_HYBRIDS if name in HYBRIDS else DEVICE
        return family.build(name, root / name) if name in family.configs else BUNDLED / name

    return cache(build)


@pytest.fixture(scope="module")
def alone(checkpoint):
    """The answer of a request by itself: its prompt in one step, no prefix cache, blocks in plenty."""
    engine = cache(lambda model, dtype: Engine(checkpoint(model), EngineConfig(
        device="cuda", max_model_len=LONGEST, num_blocks=256, enable_prefix_caching=False, max_num_seqs=4, mamba_ssm_cache_dtype=dtype)))
    return cache(lambda model, prompt, params, dtype="float32": answer(
        collect(engine(model, dtype), [(0, prompt, PARAMS[params], 0)])[0]))


def draw_prompt(rng) -> tuple[int, ...]:
    shared = rng.integers(0, MOST_TOKENS) if rng.random() < 0.7 else 0
    own = rng.integers(0, 256, rng.integers(1, 40)).tolist()
    return tuple((PREFIX[:shared] + own)[:MOST_TOKENS])


@pytest.mark.parametrize("seed", range(MIXES))
def test_any_mix_gives_each_request_the_answer_it_gets_alone(seed, checkpoint, alone):
    check_mix(seed, MODELS[seed % len(MODELS)], checkpoint, alone)


@pytest.mark.parametrize("seed", range(BF16_STATE_MIXES))
def test_so_it_does_with_recurrent_states_in_bfloat16(seed, checkpoint, alone):
    check_mix(seed, HYBRIDS[seed % len(HYBRIDS)], checkpoint, alone, "bfloat16")


def check_mix(seed, model, checkpoint, alone, state_dtype="float32") -> None:
    rng, fewest = np.random.default_rng(seed), LONGEST // 16 + 1
    size = int(rng.choice([1, 2, 5, 17, 33, 64]))
    batched_tokens, seqs = int(rng.choice([64, 100, 256, 1000, 8192])), int(rng.choice([1, 8, 64]))
    engine = Engine(checkpoint(model), EngineConfig(
        device="cuda", max_model_len=LONGEST, num_blocks=int(rng.integers(fewest, 6 * fewest)),        # few enough to preempt
        max_num_batched_tokens=max(batched_tokens, seqs + 63), max_num_seqs=seqs,          # hybrids need room for a chunk
        enable_prefix_caching=bool(rng.random() < 0.5), enforce_eager=bool(rng.random() < 0.3),
        scheduling_policy=str(rng.choice(["fcfs", "priority"])), async_scheduling=bool(rng.random() < 0.7),
        mamba_ssm_cache_dtype=state_dtype))
    engine.pool._free = OrderedDict.fromkeys(rng.permutation(list(engine.pool._free)).tolist())       # blocks anywhere
    mix = [(draw_prompt(rng), int(rng.integers(len(PARAMS)))) for _ in range(size)]
    outputs = collect(engine, [(int(rng.integers(0, 12)), prompt, PARAMS[p], int(rng.integers(-1, 2))) for prompt, p in mix])
    for output, (prompt, p) in zip(outputs, mix):
        assert answer(output) == alone(model, prompt, p, state_dtype)
    assert everything_is_free(engine)


@pytest.mark.parametrize("model", MODELS)
def test_preemption_happens_and_changes_nothing(model, checkpoint, alone):
    """Blocks for little more than one longest request, three requests that grow: some must be saved and restored."""
    engine = Engine(checkpoint(model), EngineConfig(device="cuda", max_model_len=LONGEST, num_blocks=LONGEST // 16 + 1,
                                                    enable_prefix_caching=False))
    prompts = [tuple(PREFIX[i : i + 330]) for i in range(3)]
    outputs = collect(engine, [(0, prompt, PARAMS[2], 0) for prompt in prompts])
    assert engine.loop.scheduler.num_preemptions > 0
    assert [answer(output) for output in outputs] == [alone(model, prompt, 2) for prompt in prompts]

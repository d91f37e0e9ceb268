"""How much of a device's memory is left for KV blocks and states: found by running the largest step there can be."""

from vtlite.config import EngineConfig
from vtlite.engine.batch import build
from vtlite.engine.device import Wing
from vtlite.engine.device_runner import DeviceRunner
from vtlite.engine.request import Request
from vtlite.engine.sampling_params import SamplingParams
from vtlite.engine.scheduler import Plan
from vtlite.errors import ConfigError


def room_for_caches(model, wing: Wing, config: EngineConfig, max_num_batched_tokens: int) -> int:
    """Bytes that gpu_memory_utilization leaves, once the model is loaded and has the temporaries of its largest step."""
    device = wing.device
    if device.name != "emulator":                        # there temporaries are host memory, and a large step takes minutes
        runner = DeviceRunner(model, wing, config, num_blocks=1, num_slots=1, max_rows=max_num_batched_tokens,
                              max_model_len=max_num_batched_tokens)
        runner.forward(largest_step(config, max_num_batched_tokens))
        del runner
    free, total = device.memory()
    room = int(total * config.gpu_memory_utilization) - (total - free)
    if room <= 0:
        raise ConfigError(f"gpu_memory_utilization {config.gpu_memory_utilization:g} is {total * config.gpu_memory_utilization / 2**30:.1f} "
                          f"of the {total / 2**30:.1f} GiB of {device.name}, and {(total - free) / 2**30:.1f} GiB are taken by weights, "
                          f"activations and other programs: {-room / 2**30:.1f} GiB too much; raise it, lower max_num_batched_tokens "
                          f"({max_num_batched_tokens}), or use a smaller model")
    return room


def largest_step(config: EngineConfig, num_tokens: int):
    """A Batch of `num_tokens` tokens of as many sequences as may run, each of which draws. All KV goes to block 0."""
    num_seqs = min(config.max_num_seqs, num_tokens)
    params = SamplingParams(temperature=1.0, top_p=0.9, logprobs=min(config.max_logprobs, 1), presence_penalty=0.1)
    plan = Plan()
    for i in range(num_seqs):
        length = num_tokens // num_seqs + (i < num_tokens % num_seqs)
        request = Request(f"largest-{i}", 0, length, [0] * length, params, seed=i, max_tokens=1, eos_token_id=None,
                          stop_token_ids=frozenset(), bad_word_ids=[], detokenizer=None, num_computed_tokens=length,
                          block_ids=[0] * -(-length // config.block_size))
        plan.scheduled[request] = length
    return build(plan, config.block_size)

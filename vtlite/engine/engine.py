"""A checkpoint, loaded and ready: checks requests at the door and runs them through the loop."""

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from vtlite import reference
from vtlite.checkpoint.blank_tokenizer import tokenizer_or_blank
from vtlite.checkpoint.dummy import DummyWeights
from vtlite.checkpoint.resolve import resolve
from vtlite.checkpoint.tokenizer import Tokenizer
from vtlite.checkpoint.weights import Weights
from vtlite.config import EngineConfig, ModelConfig
from vtlite.engine.cache import BlockPool
from vtlite.engine.detokenizer import Detokenizer
from vtlite.engine.device import Wing, default_kv_cache_bytes, let_cublas_help, select_wing
from vtlite.engine.outputs import Delta
from vtlite.engine.request import Request, draw_seed
from vtlite.engine.runner import Runner
from vtlite.engine.sampling_params import SamplingParams
from vtlite.engine.scheduler import Scheduler
from vtlite.engine.sync_loop import SyncLoop
from vtlite.errors import ConfigError, DeviceError, RequestError
from vtlite.models.registry import load_model

log = logging.getLogger(__name__)

STATE_DTYPES = {"float32": None, "bfloat16": np.dtype(ml_dtypes.bfloat16)}       # None: as a model has it by itself
GENERATION_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class Engine:
    """Everything that serves one model. One thread may call `add`, `abort` and `step`."""

    def __init__(self, model: str | Path | None = None, config: EngineConfig = EngineConfig(),
                 on_load: Callable[[int, int], None] | None = None):
        """`on_load(bytes, of)` hears how far the weights have come on their way to a device."""
        self.directory = resolve(model)
        self.config = config
        self.model_config = ModelConfig.read(self.directory)
        self.tokenizer = Tokenizer(self.directory) if config.load_format == "auto" else tokenizer_or_blank(self.directory)
        wing = select_wing(config.device)
        try:
            self._start(wing, on_load)
        except DeviceError as error:
            if config.device != "auto" or wing.device is None:
                raise
            log.warning("running on the CPU instead of %s: %s", wing.device.name, error)
            self._start(select_wing("cpu"), on_load)

    def _start(self, wing: Wing, on_load) -> None:
        """Load the model into the wing's memory, and fill what is left of it with the caches."""
        config = self.config
        self.device = wing.device
        self.model = load_model(self.model_config, self._weights(wing, on_load), wing.ops, wing.dtype,
                                STATE_DTYPES[config.mamba_ssm_cache_dtype])
        max_num_batched_tokens = config.max_num_batched_tokens or wing.default_batched_tokens
        room = None
        if wing.device is not None:
            from vtlite.engine.device_memory import room_for_caches
            let_cublas_help(wing.device, config.cublas)
            room = room_for_caches(self.model, wing, config, max_num_batched_tokens)
        max_num_seqs, num_cached_states, room = self._fit_states(room)
        self._check_budget(max_num_batched_tokens, max_num_seqs)
        self.max_model_len, num_blocks = self._fit(room)
        self.pool = BlockPool(num_blocks, config.block_size,
                              config.enable_prefix_caching and (num_cached_states > 0 or not self.model.state_shapes))
        scheduler = Scheduler(self.pool, max_num_seqs, max_num_batched_tokens, config.scheduling_policy,
                              self.model.prefill_grid, num_cached_states)
        num_slots = 1 + max_num_seqs + num_cached_states                  # slot 0 is never handed out
        if wing.device is None:
            loop, runner = SyncLoop, Runner(self.model, wing.ops, num_blocks, config.block_size, num_slots)
        else:
            from vtlite.engine.ahead_loop import AheadLoop
            from vtlite.engine.device_runner import DeviceRunner
            runner = DeviceRunner(self.model, wing, config, num_blocks, num_slots, max_num_batched_tokens, self.max_model_len)
            loop = AheadLoop if config.async_scheduling else SyncLoop
        self.loop = loop(scheduler, runner, self.tokenizer)

    def _weights(self, wing: Wing, on_load) -> Weights | DummyWeights:
        """Where the model takes its weights from, and puts them."""
        if wing.device is None:
            upload = None
        else:
            from vtlite.cuda.upload import Upload
            upload = Upload(wing.device)
        if self.config.load_format == "dummy":
            return DummyWeights(wing.ops.uniform, reference.uniform, upload)
        weights = Weights(self.directory, upload)
        if upload is not None:
            num_bytes, (free, total) = weights.num_bytes, wing.device.memory()
            if on_load is not None:
                upload.on_bytes = lambda so_far: on_load(so_far, num_bytes)
            if num_bytes > free:
                raise DeviceError(f"the weights of {self.directory} take {num_bytes / 2**30:.1f} GiB, and {free / 2**30:.1f} of the "
                                  f"{total / 2**30:.1f} GiB of {wing.device.name} are free: {(num_bytes - free) / 2**30:.1f} GiB too "
                                  f"little; use a smaller model, or --device cpu")
        return weights

    @property
    def has_work(self) -> bool:
        return self.loop.has_work

    def step(self) -> list[Delta]:
        return self.loop.step()

    def abort(self, request_id: str) -> None:
        self.loop.abort(request_id)

    def sampling_params(self, **given) -> SamplingParams:
        """SamplingParams with generation_config.json's values wherever `given` says nothing."""
        generation = self.model_config.generation
        defaults = {name: generation[name] for name in GENERATION_DEFAULTS if generation.get(name) is not None}
        if generation.get("max_new_tokens") is not None:
            defaults["max_tokens"] = generation["max_new_tokens"]
        return SamplingParams(**{**defaults, **given})

    def add(self, request_id: str, prompt_token_ids: Sequence[int], params: SamplingParams, priority: int = 0) -> None:
        """Queue `params.n` answers to a prompt. RequestError, with nothing queued, if it cannot be served."""
        for request in self.prepare(request_id, prompt_token_ids, params, priority):
            self.loop.add(request)

    def prepare(self, request_id: str, prompt_token_ids: Sequence[int], params: SamplingParams,
                priority: int = 0) -> list[Request]:
        """The checked Requests of a prompt, one per answer, ready for `loop.add`. Callable from any thread."""
        prompt = list(prompt_token_ids)
        self.check(prompt, params)
        room = self.max_model_len - len(prompt)
        eos = self.tokenizer.eos_token_id
        stop_ids = set(params.stop_token_ids)
        if not params.ignore_eos:
            stop_ids |= set(self.model_config.eos_token_ids) - {eos}
        bad_words = [ids for word in params.bad_words for ids in self._bad_word_ids(word)]
        requests = [Request(
            request_id=request_id, index=index, prompt_len=len(prompt), token_ids=prompt.copy(), params=params,
            seed=draw_seed(params, index),
            max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            eos_token_id=eos, stop_token_ids=frozenset(stop_ids), bad_word_ids=bad_words,
            detokenizer=Detokenizer(self.tokenizer, prompt, params.stop, params.include_stop_str_in_output,
                                    params.skip_special_tokens),
            priority=priority,
        ) for index in range(params.n)]
        if params.allowed_token_ids is None:
            candidates, name, every = range(self.model_config.vocab_size), "min_tokens", "every token of this model"
        else:
            candidates, name, every = params.allowed_token_ids, "allowed_token_ids", "every id of allowed_token_ids"
        if requests[0].forbidden_ids().issuperset(candidates):
            raise RequestError(f"bad_words, or stop tokens before min_tokens, forbid {every}, so no token could be drawn", name)
        return requests

    def check(self, prompt: list[int], params: SamplingParams) -> None:
        """RequestError if the prompt or its parameters are beyond this model's limits."""
        vocab_size = self.model_config.vocab_size
        if not prompt:
            raise RequestError("the prompt is empty; at least one token is needed", "prompt")
        if len(prompt) >= self.max_model_len:
            raise RequestError(f"This model's maximum context length is {self.max_model_len} tokens. However, your prompt "
                               f"contains {len(prompt)} tokens and at least 1 is needed for the answer.", "prompt")
        named = {"prompt": prompt, "stop_token_ids": params.stop_token_ids,
                 "allowed_token_ids": params.allowed_token_ids or (), "logit_bias": params.logit_bias or ()}
        for name, ids in named.items():
            for i in ids:
                if type(i) is not int or not 0 <= i < vocab_size:
                    raise RequestError(f"{name} holds {i!r}, which is not a token id of this model "
                                       f"(0 .. {vocab_size - 1})", name)
        for name in ("logprobs", "prompt_logprobs"):
            asked = getattr(params, name)
            if asked is not None and asked > self.config.max_logprobs:
                raise RequestError(f"{name} is {asked}, more than the {self.config.max_logprobs} this engine gives", name)

    def _bad_word_ids(self, word: str) -> list[list[int]]:
        """A word's ids at the start of a text and after a space."""
        spellings = [self.tokenizer.encode(text, add_special_tokens=False) for text in (word, " " + word.lstrip())]
        return [ids for i, ids in enumerate(spellings) if ids and ids not in spellings[:i]]

    def _fit(self, room: int | None) -> tuple[int, int]:
        """max_model_len and the number of KV blocks, chosen or checked to hold at least one longest request.

        `room` is what is left of a device, in bytes; None on the CPU.
        """
        config, longest = self.config, self.model_config.max_position_embeddings
        num_layers, num_kv_heads, head_dim = self.model.kv_shape
        block_bytes = 2 * num_layers * config.block_size * num_kv_heads * head_dim * self.model.dtype.itemsize
        if config.max_model_len is not None and config.max_model_len > longest:
            raise ConfigError(f"max_model_len is {config.max_model_len}, but the model was made for {longest} positions "
                              f"({self.model_config.source}: 'max_position_embeddings')")
        num_blocks = config.num_blocks
        if num_blocks is None:
            num_blocks = (config.kv_cache_bytes or (default_kv_cache_bytes() if room is None else room)) // block_bytes
        elif room is not None and num_blocks * block_bytes > room:
            raise ConfigError(f"{num_blocks} KV blocks take {num_blocks * block_bytes / 2**20:.0f} MiB, and {room / 2**20:.0f} MiB of "
                              f"{self.device.name} are left for them: {(num_blocks * block_bytes - room) / 2**20:.0f} MiB too little; "
                              f"ask for at most {room // block_bytes}, or raise gpu_memory_utilization")
        held = (num_blocks - 1) * config.block_size                       # block 0 is never handed out
        max_model_len = config.max_model_len or min(longest, held)
        if held < max(max_model_len, 2):
            needed = -(-max(max_model_len, 2) // config.block_size) + 1
            raise ConfigError(f"a request of {max_model_len} tokens needs {needed} KV blocks "
                              f"({needed * block_bytes / 2**20:.0f} MiB) and {num_blocks} fit "
                              f"({num_blocks * block_bytes / 2**20:.0f} MiB), {(needed - num_blocks) * block_bytes / 2**20:.0f} MiB "
                              f"too little; lower max_model_len or raise {'kv_cache_bytes' if room is None else 'gpu_memory_utilization'}")
        return max_model_len, num_blocks

    def _fit_states(self, room: int | None) -> tuple[int, int, int | None]:
        """How many requests may run at once: max_num_seqs, or as many recurrent states as fit; how many states of cached
        prefixes are kept; and the room left."""
        state_bytes = sum(math.prod(shape) * dtype.itemsize for layer in self.model.state_shapes for shape, dtype in layer)
        if not state_bytes:
            return self.config.max_num_seqs, 0, room
        share = default_kv_cache_bytes() if room is None else room // 2
        if share < state_bytes:
            raise ConfigError(f"the recurrent state of one request takes {state_bytes / 2**20:.1f} MiB, and "
                              f"{'a quarter of the free memory' if room is None else 'half of what is left of ' + self.device.name} "
                              f"is {share / 2**20:.1f} MiB; free some, or choose a smaller model")
        num_cached = self._num_cached_states(state_bytes, share)
        max_num_seqs = min(self.config.max_num_seqs, share // state_bytes - num_cached)
        return max_num_seqs, num_cached, None if room is None else room - (1 + max_num_seqs + num_cached) * state_bytes

    def _num_cached_states(self, state_bytes: int, share: int) -> int:
        """States that the prefix cache keeps. What is kept, and where, is said here, in the log."""
        config = self.config
        if not config.enable_prefix_caching:
            return 0
        budget = share // 8 if config.state_cache_bytes is None else config.state_cache_bytes
        if budget > share - state_bytes:
            raise ConfigError(f"state_cache_bytes is {budget}, but states may take {share} bytes here, and one request's takes "
                              f"{state_bytes}; at most {share - state_bytes} can be kept")
        count = budget // state_bytes
        if not count:
            log.info("prefix cache off: a recurrent state of %s takes %.1f MiB, more than the %.1f MiB of state_cache_bytes",
                     self.model_config.architecture, state_bytes / 2**20, budget / 2**20)
        else:
            log.info("prefix cache: room for %d recurrent states of %.1f MiB; one is kept where a part of a prompt ends on a multiple "
                     "of %d tokens, and always at the last one before a prompt's end; the least recently used goes first",
                     count, state_bytes / 2**20, math.lcm(self.model.prefill_grid, config.block_size))
        return count

    def _check_budget(self, max_num_batched_tokens: int, max_num_seqs: int) -> None:
        """ConfigError if a step may have no room for a part of a prompt beside the decodes of the other requests."""
        grid = self.model.prefill_grid
        least = max_num_seqs - 1 + grid
        if grid > 1 and max_num_batched_tokens < least:
            raise ConfigError(f"max_num_batched_tokens is {max_num_batched_tokens}, but parts of prompts of "
                              f"{self.model_config.architecture} end on multiples of {grid} tokens, so beside the decodes of other "
                              f"requests (max_num_seqs {max_num_seqs}) {least} are needed; raise it, or lower max_num_seqs")

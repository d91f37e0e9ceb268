"""One answer being generated: its tokens, how far it is computed, and what it holds.

A prompt with n answers becomes n Requests that share a `request_id` and differ in `index` and seed.
"""

import secrets
from dataclasses import dataclass, field

from vtlite.engine.detokenizer import Detokenizer
from vtlite.engine.sampling_params import SamplingParams


@dataclass(eq=False)
class Request:
    """State of one answer. `token_ids` is the prompt followed by the answer so far."""

    request_id: str
    index: int
    prompt_len: int
    token_ids: list[int]
    params: SamplingParams
    seed: int                                   # 0 .. 2^64 - 1
    max_tokens: int                             # answer tokens at most, the model's length considered
    eos_token_id: int | None                    # ends the answer with no stop_reason
    stop_token_ids: frozenset[int]              # end the answer and are its stop_reason
    bad_word_ids: list[list[int]]               # token sequences that must not be completed
    detokenizer: Detokenizer
    priority: int = 0                           # lower runs earlier, under the priority policy
    arrival: int = 0                            # running number given by the scheduler

    num_computed_tokens: int = 0                # tokens whose KV exists
    block_ids: list[int] = field(default_factory=list)
    state_slot: int = 0                         # place of its recurrent state while it runs; 0 = none
    prefix_node: int = 0                        # place in the prefix index of its last registered block
    num_registered_blocks: int = 0
    saved: bool = False                         # preempted: KV of num_computed_tokens is kept by the runner
    num_cached_tokens: int = 0
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.request_id, self.index

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.prompt_len :]

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.prompt_len

    @property
    def uses_prefix_cache(self) -> bool:
        """Logprobs of prompt tokens need every position's logits, so such a prompt is computed in full."""
        return self.params.prompt_logprobs is None

    def append(self, token_id: int) -> str:
        """Take a drawn token, decide whether it ends the answer, and return the text it released."""
        self.token_ids.append(token_id)
        at_eos = token_id == self.eos_token_id and not self.params.ignore_eos
        if at_eos or token_id in self.stop_token_ids:
            self.finish_reason, self.stop_reason = "stop", None if at_eos else token_id
            return self.detokenizer.flush()
        text = self.detokenizer.push(token_id, may_stop=self.num_output_tokens > self.params.min_tokens)
        if self.detokenizer.stopped_by is not None:
            self.finish_reason, self.stop_reason = "stop", self.detokenizer.stopped_by
        elif self.num_output_tokens >= self.max_tokens:
            self.finish_reason = "length"
            text += self.detokenizer.flush()
        return text

    def forbidden_ids(self) -> set[int]:
        """Ids that must not be drawn next: stop tokens before min_tokens, and the ends of bad words."""
        forbidden = set()
        if self.num_output_tokens < self.params.min_tokens:
            forbidden |= self.stop_token_ids
            if self.eos_token_id is not None:
                forbidden.add(self.eos_token_id)
        for *start, last in self.bad_word_ids:
            if len(start) <= self.num_output_tokens and self.token_ids[self.num_tokens - len(start) :] == start:
                forbidden.add(last)
        return forbidden


def draw_seed(params: SamplingParams, index: int) -> int:
    """The 64-bit seed of answer `index`: seed + index, or a fresh random one."""
    if params.seed is None:
        return secrets.randbits(64)
    return (params.seed + index) % 2**64

"""What the engine hands back: deltas while a request runs, and whole answers made of them."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Logprob:
    """Natural log of a token's probability under the raw distribution; rank 1 = most likely."""

    logprob: float
    rank: int
    decoded_token: str


TokenLogprobs = dict[int, Logprob]   # the token itself first, then the top-N by rank


@dataclass
class Delta:
    """What one step added to answer `index` of request `request_id`.

    `text` may be empty while `token_ids` is not: characters that are incomplete, or could begin a stop
    string, are held back until they are decided. The last delta of an answer carries `finish_reason`.
    """

    request_id: str
    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None             # stop | length | abort | error
    stop_reason: int | str | None = None         # the stop id or stop string that matched; None for eos
    prompt_logprobs: list[TokenLogprobs | None] | None = None   # on the first delta, if asked for
    num_cached_tokens: int = 0                   # prompt tokens served by the prefix cache
    error: str | None = None                     # with finish_reason "error": what went wrong


@dataclass
class CompletionOutput:
    """One whole answer."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    @property
    def cumulative_logprob(self) -> float | None:
        """Sum of the chosen tokens' logprobs, if logprobs were asked for."""
        if self.logprobs is None:
            return None
        return sum(at[token].logprob for at, token in zip(self.logprobs, self.token_ids, strict=True))

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.token_ids += delta.token_ids
        if delta.logprobs is not None:
            self.logprobs = (self.logprobs or []) + delta.logprobs
        self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason


@dataclass
class RequestOutput:
    """A prompt and its answers, in order of `index`."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    num_cached_tokens: int = 0

    @property
    def finished(self) -> bool:
        return all(output.finish_reason is not None for output in self.outputs)

    def add(self, delta: Delta) -> None:
        self.outputs[delta.index].add(delta)
        self.num_cached_tokens = max(self.num_cached_tokens, delta.num_cached_tokens)
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = delta.prompt_logprobs

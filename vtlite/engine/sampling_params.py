"""How one request wants its tokens drawn: vLLM's names, ranges and defaults."""

import math
from dataclasses import dataclass, fields

from vtlite.errors import RequestError

GREEDY_BELOW = 1e-5          # a temperature under this means argmax
LOWEST_TEMPERATURE = 0.01    # smaller positive temperatures are raised to it: logits / t would overflow
MAX_N = 16384


@dataclass(frozen=True)
class SamplingParams:
    """Sampling choices of a request. Every field is checked at construction: RequestError names the field."""

    n: int = 1                                  # answers per prompt; answer i uses seed + i
    temperature: float = 1.0                    # 0 = greedy (ties go to the lowest id)
    top_p: float = 1.0
    top_k: int = 0                              # 0 or -1 = off
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None                     # None = drawn at arrival
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    max_tokens: int | None = 16                 # None = up to max_model_len
    logprobs: int | None = None                 # top-N beside the chosen token's; 0 = chosen only
    prompt_logprobs: int | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    skip_special_tokens: bool = True

    def __post_init__(self):
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        for name in ("stop", "stop_token_ids", "bad_words", "allowed_token_ids"):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
        _check(self)
        if GREEDY_BELOW <= self.temperature < LOWEST_TEMPERATURE:
            object.__setattr__(self, "temperature", LOWEST_TEMPERATURE)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    def __repr__(self):
        changed = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default)
        return f"SamplingParams({', '.join(changed)})"


def _check(p: SamplingParams) -> None:
    _number("temperature", p.temperature, 0.0, 2.0)
    _number("top_p", p.top_p, 0.0, 1.0, above=True)
    _number("min_p", p.min_p, 0.0, 1.0)
    _number("presence_penalty", p.presence_penalty, -2.0, 2.0)
    _number("frequency_penalty", p.frequency_penalty, -2.0, 2.0)
    _number("repetition_penalty", p.repetition_penalty, 0.0, 1e6, above=True)
    _integer("n", p.n, 1, MAX_N)
    _integer("top_k", p.top_k, -1, 2**31 - 1)
    _integer("min_tokens", p.min_tokens, 0, 2**31 - 1)
    if p.seed is not None:
        _integer("seed", p.seed, -(2**63), 2**63 - 1)
    if p.max_tokens is not None:
        _integer("max_tokens", p.max_tokens, 1, 2**31 - 1)
        if p.min_tokens > p.max_tokens:
            raise RequestError(f"min_tokens is {p.min_tokens}, more than max_tokens {p.max_tokens}", "min_tokens")
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(p, name) is not None:
            _integer(name, getattr(p, name), 0, 2**31 - 1)
    for name in ("stop", "bad_words"):
        for text in _sequence(name, getattr(p, name)):
            if not isinstance(text, str) or not text:
                raise RequestError(f"{name} should hold non-empty strings, found {text!r}", name)
    for i in _sequence("stop_token_ids", p.stop_token_ids):
        _integer("stop_token_ids", i, 0, 2**31 - 1)
    if p.allowed_token_ids is not None:
        if not _sequence("allowed_token_ids", p.allowed_token_ids):
            raise RequestError("allowed_token_ids is empty, so no token could be drawn; leave it out to allow all",
                               "allowed_token_ids")
        for i in p.allowed_token_ids:
            _integer("allowed_token_ids", i, 0, 2**31 - 1)
    for i, bias in (p.logit_bias or {}).items():
        _integer("logit_bias", i, 0, 2**31 - 1)
        _number("logit_bias", bias, -100.0, 100.0)
    if p.greedy and p.n > 1:
        raise RequestError(f"n is {p.n} with temperature 0, which would give the same answer {p.n} times; "
                           "raise the temperature or ask for one", "n")


def _number(name: str, value, low: float, high: float, above: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RequestError(f"{name} should be a finite number, found {value!r}", name)
    if not (low < value if above else low <= value) or value > high:
        raise RequestError(f"{name} should be in {'(' if above else '['}{low:g}, {high:g}], found {value!r}", name)


def _integer(name: str, value, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name} should be an integer, found {value!r}", name)
    if not low <= value <= high:
        raise RequestError(f"{name} should be in [{low}, {high}], found {value}", name)


def _sequence(name: str, value) -> tuple:
    if not isinstance(value, tuple):
        raise RequestError(f"{name} should be a list, found {value!r}", name)
    return value

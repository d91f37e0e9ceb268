"""One answer on its way to a person: token by token, timed, and stopped with Ctrl-C between two steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from vtlite.engine.engine import Engine
from vtlite.engine.outputs import CompletionOutput, Delta
from vtlite.engine.sampling_params import SamplingParams
from vtlite.errors import VtliteError

REQUEST_ID = "answer"


class Answer:
    """An answer to a prompt of token ids; iterate once to run it, piece of text by piece of text.

    Ctrl-C ends it after the step in progress, with finish_reason "abort". A second one raises KeyboardInterrupt, but
    never within a step, which would leave the engine half way. VtliteError if the model fails.
    """

    def __init__(self, engine: Engine, prompt_ids: list[int], params: SamplingParams):
        self.engine, self.prompt_ids, self.params = engine, prompt_ids, params
        self.output = CompletionOutput(0)
        self.num_cached_tokens = 0
        self._times: list[float] = []                    # of the request, then of each token; seconds
        self._stop_asked = self._stepping = False

    @property
    def interrupted(self) -> bool:
        return self.output.finish_reason == "abort"

    def __iter__(self) -> Iterator[str]:
        with self._ctrl_c_noted():
            self._times.append(perf_counter())
            self.engine.add(REQUEST_ID, self.prompt_ids, self.params)
            try:
                while self.output.finish_reason is None:
                    for delta in self._step():
                        if delta.error is not None:
                            raise VtliteError(delta.error)
                        self._times.append(perf_counter())
                        self.num_cached_tokens += delta.num_cached_tokens
                        self.output.add(delta)
                        yield delta.text
                    if self._stop_asked and self.output.finish_reason is None:
                        self.output.finish_reason = "abort"
            finally:
                self.engine.abort(REQUEST_ID)

    def summary(self) -> str:
        """How it went: "12 prompt tokens; 64 tokens, 41.0 tokens/s, first after 0.21 s; stop"."""
        count = len(self.output.token_ids)
        parts = [f"{count} token{'s' * (count != 1)}"]
        if count > 1:
            parts.append(f"{(count - 1) / (self._times[-1] - self._times[1]):.1f} tokens/s")
        if count:
            parts.append(f"first after {self._times[1] - self._times[0]:.2f} s")
        return f"{len(self.prompt_ids)} prompt tokens; {', '.join(parts)}; {self.ending()}"

    def ending(self) -> str:
        """Why it ended, in words."""
        if self.interrupted:
            return "interrupted"
        if self.output.finish_reason == "length":
            if len(self.output.token_ids) == self.params.max_tokens:
                return f"cut off at --max-tokens {self.params.max_tokens}"
            return f"cut off: the context of {self.engine.max_model_len} tokens is full"
        if isinstance(self.output.stop_reason, str):
            return f"stopped before {self.output.stop_reason!r}"
        return "the model ended its answer"

    def _step(self) -> list[Delta]:
        self._stepping = True
        try:
            return self.engine.step()
        finally:
            self._stepping = False

    @contextmanager
    def _ctrl_c_noted(self) -> Iterator[None]:
        def note(signum, frame):
            if self._stop_asked and not self._stepping:
                raise KeyboardInterrupt
            self._stop_asked = True

        previous = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)

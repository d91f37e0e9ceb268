"""The forward loop, synchronous: a step is schedule, build, forward, commit."""

from dataclasses import dataclass

from vtlite.engine.batch import Batch, build
from vtlite.engine.outputs import Delta, Logprob, TokenLogprobs
from vtlite.engine.request import Request
from vtlite.engine.runner import Runner, StepResult
from vtlite.engine.scheduler import Scheduler


@dataclass
class LoopCounters:
    """Totals since start."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    corrupted_requests: int = 0          # ended because their logits were not finite


class SyncLoop:
    """Requests go in, deltas come out. Not thread-safe: one thread adds, aborts and steps."""

    def __init__(self, scheduler: Scheduler, runner: Runner, tokenizer):
        self.scheduler, self.runner = scheduler, runner
        self.counters = LoopCounters()
        self._tokenizer = tokenizer
        self._prompt_logprobs: dict[Request, list[TokenLogprobs | None]] = {}

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, request: Request) -> None:
        self.scheduler.add(request)

    def abort(self, request_id: str) -> None:
        """Drop every answer of `request_id`; its blocks are free at once. Unknown ids are ignored."""
        for request in [*self.scheduler.running, *self.scheduler.waiting]:
            if request.request_id == request_id:
                self._forget(request)

    def step(self) -> list[Delta]:
        """Run one step; returns a delta for each answer that got a token."""
        plan = self.scheduler.schedule()
        self.runner.move(plan)
        if not plan.scheduled:
            return []
        batch = build(plan, self.runner.block_size)
        return self.commit(batch, self.runner.forward(batch))

    def commit(self, batch: Batch, result: StepResult) -> list[Delta]:
        """Append the drawn tokens, finish what is finished, free what it held. Who was dropped meanwhile gets nothing."""
        self._collect_prompt_logprobs(batch, result)
        deltas, running = [], set(self.scheduler.running)
        for row, request in enumerate(batch.sampled):
            if request not in running:
                continue
            first = request.num_output_tokens == 0
            delta = self._take(request, result.samples, row)
            if first:
                self.counters.prompt_tokens += request.prompt_len
                delta.num_cached_tokens = request.num_cached_tokens
                delta.prompt_logprobs = self._prompt_logprobs.pop(request, None)
            if delta.finish_reason is not None:
                self._forget(request)
            deltas.append(delta)
        return deltas

    def _take(self, request: Request, samples, row: int) -> Delta:
        if not samples.valid[row]:
            self.counters.corrupted_requests += 1
            return Delta(request.request_id, request.index, "", [], finish_reason="error",
                         error="no token could be drawn: the model's logits were not finite, or the request forbids "
                               "every token")
        token_id = int(samples.token_ids[row])
        text = request.append(token_id)
        self.counters.generation_tokens += 1
        logprobs = None
        if request.params.logprobs is not None:
            logprobs = [self._token_logprobs(token_id, samples[2:], row, request.params.logprobs)]
        return Delta(request.request_id, request.index, text, [token_id], logprobs,
                     request.finish_reason, request.stop_reason)

    def _collect_prompt_logprobs(self, batch: Batch, result: StepResult) -> None:
        row = 0
        for request, count in batch.prompt_rows:
            so_far = self._prompt_logprobs.setdefault(request, [None])          # the first token has no past
            for row in range(row, row + count):
                target = int(batch.prompt_targets[row])
                so_far.append(self._token_logprobs(target, result.prompt_logprobs, row, request.params.prompt_logprobs))
            row += 1

    def _token_logprobs(self, token_id: int, columns, row: int, top: int) -> TokenLogprobs:
        """The token's own logprob, then the `top` most likely ones."""
        logprobs, ranks, top_ids, top_logprobs = columns
        text = self._tokenizer.token_text
        at = {token_id: Logprob(float(logprobs[row]), int(ranks[row]), text(token_id))}
        for rank, (i, value) in enumerate(zip(top_ids[row, :top].tolist(), top_logprobs[row, :top].tolist()), start=1):
            at.setdefault(i, Logprob(value, rank, text(i)))
        return at

    def _forget(self, request: Request) -> None:
        self.scheduler.remove(request)
        self._prompt_logprobs.pop(request, None)

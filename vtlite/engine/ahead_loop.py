"""The forward loop on a device, one step ahead: the next decode step is launched before the tokens of this one are read.

A decode step needs from the one before nothing but its tokens, and those it takes on the device. So while the device computes,
the host works on what is done: scheduling, text and stop conditions cost no time. If a request turns out to have ended, what the
step ahead made of it is dropped; its blocks and its state are given to others only by later steps, which come after it.
Nothing that a request gets depends on it: answers are those of SyncLoop, bit for bit.
"""

from vtlite.engine.batch import Batch, build, following
from vtlite.engine.device_runner import Launched
from vtlite.engine.outputs import Delta
from vtlite.engine.request import Request
from vtlite.engine.sync_loop import SyncLoop


class AheadLoop(SyncLoop):
    """SyncLoop over a DeviceRunner."""

    _ahead: Launched | None = None               # launched, its tokens not yet counted

    def step(self) -> list[Delta]:
        """Finish one step, with the next one under way if that can be; returns a delta for each answer that got a token."""
        launched = self._take_up() or self._launch_next()
        if launched is None:
            return []
        batch = self._look_ahead(launched.batch)
        self._ahead = self.runner.launch(batch) if batch is not None else None
        return self.commit(launched.batch, self.runner.read(launched))

    def _take_up(self) -> Launched | None:
        """The step ahead, now counted as computed; None if there is none, or nobody left who takes part in it."""
        launched, self._ahead = self._ahead, None
        if launched is not None:
            running = set(self.scheduler.running)
            still = [request for request in launched.batch.sampled if request in running]
            if still:
                self.scheduler.advance(still)
                return launched
            self.runner.read(launched)
        return None

    def _launch_next(self) -> Launched | None:
        plan = self.scheduler.schedule()
        self.runner.move(plan)
        return self.runner.launch(build(plan, self.runner.block_size)) if plan.scheduled else None

    def _look_ahead(self, batch: Batch) -> Batch | None:
        """The step after a decode step of all running requests, if it will be one of the same requests."""
        scheduler = self.scheduler
        if (scheduler.may_admit or len(batch.sampled) != len(scheduler.running) or not self.runner.is_decode(batch)
                or not all(map(_goes_on, batch.sampled))
                or not all(scheduler.pool.grow(request, request.num_tokens + 1) for request in batch.sampled)):
            return None
        return following(batch, self.runner.block_size)


def _goes_on(request: Request) -> bool:
    """Whether a request draws after the token that is under way, unless that token ends it, and not depending on that token."""
    params = request.params
    return (request.num_output_tokens + 1 < request.max_tokens and request.num_output_tokens >= params.min_tokens
            and params.repetition_penalty == 1 and params.frequency_penalty == 0 and params.presence_penalty == 0
            and not request.bad_word_ids)

"""Which requests run in a step, with how many tokens, in which blocks and state slots.

There are no phases. A request has `num_tokens` and `num_computed_tokens`; a step schedules the difference, cut by a
token budget. Running requests come first, so a long prompt is prefilled in chunks beside the others' decodes; then
waiting ones are admitted in order. When blocks run out, the running request that is last in order is preempted: its
KV and recurrent state are saved, and restored when it is admitted again, so nothing is ever computed twice by another
route. Every running request holds one state slot, whether its model has a recurrent state or not.
"""

from bisect import insort
from dataclasses import dataclass, field
from typing import NamedTuple

from vtlite.engine.cache import BlockPool
from vtlite.engine.request import Request


class Move(NamedTuple):
    """What a request holds, or held, in the caches: to copy out before a step, or to fill."""

    request: Request
    blocks: list[int]                # those with computed tokens
    state_slot: int


@dataclass
class Plan:
    """The work of one step. Saves happen first, then restores and resets, then the forward pass."""

    scheduled: dict[Request, int] = field(default_factory=dict)          # request -> tokens to compute
    saves: list[Move] = field(default_factory=list)
    restores: list[Move] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)                      # state slots that a new request starts from zero
    discards: list[Request] = field(default_factory=list)                # saves nobody will ask for


class Scheduler:
    """Continuous batching over one `BlockPool`, first come first served or by priority."""

    def __init__(self, pool: BlockPool, max_num_seqs: int, max_num_batched_tokens: int, policy: str = "fcfs"):
        self.pool = pool
        self.running: list[Request] = []
        self.waiting: list[Request] = []              # sorted by _order
        self.num_preemptions = 0
        self._free_slots = list(range(max_num_seqs, 0, -1))              # slot 0 is the harmless target of padding
        self._max_num_batched_tokens = max_num_batched_tokens
        self._by_priority = policy == "priority"
        self._arrivals = 0
        self._discards: list[Request] = []

    def add(self, request: Request) -> None:
        request.arrival = self._arrivals
        self._arrivals += 1
        insort(self.waiting, request, key=self._order)

    def remove(self, request: Request) -> None:
        """Drop a finished or aborted request and free what it holds."""
        (self.running if request in self.running else self.waiting).remove(request)
        self._release(request)
        if request.saved:
            self._discards.append(request)

    def schedule(self) -> Plan:
        plan = Plan(discards=self._discards)
        self._discards = []
        budget = self._schedule_running(plan, self._max_num_batched_tokens)
        for request, num_tokens in plan.scheduled.items():
            self._advance(request, num_tokens)
        if not plan.saves:
            self._admit_waiting(plan, budget)
        return plan

    def _schedule_running(self, plan: Plan, budget: int) -> int:
        """Give each running request its next tokens; returns the budget that is left."""
        for request in list(self.running):
            if budget == 0:
                break
            if request not in self.running:           # preempted for an earlier one
                continue
            num_tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            while not self.pool.grow(request, request.num_computed_tokens + num_tokens):
                victim = max(self.running, key=self._order)
                budget += plan.scheduled.pop(victim, 0)
                self._preempt(victim, plan)
                if victim is request:
                    break
            else:
                plan.scheduled[request] = num_tokens
                budget -= num_tokens
        return budget

    def _admit_waiting(self, plan: Plan, budget: int) -> None:
        while self.waiting and budget > 0 and self._free_slots:
            request = self.waiting[0]
            hits = []
            if not request.saved and request.uses_prefix_cache:
                hits = self.pool.match(request.token_ids)
                request.num_computed_tokens = len(hits) * self.pool.block_size
            num_tokens = min(request.num_tokens - request.num_computed_tokens, budget)
            if not self.pool.admit(request, hits, request.num_computed_tokens + num_tokens):
                break                                 # nobody overtakes
            self.waiting.pop(0)
            self.running.append(request)
            request.state_slot = self._free_slots.pop()
            if request.saved:
                plan.restores.append(self._move(request))
                request.saved = False
            else:
                plan.resets.append(request.state_slot)
                request.num_cached_tokens = request.num_computed_tokens
                if self.pool.enable_prefix_caching and request.uses_prefix_cache:
                    self.pool.num_queried_tokens += request.num_tokens
                    self.pool.num_hit_tokens += request.num_cached_tokens
            plan.scheduled[request] = num_tokens
            budget -= num_tokens
            self._advance(request, num_tokens)

    def _advance(self, request: Request, num_tokens: int) -> None:
        """Count tokens as computed. Later requests of the same step may already share their blocks:
        every layer writes all new KV before any of it is read."""
        request.num_computed_tokens += num_tokens
        self.pool.register(request)

    def _preempt(self, victim: Request, plan: Plan) -> None:
        plan.saves.append(self._move(victim))
        victim.saved = True
        self._release(victim)
        self.running.remove(victim)
        insort(self.waiting, victim, key=self._order)
        self.num_preemptions += 1

    def _move(self, request: Request) -> Move:
        return Move(request, request.block_ids[: self.pool.blocks_for(request.num_computed_tokens)], request.state_slot)

    def _release(self, request: Request) -> None:
        """Take back the blocks and the slot of a request, which may have none."""
        self.pool.release(request)
        if request.state_slot:
            self._free_slots.append(request.state_slot)
            request.state_slot = 0

    def _order(self, request: Request) -> tuple[int, int]:
        return request.priority if self._by_priority else 0, request.arrival

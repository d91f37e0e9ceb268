"""Which requests run in a step, with how many tokens, in which blocks and state slots.

There are no phases. A request has `num_tokens` and `num_computed_tokens`; a step schedules the difference, cut by a
token budget. Running requests come first, so a long prompt is prefilled in chunks beside the others' decodes; then
waiting ones are admitted in order. When blocks run out, the running request that is last in order is preempted: its
KV and recurrent state are saved, and restored when it is admitted again, so nothing is ever computed twice by another
route. Every running request holds one state slot, whether its model has a recurrent state or not.

A model with a recurrent state computes prompts on a grid of positions: parts of a prompt end on it, or at the prompt's
end, so that its arithmetic does not depend on the cuts. If states are cached, one part ends at the last grid point before
the prompt's end, and its state is kept there for prompts with the same beginning.
"""

import logging
import math
from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from vtlite.engine.cache import BlockPool
from vtlite.engine.request import Request
from vtlite.engine.state_cache import StateCache

log = logging.getLogger(__name__)


LOOKUP_REASONS = {
    "hit": "a prefix was found",
    "no_blocks": "no KV of this beginning is cached",
    "no_state": "KV is cached, but no recurrent state at any point of it",
    "short": "the prompt ends before the first point that could be shared",
    "prompt_logprobs": "logprobs of the prompt need all of it computed",
}


class Move(NamedTuple):
    """What a request holds, or held, in the caches: to copy out before a step, or to fill."""

    request: Request
    blocks: list[int]                # those with computed tokens
    state_slot: int


@dataclass
class Plan:
    """The work of one step. States are kept first, as the last step left them, then saves, restores, resets and loads happen,
    then the forward pass."""

    scheduled: dict[Request, int] = field(default_factory=dict)          # request -> tokens to compute
    saves: list[Move] = field(default_factory=list)
    restores: list[Move] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)                      # state slots that a new request starts from zero
    keeps: list[tuple[int, int]] = field(default_factory=list)           # states to copy: (from, to) state slot
    loads: list[tuple[int, int]] = field(default_factory=list)           # likewise
    discards: list[Request] = field(default_factory=list)                # saves nobody will ask for


class Scheduler:
    """Continuous batching over one `BlockPool`, first come first served or by priority.

    `prefill_grid` is what parts of prompts end on; `num_cached_states` state slots, behind those of requests, keep states.
    """

    def __init__(self, pool: BlockPool, max_num_seqs: int, max_num_batched_tokens: int, policy: str = "fcfs",
                 prefill_grid: int = 1, num_cached_states: int = 0):
        assert prefill_grid == 1 or max_num_batched_tokens >= max_num_seqs - 1 + prefill_grid, "a part of a prompt must fit"
        self.pool = pool
        self.running: list[Request] = []
        self.waiting: list[Request] = []              # sorted by _order
        self.num_preemptions = 0
        self.prefix_lookups: Counter[str] = Counter()          # admitted requests by what the prefix cache had for them
        self.states: StateCache | None = None
        if num_cached_states:
            first = max_num_seqs + 1
            self.states = StateCache(range(first, first + num_cached_states), math.lcm(prefill_grid, pool.block_size))
            pool.on_forget = self._forget_state
        self._free_slots = list(range(max_num_seqs, 0, -1))              # slot 0 is the harmless target of padding
        self._max_num_batched_tokens = max_num_batched_tokens
        self._by_priority = policy == "priority"
        self._arrivals = 0
        self._prefill_grid = prefill_grid
        self._discards: list[Request] = []
        self._to_keep: dict[int, int] = {}                     # prefix node -> state slot where this step leaves its state

    @property
    def may_admit(self) -> bool:
        """Whether somebody waits and a state slot is free: the next step admits them if there are blocks and budget enough."""
        return bool(self.waiting and self._free_slots)

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
        plan = Plan(discards=self._discards, keeps=self._keep_states())
        self._discards = []
        budget = self._schedule_running(plan, self._max_num_batched_tokens)
        for request, num_tokens in plan.scheduled.items():
            self._advance(request, num_tokens)
        if not plan.saves:
            self._admit_waiting(plan, budget)
        return plan

    def advance(self, requests: list[Request]) -> None:
        """Count one more token of each as computed: by a step that no plan was made for."""
        for request in requests:
            self._advance(request, 1)

    def _schedule_running(self, plan: Plan, budget: int) -> int:
        """Give each running request its next tokens; returns the budget that is left."""
        for request in list(self.running):
            if budget == 0:
                break
            if request not in self.running:           # preempted for an earlier one
                continue
            num_tokens = self._next_tokens(request, budget)
            if num_tokens == 0:
                continue
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
            hits, reason = [], "preempted"
            if not request.saved:
                hits, reason = self._look_up(request)
                request.num_computed_tokens = len(hits) * self.pool.block_size
            num_tokens = self._next_tokens(request, budget)
            if num_tokens == 0 or not self.pool.admit(request, hits, request.num_computed_tokens + num_tokens):
                break                                 # nobody overtakes
            self.waiting.pop(0)
            self.running.append(request)
            request.state_slot = self._free_slots.pop()
            if request.saved:
                plan.restores.append(self._move(request))
                request.saved = False
            else:
                if hits and self.states is not None:
                    plan.loads.append((self.states.use(hits[-1][0]), request.state_slot))
                else:
                    plan.resets.append(request.state_slot)
                request.num_cached_tokens = request.num_computed_tokens
                if self.pool.enable_prefix_caching:
                    self._count_lookup(request, reason)
            plan.scheduled[request] = num_tokens
            budget -= num_tokens
            self._advance(request, num_tokens)

    def _look_up(self, request: Request) -> tuple[list[tuple[int, int]], str]:
        """Cached blocks that the request may use, and the reason (of LOOKUP_REASONS) why it gets them or none."""
        if not request.uses_prefix_cache:
            return [], "prompt_logprobs"
        hits = self.pool.match(request.token_ids)
        found, least = len(hits) * self.pool.block_size, self.pool.block_size
        if self.states is not None:
            least = self.states.interval
            while hits and hits[-1][0] not in self.states:
                hits.pop()
        if hits:
            return hits, "hit"
        if request.num_tokens <= least:
            return [], "short"
        return [], "no_state" if found >= least else "no_blocks"

    def _count_lookup(self, request: Request, reason: str) -> None:
        self.prefix_lookups[reason] += 1
        log.debug("prefix cache: request %s gets %d of %d tokens: %s", request.request_id, request.num_cached_tokens,
                  request.num_tokens, LOOKUP_REASONS[reason])
        if request.uses_prefix_cache:
            self.pool.num_queried_tokens += request.num_tokens
            self.pool.num_hit_tokens += request.num_cached_tokens

    def _next_tokens(self, request: Request, budget: int) -> int:
        """How many tokens the request computes next; 0 if the budget does not reach the next point it may stop at."""
        end = request.num_computed_tokens + min(request.num_tokens - request.num_computed_tokens, budget)
        if self.states is not None:
            last_kept = (request.prompt_len - 1) // self.states.interval * self.states.interval
            if request.num_computed_tokens < last_kept:
                end = min(end, last_kept)
        if end < request.num_tokens:
            end -= end % self._prefill_grid
        return max(0, end - request.num_computed_tokens)

    def _advance(self, request: Request, num_tokens: int) -> None:
        """Count tokens as computed. Later requests of the same step may already share their blocks:
        every layer writes all new KV before any of it is read."""
        request.num_computed_tokens += num_tokens
        self.pool.register(request)
        made_by_prefill = request.num_computed_tokens <= request.prompt_len
        if self.states is not None and made_by_prefill and request.num_computed_tokens % self.states.interval == 0:
            self._to_keep[request.prefix_node] = request.state_slot

    def _keep_states(self) -> list[tuple[int, int]]:
        """Copies of the states that the last step left at kept points; from now on they can be hit."""
        copies = [(source, self.states.keep(node)) for node, source in self._to_keep.items() if node not in self.states]
        self._to_keep = {}
        return copies

    def _forget_state(self, node: int) -> None:
        self._to_keep.pop(node, None)
        self.states.forget(node)

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

"""Who runs, with how many tokens, and who gives way."""

import pytest

from vtlite.engine.cache import BlockPool
from vtlite.engine.request import Request
from vtlite.engine.sampling_params import SamplingParams
from vtlite.engine.scheduler import Scheduler


def make(name, prompt_len, priority=0, **params):
    return Request(request_id=name, index=0, prompt_len=prompt_len, token_ids=list(range(100, 100 + prompt_len)),
                   params=SamplingParams(**params), seed=0, max_tokens=50, eos_token_id=None, stop_token_ids=frozenset(),
                   bad_word_ids=[], detokenizer=None, priority=priority)


def scheduler(num_blocks=33, block_size=4, max_num_seqs=8, budget=16, policy="fcfs", caching=False):
    return Scheduler(BlockPool(num_blocks, block_size, caching), max_num_seqs, budget, policy)


def step(s):
    """Schedule, pretend the forward pass ran, and give every request that reached its newest token another one."""
    plan = s.schedule()
    for request in plan.scheduled:
        if request.num_computed_tokens == request.num_tokens:
            request.token_ids.append(7)
    return {request.request_id: count for request, count in plan.scheduled.items()}, plan


def test_decodes_come_before_prompts_and_the_budget_cuts_a_prompt():
    s = scheduler(budget=16)
    s.add(make("a", 3))
    assert step(s)[0] == {"a": 3}
    s.add(make("b", 40))
    assert [step(s)[0] for _ in range(4)] == [{"a": 1, "b": 15}, {"a": 1, "b": 15}, {"a": 1, "b": 10}, {"a": 1, "b": 1}]


def test_first_come_first_served_and_nobody_overtakes():
    s = scheduler(num_blocks=9, budget=100)                 # 8 blocks of 4
    for name, length in (("a", 20), ("b", 16), ("c", 1)):
        s.add(make(name, length))
    assert step(s)[0] == {"a": 20}                          # b does not fit beside a, and c stays behind b
    assert [r.request_id for r in s.waiting] == ["b", "c"]


def test_max_num_seqs_bounds_who_runs():
    s = scheduler(max_num_seqs=2, budget=100)
    for name in "abc":
        s.add(make(name, 2))
    assert step(s)[0] == {"a": 2, "b": 2}
    s.remove(s.running[0])
    assert step(s)[0] == {"b": 1, "c": 2}


def test_a_lower_priority_number_is_served_first():
    s = scheduler(policy="priority", budget=4)
    s.add(make("late", 4, priority=5))
    s.add(make("soon", 4, priority=-1))
    assert step(s)[0] == {"soon": 4}


@pytest.mark.parametrize("policy, victim", [("fcfs", "b"), ("priority", "a")])
def test_the_last_in_order_is_preempted_saved_and_restored(policy, victim):
    s = scheduler(num_blocks=5, budget=100, policy=policy)  # 4 blocks of 4
    requests = {"a": make("a", 8, priority=1), "b": make("b", 8, priority=0)}
    for request in requests.values():
        s.add(request)
    assert sum(step(s)[0].values()) == 16                   # all four blocks are full
    counts, plan = step(s)
    assert counts == {("a" if victim == "b" else "b"): 1}
    assert [(move.request.request_id, len(move.blocks)) for move in plan.saves] == [(victim, 2)]
    assert requests[victim].saved and requests[victim].num_computed_tokens == 8 and s.num_preemptions == 1
    s.remove(s.running[0])
    counts, plan = step(s)
    assert counts == {victim: 1} and not requests[victim].saved
    assert [(move.request.request_id, len(move.blocks)) for move in plan.restores] == [(victim, 2)]
    assert not plan.resets                                  # its recurrent state comes back too, and is not zeroed


def test_a_request_that_is_dropped_while_saved_leaves_no_save_behind():
    s = scheduler(num_blocks=5, budget=100)
    for name in "ab":
        s.add(make(name, 8))
    step(s), step(s)
    s.remove(s.waiting[0])
    assert [r.request_id for r in step(s)[1].discards] == ["b"]


def test_a_new_request_starts_from_a_zero_state_in_a_slot_of_its_own():
    s = scheduler(max_num_seqs=3, budget=100)
    for name in "ab":
        s.add(make(name, 2))
    plan = step(s)[1]
    slots = [request.state_slot for request in plan.scheduled]
    assert sorted(plan.resets) == sorted(slots) and len(set(slots)) == 2 and 0 not in slots


def test_a_prompt_seen_in_the_same_step_is_shared():
    s = scheduler(budget=100, caching=True)
    for name in "ab":
        s.add(make(name, 12))
    assert step(s)[0] == {"a": 12, "b": 4}                  # two of three blocks; the last is computed for its logits
    assert (s.pool.num_queried_tokens, s.pool.num_hit_tokens) == (24, 8)


def test_prompt_logprobs_compute_the_whole_prompt_and_are_no_lookup():
    s = scheduler(budget=100, caching=True)
    s.add(make("a", 12))
    s.add(make("b", 12, prompt_logprobs=0))
    assert step(s)[0] == {"a": 12, "b": 12}
    assert (s.pool.num_queried_tokens, s.pool.num_hit_tokens) == (12, 0)


def hybrid(budget=200, num_cached_states=2, num_blocks=65):
    """For a model with a recurrent state: prompts are cut on a grid of 64, blocks hold 16."""
    return Scheduler(BlockPool(num_blocks, 16), 4, budget, prefill_grid=64, num_cached_states=num_cached_states)


def test_with_a_recurrent_state_parts_of_a_prompt_end_on_the_grid_and_once_at_its_last_point():
    s = hybrid(budget=150, num_cached_states=0)
    s.add(make("a", 300))
    assert [step(s)[0] for _ in range(4)] == [{"a": 128}, {"a": 128}, {"a": 44}, {"a": 1}]
    s = hybrid(budget=150)
    s.add(make("b", 130))
    assert [step(s)[0] for _ in range(3)] == [{"b": 128}, {"b": 2}, {"b": 1}]


def test_a_part_that_does_not_reach_the_grid_waits_for_more_budget():
    s = hybrid(budget=128)
    s.add(make("a", 10))
    step(s)
    s.add(make("b", 128))
    assert [step(s)[0] for _ in range(3)] == [{"a": 1, "b": 64}, {"a": 1, "b": 64}, {"a": 1, "b": 1}]


def test_a_state_can_be_hit_from_the_step_after_the_one_that_made_it():
    s = hybrid()
    first, same, later = make("first", 100), make("same", 100), make("later", 100)
    s.add(first)
    s.add(same)
    _, plan = step(s)
    assert plan.scheduled == {first: 64, same: 64} and not plan.loads        # the blocks are there, a state is not yet
    s.add(later)
    _, plan = step(s)
    (source, slot), = plan.keeps
    assert source in (first.state_slot, same.state_slot) and slot in s.states.slots
    assert plan.loads == [(slot, later.state_slot)] and later.num_cached_tokens == 64
    assert s.prefix_lookups == {"no_blocks": 1, "no_state": 1, "hit": 1}


def test_a_state_goes_with_its_block():
    s = hybrid(num_blocks=8)
    s.add(make("a", 100))
    for _ in range(2):
        step(s)
    s.remove(s.running[0])
    step(s)
    assert len(s.states) == 1
    other = make("b", 110)
    other.token_ids = list(range(500, 610))
    s.add(other)                                                              # needs seven blocks: all that there are
    step(s)
    assert len(s.states) == 0


def test_states_that_generated_tokens_made_are_not_kept():
    s = hybrid()
    s.add(make("a", 64))
    for _ in range(130):
        step(s)
    assert len(s.states) == 1                                                 # at 64, not at 128

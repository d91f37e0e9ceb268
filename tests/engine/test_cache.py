"""Blocks are conserved, shared only when every token of the past agrees, and reused oldest first."""

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from vtlite.engine.cache import ROOT, BlockPool


def make_request(tokens, num_computed=0):
    return SimpleNamespace(token_ids=list(tokens), num_tokens=len(tokens), num_computed_tokens=num_computed,
                           block_ids=[], prefix_node=ROOT, num_registered_blocks=0)


def run_whole(pool, tokens):
    """Admit a request and compute all of it; returns it with the number of blocks it shared."""
    request = make_request(tokens)
    hits = pool.match(request.token_ids)
    assert pool.admit(request, hits, request.num_tokens)
    request.num_computed_tokens = request.num_tokens
    pool.register(request)
    return request, len(hits)


def test_a_prompt_seen_before_shares_its_whole_blocks_but_leaves_a_token_to_compute():
    pool = BlockPool(16, 4)
    first, shared = run_whole(pool, range(12))
    assert shared == 0
    assert [block for _, block in pool.match(list(range(12)))] == first.block_ids[:2]     # block 3 would leave nothing
    assert [block for _, block in pool.match(list(range(13)))] == first.block_ids[:3]
    assert pool.match([0, 1, 2, 99, *range(4, 12)]) == []


def test_the_same_tokens_after_another_past_are_not_shared():
    pool = BlockPool(16, 2)
    run_whole(pool, [1, 2, 5, 6, 0])
    assert len(pool.match([3, 4, 5, 6, 0])) == 0
    assert len(pool.match([1, 2, 5, 6, 0])) == 2


def test_released_blocks_stay_findable_until_they_are_needed_and_tails_go_first():
    pool = BlockPool(6, 2)                       # 5 usable
    request, _ = run_whole(pool, [1, 2, 3, 4, 5, 6])
    pool.release(request)
    assert pool.num_free == 5
    taken = make_request([9] * 6)
    assert pool.admit(taken, [], 6)              # takes the two never used and the tail [5, 6]
    assert len(pool.match([1, 2, 3, 4, 5, 6, 7])) == 2


def test_admission_counts_hits_that_leave_the_free_list():
    pool = BlockPool(4, 2)                       # 3 usable
    request, _ = run_whole(pool, [1, 2, 3, 4])
    pool.release(request)
    longer = make_request([1, 2, 3, 4, 5, 6, 7, 8])
    before = pool.num_free
    assert not pool.admit(longer, pool.match(longer.token_ids), 8)
    assert pool.num_free == before and longer.block_ids == []


def test_caching_off_never_shares():
    pool = BlockPool(16, 4, enable_prefix_caching=False)
    run_whole(pool, range(12))
    assert pool.match(list(range(12))) == []


@settings(max_examples=200)
@given(st.data())
def test_blocks_are_conserved_and_never_shared_by_accident(data):
    """Random admissions, growth and releases: references add up, and a shared block holds the same past."""
    pool = BlockPool(data.draw(st.integers(2, 12)), data.draw(st.integers(1, 3)))
    live = []
    for _ in range(data.draw(st.integers(1, 25))):
        if live and data.draw(st.booleans()):
            pool.release(live.pop(data.draw(st.integers(0, len(live) - 1))))
        else:
            request = make_request(data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=8)))
            hits = pool.match(request.token_ids)
            if pool.admit(request, hits, request.num_tokens):
                request.num_computed_tokens = request.num_tokens
                pool.register(request)
                live.append(request)
        held = {}
        for request in live:
            for i, block in enumerate(request.block_ids):
                past = tuple(request.token_ids[: (i + 1) * pool.block_size])
                assert block != 0 and held.setdefault(block, past) == past
        assert pool.num_free == pool.num_usable - len(held)
    for request in live:
        pool.release(request)
    assert pool.num_free == pool.num_usable and pool.usage == 0

"""States are found under their prefix node until the least recently used one has to go."""

from vtlite.engine.state_cache import StateCache


def test_the_least_recently_used_state_goes_first():
    states = StateCache(range(5, 7), 64)
    a, b = states.keep(1), states.keep(2)
    assert {a, b} == {5, 6} and 1 in states and len(states) == 2
    assert states.use(1) == a
    assert states.keep(3) == b and 2 not in states


def test_a_forgotten_state_leaves_its_slot_to_others():
    states = StateCache(range(5, 7), 64)
    a, b = states.keep(1), states.keep(2)
    states.forget(1)
    states.forget(1)
    assert 1 not in states and states.keep(3) == a and states.use(2) == b

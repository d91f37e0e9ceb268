"""The arena of a step's temporaries: memory comes back when arrays are dropped, and the same step finds the same addresses."""

import pytest

pytest.importorskip("cuda.bindings", reason='the runtime needs pip install "vtlite[gpu]", which the extra test brings')

from vtlite.cuda import staging  # noqa: E402

MIB = 1 << 20


@pytest.fixture
def arena(monkeypatch):
    """An arena over chunks that are addresses only, one directly behind the other."""
    class Memory:
        end = 1 << 40

        def __init__(self, nbytes):
            self.nbytes, self.address = nbytes, Memory.end
            Memory.end += nbytes

    monkeypatch.setattr(staging, "Memory", Memory)
    return staging.Arena()


def test_a_dropped_region_serves_the_next_array(arena):
    first, second = arena.take(1000), arena.take(5)
    assert (first.nbytes, second.nbytes) == (1024, 256) and second.address == first.address + 1024
    address = first.address
    del first
    third = arena.take(600)
    assert third.address == address
    assert arena.take(300).address == second.address + 256           # the hole of 256 bytes is too small for this one


def test_neighbours_are_joined_but_chunks_are_not(arena):
    regions = [arena.take(40 * MIB), arena.take(24 * MIB), arena.take(64 * MIB)]
    start = regions[0].address
    assert arena.nbytes == 128 * MIB
    regions.clear()
    assert arena.take(64 * MIB).address == start
    assert arena.take(65 * MIB).address == start + 128 * MIB         # no region reaches from one chunk into the next
    assert arena.nbytes == 193 * MIB


def test_the_same_step_finds_the_same_addresses(arena):
    def step():
        kept, addresses = arena.take(3 * MIB), []
        for size in (100, 70 * MIB, 5000):
            temporary = arena.take(size)
            addresses += [kept.address, temporary.address]
            kept = arena.take(size // 2)
            addresses.append(kept.address)
        return addresses

    first = step()
    assert step() == first == step()

"""Which accesses happened before which: vector clocks of emulated threads.

Each thread has a clock that ticks when it tells others what it did. `seen[i]` is the latest tick of thread i of the
block that this thread has been told of; an access at tick c of thread i happened before whatever a thread with
seen[i] >= c does. Other blocks are known only through atomics after a __threadfence, or not at all.
(Fidge 1988, Mattern 1989; as in FastTrack, Flanagan and Freund 2009.)
"""


class Knowledge:
    """What a thread, or a place through which threads inform one another, knows: the newest tick of every thread."""

    def __init__(self, block, size: int):
        self.block = block
        self.seen = [0] * size                     # of `block`; never changed in place once shared
        self.elsewhere: dict = {}                  # other block -> its `seen`

    def merge(self, other: "Knowledge") -> None:
        """Learn everything `other` knows."""
        for block, seen in ((other.block, other.seen), *other.elsewhere.items()):
            if block is self.block:
                self.seen = _newest(self.seen, seen)
            else:
                self.elsewhere[block] = _newest(self.elsewhere.get(block, seen), seen)


class Ordered:
    """The clock of a thread. A mixin of `emulator.Thread`, which sets `block` and `index` (within the block)."""

    def start_clock(self, knowledge: Knowledge) -> None:
        self.clock, self.knowledge, self.fenced = 1, knowledge, None

    def knows(self, access: tuple) -> bool:
        """True if `access`, (thread, clock, ...) of another thread, happened before this moment."""
        other, clock = access[0], access[1]
        if other.block is self.block:
            return self.knowledge.seen[other.index] >= clock
        seen = self.knowledge.elsewhere.get(other.block)
        return seen is not None and seen[other.index] >= clock

    def learn(self, told: Knowledge) -> None:
        """From now on this thread knows what `told` knows."""
        own = Knowledge(self.block, len(self.knowledge.seen))
        own.merge(self.knowledge)
        own.merge(told)
        self.knowledge = own

    def tell(self) -> Knowledge:
        """A snapshot of what this thread knows, its own accesses so far included."""
        told = Knowledge(self.block, 0)
        told.seen, told.elsewhere = list(self.knowledge.seen), dict(self.knowledge.elsewhere)
        told.seen[self.index] = self.clock
        self.clock += 1
        return told


def meet(threads) -> None:
    """A barrier among `threads`: what any of them did happened before what any of them does next."""
    common = Knowledge(threads[0].block, len(threads[0].knowledge.seen))
    distinct = {id(thread.knowledge): thread.knowledge for thread in threads}
    for knowledge in distinct.values():
        common.merge(knowledge)
    common.seen = list(common.seen)
    for thread in threads:
        common.seen[thread.index] = thread.clock
        thread.clock += 1
        thread.knowledge = common


def _newest(a: list[int], b: list[int]) -> list[int]:
    return a if a is b else [x if x > y else y for x, y in zip(a, b)]

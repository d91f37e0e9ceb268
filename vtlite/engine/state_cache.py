"""Recurrent states at points of known prefixes, for models whose past is not in KV blocks alone.

A prefix of such a model can be shared where its KV blocks are cached and its state is kept. States are kept in slots of
their own, under the node of the prefix index that the point has, and only where a prefill step ended on the grid of
`interval` tokens: a state that decoding made may have other bits. The least recently used one goes first.
"""

from collections import OrderedDict


class StateCache:
    """Which of the state slots `slots` keeps the state of which prefix node; a node's point is a multiple of `interval`."""

    def __init__(self, slots: range, interval: int):
        self.slots, self.interval = slots, interval
        self._free = list(slots)
        self._slot_of: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, node: int) -> bool:
        return node in self._slot_of

    def use(self, node: int) -> int:
        """The slot of a kept state, which counts as used now."""
        self._slot_of.move_to_end(node)
        return self._slot_of[node]

    def keep(self, node: int) -> int:
        """A slot for the state of a new node, from which another state may have gone."""
        slot = self._free.pop() if self._free else self._slot_of.popitem(last=False)[1]
        self._slot_of[node] = slot
        return slot

    def forget(self, node: int) -> None:
        """Drop the state of a node, if there is one."""
        slot = self._slot_of.pop(node, None)
        if slot is not None:
            self._free.append(slot)

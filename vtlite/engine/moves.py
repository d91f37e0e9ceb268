"""The order in which a step's Plan moves KV and recurrent states, the same wherever they lie."""

from abc import ABC, abstractmethod
from typing import Any

from vtlite.engine.scheduler import Plan


class Caches(ABC):
    """KV blocks and state slots, with what was saved of preempted requests. Subclasses say how one of them is copied."""

    def __init__(self):
        self._saved: dict[tuple[str, int], tuple[Any, Any]] = {}         # request.key -> its KV and its state, on the host

    def move(self, plan: Plan) -> None:
        """Carry out what `plan` says of the caches, before its forward pass: keeps first, as the last step left the states."""
        for source, target in plan.keeps:
            self._copy_state(source, target)
        for request, blocks, slot in plan.saves:
            self._saved[request.key] = self._kv_of(blocks), self._state_of(slot)
        for request, blocks, slot in plan.restores:
            kv, state = self._saved.pop(request.key)
            self._restore_kv(blocks, kv)
            self._restore_state(slot, state)
        for slot in plan.resets:
            self._reset_state(slot)
        for source, target in plan.loads:
            self._copy_state(source, target)
        for request in plan.discards:
            self._saved.pop(request.key, None)

    @abstractmethod
    def _kv_of(self, blocks: list[int]): ...

    @abstractmethod
    def _restore_kv(self, blocks: list[int], kept) -> None: ...

    @abstractmethod
    def _state_of(self, slot: int): ...

    @abstractmethod
    def _restore_state(self, slot: int, kept) -> None: ...

    @abstractmethod
    def _reset_state(self, slot: int) -> None: ...

    @abstractmethod
    def _copy_state(self, source: int, target: int) -> None: ...

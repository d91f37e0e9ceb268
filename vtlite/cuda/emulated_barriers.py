"""Barriers of an emulated block: __syncthreads and its reductions, named barriers.

Every thread of the block must come to the same __syncthreads, on the same line: a GPU would hang, or mix up two barriers.
"""

from typing import NamedTuple

import numpy as np

from vtlite.cuda.emulated_faults import Divergence, here, ranges, site_of
from vtlite.cuda.emulated_order import meet


class Meeting(NamedTuple):
    """Threads that have come to a barrier or warp operation, and what each brought along."""

    operation: str
    place: tuple
    mask: int                    # lanes of a warp operation; -1: the block
    arrived: dict                # index or lane -> value

    def __str__(self) -> str:
        who = "threads" if self.mask < 0 else "lanes"
        return f"{who} {ranges(self.arrived)} wait at {self.operation} {site_of(self.place)}"


class Barriers:
    """A mixin of `emulator.Thread`."""

    def syncthreads(self) -> None:
        self._meet_block("__syncthreads", True, all)

    def syncthreads_count(self, predicate) -> np.int32:
        """How many threads of the block brought a true predicate."""
        return self._meet_block("__syncthreads_count", bool(predicate), lambda values: np.int32(sum(values)))

    def syncthreads_and(self, predicate) -> np.int32:
        return self._meet_block("__syncthreads_and", bool(predicate), lambda values: np.int32(all(values)))

    def syncthreads_or(self, predicate) -> np.int32:
        return self._meet_block("__syncthreads_or", bool(predicate), lambda values: np.int32(any(values)))

    def named_barrier(self, number, num_threads, arrive_only: bool = False) -> None:
        """PTX bar.sync number, num_threads; with arrive_only bar.arrive, which does not wait."""
        arrivals = self.block.named_barriers.setdefault(int(number), [])
        arrivals.append((self, self.tell() if arrive_only else None))
        if len(arrivals) == num_threads:
            del self.block.named_barriers[int(number)]
            waiting = [thread for thread, told in arrivals if told is None]
            for thread in waiting:
                for told in (told for _, told in arrivals if told):
                    thread.learn(told)
            if waiting:
                meet(waiting)
            for thread in waiting:
                if thread is not self:
                    thread.resume()
        elif not arrive_only:
            self.pause(f"named barrier {int(number)} for {int(num_threads)} threads,")

    def leave(self) -> None:
        """The kernel returned in this thread: nobody may be waiting for it."""
        meetings = [meeting for meeting in self.block.warp_meetings[self.warp] if meeting.mask >> self.lane & 1]
        if self.block.meeting:
            meetings.append(self.block.meeting)
        if meetings:
            raise Divergence(f"this thread has returned while {meetings[0]}")

    def _meet_block(self, operation: str, value, combine):
        block, place = self.block, here(3)
        if block.meeting is None:
            if returned := [thread.index for thread in block.threads if thread.dead]:
                raise Divergence(f"{operation} will wait for ever: threads {ranges(returned)} have returned")
            block.meeting = Meeting(operation, place, -1, {})
        meeting = block.meeting
        if (operation, place) != (meeting.operation, meeting.place):
            raise Divergence(f"{operation} is reached here while {meeting}")
        meeting.arrived[self.index] = value
        if len(meeting.arrived) < len(block.threads):
            return self.pause(operation, place)
        block.meeting = None
        if self.tracks_races:
            meet(block.threads)
        result = combine(meeting.arrived.values())
        for thread in block.threads:
            if thread is not self:
                thread.resume(result)
        return result

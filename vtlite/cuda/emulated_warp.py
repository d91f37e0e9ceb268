"""Warp operations of the emulated GPU: shuffles, votes, reductions, matrix loads and tensor core steps.

Each is a meeting of the lanes its mask names, at one line of the kernel; what a GPU leaves undefined (a lane that never
comes, a shuffle from a lane outside the mask) is a `Divergence`.
"""

import numpy as np

from vtlite.cuda import tensor_core
from vtlite.cuda.emulated_barriers import Meeting
from vtlite.cuda.emulated_faults import Divergence, here, ranges
from vtlite.cuda.emulated_order import meet

WARP_SIZE = 32
FULL_MASK = 0xFFFFFFFF

_REDUCTIONS = {"add": np.add, "min": np.minimum, "max": np.maximum,
               "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


class WarpOperations:
    """A mixin of `emulator.Thread`."""

    def syncwarp(self, mask=FULL_MASK) -> None:
        def order(_):
            if self.tracks_races:
                meet([thread for thread in self._warp_threads() if int(mask) >> thread.lane & 1])
            return dict.fromkeys(range(WARP_SIZE))

        self._meet_warp("__syncwarp", mask, None, order)

    def shfl(self, kind: str, mask, value, lane_or_delta, width: int = WARP_SIZE):
        """kind "idx", "up", "down" or "xor" -> another lane's value; beyond its segment of `width` lanes the lane's own."""
        width = int(width)

        def exchange(brought: dict) -> dict:
            taken = {}
            for lane, (_, argument) in brought.items():
                first = lane & ~(width - 1)
                source = {"idx": first | argument & (width - 1), "up": lane - argument,
                          "down": lane + argument, "xor": lane ^ argument}[kind]
                if source >= first + width or (kind == "up" and source < first):
                    source = lane
                if source not in brought:
                    raise Divergence(f"shfl {kind}: lane {lane} reads lane {source}, which is not in mask {int(mask):#010x}")
                taken[lane] = brought[source][0]
            return taken

        return self._meet_warp(f"shfl {kind}", mask, (value, int(lane_or_delta)), exchange)

    def vote(self, kind: str, mask, predicate):
        """kind "ballot" -> u32 mask of lanes with a true predicate; "any" or "all" -> bool."""
        def count(brought: dict) -> dict:
            ballot = sum(1 << lane for lane, predicate in brought.items() if predicate)
            result = {"ballot": np.uint32(ballot), "any": ballot != 0, "all": ballot == int(mask) & FULL_MASK}[kind]
            return dict.fromkeys(brought, result)

        return self._meet_warp(f"vote {kind}", mask, bool(predicate), count)

    def match_any(self, mask, value) -> np.uint32:
        """The mask of lanes whose value has the same bits."""
        def compare(brought: dict) -> dict:
            return {lane: np.uint32(sum(1 << other for other, bits in brought.items() if bits == mine))
                    for lane, mine in brought.items()}

        return self._meet_warp("match any", mask, value.tobytes(), compare)

    def redux(self, kind: str, mask, value):
        """kind "add", "min", "max", "and", "or" or "xor" over the lanes' 32-bit integers."""
        def reduce(brought: dict) -> dict:
            values = list(brought.values())
            return dict.fromkeys(brought, _REDUCTIONS[kind].reduce(np.array(values), dtype=values[0].dtype))

        return self._meet_warp(f"redux {kind}", mask, value, reduce)

    def elect(self, mask=FULL_MASK) -> bool:
        """True in the lowest lane of the mask."""
        return self._meet_warp("elect", mask, None, lambda brought: {lane: lane == min(brought) for lane in brought})

    def activemask(self) -> np.uint32:
        """The lanes that have not returned."""
        return np.uint32(sum(1 << thread.lane for thread in self._warp_threads() if not thread.dead))

    def ldmatrix(self, address, count: int, transposed: bool = False) -> tuple:
        """ldmatrix.m8n8.x{count}.b16: lane i < 8 count gives the byte address of row i % 8 of matrix i // 8.

        Lane 4 g + q gets, of each matrix, elements 2 q and 2 q + 1 of row g (transposed: of column g) as one u32.
        """
        row = self.load_shared(address, np.uint16, 8) if self.lane < 8 * count else None

        def distribute(brought: dict) -> dict:
            matrices = np.array([brought[lane] for lane in range(8 * count)], np.uint16).reshape(count, 8, 8)
            if transposed:
                matrices = matrices.transpose(0, 2, 1)
            words = np.ascontiguousarray(matrices).view(np.uint32).reshape(count, WARP_SIZE)
            return {lane: tuple(words[:, lane]) for lane in brought}

        return self._meet_warp(f"ldmatrix.x{count}", FULL_MASK, row, distribute)

    def stmatrix(self, address, values: tuple, transposed: bool = False) -> None:
        """The counterpart of `ldmatrix`: each lane brings one u32 per matrix, lane i stores row i % 8 of matrix i // 8."""
        count = len(values)

        def collect(brought: dict) -> dict:
            words = np.array([brought[lane] for lane in range(WARP_SIZE)], np.uint32)            # [32, count]
            matrices = np.ascontiguousarray(words.T).view(np.uint16).reshape(count, 8, 8)
            if transposed:
                matrices = matrices.transpose(0, 2, 1)
            rows = matrices.reshape(-1, 8)
            return {lane: rows[lane] if lane < len(rows) else None for lane in brought}

        row = self._meet_warp(f"stmatrix.x{count}", FULL_MASK, values, collect)
        if row is not None:
            self.store_shared(address, row, np.uint16)

    def mma(self, kind: str, a: tuple, b: tuple, c: tuple) -> tuple:
        """mma.m16n8k16 of `kind` "bf16" or "f16" on this lane's fragments: 4 u32, 2 u32, 4 f32 -> 4 f32."""
        def step(brought: dict) -> dict:
            lanes = [brought[lane] for lane in range(WARP_SIZE)]
            out = tensor_core.mma_m16n8k16(kind, *(np.array([fragments[i] for fragments in lanes], dtype)
                                                   for i, dtype in enumerate((np.uint32, np.uint32, np.float32))))
            return {lane: tuple(out[lane]) for lane in brought}

        return self._meet_warp(f"mma.m16n8k16 {kind}", FULL_MASK, (a, b, c), step)

    def _warp_threads(self) -> list:
        first = self.warp * WARP_SIZE
        return self.block.threads[first : first + WARP_SIZE]

    def _meet_warp(self, operation: str, mask, brings, combine):
        """Wait for all lanes of `mask`; combine({lane: what it brings}) gives {lane: its result}."""
        mask, place = int(mask) & FULL_MASK, here(3)
        if not mask >> self.lane & 1:
            raise Divergence(f"{operation} with mask {mask:#010x}, which leaves out the lane that calls it, {self.lane}")
        meetings = self.block.warp_meetings[self.warp]
        meeting = next((m for m in meetings if m.mask >> self.lane & 1), None)
        if meeting is None:
            present = sum(1 << thread.lane for thread in self._warp_threads() if not thread.dead)
            if missing := [lane for lane in range(WARP_SIZE) if (mask & ~present) >> lane & 1]:
                raise Divergence(f"{operation} waits for lanes {ranges(missing)}, which have returned or do not exist")
            meeting = Meeting(operation, place, mask, {})
            meetings.append(meeting)
        elif (operation, place, mask) != meeting[:3]:
            raise Divergence(f"lane {self.lane} reaches {operation} (mask {mask:#010x}) here while {meeting} "
                             f"(mask {meeting.mask:#010x}) for it")
        meeting.arrived[self.lane] = brings
        if len(meeting.arrived) < mask.bit_count():
            return self.pause(operation, place)
        meetings.remove(meeting)
        results = combine(meeting.arrived)
        for thread in self._warp_threads():
            if thread.lane in meeting.arrived and thread is not self:
                thread.resume(results[thread.lane])
        return results[self.lane]

"""Memory with a plan: the arena of a step's temporaries, and the ring of pinned memory that uploads pass through."""

import ctypes
from collections import deque

import numpy as np

from vtlite.cuda.device_array import Memory
from vtlite.cuda.driver import check, cu

ALIGNMENT = 256
CHUNK = 64 << 20
RING = 16 << 20


class Arena:
    """Memory handed out from the front and taken back all at once: the same requests in the same order get the same
    addresses, which a captured graph needs. It grows by chunks that never move.
    """

    def __init__(self):
        self._chunks: list[Memory] = []
        self._chunk, self._offset = 0, 0

    def reset(self) -> None:
        """Take everything back. Arrays made before now share their memory with those to come."""
        self._chunk, self._offset = 0, 0

    def take(self, nbytes: int) -> tuple[Memory, int]:
        """(memory, address) of the next `nbytes`, aligned to 256."""
        while self._chunk < len(self._chunks) and self._offset + nbytes > self._chunks[self._chunk].nbytes:
            self._chunk, self._offset = self._chunk + 1, 0
        if self._chunk == len(self._chunks):
            self._chunks.append(Memory(max(CHUNK, nbytes)))
        memory, address = self._chunks[self._chunk], self._chunks[self._chunk].address + self._offset
        self._offset += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return memory, address


class PinnedRing:
    """Uploads without waiting: bytes go into page-locked memory and from there to the device by the stream. A region is used
    again once the copy out of it, which an event marks, is done.
    """

    def __init__(self, nbytes: int = RING):
        self._nbytes = nbytes
        self._address = int(check(cu.cuMemHostAlloc(nbytes, 0), f"allocating {nbytes / 2**20:.0f} MiB of pinned memory"))
        self._bytes = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(self._address), np.uint8)
        self._offset = 0
        self._in_flight: deque = deque()                    # (start, end, event), oldest first
        self._events: list = []

    def upload(self, destination: int, array: np.ndarray, stream) -> None:
        """Queue the copy of a contiguous host array to a device address; the array may change at once."""
        source = array.reshape(-1).view(np.uint8)
        for start in range(0, source.size, self._nbytes):   # in pieces, if it is larger than the ring
            self._upload_piece(destination + start, source[start : start + self._nbytes], stream)

    def _upload_piece(self, destination: int, piece: np.ndarray, stream) -> None:
        start = self._offset if self._offset + piece.size <= self._nbytes else 0
        end = start + piece.size
        while self._in_flight and any(s < end and start < e for s, e, _ in self._in_flight):
            event = self._in_flight.popleft()[2]
            check(cu.cuEventSynchronize(event), "waiting for an upload")
            self._events.append(event)
        self._bytes[start:end] = piece
        check(cu.cuMemcpyHtoDAsync(destination, self._address + start, piece.size, stream), "uploading")
        event = self._events.pop() if self._events else check(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING.value))
        check(cu.cuEventRecord(event, stream))
        self._in_flight.append((start, end, event))
        self._offset = -(-end // ALIGNMENT) * ALIGNMENT

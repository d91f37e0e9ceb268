"""Memory with a plan: the arena of a step's temporaries, and the pinned memory that uploads and downloads pass through."""

import ctypes
from bisect import bisect
from collections import deque

import numpy as np

from vtlite.cuda.device_array import Memory
from vtlite.cuda.driver import check, cu

ALIGNMENT = 256
CHUNK = 64 << 20
RING = 32 << 20
MOST_IN_FLIGHT = 16
PIECE = 4 << 20                         # a larger upload is cut, so that one piece travels while the next is copied in


class Arena:
    """Memory of a step's temporaries. A region comes back when no array refers to it any more, and the next array may have it:
    work on one stream is ordered, so what still reads the old one is done before the new one is written.

    Regions are taken from the oldest chunk and the lowest address that fits, so the same arrays made and dropped in the same order
    get the same addresses, which a captured graph needs. The arena grows by chunks that never move and are never freed.
    """

    def __init__(self):
        self._chunks: list[Memory] = []
        self._free: list[list[int]] = []                    # [number of the chunk, address, nbytes], ascending

    @property
    def nbytes(self) -> int:
        """What the arena holds, in use or not."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def take(self, nbytes: int) -> "Region":
        """A region of at least `nbytes`, aligned to 256."""
        nbytes = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        index = next((i for i, (_, _, size) in enumerate(self._free) if size >= nbytes), None)
        if index is None:
            chunk = Memory(max(CHUNK, nbytes))
            index = self._insert(len(self._chunks), chunk.address, chunk.nbytes)
            self._chunks.append(chunk)
        number, address, size = self._free[index]
        self._free[index : index + 1] = [[number, address + nbytes, size - nbytes]] if size > nbytes else []
        return Region(self, number, address, nbytes)

    def give_back(self, number: int, address: int, nbytes: int) -> None:
        """Join the region with the free neighbours of its chunk."""
        index = self._insert(number, address, nbytes)
        for left in (index, index - 1):
            if 0 <= left < len(self._free) - 1:
                (first, a, size), (second, b, more) = self._free[left : left + 2]
                if first == second and a + size == b:
                    self._free[left : left + 2] = [[first, a, size + more]]

    def _insert(self, number: int, address: int, nbytes: int) -> int:
        index = bisect(self._free, [number, address])
        self._free.insert(index, [number, address, nbytes])
        return index


class Region:
    """Bytes of an arena, which has them back when nobody refers to them any more."""

    __slots__ = ("address", "arena", "chunk", "nbytes")

    def __init__(self, arena: Arena, chunk: int, address: int, nbytes: int):
        self.arena, self.chunk, self.address, self.nbytes = arena, chunk, address, nbytes

    def __del__(self):
        self.arena.give_back(self.chunk, self.address, self.nbytes)


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
        for start in range(0, source.size, PIECE):
            self._upload_piece(destination + start, source[start : start + PIECE], stream)

    def _upload_piece(self, destination: int, piece: np.ndarray, stream) -> None:
        start = self._offset if self._offset + piece.size <= self._nbytes else 0
        end = start + piece.size
        while self._in_flight and (len(self._in_flight) >= MOST_IN_FLIGHT
                                   or any(s < end and start < e for s, e, _ in self._in_flight)):
            event = self._in_flight.popleft()[2]
            check(cu.cuEventSynchronize(event), "waiting for an upload")
            self._events.append(event)
        self._bytes[start:end] = piece
        check(cu.cuMemcpyHtoDAsync(destination, self._address + start, piece.size, stream), "uploading")
        event = self._events.pop() if self._events else check(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING.value))
        check(cu.cuEventRecord(event, stream))
        self._in_flight.append((start, end, event))
        self._offset = -(-end // ALIGNMENT) * ALIGNMENT


class PinnedPool:
    """Page-locked memory that downloads arrive in while the host does other things."""

    def __init__(self):
        self._free: dict[int, list[int]] = {}               # bytes -> addresses

    def download(self, source: int, nbytes: int, stream) -> "Download":
        """Queue the copy of `nbytes` from a device address."""
        size = 1 << max(nbytes - 1, ALIGNMENT - 1).bit_length()
        addresses = self._free.setdefault(size, [])
        address = addresses.pop() if addresses else int(check(cu.cuMemAllocHost(size), "page-locked memory for downloads"))
        check(cu.cuMemcpyDtoHAsync(address, source, nbytes, stream), "downloading")
        event = check(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING.value))
        check(cu.cuEventRecord(event, stream))
        return Download(addresses, address, nbytes, event)


class Download:
    """Bytes on their way to the host: wait() once, and they are there."""

    def __init__(self, addresses: list[int], address: int, nbytes: int, event):
        self._addresses, self._address, self._nbytes, self._event = addresses, address, nbytes, event

    def wait(self) -> np.ndarray:
        """The bytes [nbytes] u8."""
        check(cu.cuEventSynchronize(self._event), "running kernels")
        check(cu.cuEventDestroy(self._event))
        found = np.frombuffer((ctypes.c_uint8 * self._nbytes).from_address(self._address), np.uint8).copy()
        self._addresses.append(self._address)
        return found

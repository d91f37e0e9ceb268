"""Shared memory of an emulated block: arrays by call site, and 32-bit addresses as ldmatrix and cp.async take them."""

import math

import numpy as np

from vtlite.cuda.emulated_faults import KernelFault, Misaligned, OutOfBounds, here, site_of
from vtlite.cuda.emulated_memory import Allocation, SharedArray, item_size

ALIGNMENT = 1024                 # of every array, and at least one byte of no man's land between two


class SharedMemory:
    """What one block has: `dynamic` bytes of dynamic shared memory and an array for each call site of cuda.shared.array."""

    def __init__(self, dynamic: int):
        self.arrays: dict[tuple, SharedArray] = {}
        self.placed: list[tuple[int, Allocation]] = []          # (address, allocation)
        self.end = 0
        self.dynamic = self._place(Allocation("dynamic shared memory", dynamic))

    def array(self, place: tuple, shape, dtype) -> SharedArray:
        """The array of call site `place`; shape 0 is all of the dynamic memory."""
        array = self.arrays.get(place)
        if array is None:
            itemsize = item_size(dtype)
            if np.ndim(shape) == 0 and shape == 0:
                address, allocation = self.dynamic
                shape = allocation.size // itemsize
            else:
                address, allocation = self._place(Allocation(f"shared array of {site_of(place)}",
                                                             math.prod(np.atleast_1d(shape).tolist()) * itemsize))
            array = self.arrays[place] = SharedArray(allocation, dtype, tuple(np.atleast_1d(shape).tolist()), address)
        return array

    def locate(self, address, size: int, alignment: int) -> tuple[Allocation, int]:
        """The allocation and its byte at `address`, for an access of `size` bytes."""
        address = int(address)
        for start, allocation in self.placed:
            if start <= address < start + allocation.size:
                if address + size > start + allocation.size:
                    break
                if address % alignment:
                    raise Misaligned(f"{size} bytes at byte {address - start} of {allocation.name} should be aligned to "
                                     f"{alignment}")
                return allocation, address - start
        arrays = ", ".join(f"{start}..{start + a.size - 1} ({a.name})" for start, a in self.placed if a.size)
        raise OutOfBounds(f"shared address {address} ({size} bytes) is in no array; there is {arrays or 'none'}")

    def _place(self, allocation: Allocation) -> tuple[int, Allocation]:
        self.placed.append((self.end, allocation))
        self.end += (allocation.size // ALIGNMENT + 1) * ALIGNMENT
        return self.placed[-1]


class SharedAccess:
    """Access to the block's shared memory. A mixin of `emulator.Thread`."""

    def shared_array(self, shape, dtype) -> SharedArray:
        """The block's array of this call site; shape 0 is the launch's dynamic shared memory."""
        return self.block.shared.array(here(), shape, dtype)

    def shared_address(self, array: SharedArray, index=0) -> np.uint32:
        """Byte address of element `index` (flat)."""
        if not isinstance(array, SharedArray):
            raise KernelFault(f"the address of a shared array was asked for, but this is a {type(array).__name__}")
        return np.uint32(array.address + int(index) * array.itemsize)

    def load_shared(self, address, dtype, count: int) -> tuple:
        """`count` neighbours of `dtype` at a byte address aligned to their total size."""
        itemsize = item_size(dtype)
        allocation, first = self.block.shared.locate(address, count * itemsize, count * itemsize)
        allocation.before_read(first, count * itemsize)
        return tuple(allocation.view(dtype)[first // itemsize : first // itemsize + count])

    def store_shared(self, address, values, dtype) -> None:
        """The counterpart of `load_shared` for a sequence of scalars."""
        itemsize = item_size(dtype)
        allocation, first = self.block.shared.locate(address, len(values) * itemsize, len(values) * itemsize)
        allocation.before_write(first, len(values) * itemsize)
        allocation.view(dtype)[first // itemsize : first // itemsize + len(values)] = values

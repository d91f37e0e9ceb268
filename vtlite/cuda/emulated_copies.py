"""What the emulated GPU does asynchronously: cp.async groups, mbarriers with bulk copies, and wgmma groups.

A result lands when it is waited for and not before: until then its place reads as a fault, so that a missing wait shows.
The thread that waits sees the data; other threads need a barrier after that, as on the GPU.
"""

import numpy as np

from vtlite.cuda.emulated_faults import KernelFault, here
from vtlite.cuda.emulated_order import Knowledge


class Copies:
    """cp.async. A mixin of `emulator.Thread`."""

    def start_copies(self) -> None:
        self.open_group, self.groups = [], []

    def cp_async(self, shared_address, pointer, index, size: int, scale: int | None = None,
                 source_size: int | None = None) -> None:
        """Copy `size` (4, 8 or 16) bytes from pointer[index] to shared memory; bytes from `source_size` on become zero."""
        size = int(size)
        taken = size if source_size is None else int(source_size)
        target, first = self.block.shared.locate(shared_address, size, size)
        data = np.zeros(size, np.uint8)
        if taken:
            source = pointer.locate(index, scale or pointer.itemsize, taken, alignment=size)
            pointer.allocation.before_read(source, taken)
            data[:taken] = pointer.allocation.data[source : source + taken]
        target.start_copy(first, size)
        self.open_group.append((target, first, data))

    def cp_async_commit(self) -> None:
        """Close the group of copies started since the last commit."""
        self.groups.append(self.open_group)
        self.open_group = []

    def cp_async_wait(self, pending) -> None:
        """Until at most `pending` of this thread's groups are in flight."""
        while len(self.groups) > pending:
            for target, first, data in self.groups.pop(0):
                target.finish_copy(first, data, self)

    def cp_async_wait_all(self) -> None:
        self.cp_async_commit()
        self.cp_async_wait(0)


class WarpgroupProducts:
    """wgmma: results stay out of reach of this thread until their group is waited for. A mixin of `emulator.Thread`."""

    def start_products(self) -> None:
        self.open_products, self.product_groups = [], []

    def wgmma_accumulator(self, acc, count: int) -> list:
        """The values acc[0] .. that the next wgmma adds to, those of wgmma still in flight included."""
        values = acc.coming[0] if acc.coming else acc
        return [values[i] for i in range(count)]

    def wgmma_result(self, acc, values) -> None:
        """What a wgmma will leave in acc."""
        acc.values, acc.coming = {}, (dict(enumerate(values)), here())
        self.open_products.append(acc)

    def wgmma_commit(self) -> None:
        self.product_groups.append(self.open_products)
        self.open_products = []

    def wgmma_wait(self, pending: int) -> None:
        """Until at most `pending` groups are in flight."""
        while len(self.product_groups) > pending:
            later = {id(acc) for group in (*self.product_groups[1:], self.open_products) for acc in group}
            for acc in self.product_groups.pop(0):
                if acc.coming and id(acc) not in later:
                    acc.values, acc.coming = acc.coming[0], None


class TransactionBarrier:
    """An mbarrier: a phase ends when all arrivals and all announced bytes have come. The bytes land in the first thread that waits
    for it: whoever else reads them must wait too, or meet that thread at a barrier afterwards."""

    def __init__(self, count: int, block):
        self.count, self.pending, self.parity = count, count, 0
        self.expected_bytes, self.copies, self.landing = 0, [], []
        self.told = Knowledge(block, len(block.threads))

    def settle(self) -> None:
        """End the phase if nothing is missing."""
        started = sum(len(data) for _, _, data in self.copies)
        if self.pending < 0:
            raise KernelFault(f"more than {self.count} arrivals in one phase of an mbarrier")
        if self.pending == 0 and started == self.expected_bytes:
            self.landing += self.copies
            self.pending, self.parity, self.expected_bytes, self.copies = self.count, self.parity ^ 1, 0, []

    def land(self, thread) -> None:
        """Let a thread that has waited have the bytes of the phases that have ended."""
        if self.landing:
            for target, first, data in self.landing:
                target.finish_copy(first, data, thread)
            self.landing = []
            self.told.merge(thread.tell())


class TransactionBarriers:
    """mbarrier and the bulk copies that complete on one. A mixin of `emulator.Thread`; addresses are shared ones."""

    def mbarrier_init(self, address, count) -> None:
        allocation, first = self.block.shared.locate(address, 8, 8)
        allocation.before_write(first, 8)
        self.block.mbarriers[int(address)] = TransactionBarrier(int(count), self.block)

    def mbarrier_expect_tx(self, address, size) -> None:
        """Announce `size` bytes and arrive (mbarrier.arrive.expect_tx)."""
        self._mbarrier(address).expected_bytes += int(size)
        self.mbarrier_arrive(address)

    def mbarrier_arrive(self, address) -> None:
        barrier = self._mbarrier(address)
        barrier.told.merge(self.tell())
        barrier.pending -= 1
        barrier.settle()

    def mbarrier_wait(self, address, parity) -> None:
        """Until the phase of this parity has ended."""
        barrier = self._mbarrier(address)
        self.wait_until(lambda: barrier.parity != int(parity) & 1, f"mbarrier (parity {int(parity)})")
        self.learn(barrier.told)
        barrier.land(self)

    def bulk_copy(self, shared_address, pointer, index, size, mbarrier_address, scale: int | None = None) -> None:
        """cp.async.bulk: `size` bytes, a multiple of 16, to shared memory; completes on the mbarrier."""
        size = int(size)
        source = pointer.locate(index, scale or pointer.itemsize, size, alignment=16)
        pointer.allocation.before_read(source, size)
        self._bulk(shared_address, pointer.allocation.data[source : source + size].copy(), mbarrier_address, 16)

    def tensor_copy(self, shared_address, tensor_map, column, row, mbarrier_address) -> None:
        """cp.async.bulk.tensor: a box of a TensorMap, zeros outside the matrix; completes on the mbarrier."""
        column, row, matrix = int(column), int(row), tensor_map.array
        rows, columns = tensor_map.inside(row, column)
        part = np.empty((len(rows), len(columns)), matrix.dtype)
        source, size = matrix.pointer(np.uint8), len(columns) * matrix.dtype.itemsize
        for i, r in enumerate(rows if columns else ()):
            first = source.locate(r * matrix.strides[0] + columns.start * matrix.dtype.itemsize, 1, size, alignment=1)
            source.allocation.before_read(first, size)
            part[i] = source.allocation.data[first : first + size].view(matrix.dtype)
        self._bulk(shared_address, tensor_map.arrange(row, column, part), mbarrier_address, tensor_map.alignment)

    def _bulk(self, shared_address, data: np.ndarray, mbarrier_address, alignment: int) -> None:
        barrier = self._mbarrier(mbarrier_address)
        target, first = self.block.shared.locate(shared_address, len(data), alignment)
        target.start_copy(first, len(data))
        barrier.copies.append((target, first, data))
        barrier.settle()

    def _mbarrier(self, address) -> TransactionBarrier:
        barrier = self.block.mbarriers.get(int(address))
        if barrier is None:
            raise KernelFault(f"no mbarrier was initialised at shared address {int(address)}")
        return barrier

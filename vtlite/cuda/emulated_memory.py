"""Memory of the emulated GPU: every access is checked for bounds, alignment, uninitialised bytes and data races.

An `Allocation` is a run of bytes with a shadow. Per byte the shadow knows whether it was ever written or is the target
of a copy still in flight; per cell of 1 to 16 bytes, the last write and the reads since, each with its thread, logical
clock and source line. Two accesses race if they touch a cell from two threads, one writes, and neither
happened before the other (`vtlite/cuda/emulated_order.py` keeps that order).

Never-written bytes hold 0xFF: NaN in every float type.
"""

import numpy as np

from vtlite.cuda.emulated_faults import Misaligned, OutOfBounds, Race, UninitialisedRead, here, running, site_of, thread_name

UNWRITTEN, WRITTEN, IN_FLIGHT = b"\0", b"\1", b"\2"            # shadow of one byte
POISON = 0xFF


class Allocation:
    """`size` bytes of global, shared or local memory with their shadow.

    `data` is the bytes as a NumPy array; without it they start unwritten.
    """

    def __init__(self, name: str, size: int, data: np.ndarray | None = None):
        self.name, self.size = name, size
        self.data = np.full(size, POISON, np.uint8) if data is None else data
        self.state = bytearray((UNWRITTEN if data is None else WRITTEN) * size)
        self.views: dict = {}                      # dtype -> self.data seen as that type
        self.in_flight: dict[int, tuple] = {}      # first byte -> (size, access that started the copy)
        self.forget_accesses()

    def forget_accesses(self, launch=None) -> None:
        """Start the race record anew: a launch happens after everything before it."""
        self.launch, self.cell_bits = launch, 4
        self.writes: dict[int, tuple] = {}         # cell -> access
        self.reads: dict[int, list[tuple]] = {}    # cell -> accesses since that write
        self.told: dict = {}                       # first byte of an atomic -> what its threads have told

    def view(self, dtype) -> np.ndarray:
        """The whole allocation as elements of `dtype`; a tail shorter than one element is left out."""
        view = self.views.get(dtype)
        if view is None:
            itemsize = np.dtype(dtype).itemsize
            view = self.views[dtype] = self.data[: self.size // itemsize * itemsize].view(dtype)
        return view

    def mark_written(self, first: int, size: int) -> None:
        self.state[first : first + size] = WRITTEN * size

    def before_read(self, first: int, size: int) -> None:
        """Called for every read of bytes first .. first + size by the running thread."""
        self.check_written(first, size)
        thread = running()
        if thread.tracks_races:
            access = (thread, thread.clock, *here(3), "read")
            for cell in self._cells(thread, first, size):
                written = self.writes.get(cell)
                if written is not None and written[0] is not thread and not thread.knows(written):
                    self._race(written, access, cell)
                readers = self.reads.get(cell)
                if readers is None:
                    self.reads[cell] = [access]
                elif readers[-1][:2] != access[:2]:
                    readers.append(access)

    def before_write(self, first: int, size: int, kind: str = "write") -> None:
        """Called for every write; `kind` "atomic" does not race with other atomics."""
        thread = running()
        if thread.tracks_races:
            access = (thread, thread.clock, *here(3), kind)
            for cell in self._cells(thread, first, size):
                for earlier in (self.writes.get(cell), *self.reads.pop(cell, ())):
                    if (earlier is not None and earlier[0] is not thread and not thread.knows(earlier)
                            and not (kind == earlier[4] == "atomic")):
                        self._race(earlier, access, cell)
                self.writes[cell] = access
        self.state[first : first + size] = WRITTEN * size

    def check_written(self, first: int, size: int) -> None:
        if self.state.count(WRITTEN, first, first + size) != size:
            self._uninitialised(first, size)

    def start_copy(self, first: int, size: int) -> None:
        """An asynchronous copy into these bytes begins: until `finish_copy` they must not be read, nor be copied into again."""
        for start, (length, access) in self.in_flight.items():
            if start < first + size and first < start + length:
                raise Race(f"asynchronous copy into {self.name} bytes {first}..{first + size - 1} while the one that "
                           f"{thread_name(access[0])} started at {site_of(access)} fills them: nobody has waited for it")
        self.before_write(first, size, "asynchronous copy")
        self.state[first : first + size] = IN_FLIGHT * size
        self.data[first : first + size] = POISON
        thread = running()
        self.in_flight[first] = (size, (thread, thread.clock, *here(), "asynchronous copy"))

    def finish_copy(self, first: int, data: np.ndarray, thread) -> None:
        """The copy lands in `thread`, which has waited for it: for the others, a write that happens now."""
        size, (_, _, *place, kind) = self.in_flight.pop(first)
        self.data[first : first + size] = data
        self.state[first : first + size] = WRITTEN * size
        if thread.tracks_races:
            for cell in self._cells(thread, first, size):
                self.writes[cell] = (thread, thread.clock, *place, kind)

    def _cells(self, thread, first: int, size: int) -> range:
        """Cells under an access. Cells shrink to the smallest aligned access of the launch, so none is ever split."""
        if self.launch is not thread.launch:
            self.forget_accesses(thread.launch)
        while self.cell_bits and (size | first) & ((1 << self.cell_bits) - 1):
            self.cell_bits -= 1
            self.writes = {2 * cell + half: access for cell, access in self.writes.items() for half in (0, 1)}
            self.reads = {2 * cell + half: list(accesses) for cell, accesses in self.reads.items() for half in (0, 1)}
        return range(first >> self.cell_bits, (first + size) >> self.cell_bits)

    def _uninitialised(self, first: int, size: int):
        offset = next(i for i in range(first, first + size) if self.state[i : i + 1] != WRITTEN)
        for start, (length, access) in self.in_flight.items():
            if start <= offset < start + length:
                raise UninitialisedRead(f"read of {self.name} byte {offset}, the target of the copy that "
                                        f"{thread_name(access[0])} started at {site_of(access)} and nobody has waited for")
        raise UninitialisedRead(f"read of {self.name} byte {offset}, which was never written")

    def _race(self, earlier: tuple, access: tuple, cell: int):
        first, size = cell << self.cell_bits, 1 << self.cell_bits
        raise Race(f"{access[4]} of {self.name} bytes {first}..{first + size - 1} races with the {earlier[4]} by "
                   f"{thread_name(earlier[0])} at {site_of(earlier)}: no barrier orders them")


class Pointer:
    """An address in global memory with an element type, as kernels get it: p[i], p[i] = v, p + n.

    It knows the bytes `low` .. `high` of the array it was made from; nothing outside them may be touched.
    """

    __slots__ = ("allocation", "dtype", "itemsize", "offset", "low", "high", "_view")

    def __init__(self, allocation: Allocation, dtype, offset: int, low: int, high: int):
        self.allocation, self.dtype, self.itemsize = allocation, np.dtype(dtype), np.dtype(dtype).itemsize
        self.offset, self.low, self.high = offset, low, high
        self._view = allocation.view(self.dtype)
        assert offset % self.itemsize == 0, f"{allocation.name}: byte {offset} is no address of a {self.dtype}"

    def __add__(self, elements):
        return Pointer(self.allocation, self.dtype, self.offset + int(elements) * self.itemsize, self.low, self.high)

    def __getitem__(self, index):
        first = self.locate(index, self.itemsize, self.itemsize)
        self.allocation.before_read(first, self.itemsize)
        return self._view[first // self.itemsize]

    def __setitem__(self, index, value):
        first = self.locate(index, self.itemsize, self.itemsize)
        self.allocation.before_write(first, self.itemsize)
        self._view[first // self.itemsize] = value

    def locate(self, index, scale: int, size: int, alignment: int | None = None) -> int:
        """The byte of the allocation where an access of `size` bytes at `index` (in units of `scale` bytes) begins.

        It should be aligned to its size, if no other `alignment` is given.
        """
        first = self.offset + int(index) * scale
        if first < self.low or first + size > self.high:
            room = self.high - self.low
            raise OutOfBounds(f"{self.allocation.name}[{int(index)}] ({size} bytes at byte {first - self.low}) is outside "
                              f"its {room} bytes ({room // scale} elements of {scale} bytes)")
        if first % (alignment or size):
            raise Misaligned(f"{self.allocation.name}[{int(index)}]: an access of {size} bytes at byte {first} should be "
                             f"aligned to {alignment or size}")
        return first

    def load(self, index, dtype, count: int, scale: int | None = None) -> tuple:
        """`count` neighbours of `dtype`, aligned to their total size. `index` counts elements, or units of `scale` bytes."""
        itemsize = item_size(dtype)
        first = self.locate(index, scale or self.itemsize, count * itemsize)
        self.allocation.before_read(first, count * itemsize)
        return tuple(self.allocation.view(dtype)[first // itemsize : first // itemsize + count])

    def store(self, index, values, dtype, scale: int | None = None) -> None:
        """The counterpart of `load` for a sequence of scalars."""
        itemsize = item_size(dtype)
        first = self.locate(index, scale or self.itemsize, len(values) * itemsize)
        self.allocation.before_write(first, len(values) * itemsize)
        self.allocation.view(dtype)[first // itemsize : first // itemsize + len(values)] = values


class SharedArray:
    """What cuda.shared.array gives: a C-ordered array in the block's shared memory."""

    __slots__ = ("allocation", "dtype", "itemsize", "shape", "address", "_view")

    def __init__(self, allocation: Allocation, dtype, shape: tuple[int, ...], address: int):
        self.allocation, self.dtype, self.itemsize = allocation, np.dtype(dtype), np.dtype(dtype).itemsize
        self.shape, self.address = shape, address
        self._view = allocation.view(self.dtype)

    def __getitem__(self, index):
        flat = flat_index(index, self.shape, self.allocation.name)
        self.allocation.before_read(flat * self.itemsize, self.itemsize)
        return self._view[flat]

    def __setitem__(self, index, value):
        flat = flat_index(index, self.shape, self.allocation.name)
        self.allocation.before_write(flat * self.itemsize, self.itemsize)
        self._view[flat] = value


class LocalArray:
    """What cuda.local.array gives: a thread's own array, in registers when all its indices are constants."""

    __slots__ = ("name", "type", "shape", "values", "coming")

    def __init__(self, name: str, dtype, shape: tuple[int, ...]):
        self.name, self.type, self.shape = name, np.dtype(dtype).type, shape
        self.values: dict = {}                     # index as written -> value
        self.coming: tuple | None = None           # values that an asynchronous operation will leave, and its `here`

    def __getitem__(self, index):
        try:
            return self.values[index]
        except KeyError:
            flat_index(index, self.shape, self.name)
            why = f"the result of {site_of(self.coming[1])}, which nobody has waited for" if self.coming else "never written"
            raise UninitialisedRead(f"read of {self.name}[{index}], {why}") from None

    def __setitem__(self, index, value):
        if index not in self.values:
            flat_index(index, self.shape, self.name)
            if self.coming:
                raise Race(f"write of {self.name}[{index}], the result of {site_of(self.coming[1])}, which nobody has "
                           "waited for")
        self.values[index] = value if type(value) is self.type else self.type(value)


def item_size(dtype) -> int:
    """Bytes of one element; np.dtype(...).itemsize, but fast for scalar types."""
    size = _item_sizes.get(dtype)
    if size is None:
        size = _item_sizes[dtype] = np.dtype(dtype).itemsize
    return size


_item_sizes: dict = {}


def flat_index(index, shape: tuple[int, ...], name: str) -> int:
    """The C-order position of an index, each part checked against its own axis."""
    parts = index if type(index) is tuple else (index,)
    flat = 0
    for part, extent in zip(parts, shape, strict=True):
        if not 0 <= part < extent:
            raise OutOfBounds(f"{name}[{', '.join(str(int(i)) for i in parts)}] is outside its shape {shape}")
        flat = flat * extent + int(part)
    return flat

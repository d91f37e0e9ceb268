"""Which sequence a piece of work belongs to, found on the device: the sequences' lengths are known there alone.

starts [S + 1] u32 in shared memory: starts[s] pieces come before those of sequence s.
"""

from vtlite.cuda.kernel import device
from vtlite.cuda.lang import consteval, cuda, select, shfl_idx, shfl_up, u32

MOST_SEQUENCES = 254             # in one launch: starts fits in 1 KiB, prefill with head_dim 256 has no more to spare


@device
def add_up(starts, num_sequences):
    """Make starts out of the pieces of each sequence s, which stand in starts[s + 1]. All threads of the block call together."""
    cuda.syncthreads()
    lane = u32(cuda.threadIdx.x)
    if lane < u32(32):
        before, first = u32(0), u32(0)
        while first < num_sequences:
            pieces, s = u32(0), first + lane + u32(1)
            if s <= num_sequences:
                pieces = starts[s]
            for distance in consteval((1, 2, 4, 8, 16)):
                earlier = shfl_up(pieces, u32(distance))
                pieces = pieces + select(lane >= u32(distance), earlier, u32(0))
            pieces = pieces + before
            if s <= num_sequences:
                starts[s] = pieces
            before = shfl_idx(pieces, u32(31))
            first = first + u32(32)
        if lane == u32(0):
            starts[0] = u32(0)
    cuda.syncthreads()


@device
def sequence_of(starts, num_sequences, piece):
    """The last sequence s with starts[s] <= piece, for piece < starts[S]."""
    low, high = u32(0), num_sequences
    while high - low > u32(1):
        middle = (low + high) >> u32(1)
        before = starts[middle] <= piece
        low, high = select(before, middle, low), select(before, high, middle)
    return low

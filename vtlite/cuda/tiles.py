"""Tiles in shared memory for the tensor core: the swizzle, and the fragments of mma.m16n8k16 read from it.

A tile is rows of 16-bit elements; a row has row_bytes bytes, a multiple of 128. The 16-byte chunk c of row r lies at chunk
c ^ (r & 7): eight rows of one chunk, which is what ldmatrix reads at once, then cover all banks. Rows of exactly 128 bytes
are also what wgmma reads (see lang/hopper.py), if the tile starts at a multiple of 1,024.

`tile` is the shared address of the tile's first byte; `row` and `chunk` say where a fragment starts: row a multiple of 8.
All lanes of the warp call together. For the layout of fragments see lang/tensor_core.py.
"""

from vtlite.cuda.kernel import device
from vtlite.cuda.lang import lane_id, ldmatrix_x4, ldmatrix_x4_trans, u32


@device
def swizzled(row, chunk, row_bytes):
    """Byte offset, within its tile, of a row's 16-byte chunk."""
    return row * row_bytes + ((chunk ^ (row & u32(7))) << u32(4))


@device
def fragment_a(tile, row, chunk, row_bytes):
    """(a0, a1, a2, a3) of the 16-row operand: rows row .. row + 15, elements of the two chunks from `chunk`."""
    lane = u32(lane_id())
    return ldmatrix_x4(tile + swizzled(row + (lane & u32(15)), chunk + (lane >> u32(4)), row_bytes))


@device
def fragments_b(tile, row, chunk, row_bytes):
    """(b0, b1, b0', b1'): the 8-column operands whose columns are rows row .. row + 7 and row + 8 .. row + 15; two chunks deep."""
    lane = u32(lane_id())
    return ldmatrix_x4(tile + swizzled(row + (lane & u32(7)) + (lane >> u32(4) << u32(3)), chunk + (lane >> u32(3) & u32(1)), row_bytes))


@device
def fragments_two_steps(tile, lane_row, chunk, row_bytes):
    """(b0, b1, b0', b1'): one 8-column operand for two steps, four chunks deep.

    Lane l gives as `lane_row` which row is column l & 7. Read as the 16-row operand with eight rows of zeros, these are a0, a2
    of the two steps.
    """
    return ldmatrix_x4(tile + swizzled(lane_row, chunk + (u32(lane_id()) >> u32(3)), row_bytes))


@device
def fragments_b_transposed(tile, row, chunk, row_bytes):
    """(b0, b1, b0', b1'): 8-column operands out of a tile whose rows are k: rows row .. row + 15, columns those of the chunk, and
    of the chunk after it."""
    lane = u32(lane_id())
    return ldmatrix_x4_trans(tile + swizzled(row + (lane & u32(15)), chunk + (lane >> u32(4)), row_bytes))

"""Tensor core of a warp: ldmatrix and mma.m16n8k16. All 32 lanes call together; lane = 4 g + q.

Fragments of D[16, 8] += A[16, 16] B[16, 8] (PTX ISA, "Matrix fragments for mma.m16n8k16"), low half first:

    a0  A[g, 2q..2q+1]      a1  A[g+8, 2q..]       a2  A[g, 2q+8..]      a3  A[g+8, 2q+8..]
    b0  B[2q..2q+1, g]      b1  B[2q+8.., g]
    c0  D[g, 2q]            c1  D[g, 2q+1]         c2  D[g+8, 2q]        c3  D[g+8, 2q+1]
"""

from vtlite.cuda.lang.primitive import primitive
from vtlite.cuda.lang.thread import current


@primitive("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {$0}, [$address];", outputs="u", inputs="u")
def ldmatrix_x1(address):
    """One 8x8 matrix of 16-bit elements; row r (16 bytes) lies at the address that lane r gives (CUDA: ldmatrix.x1).

    Lane 4 g + q receives elements 2q, 2q+1 of row g as one u32.
    """
    return current().ldmatrix(address, 1)[0]


@primitive("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {$0, $1}, [$address];", outputs="uu", inputs="u")
def ldmatrix_x2(address):
    """Two 8x8 matrices; lanes 0-7 give the rows of the first, 8-15 of the second (CUDA: ldmatrix.x2)."""
    return current().ldmatrix(address, 2)


@primitive("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$address];", outputs="uuuu", inputs="u")
def ldmatrix_x4(address):
    """Four 8x8 matrices, rows given by lanes 0-7, 8-15, 16-23, 24-31 (CUDA: ldmatrix.x4)."""
    return current().ldmatrix(address, 4)


@primitive("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {$0}, [$address];", outputs="u", inputs="u")
def ldmatrix_x1_trans(address):
    """ldmatrix_x1, each matrix transposed: lane 4 g + q receives elements g of rows 2q, 2q+1 (CUDA: ldmatrix.x1.trans)."""
    return current().ldmatrix(address, 1, transposed=True)[0]


@primitive("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {$0, $1}, [$address];", outputs="uu", inputs="u")
def ldmatrix_x2_trans(address):
    """ldmatrix_x2, each matrix transposed (CUDA: ldmatrix.x2.trans)."""
    return current().ldmatrix(address, 2, transposed=True)


@primitive("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0, $1, $2, $3}, [$address];", outputs="uuuu", inputs="u")
def ldmatrix_x4_trans(address):
    """ldmatrix_x4, each matrix transposed (CUDA: ldmatrix.x4.trans)."""
    return current().ldmatrix(address, 4, transposed=True)


@primitive("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$address], {$a, $b, $c, $d};", inputs="uuuuu", needs="sm_90")
def stmatrix_x4(address, a, b, c, d):
    """The inverse of ldmatrix_x4 (CUDA: stmatrix.x4)."""
    current().stmatrix(address, (a, b, c, d))


@primitive("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, {$a0, $a1, $a2, $a3}, {$b0, $b1}, "
           "{$c0, $c1, $c2, $c3};", outputs="ffff", inputs="uuuuuuffff")
def mma_m16n8k16_bf16(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
    """D = A B + C, bf16 pairs in u32, sums in f32 -> the four f32 of D (CUDA: mma.m16n8k16.f32.bf16.bf16.f32).

    The arithmetic is the tensor core's own, see vtlite/cuda/tensor_core.py: exact products, truncated sums.
    """
    return tuple(current().mma("bf16", (a0, a1, a2, a3), (b0, b1), (c0, c1, c2, c3)))


@primitive("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0, $1, $2, $3}, {$a0, $a1, $a2, $a3}, {$b0, $b1}, "
           "{$c0, $c1, $c2, $c3};", outputs="ffff", inputs="uuuuuuffff")
def mma_m16n8k16_f16(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
    """mma_m16n8k16_bf16 for f16 pairs (CUDA: mma.m16n8k16.f32.f16.f16.f32)."""
    return tuple(current().mma("f16", (a0, a1, a2, a3), (b0, b1), (c0, c1, c2, c3)))

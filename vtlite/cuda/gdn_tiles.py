"""What the two passes over a prompt's chunks share: rows of q and k as tiles, one step of the tensor core, and the low part."""

from vtlite.cuda.kernel import device
from vtlite.cuda.lang import bf16x2_high, bf16x2_low, consteval, cp_async_16_or_zero, f32_to_bf16x2, mma_m16n8k16_bf16, u32
from vtlite.cuda.tiles import swizzled

CHUNK = 64                       # tokens

K, WARPS = 128, 4                # a kernel's own constants of these names are in force


@device
def load_rows(tile, qkv, first_vector, row_stride, num_rows, tid):
    """Start copying a tile [64, K] from a vector of qkv on, rows row_stride vectors apart, zeros from num_rows on."""
    for i in consteval(range(CHUNK * K // 8 // (32 * WARPS))):
        piece = tid + u32(i * 32 * WARPS)
        row, vector = piece // u32(K // 8), piece % u32(K // 8)
        source = first_vector + row * row_stride + vector
        cp_async_16_or_zero(tile + swizzled(row, vector, u32(2 * K)), qkv, source, row < num_rows)


@device
def accumulate(acc, j, a0, a1, a2, a3, b0, b1):
    """acc[j] += one step."""
    acc[j, 0], acc[j, 1], acc[j, 2], acc[j, 3] = mma_m16n8k16_bf16(
        a0, a1, a2, a3, b0, b1, acc[j, 0], acc[j, 1], acc[j, 2], acc[j, 3])


@device
def low_part(high, x, y):
    """What the pair `high` of bf16 lacks of x and y, as a pair: high + low has 16 significant bits."""
    return f32_to_bf16x2(x - bf16x2_low(high), y - bf16x2_high(high))

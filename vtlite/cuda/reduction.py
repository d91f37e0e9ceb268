"""Sums over neighbouring threads in a fixed tree.

Order: within a warp, lanes 16 apart add, then 8, 4, 2, 1 apart (xor: every lane gets the same bits); then the sums of the
group's warps in ascending order. It depends on GROUP alone.
"""

from vtlite.cuda.kernel import device
from vtlite.cuda.lang import consteval, cuda, shfl_xor, u32

GROUP = 32                       # threads that share a sum, a power of two; the calling kernel has a constant of this name


@device
def group_sum(value, partial):
    """The sum of `value` over each GROUP neighbouring threads, in all of them. All threads of the block call together.

    partial: shared array of 32 f32, used if GROUP > 32; a second call needs a barrier before it.
    """
    for distance in consteval((16, 8, 4, 2, 1)):
        if distance < GROUP:
            value = value + shfl_xor(value, u32(distance))
    if GROUP > 32:
        warp = u32(cuda.threadIdx.x) >> u32(5)
        if u32(cuda.threadIdx.x) & u32(31) == u32(0):
            partial[warp] = value
        cuda.syncthreads()
        first = warp & u32(0xFFFFFFFF ^ (GROUP // 32 - 1))
        value = partial[first]
        for other in consteval(range(1, GROUP // 32)):
            value = value + partial[first + u32(other)]
    return value

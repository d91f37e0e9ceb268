"""Linear for many rows on Hopper    y = x W^T: linear_tiled.py with the tensor core of a warpgroup

Arguments, epilogues and the order of one output are linear_tiled.py's: one f32 accumulator, steps of 16 k in ascending order.
wgmma adds a step as mma.m16n8k16 does, on an H200 bit for bit: tests/cuda/test_linear.py holds this kernel to it.
Flops: 2 T N K; bound by the tensor cores.

A warpgroup computes 64 x TILE_N sums, whose operands wgmma reads from shared memory itself. While a stage is multiplied, all
threads start the copies of the stage STAGES - 1 further on, into the slot that was multiplied before.
"""

from vtlite.cuda.kernel import device, kernel
from vtlite.cuda.lang import (async_proxy_fence, bf16, consteval, cp_async_commit, cp_async_wait, cuda, f32, ptr, shared_address,
                              u16, u32, wgmma_commit, wgmma_descriptor, wgmma_fence, wgmma_m64n32k16_bf16, wgmma_m64n128k16_bf16,
                              wgmma_m64n256k16_bf16, wgmma_wait)
from vtlite.cuda.linear_tiled import ROW_BYTES, STEPS, fill, put, soonest, write

TILE_T, TILE_N = 128, 256
WARPS_T, WARPS_N = 8, 1                 # as fill, put and write count them: TILE_T / 16 and 1
STAGES = 4
GATED = False
CONSTANTS = ("TILE_T", "TILE_N", "WARPS_T", "WARPS_N", "STAGES", "GATED")

LARGE, MEDIUM, SMALL = ({"TILE_T": t, "TILE_N": n, "WARPS_T": t // 16, "WARPS_N": 1, "STAGES": 4} for t, n in ((128, 256), (128, 128), (64, 128)))
COST = 1.0, 1.3, 1.5                    # time per sum: 64, 42 and 24 us for a round of tiles on an H200, K = 5120


def chosen(T: int, N: int, gated: bool) -> dict:
    """The specialisation for a shape."""
    return soonest(list(zip((LARGE, MEDIUM, SMALL), COST)), T, N * (1 + gated)) | {"GATED": gated}


@device
def multiply(acc, slot):
    """One stage of this warpgroup's sums."""
    rows = slot + (u32(cuda.threadIdx.x) >> u32(7)) * u32(64 * ROW_BYTES)
    columns = slot + u32(TILE_T * ROW_BYTES)
    wgmma_fence()
    for step in consteval(range(STEPS)):
        a, b = wgmma_descriptor(rows + u32(32 * step)), wgmma_descriptor(columns + u32(32 * step))
        if TILE_N == 256:
            wgmma_m64n256k16_bf16(acc, a, b, True)
        elif TILE_N == 128:
            wgmma_m64n128k16_bf16(acc, a, b, True)
        else:
            wgmma_m64n32k16_bf16(acc, a, b, True)
    wgmma_commit()


@kernel((ptr(bf16), ptr(bf16), ptr(bf16), ptr(bf16), ptr(u16), u32, u32, u32, u32), constants=CONSTANTS, needs="sm_90a",
        threads=lambda TILE_T, **_: 2 * TILE_T,
        shared=lambda TILE_T, TILE_N, STAGES, **_: STAGES * (TILE_T + TILE_N) * ROW_BYTES,
        prebuild=[tile | {"GATED": gated} for tile in (LARGE, MEDIUM, SMALL) for gated in (False, True)])
def linear_wgmma_kernel(x, weight, bias, residual, y, T, N, K, flags):
    ring = shared_address(cuda.shared.array(0, u32))                    # starts at a multiple of 1,024: nothing lies before it
    slot_bytes = u32((TILE_T + TILE_N) * ROW_BYTES)
    vectors = K >> 3
    stages = (K + 63) >> 6
    for stage in consteval(range(STAGES - 1)):
        if u32(stage) < stages:
            fill(ring + u32(stage) * slot_bytes, u32(stage), x, weight, T, N, vectors)
        cp_async_commit()

    acc = cuda.local.array(consteval(TILE_N // 2), f32)
    for i in consteval(range(TILE_N // 2)):
        acc[i] = f32(0)
    slot, free, stage = ring, ring + u32(STAGES - 1) * slot_bytes, u32(0)
    while stage < stages:
        cp_async_wait(consteval(STAGES - 2))
        async_proxy_fence()
        cuda.syncthreads()
        multiply(acc, slot)
        if stage + u32(STAGES - 1) < stages:
            fill(free, stage + u32(STAGES - 1), x, weight, T, N, vectors)
        cp_async_commit()
        wgmma_wait(0)
        free = slot
        slot = slot + slot_bytes
        if slot == ring + u32(STAGES) * slot_bytes:
            slot = ring
        stage = stage + 1

    cuda.syncthreads()                                                  # the ring's place is free
    sums = cuda.shared.array(0, f32)
    put(sums, acc)
    cuda.syncthreads()
    write(sums, y, bias, residual, T, N, flags)

"""The ceiling of the tensor core: products that it makes while nothing is loaded or stored. The speed of kernels that arithmetic
bounds is quoted as a share of it, measured in the same run.

Two warpgroups per multiprocessor compute D [64, 256] += A [64, 64] B [256, 64]^T over and over by wgmma, bf16, from the same
shared memory; y [blocks * 256] f32 keeps the compiler from dropping the work.
Flops: 2 * 64 * 256 * 64 per warpgroup and round. (sm_90a)
"""

from vtlite.cuda.device import current
from vtlite.cuda.kernel import kernel
from vtlite.cuda.lang import (async_proxy_fence, consteval, cuda, f32, ptr, shared_address, u32, wgmma_commit, wgmma_descriptor,
                              wgmma_fence, wgmma_m64n256k16_bf16, wgmma_wait)

THREADS = 256
WARPGROUPS = THREADS // 128
ROUND_FLOPS = 2 * 64 * 256 * 64
SPECS = ()                       # a rate has no definition


@kernel((ptr(f32), u32), threads=THREADS, needs="sm_90a")
def tensor_rate_kernel(y, rounds):
    a, b = cuda.shared.array(2048, u32), cuda.shared.array(8192, u32)
    tid = u32(cuda.threadIdx.x)
    i = tid
    while i < u32(8192):
        b[i] = (i * u32(0x9E3779B9)) & u32(0x80FF80FF) | u32(0x3F003F00)          # numbers of 0.5 to 2 and either sign
        if i < u32(2048):
            a[i] = b[i]
        i = i + u32(THREADS)
    async_proxy_fence()
    cuda.syncthreads()
    a_address, b_address = shared_address(a), shared_address(b)
    acc = cuda.local.array(128, f32)
    for j in consteval(range(128)):
        acc[j] = f32(0)
    n = u32(0)
    while n < rounds:
        wgmma_fence()
        for k in consteval(range(4)):
            wgmma_m64n256k16_bf16(acc, wgmma_descriptor(a_address + u32(32 * k)), wgmma_descriptor(b_address + u32(32 * k)), True)
        wgmma_commit()
        wgmma_wait(0)
        n = n + u32(1)
    total = f32(0)
    for j in consteval(range(128)):
        total = total + acc[j]
    y[u32(cuda.blockIdx.x) * u32(THREADS) + tid] = total


def run_rounds(rounds: int, *, out):
    """`rounds` rounds on every multiprocessor; returns their flops. out: [multiprocessors * 256] f32."""
    current().launch(tensor_rate_kernel.specialize(), current().num_sms, out, rounds)
    return current().num_sms * WARPGROUPS * rounds * ROUND_FLOPS

"""The language of kernels: everything a kernel may use, each thing with its meaning in Python.

A kernel is a Python function over these names. In the emulator it runs as it stands, thread by thread; the compiler puts
PTX in the place of every primitive. So that both give the same bits:

* Index arithmetic is 32-bit: cast once (`tid = u32(cuda.threadIdx.x)`), then +, -, *, &, |, ^, <<, >> and comparisons of u32
  with u32 and of i32 with i32 stay 32 bits wide and wrap on both sides, and so do they with a literal (`tid + 32`). u32 with
  i32 is 64 bits wide on both sides: cast one of them. Products of sizes are i64: `i64(rows) * i64(columns)`.
* Floats are f32: a literal in f32 arithmetic is written f32(0.5).
* `//` and `%` on integers check for zero on the GPU, which is slow: use shifts and masks, or constants.
* A loop variable of range() over u32 is int64 on the GPU: cast it, u32(i). Loops that must unroll are written
  `for i in consteval(range(4))`; arrays indexed by their variables alone stay in registers.
* Shapes of shared and local arrays are literals or constants; an expression is written consteval(4 * ROWS). Shared arrays
  are declared in the kernel itself and passed to device functions.
* A comparison with NaN is false, `!=` is true; fmax and fmin prefer the number.

`PRIMITIVES` maps each primitive to its PTX; `vtlite kernels show --python` and the tests read it.
"""

from vtlite.cuda.lang.arithmetic import (anew, as_f32, as_i32, as_u32, byte_permute, div, f32_to_i32_rn, f32_to_i32_rz,
                                         f32_to_u32_rz, fabs, floor, fma, fmax, fmin, i32_to_f32, maximum, mul, mul_hi_u32,
                                         mul_lo_u32, rotl_u32, select, sqrt, u32_as_f32, u32_to_f32)
from vtlite.cuda.lang.conversion import (bf16_to_f32, bf16x2_high, bf16x2_low, e2m1x2_to_f16x2, e4m3x2_to_f16x2,
                                         e5m2x2_to_f16x2, f16_to_f32, f16x2_high, f16x2_low, f32_to_bf16, f32_to_bf16x2,
                                         f32_to_e4m3x2, f32_to_e5m2x2, f32_to_f16, f32_to_f16x2)
from vtlite.cuda.lang.hopper import (async_proxy_fence, bulk_copy, mbarrier_arrive, mbarrier_arrive_expect_tx, mbarrier_init,
                                     mbarrier_init_fence, mbarrier_wait, tensor_copy, wgmma_commit, wgmma_descriptor, wgmma_fence,
                                     wgmma_m64n8k16_bf16, wgmma_m64n16k16_bf16, wgmma_m64n32k16_bf16, wgmma_m64n64k16_bf16,
                                     wgmma_m64n128k16_bf16, wgmma_m64n256k16_bf16, wgmma_wait)
from vtlite.cuda.lang.memory import (atomic_add_i32, atomic_add_shared_u32, atomic_add_shared_u64, atomic_add_u32,
                                     atomic_add_u64, atomic_and_u32, atomic_cas_u32, atomic_exch_u32, atomic_max_i32,
                                     atomic_max_u32, atomic_max_u64, atomic_min_i32, atomic_min_u32, atomic_or_u32,
                                     cp_async_4, cp_async_16, cp_async_16_or_zero, cp_async_commit, cp_async_wait, load_f32x4,
                                     load_shared_u32x4, load_shared_u64, load_u32, load_u32x2, load_u32x4, load_weights_u32x4,
                                     shared_address, store_f32x4, store_shared_u32x4, store_shared_u64, store_u32,
                                     store_u32x2, store_u32x4)
from vtlite.cuda.lang.primitive import PRIMITIVES, Primitive
from vtlite.cuda.lang.quick import INFINITE_QUARTER, quarter_of_one_plus_exp_minus, quotient, reciprocal
from vtlite.cuda.lang.tensor_core import (ldmatrix_x1, ldmatrix_x1_trans, ldmatrix_x2, ldmatrix_x2_trans, ldmatrix_x4,
                                          ldmatrix_x4_trans, mma_m16n8k16_bf16, mma_m16n8k16_f16, stmatrix_x4)
from vtlite.cuda.lang.thread import consteval, cuda, lane_id, named_barrier_arrive, named_barrier_sync
from vtlite.cuda.lang.types import (Parameter, Pointer, bf16, e4m3, e5m2, f16, f32, f64, i8, i16, i32, i64, ptr, tensor_map, u8, u16,
                                    u32, u64)
from vtlite.cuda.lang.warp import (ballot, clz, match_any, popc, redux_add, redux_and, redux_max, redux_min, redux_or, shfl_down,
                                   shfl_idx, shfl_up, shfl_xor, vote_all, vote_any)

__all__ = [name for name in dir() if not name.startswith("_")]

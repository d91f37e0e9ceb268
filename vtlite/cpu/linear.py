"""Linear    y = x W^T + b + r

x [T, K] f32; W [N, K] bf16, f16 or f32, read where it lies; y [T, N] f32.
Order of one output: lane l of eight adds x[k] W[n, k] for k = l, l + 8, ... by fma; hsum's tree joins the lanes; the
last K % 8 products follow by fma in ascending k; then + b, then + r. It depends on K alone: `_dot` is the definition
and the tiles below do the same to several outputs at once, so a row has one value in any batch on any number of threads.
Bytes: 2 N K + 4 T (K + N). Bound by memory below about 16 rows, by fma above.
"""

from functools import cache

import numpy as np

from vtlite.cpu import cores
from vtlite.cpu.kernel import CLAIMS, Kernel, inlined, pointer_to, run
from vtlite.cpu.simd import LANES, fma, hsum, load, load_one, prefetch, splat
from vtlite.cpu.strided import bits

BLOCK = 48                      # outputs per task: 48 rows of W stay in the L2 cache while every row of x passes
FEW_ROWS = 4                    # below it W is read once, from memory: then a task is all that one thread reads
AHEAD = 192                     # elements; 96 to 1024 differ little
SERIAL_PRODUCTS = 1 << 17       # fewer products are over before a second thread has woken


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None,
           residual: np.ndarray | None = None, out_dtype: np.dtype | None = None) -> np.ndarray:
    """x [T, K] f32, weight [N, K] bf16, f16 or f32, bias [N], residual [T, N] f32 -> [T, N] in `out_dtype` (default f32)."""
    (T, K), N = x.shape, len(weight)
    x, w, y = bits(x), bits(weight), np.empty((T, N), np.float32)
    block = BLOCK if T >= FEW_ROWS else -(-N // (4 * CLAIMS * cores.num_threads())) * 4
    b = 0 if bias is None else bias.astype(np.float32, copy=False)
    r = 0 if residual is None else bits(residual)
    run(_kernel(w.dtype.type), -(-N // block), x, w, y, T, N, K, block, b, r, parallel=T * N * K >= SERIAL_PRODUCTS)
    return y if out_dtype is None else y.astype(out_dtype, copy=False)


@cache
def _kernel(weight_type: type) -> Kernel:
    """The kernel for weights that travel as `weight_type`; a task is a block of outputs."""
    @Kernel
    def block(task, args):
        y, T, N, first = pointer_to(args[2], np.float32), args[3], args[4], task * args[6]
        last = first + args[6] if first + args[6] < N else N
        _products(pointer_to(args[0], np.float32), pointer_to(args[1], weight_type), y, T, N, args[5], first, last)
        for addend, rows_apart in ((args[7], 0), (args[8], N)):                   # bias, residual; 0 where there is none
            if addend:
                for t in range(T):
                    for n in range(first, last):
                        y[t * N + n] += pointer_to(addend, np.float32)[t * rows_apart + n]
    return block


@inlined
def _products(x, w, y, T, N, K, first, last):
    """y[:, first : last], by tiles of four rows by three outputs; leftover rows by one row and four outputs."""
    tiled = T - T % 4
    for t in range(0, tiled, 4):
        n = first
        while n + 3 <= last:
            _tile_4x3(x, w, y, t, n, N, K)
            n += 3
        while n < last:
            for i in range(t, t + 4):
                _tile_1x1(x, w, y, i, n, N, K)
            n += 1
    quarter = (last - first) // 4
    for t in range(tiled, T):
        for n in range(first, first + quarter):
            _tile_1x4(x, w, y, t, n, quarter, N, K)
        for n in range(first + 4 * quarter, last):
            _tile_1x1(x, w, y, t, n, N, K)
    for k in range(K - K % LANES, K):
        for t in range(T):
            for n in range(first, last):
                y[t * N + n] = fma(load_one(x, t * K + k), load_one(w, n * K + k), y[t * N + n])


@inlined
def _tile_1x1(x, w, y, t, n, N, K):
    """y[t, n], less the last K % 8 products: the order that the larger tiles keep for each of their outputs."""
    acc = splat(0)
    for k in range(0, K - LANES + 1, LANES):
        acc = fma(load(x, t * K + k), load(w, n * K + k), acc)
    y[t * N + n] = hsum(acc)


@inlined
def _tile_1x4(x, w, y, t, n, apart, N, K):
    """y[t, n], y[t, n + apart], .. + 3 apart. Called for ascending n, this reads four long streams of W at once, which is
    what a memory controller is fastest at; each step asks for the line AHEAD, because a row is too short to guess from."""
    a0 = a1 = a2 = a3 = splat(0)
    w0, w1, w2, w3 = n * K, (n + apart) * K, (n + 2 * apart) * K, (n + 3 * apart) * K
    for k in range(0, K - LANES + 1, LANES):
        prefetch(w, w0 + k + AHEAD)
        prefetch(w, w1 + k + AHEAD)
        prefetch(w, w2 + k + AHEAD)
        prefetch(w, w3 + k + AHEAD)
        v = load(x, t * K + k)
        a0 = fma(v, load(w, w0 + k), a0)
        a1 = fma(v, load(w, w1 + k), a1)
        a2 = fma(v, load(w, w2 + k), a2)
        a3 = fma(v, load(w, w3 + k), a3)
    sums = a0, a1, a2, a3
    for j in range(4):
        y[t * N + n + j * apart] = hsum(sums[j])


@inlined
def _tile_4x3(x, w, y, t, n, N, K):
    """y[t : t + 4, n : n + 3]; twelve sums, three weights and one x fill sixteen vector registers."""
    a0 = a1 = a2 = b0 = b1 = b2 = c0 = c1 = c2 = d0 = d1 = d2 = splat(0)
    x0, x1, x2, x3 = t * K, (t + 1) * K, (t + 2) * K, (t + 3) * K
    w0, w1, w2 = n * K, (n + 1) * K, (n + 2) * K
    for k in range(0, K - LANES + 1, LANES):
        u0, u1, u2 = load(w, w0 + k), load(w, w1 + k), load(w, w2 + k)
        v = load(x, x0 + k)
        a0, a1, a2 = fma(v, u0, a0), fma(v, u1, a1), fma(v, u2, a2)
        v = load(x, x1 + k)
        b0, b1, b2 = fma(v, u0, b0), fma(v, u1, b1), fma(v, u2, b2)
        v = load(x, x2 + k)
        c0, c1, c2 = fma(v, u0, c0), fma(v, u1, c1), fma(v, u2, c2)
        v = load(x, x3 + k)
        d0, d1, d2 = fma(v, u0, d0), fma(v, u1, d1), fma(v, u2, d2)
    sums = (a0, a1, a2), (b0, b1, b2), (c0, c1, c2), (d0, d1, d2)
    for i in range(4):
        for j in range(3):
            y[(t + i) * N + n + j] = hsum(sums[i][j])

"""The emulator computes what a GPU would, and reports what a GPU leaves undefined, with the lines that matter."""

import inspect
import io
import pdb
import re
import sys

import numpy as np
import pytest

from vtlite.cuda import emulator
from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.cuda.emulated_faults import Divergence, KernelFault, Misaligned, OutOfBounds, Race, UninitialisedRead
from vtlite.cuda.lang.hopper import wgmma_commit, wgmma_descriptor, wgmma_m64n8k16_bf16, wgmma_wait
from vtlite.cuda.lang.memory import (atomic_add_u32, cp_async_16, cp_async_commit, cp_async_wait, load_shared_u32x4,
                                     load_u32x4, shared_address, store_u32x4)
from vtlite.cuda.lang.thread import cuda, lane_id, named_barrier_arrive, named_barrier_sync
from vtlite.cuda.lang.types import f32, i32, u32
from vtlite.cuda.lang.warp import ballot, match_any, redux_add, shfl_down, shfl_idx, shfl_up, shfl_xor, vote_all, vote_any
from vtlite.errors import DeviceError


def run(kernel, *arrays, grid=1, threads=32, **options):
    """Run a kernel on copies of NumPy arrays and return the copies."""
    device = EmulatedDevice()
    on_device = [device.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
    arguments = tuple(a.pointer(a.dtype) if hasattr(a, "pointer") else a for a in on_device)
    emulator.launch(kernel, grid, threads, arguments, **options)
    return [a.numpy() for a in on_device if hasattr(a, "numpy")]


def line(kernel, mark: str) -> str:
    """file:line of the comment `# mark` in a kernel, as faults print it."""
    source, first = inspect.getsourcelines(kernel)
    offset = next(i for i, text in enumerate(source) if text.rstrip().endswith(f"# {mark}"))
    return f"test_emulator.py:{first + offset}"


def zeros(n, dtype=np.uint32):
    return np.zeros(n, dtype)


class TestOrdinaryKernels:
    def test_every_thread_of_every_block_runs(self):
        def kernel(out):
            t = cuda.threadIdx
            in_block = t.x + cuda.blockDim.x * (t.y + cuda.blockDim.y * t.z)
            out[cuda.blockIdx.x * i32(24) + in_block] = u32(in_block)

        assert np.array_equal(run(kernel, zeros(72), grid=3, threads=(4, 3, 2))[0], np.tile(np.arange(24), 3))

    def test_barriers_separate_phases_across_warps(self):
        def kernel(x, out):
            tid = cuda.threadIdx.x
            s = cuda.shared.array(96, u32)
            s[tid] = x[tid]
            cuda.syncthreads()
            out[tid] = s[95 - tid]

        x = np.arange(96, dtype=np.uint32)
        assert np.array_equal(run(kernel, x, zeros(96), threads=96)[1], x[::-1])

    def test_block_wide_votes(self):
        def kernel(out):
            odd = cuda.threadIdx.x & 1
            out[0] = cuda.syncthreads_count(odd)
            out[1] = cuda.syncthreads_and(odd)
            out[2] = cuda.syncthreads_or(odd)

        assert run(kernel, zeros(3), threads=48 + 16, races=False)[0].tolist() == [32, 0, 1]

    def test_unsigned_arithmetic_wraps(self):
        def kernel(out):
            out[0] = u32(0xFFFFFFFF) * u32(3) + u32(5)
            out[1] = u32(3) - u32(4)

        assert run(kernel, zeros(2), threads=1)[0].tolist() == [2, 0xFFFFFFFF]

    def test_each_lane_has_its_own_local_array(self):
        def kernel(out):
            a = cuda.local.array((2, 2), u32)
            for i in range(2):
                for j in range(2):
                    a[i, j] = u32(lane_id() * 4 + i * 2 + j)
            for i in range(4):
                out[lane_id() * 4 + i] = a[i // 2, i % 2]

        assert np.array_equal(run(kernel, zeros(128))[0], np.arange(128))

    def test_a_seed_changes_the_order_of_work_and_is_reproducible(self):
        def kernel(order, count):
            order[atomic_add_u32(count, 0, u32(1))] = u32(cuda.blockIdx.x * i32(4) + cuda.threadIdx.x)

        orders = [run(kernel, zeros(32), zeros(1), grid=8, threads=4, seed=seed)[0].tolist() for seed in (None, 1, 1, 2)]
        assert orders[0] == sorted(orders[0]) and orders[1] == orders[2]
        assert orders[0] != orders[1] != orders[3]
        assert all(sorted(order) == orders[0] for order in orders)

    def test_print_works_in_a_kernel(self, capsys):
        def kernel(out):
            print("thread", int(cuda.threadIdx.x), "sees", out[0])

        run(kernel, zeros(1), threads=2)
        assert capsys.readouterr().out == "thread 0 sees 0\nthread 1 sees 0\n"

    def test_the_debugger_works_in_a_kernel(self, monkeypatch):
        def kernel(out):
            twice = cuda.threadIdx.x * 2
            breakpoint()
            cuda.syncthreads()
            out[cuda.threadIdx.x] = twice

        screen = io.StringIO()
        monkeypatch.setattr(sys, "breakpointhook", lambda: pdb.Pdb(
            stdin=io.StringIO("p 'twice is', int(twice)\nnext\nnext\nc\n"), stdout=screen, nosigint=True, readrc=False)
            .set_trace(sys._getframe(1)))
        assert run(kernel, zeros(3), threads=3)[0].tolist() == [0, 2, 4]
        assert [int(n) for n in re.findall(r"'twice is', (\d)", screen.getvalue())] == [0, 2, 4]

    def test_an_ordinary_exception_names_its_thread(self):
        def kernel(out):
            if cuda.threadIdx.x == 5:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as error:
            run(kernel, zeros(1))
        assert error.value.__notes__ == ["in kernel kernel, block (0, 0, 0) thread (5, 0, 0)"]

    def test_primitives_outside_a_kernel_say_so(self):
        with pytest.raises(DeviceError, match="only inside a kernel"):
            cuda.syncthreads()


class TestWarpOperations:
    def lanes(self, function):
        """function() in 32 lanes."""
        def kernel(out):
            out[lane_id()] = function()

        return run(kernel, zeros(32))[0].tolist()

    def test_shuffles(self):
        lane = range(32)
        assert self.lanes(lambda: shfl_xor(lane_id(), 5)) == [i ^ 5 for i in lane]
        assert self.lanes(lambda: shfl_up(lane_id(), 3)) == [i - 3 if i >= 3 else i for i in lane]
        assert self.lanes(lambda: shfl_down(lane_id(), 3)) == [i + 3 if i < 29 else i for i in lane]
        assert self.lanes(lambda: shfl_idx(lane_id() * i32(2), 37)) == [10] * 32

    @pytest.mark.parametrize("kind, argument, expected", [
        ("up", 1, [0, 0, 1, 2, 4, 4, 5, 6]), ("down", 1, [1, 2, 3, 3, 5, 6, 7, 7]),
        ("idx", 6, [2, 2, 2, 2, 6, 6, 6, 6]), ("xor", 4, [0, 1, 2, 3, 0, 1, 2, 3])])
    def test_segments_of_a_shuffle(self, kind, argument, expected):
        shuffled = self.lanes(lambda: emulator.current().shfl(kind, 0xFFFFFFFF, lane_id(), argument, width=4))
        assert shuffled[:8] == expected

    def test_votes_and_reductions(self):
        assert self.lanes(lambda: ballot(lane_id() % 3 == 0)) == [0b01001001001001001001001001001001] * 32
        assert self.lanes(lambda: vote_any(lane_id() == 31)) == [1] * 32
        assert self.lanes(lambda: vote_all(lane_id() < 31)) == [0] * 32
        assert self.lanes(lambda: redux_add(u32(lane_id()) << u32(28))) == [(sum(range(32)) << 28) & 0xFFFFFFFF] * 32
        assert self.lanes(lambda: match_any(u32(lane_id() & i32(1)))) == [0x55555555, 0xAAAAAAAA] * 16

    def test_a_lane_that_takes_another_branch_is_missed(self):
        def kernel(out):
            if lane_id() != 7:
                out[lane_id()] = ballot(True)            # shuffle
            else:
                cuda.syncwarp()                          # other

        with pytest.raises(Divergence) as error:
            run(kernel, zeros(32))
        assert line(kernel, "other") in str(error.value) and line(kernel, "shuffle") in str(error.value)
        assert "lane 7 reaches __syncwarp" in str(error.value) and "lanes 0-6 wait at vote ballot" in str(error.value)

    def test_a_lane_that_returned_is_missed(self):
        def kernel(out):
            if lane_id() >= 30:
                return
            out[lane_id()] = shfl_xor(u32(1), 1)         # shuffle

        with pytest.raises(Divergence, match=r"thread \(30, 0, 0\).*lanes 0-29 wait at shfl xor"):
            run(kernel, zeros(32))

    def test_a_shuffle_from_outside_the_mask_is_reported(self):
        def kernel(out):
            if lane_id() < 16:
                out[lane_id()] = emulator.current().shfl("xor", 0xFFFF, u32(1), 16)

        with pytest.raises(Divergence, match="lane 0 reads lane 16, which is not in mask 0x0000ffff"):
            run(kernel, zeros(32))


class TestBounds:
    def test_a_store_past_the_end(self):
        def kernel(out):
            out[cuda.threadIdx.x + cuda.blockIdx.x * 32] = u32(1)        # store

        with pytest.raises(OutOfBounds) as error:
            run(kernel, zeros(40), grid=2)
        assert line(kernel, "store") in str(error.value)
        assert "kernel, block (1, 0, 0) thread (8, 0, 0)" in str(error.value) and "[40]" in str(error.value)

    def test_a_negative_index_does_not_wrap(self):
        with pytest.raises(OutOfBounds, match=r"\[-1\]"):
            run(lambda x: x[i32(-1)], zeros(4), threads=1)

    def test_a_vector_load_that_ends_past_the_end(self):
        with pytest.raises(OutOfBounds, match="16 bytes at byte 16.* outside its 24 bytes"):
            run(lambda x: load_u32x4(x, u32(1)), zeros(6), threads=1)

    def test_a_slice_of_an_array_ends_where_it_ends(self):
        x = EmulatedDevice().array(zeros(8))[2:4]
        with pytest.raises(OutOfBounds, match="outside its 8 bytes"):
            emulator.launch(lambda x: x[2], 1, 1, (x.pointer(np.uint32),))

    def test_a_misaligned_vector_access(self):
        with pytest.raises(Misaligned, match="aligned to 16"):
            run(lambda x: load_u32x4(x + 1, u32(0)), zeros(8), threads=1)

    def test_shared_arrays_are_checked_axis_by_axis(self):
        def kernel(x):
            s = cuda.shared.array((4, 8), u32)
            s[0, 8] = x[0]

        with pytest.raises(OutOfBounds, match=r"\[0, 8\] is outside its shape \(4, 8\)"):
            run(kernel, zeros(1), threads=1)

    def test_a_shared_address_past_its_array(self):
        def kernel(x):
            s = cuda.shared.array(8, u32)
            cuda.shared.array(8, f32)
            load_shared_u32x4(shared_address(s) + u32(32))

        with pytest.raises(OutOfBounds, match=r"shared address \d+ \(16 bytes\) is in no array"):
            run(kernel, zeros(1), threads=1)


class TestUninitialised:
    def test_shared_memory(self):
        def kernel(out):
            s = cuda.shared.array(32, f32)
            s[cuda.threadIdx.x // 2] = f32(1)
            out[cuda.threadIdx.x] = s[cuda.threadIdx.x]                  # read

        with pytest.raises(UninitialisedRead) as error:
            run(kernel, zeros(32, np.float32), races=False)
        assert line(kernel, "read") in str(error.value) and "byte 4, which was never written" in str(error.value)

    def test_local_memory(self):
        with pytest.raises(UninitialisedRead, match="never written"):
            run(lambda out: cuda.local.array(4, f32)[3], zeros(1), threads=1)

    def test_global_memory(self):
        x = EmulatedDevice().empty(4, np.float32)
        assert np.isnan(x.numpy()).all()
        with pytest.raises(UninitialisedRead, match="never written"):
            emulator.launch(lambda x: x[2], 1, 1, (x.pointer(np.float32),))


class TestRaces:
    def test_a_write_and_a_read_without_a_barrier(self):
        def kernel(out):
            s = cuda.shared.array(32, u32)
            s[cuda.threadIdx.x] = u32(1)                                 # write
            out[cuda.threadIdx.x] = s[cuda.threadIdx.x // 2]             # read

        with pytest.raises(Race) as error:
            run(kernel, zeros(32))
        assert line(kernel, "write") in str(error.value) and line(kernel, "read") in str(error.value)

    def test_a_read_and_a_later_write(self):
        def kernel(out):
            s = cuda.shared.array(64, u32)
            s[cuda.threadIdx.x] = u32(1)
            cuda.syncthreads()
            out[cuda.threadIdx.x] = s[cuda.threadIdx.x ^ 32]             # read
            s[cuda.threadIdx.x] = u32(2)                                 # write

        with pytest.raises(Race) as error:
            run(kernel, zeros(64), threads=64)
        assert line(kernel, "write") in str(error.value) and line(kernel, "read") in str(error.value)

    def test_two_blocks_that_write_one_element(self):
        def kernel(out):
            out[cuda.threadIdx.x] = u32(cuda.blockIdx.x)                 # write

        with pytest.raises(Race, match=r"block \(1, 0, 0\).*write by block \(0, 0, 0\)"):
            run(kernel, zeros(32), grid=2)

    def test_a_vector_store_over_a_scalar_store(self):
        def kernel(out):
            if cuda.threadIdx.x == 0:
                out[3] = u32(1)
            else:
                store_u32x4(out, u32(0), 1, 2, 3, 4)

        with pytest.raises(Race, match="bytes 12..15"):
            run(kernel, zeros(4), threads=2)

    def test_neighbouring_bytes_do_not_race(self):
        def kernel(out):
            out[cuda.threadIdx.x] = out[cuda.threadIdx.x] + np.uint8(1)

        assert run(kernel, zeros(32, np.uint8))[0].tolist() == [1] * 32

    def test_launches_follow_one_another(self):
        def kernel(x, shift):
            x[cuda.threadIdx.x ^ shift] = u32(shift)

        x = EmulatedDevice().array(zeros(32))
        for shift in range(2):
            emulator.launch(kernel, 1, 32, (x.pointer(np.uint32), shift))
        assert x.numpy().tolist() == [1] * 32

    def test_syncwarp_orders_a_warp_but_not_the_block(self):
        def kernel(out, distance):
            s = cuda.shared.array(64, u32)
            s[cuda.threadIdx.x] = u32(cuda.threadIdx.x)
            cuda.syncwarp()
            out[cuda.threadIdx.x] = s[cuda.threadIdx.x ^ distance]

        assert run(kernel, zeros(64), 1, threads=64)[0].tolist() == [i ^ 1 for i in range(64)]
        with pytest.raises((Race, UninitialisedRead)):
            run(kernel, zeros(64), 32, threads=64)

    def test_a_shuffle_orders_no_memory(self):
        def kernel(out):
            s = cuda.shared.array(32, u32)
            s[cuda.threadIdx.x] = u32(1)
            shfl_xor(u32(0), 1)
            out[cuda.threadIdx.x] = s[cuda.threadIdx.x ^ 1]

        with pytest.raises(Race):
            run(kernel, zeros(32))

    @pytest.mark.parametrize("fenced", [True, False])
    def test_the_last_block_may_read_what_others_fenced(self, fenced):
        def kernel(partial, count, out):
            last = cuda.shared.array(1, u32)
            partial[cuda.blockIdx.x * 32 + cuda.threadIdx.x] = u32(1)    # write
            if fenced:
                cuda.threadfence()
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                if fenced:
                    cuda.threadfence()
                last[0] = atomic_add_u32(count, 0, u32(1))
            cuda.syncthreads()
            if last[0] == 3 and cuda.threadIdx.x == 0:
                total = u32(0)
                for i in range(128):
                    total += partial[i]                                  # read
                out[0] = total

        arrays = zeros(128), zeros(1), zeros(1)
        if fenced:
            assert run(kernel, *arrays, grid=4, seed=1)[2].tolist() == [128]
        else:
            with pytest.raises(Race) as error:
                run(kernel, *arrays, grid=4)
            assert line(kernel, "write") in str(error.value) and line(kernel, "read") in str(error.value)

    def test_named_barriers_order_those_who_wait(self):
        def kernel(out, early):
            s = cuda.shared.array(32, u32)
            if cuda.threadIdx.x < 32:
                if early:
                    named_barrier_arrive(1, 64)
                s[cuda.threadIdx.x] = u32(cuda.threadIdx.x)
                if not early:
                    named_barrier_arrive(1, 64)
            else:
                named_barrier_sync(1, 64)
                out[cuda.threadIdx.x - 32] = s[63 - cuda.threadIdx.x]

        assert run(kernel, zeros(32), False, threads=64)[0].tolist() == list(range(31, -1, -1))
        with pytest.raises(Race):
            run(kernel, zeros(32), True, threads=64)


class TestDivergence:
    def test_two_barriers_on_two_lines(self):
        def kernel(out):
            if cuda.threadIdx.x < 32:
                cuda.syncthreads()                                       # first
            else:
                cuda.syncthreads()                                       # second

        with pytest.raises(Divergence) as error:
            run(kernel, zeros(1), threads=64)
        assert line(kernel, "first") in str(error.value) and line(kernel, "second") in str(error.value)
        assert "threads 0-31 wait at __syncthreads" in str(error.value)

    def test_a_thread_that_returns_before_the_barrier(self):
        def kernel(out):
            if cuda.threadIdx.x == 63:
                return
            cuda.syncthreads()                                           # barrier

        with pytest.raises(Divergence) as error:
            run(kernel, zeros(1), threads=64)
        assert line(kernel, "barrier") in str(error.value) and "thread (63, 0, 0)" in str(error.value)

    def test_threads_that_wait_for_each_other_for_ever(self):
        def kernel(out):
            if cuda.threadIdx.x < 32:
                cuda.syncthreads()                                       # block
            else:
                named_barrier_sync(1, 64)                                # named

        with pytest.raises(Divergence) as error:
            run(kernel, zeros(1), threads=64)
        assert f"threads 0-31 wait at __syncthreads {line(kernel, 'block')}" in str(error.value).replace("tests/cuda/", "")
        assert "threads 32-63 wait at named barrier 1" in str(error.value)


class TestAsynchronousCopies:
    def copy(self, wait: bool, barrier: bool, share: int):
        def kernel(x, out):
            tid = u32(cuda.threadIdx.x)
            s = cuda.shared.array(128, u32)
            cp_async_16(shared_address(s) + tid * u32(16), x, tid)       # copy
            cp_async_commit()
            if wait:
                cp_async_wait(0)
            if barrier:
                cuda.syncthreads()
            out[tid] = s[tid // u32(share) * u32(4)]                     # read

        self.kernel = kernel
        return run(kernel, np.arange(128, dtype=np.uint32), zeros(32))[1].tolist()

    def test_data_arrives_at_the_wait_and_the_barrier(self):
        assert self.copy(wait=True, barrier=True, share=2) == [4 * (i // 2) for i in range(32)]
        assert self.copy(wait=True, barrier=False, share=1) == [4 * i for i in range(32)]

    def test_a_missing_wait_shows(self):
        with pytest.raises(UninitialisedRead) as error:
            self.copy(wait=False, barrier=True, share=2)
        assert line(self.kernel, "copy") in str(error.value) and line(self.kernel, "read") in str(error.value)
        assert "nobody has waited for" in str(error.value)

    def test_a_missing_barrier_after_the_wait_shows(self):
        with pytest.raises(Race) as error:
            self.copy(wait=True, barrier=False, share=2)
        assert line(self.kernel, "copy") in str(error.value) and line(self.kernel, "read") in str(error.value)

    def test_older_groups_land_first(self):
        def kernel(x, out, read):
            s = cuda.shared.array(8, u32)
            for group in range(2):
                cp_async_16(shared_address(s) + u32(16 * group), x, u32(group))
                cp_async_commit()
            cp_async_wait(1)
            out[0] = s[read]

        x = np.arange(8, dtype=np.uint32)
        assert run(kernel, x, zeros(1), 3, threads=1)[1] == 3
        with pytest.raises(UninitialisedRead):
            run(kernel, x, zeros(1), 4, threads=1)

    def test_a_buffer_that_is_still_read_must_not_be_filled(self):
        def kernel(x, out):
            s = cuda.shared.array(4, u32)
            if cuda.threadIdx.x == 0:
                for i in range(4):
                    s[i] = u32(i)
            cuda.syncthreads()
            out[cuda.threadIdx.x] = s[0]                                 # read
            if cuda.threadIdx.x == 31:
                cp_async_16(shared_address(s), x, u32(0))                # copy

        with pytest.raises((Race, UninitialisedRead)) as error:
            run(kernel, zeros(4), zeros(32))
        assert line(kernel, "read") in str(error.value) and line(kernel, "copy") in str(error.value)

    def bulk(self, announced: int, wait: bool = True):
        def kernel(x, out):
            s, barrier = cuda.shared.array(64, u32), cuda.shared.array(1, np.uint64)
            thread = emulator.current()
            address, mbarrier = shared_address(s), shared_address(barrier)
            if cuda.threadIdx.x == 0:
                thread.mbarrier_init(mbarrier, 1)
            cuda.syncthreads()
            for phase in range(2):
                if cuda.threadIdx.x == 0:
                    thread.mbarrier_expect_tx(mbarrier, announced)
                    thread.bulk_copy(address, x, phase * 64, 256, mbarrier)              # copy
                if wait:
                    thread.mbarrier_wait(mbarrier, phase)
                out[cuda.threadIdx.x + phase * 64] = s[63 - cuda.threadIdx.x]
                cuda.syncthreads()

        return run(kernel, np.arange(128, dtype=np.uint32), zeros(128), threads=64)[1].reshape(2, 64)

    def test_a_bulk_copy_arrives_with_its_mbarrier(self):
        assert np.array_equal(self.bulk(256), np.arange(128).reshape(2, 64)[:, ::-1])

    def test_an_mbarrier_nobody_waited_for_shows(self):
        with pytest.raises(KernelFault, match="was never written|races"):
            self.bulk(256, wait=False)

    def products(self, committed: int, pending: int):
        def kernel(out):
            tiles = cuda.shared.array((2, 512), u32)
            for i in range(32):
                tiles[i // 16, cuda.threadIdx.x * 16 + i % 16] = u32(0x3F803F80)         # ones in bf16
            cuda.syncthreads()
            acc = cuda.local.array(4, f32)
            a, b = wgmma_descriptor(shared_address(tiles)), wgmma_descriptor(shared_address(tiles) + u32(2048))
            for group in range(2):
                wgmma_m64n8k16_bf16(acc, a, b, group > 0)                    # wgmma
                if group < committed:
                    wgmma_commit()
            wgmma_wait(pending)
            out[cuda.threadIdx.x] = acc[3]                                   # read

        self.kernel = kernel
        return run(kernel, zeros(32, np.float32), threads=32)[0].tolist()

    def test_products_of_a_warpgroup_arrive_at_the_wait(self):
        assert self.products(committed=2, pending=0) == [32] * 32

    @pytest.mark.parametrize("committed, pending", [(2, 1), (1, 0)])
    def test_products_that_nobody_waited_for_show(self, committed, pending):
        with pytest.raises(UninitialisedRead, match="nobody has waited for") as error:
            self.products(committed, pending)
        assert line(self.kernel, "wgmma") in str(error.value) and line(self.kernel, "read") in str(error.value)

    def test_bytes_that_never_come_are_a_dead_end(self):
        with pytest.raises(Divergence, match=r"threads 0-63 wait at mbarrier \(parity 0\)"):
            self.bulk(512)

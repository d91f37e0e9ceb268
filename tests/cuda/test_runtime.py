"""The runtime: which cubins a GPU takes, arrays and their exchange; and on a GPU launches, graphs, temporaries and errors."""

import gc

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason='the runtime needs pip install "vtlite[gpu]", which the extra test brings')

from vtlite.cuda import bandwidth, dlpack, driver  # noqa: E402
from vtlite.cuda.device import open_device  # noqa: E402
from vtlite.cuda.device_array import DeviceArray, contiguous_strides  # noqa: E402
from vtlite.cuda.runtime import chip_for  # noqa: E402
from vtlite.errors import DeviceError  # noqa: E402


class Nowhere:
    """Stands for a device where only addresses matter."""

    ordinal, stream = 3, 0


def array(*shape, dtype=np.float32, strides=None):
    return DeviceArray(Nowhere(), None, 4096, shape, dtype, strides)


@pytest.mark.parametrize("capability, chip", [
    ((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100"),
    ((10, 3), "sm_100"), ((12, 0), "sm_120"), ((12, 1), "sm_121")])
def test_a_gpu_takes_the_newest_cubins_that_it_runs(capability, chip):
    assert chip_for(*capability) == chip


@pytest.mark.parametrize("capability", [(7, 5), (11, 0), (13, 0)])
def test_a_gpu_without_kernels_is_refused(capability):
    with pytest.raises(DeviceError, match=rf"compute capability {capability[0]}\.{capability[1]}; vtlite has kernels for sm_80, "):
        chip_for(*capability)


def test_views_address_what_numpy_would():
    host = np.zeros((4, 6, 8), np.float32)
    ours = array(4, 6, 8)
    for key in (np.s_[1], np.s_[1:3], np.s_[:, 2], np.s_[-1, 1:6:2], np.s_[2, 3, 4:5], np.s_[:, :, ::3], np.s_[3:1]):
        want, got = host[key], ours[key]
        assert got.shape == want.shape, key
        if want.size:
            assert got.address - ours.address == want.__array_interface__["data"][0] - host.__array_interface__["data"][0], key
            assert all(n == 1 or a == b for n, a, b in zip(want.shape, got.strides, want.strides)), key
            assert got.is_contiguous == want.flags.c_contiguous, key
    assert ours.reshape(24, -1).shape == (24, 8)
    rows = array(5, 96)[:, 32:].reshape(5, -1, 16)
    assert (rows.shape, rows.strides, rows.address) == ((5, 4, 16), (384, 64, 4), ours.address + 128)
    assert ours.view(ml_dtypes.bfloat16).shape == (4, 6, 16)
    for mistake in (lambda: ours[4], lambda: ours[0, 0, 0, 0], lambda: ours[::-1]):
        with pytest.raises(IndexError):
            mistake()
    with pytest.raises(DeviceError, match=r"has 192 elements; shape \[5, 5\] has 25"):
        ours.reshape(5, 5)
    with pytest.raises(DeviceError, match="is not contiguous and cannot be reshaped"):
        ours[:, 1:3].reshape(-1)


def test_a_cuda_array_interface_describes_the_array():
    assert array(2, 3, dtype=ml_dtypes.bfloat16).__cuda_array_interface__ == {
        "shape": (2, 3), "typestr": "<V2", "data": (4096, False), "version": 3, "strides": None, "stream": None}
    assert array(4, 4)[:, 1].__cuda_array_interface__["strides"] == (16,)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
                                   ml_dtypes.float8_e5m2], ids=lambda dtype: np.dtype(dtype).name)
def test_dlpack_carries_shape_strides_and_dtype_there_and_back(dtype):
    ours = array(4, 6, dtype=dtype)[1:, ::2]
    back = dlpack.take(Nowhere(), dlpack.export(ours))
    assert (back.address, back.shape, back.strides, back.dtype) == (ours.address, ours.shape, ours.strides, ours.dtype)


def test_an_array_that_nobody_took_from_its_capsule_is_let_go():
    gc.collect()                                                               # what earlier tests left
    before = len(dlpack._lent)
    capsule = dlpack.export(array(2))
    assert len(dlpack._lent) == before + 1
    del capsule
    gc.collect()
    assert len(dlpack._lent) == before


def test_strides_of_a_new_array_are_numpys():
    assert contiguous_strides((2, 3, 4), 2) == np.zeros((2, 3, 4), np.float16).strides


@pytest.mark.parametrize("version, sentence", [(RuntimeError("no libcuda"), "there is no NVIDIA driver on this machine"),
                                               (11080, "the NVIDIA driver is for CUDA 11.8, vtlite needs 12.0: update the driver")])
def test_without_a_usable_driver_the_next_action_is_said(version, sentence, monkeypatch):
    def get_version():
        if isinstance(version, Exception):
            raise version
        return driver.cu.CUresult.CUDA_SUCCESS, version

    monkeypatch.setattr(driver.cu, "cuInit", lambda flags: (driver.cu.CUresult.CUDA_SUCCESS,))
    monkeypatch.setattr(driver.cu, "cuDriverGetVersion", get_version)
    with pytest.raises(DeviceError, match=sentence):
        driver.initialise()


@pytest.fixture
def gpu():
    return open_device("0")


@pytest.mark.gpu
def test_arrays_go_to_the_gpu_and_back(gpu):
    rng = np.random.default_rng(0)
    for shape in ((3,), (5, 7), (1 << 20,), (0, 4)):
        host = rng.standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(gpu.array(host).numpy(), host)
    host = rng.standard_normal((9, 10)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(gpu.array(host)[2:8:3, 1:4].numpy(), host[2:8:3, 1:4])
    small = gpu.empty((1 << 18,), np.uint32)
    for value in range(100):                                                   # the ring of pinned memory goes round
        small.copy_from(np.full(1 << 18, value, np.uint32))
    assert (small.numpy() == 99).all()


@pytest.mark.gpu
def test_a_prepared_launch_runs_with_the_arguments_it_holds(gpu):
    x, y, z = gpu.array(np.arange(64, dtype=np.uint32)), gpu.zeros(64, np.uint32), gpu.zeros(64, np.uint32)
    launch = gpu.prepare(bandwidth.copy_kernel.specialize(), 1, x, y, 8)
    launch.run()
    launch.set("y", z)
    launch.set("num_vectors", 16)
    launch.run()
    assert (y.numpy() == np.where(np.arange(64) < 32, np.arange(64), 0)).all()
    assert (z.numpy() == np.arange(64)).all()


@pytest.mark.gpu
def test_temporaries_of_a_step_have_the_addresses_of_the_last_step(gpu, monkeypatch):
    def addresses():
        with gpu.step():
            arrays = [gpu.empty(shape, np.float32) for shape in ((3,), (1000, 1000), (1,), (40 << 20,))]
            return [array.address for array in arrays]

    monkeypatch.setattr(gpu, "_use_arena", True)
    first = addresses()
    assert addresses() == first and len(set(first)) == 4 and all(address % 256 == 0 for address in first)
    kept = gpu.empty((3,), np.float32)
    assert kept.address not in first                                           # outside a step memory is not shared


@pytest.mark.gpu
def test_a_graph_that_fails_while_it_is_captured_leaves_the_device_usable(gpu):
    x = gpu.array(np.arange(64, dtype=np.uint32))
    with pytest.raises(ZeroDivisionError), gpu.capture():
        bandwidth.copy(x)
        1 / 0  # noqa: B018
    assert (bandwidth.copy(x).numpy() == np.arange(64)).all()


@pytest.mark.gpu
def test_mistakes_on_a_gpu_are_sentences(gpu):
    x = gpu.zeros(64, np.uint32)
    copy = bandwidth.copy_kernel.specialize()
    with pytest.raises(driver.OutOfMemory, match=r"allocating 1073741824\.0 MiB: .*free memory on the device, or ask for less"):
        gpu.empty((1 << 50,), np.uint8)
    with pytest.raises(DeviceError, match="y: ptr\\(uint32\\) takes a device array of uint32, found DeviceArray float32\\[64\\]"):
        gpu.launch(copy, 1, x, x.view(np.float32), 4)
    with pytest.raises(DeviceError, match="takes 3 arguments, found 1"):
        gpu.launch(copy, 1, x)
    with pytest.raises(DeviceError, match="num_vectors: uint32 cannot be -1"):
        gpu.launch(copy, 1, x, x, -1)
    with pytest.raises(DeviceError, match="device 77 was asked for, the driver shows"):
        open_device("77")
    with pytest.raises(DeviceError, match="VTLITE_DEVICE is 'tpu'"):
        open_device("tpu")


@pytest.mark.gpu
def test_torch_and_vtlite_share_memory(gpu):
    torch = pytest.importorskip("torch", reason="an exchange with torch needs torch")
    theirs = torch.arange(24, device="cuda:0", dtype=torch.float32).reshape(4, 6).to(torch.bfloat16)
    ours = gpu.from_dlpack(theirs)
    assert ours.dtype == ml_dtypes.bfloat16
    assert ours.address == theirs.data_ptr() == torch.from_dlpack(ours).data_ptr()
    np.testing.assert_array_equal(ours.numpy().astype(np.float32), theirs.float().cpu().numpy())

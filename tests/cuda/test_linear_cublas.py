"""cuBLASLt computes a linear layer only where its bits were found to be ours; on the emulator by a stand-in for the library."""

import numpy as np
import pytest

from vtlite.cuda import cublas_record, linear as linear_room, linear_cublas, sm_90
from vtlite.cuda.cublas_lt import Product
from vtlite.cuda.device import open_device, using
from vtlite.cuda.emulated_device import EmulatedDevice
from vtlite.cuda.lang import bf16, f32
from vtlite.cuda.linear import linear, linear_silu_and_mul
from vtlite.cuda.linear_cublas import CublasLinear, Inputs, Layer, open_cublas

N, K = 16, 72


class Algorithm:
    """`differs(T)`: whether its last output is not ours. `refused`: row counts that it does not take."""

    def __init__(self, differs=lambda T: False, refused=(), splits_sums=False):
        self.differs, self.refused, self.splits_sums = differs, refused, splits_sums


class StandIn:
    """The face of CublasLt and of its products."""

    class Error(Exception):
        pass

    version = "13.1.0"

    def __init__(self, *algorithms):
        self.list, self.ran, self.asked, self.fails = list(algorithms), [], [], False

    def product(self, N, K):
        return self

    def algorithms(self, T):
        self.asked.append(T)
        return iter(self.list)

    def takes(self, algorithm, T):
        return T not in algorithm.refused

    def run(self, algorithm, x, weight, residual, y):
        if self.fails:
            raise self.Error("it does not run")
        self.ran.append((algorithm, len(x)))
        linear_room.launch(x, weight, None, residual, y, False)
        if algorithm.differs(len(x)):
            host = y.numpy()
            host.view(np.uint16)[-1, -1] ^= 1
            y.copy_from(host)


LAUNCH = linear_room.launch


def launch_in_numpy(x, weight, bias, residual, y, gated):
    """The bits of our kernels, sooner than the emulator has them."""
    sums = sm_90.linear(x.numpy(), weight.numpy(), None, None if residual is None else residual.numpy(), y.dtype)
    y.copy_from(sm_90.silu_and_mul(sums) if gated else sums)


@pytest.fixture
def cublas(monkeypatch, tmp_path):
    """cublas(*algorithms) -> the CublasLinear of an emulated device that is the current one; with `stand_in` for its library."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(linear_cublas, "MOST_FOR_OURS", 2)
    monkeypatch.setattr(linear_room, "launch", launch_in_numpy)
    device = EmulatedDevice()

    def make(*algorithms):
        made = CublasLinear(device, StandIn(*algorithms))
        made.stand_in, made.device = made._library, device
        device.cublas = made
        return made
    with using(device):
        yield make


def arrays(device, T, gated=False):
    rng = np.random.default_rng(T)
    x, weight, residual = ((rng.standard_normal(shape)).astype(bf16) for shape in ((T, K), (N * (1 + gated), K), (T, N)))
    return device.array(x), device.array(weight), device.array(residual)


def ours(device, x, weight, residual=None, gated=False):
    y = device.empty((len(x), N), bf16)
    linear_room.launch(x, weight, None, residual, y, gated)
    return y.numpy()


def test_every_kind_of_layer_with_our_bits_is_computed_by_the_library(cublas):
    right = Algorithm()
    layers = cublas(right)
    x, weight, residual = arrays(layers.device, 3)
    both = arrays(layers.device, 3, gated=True)[1]
    for launch, expected in ((lambda: linear(x, weight), ours(layers.device, x, weight)),
                             (lambda: linear(x, weight, None, residual), ours(layers.device, x, weight, residual)),
                             (lambda: linear_silu_and_mul(x, both), ours(layers.device, x, both, gated=True))):
        assert np.array_equal(launch().numpy(), expected)
        assert layers.stand_in.ran.pop() == (right, 3)
    assert [(c["rows"], c["K"], c["kind"], c["most_rows"], c["used"]) for c in layers.classes] == [
        (N, K, "plain", 4, True), (N, K, "residual", 4, True), (2 * N, K, "gated", 4, True)]


def test_a_class_is_met_once_with_the_smaller_ones_and_keeps_its_algorithm(cublas):
    layers = cublas(Algorithm(), Algorithm())
    x, weight, _ = arrays(layers.device, 8)
    for T in (7, 3, 8):
        linear(x[:T], weight)
    assert layers.stand_in.asked == [4, 8]
    assert {algorithm for algorithm, _ in layers.stand_in.ran} == {layers.stand_in.list[0]}
    assert [T for _, T in layers.stand_in.ran] == [*(4, 3, 4), *(8, 5, 7), *(7, 3, 8)]


@pytest.mark.parametrize("wrong_at", [8, 5, 7])
def test_one_bit_at_one_number_of_rows_refuses_an_algorithm(cublas, wrong_at):
    layers = cublas(Algorithm(differs=lambda T: T == wrong_at))
    x, weight, _ = arrays(layers.device, 6)
    assert np.array_equal(linear(x, weight).numpy(), ours(layers.device, x, weight))
    assert 6 not in [T for _, T in layers.stand_in.ran]
    assert layers.classes[-1]["why"] == f"1 of {N * wrong_at} outputs of {wrong_at} rows differ"
    assert cublas_record.read()["classes"] == layers.classes


def test_the_first_algorithm_that_splits_no_sum_and_has_our_bits_is_taken(cublas):
    candidates = Algorithm(splits_sums=True), Algorithm(differs=lambda T: True), Algorithm(refused=(3,)), Algorithm()
    layers = cublas(*candidates)
    linear(*arrays(layers.device, 3)[:2])
    assert layers.stand_in.ran[-1] == (candidates[-1], 3)
    assert candidates[0] not in [algorithm for algorithm, _ in layers.stand_in.ran]


def test_a_library_without_such_an_algorithm_leaves_the_layer_to_us(cublas):
    layers = cublas(Algorithm(splits_sums=True))
    x, weight, _ = arrays(layers.device, 3)
    assert np.array_equal(linear(x, weight).numpy(), ours(layers.device, x, weight))
    assert layers.classes[0]["why"] == "the library has no algorithm that splits no sum" and not layers.stand_in.ran


def test_rows_that_the_algorithm_does_not_take_are_ours_and_others_are_not(cublas):
    layers = cublas(Algorithm(refused=(6,)))
    x, weight, _ = arrays(layers.device, 7)
    linear(x, weight)
    layers.stand_in.ran.clear()
    for T in (6, 7):
        assert np.array_equal(linear(x[:T], weight).numpy(), ours(layers.device, x[:T], weight))
    assert [T for _, T in layers.stand_in.ran] == [7]


@pytest.mark.parametrize("when", ["probed", "in use"])
def test_an_error_of_the_library_leaves_the_layer_to_us_and_is_recorded(cublas, when):
    layers = cublas(Algorithm())
    x, weight, _ = arrays(layers.device, 3)
    if when == "in use":
        linear(x, weight)
    layers.stand_in.fails = True
    assert np.array_equal(linear(x, weight).numpy(), ours(layers.device, x, weight))
    assert [(c["used"], c["why"]) for c in cublas_record.read()["classes"]] == [(False, "Error: it does not run")]


def test_no_memory_for_the_inputs_leaves_the_layer_to_us(cublas, monkeypatch):
    def none_left(*shape):
        raise MemoryError("none left")
    layers = cublas(Algorithm())
    monkeypatch.setattr(linear_cublas, "Inputs", none_left)
    x, weight, _ = arrays(layers.device, 7)
    assert np.array_equal(linear(x, weight).numpy(), ours(layers.device, x, weight))
    assert [c["why"] for c in layers.classes] == ["MemoryError: none left"] * 2


def test_what_it_does_not_do_as_we_do_is_not_asked_of_it(cublas, monkeypatch):
    layers = cublas(Algorithm())
    x, weight, _ = arrays(layers.device, 3)
    monkeypatch.setattr(linear_room, "launch", lambda *arguments: None)
    bias, odd = layers.device.array(np.ones(N, bf16)), layers.device.array(np.ones((3, K), bf16))
    shifted = layers.device.zeros((3 * K + 8,), bf16)[8:].reshape(3, K)
    for launch in (lambda: linear(x, weight, bias), lambda: linear(x, weight, out_dtype=f32), lambda: linear(x[:2], weight),
                   lambda: linear(x, odd), lambda: linear(shifted, weight)):
        launch()
    assert not layers.classes


def test_in_a_graph_only_what_was_met_before_is_used(cublas, monkeypatch):
    monkeypatch.setattr(linear_room, "launch", LAUNCH)
    layers = cublas(Algorithm())
    x, weight, _ = arrays(layers.device, 3)
    expected, y = ours(layers.device, x, weight), layers.device.empty((3, N), bf16)
    for met, runs in ((False, 0), (True, 1)):
        if met:
            linear(x, weight)
            layers.stand_in.ran.clear()
        with layers.device.capture() as graph:
            linear(x, weight, out=y)
        y.fill(0xFF)
        graph.replay()
        assert np.array_equal(y.numpy(), expected) and len(layers.stand_in.ran) == runs


def test_without_the_extra_or_with_a_broken_one_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(linear_cublas, "find_spec", lambda name: None)
    assert open_cublas(EmulatedDevice()) is None and cublas_record.read() is None

    def broken(device):
        raise OSError("libcublasLt.so.13: cannot open shared object file")
    monkeypatch.setattr(linear_cublas, "find_spec", lambda name: name)
    monkeypatch.setattr(linear_cublas, "CublasLt", broken)
    assert open_cublas(EmulatedDevice()) is None
    assert cublas_record.read()["problem"] == "OSError: libcublasLt.so.13: cannot open shared object file"


SHAPES = [(False, False, 1024, 512), (True, False, 1024, 2048), (False, True, 1024, 512), (False, False, 4096, 136)]


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    pytest.importorskip("nvmath", reason='needs pip install "vtlite[cublas]"')
    monkeypatch.setattr(cublas_record, "path", lambda: tmp_path / "cublas.json")          # cubins stay where they are
    monkeypatch.setenv("VTLITE_DEVICE", "0")
    device = open_device("0")
    monkeypatch.setattr(device, "cublas", open_cublas(device))
    assert device.cublas is not None, cublas_record.read()
    return device


@pytest.mark.gpu
@pytest.mark.parametrize("residual, gated, rows, K", SHAPES)
def test_on_a_gpu_its_bits_are_ours_for_any_number_of_rows(gpu, residual, gated, rows, K):
    host, N = np.random.default_rng(rows + K), rows // (1 + gated)
    x, weight, added = (gpu.array((host.standard_normal(shape) * host.choice([1 / 16, 1, 4], shape)).astype(bf16))
                        for shape in ((1025, K), (rows, K), (1025, N)))
    for T in (129, 200, 256, 257, 300, 511, 1000, 1024, 1025):
        r, y, expected = added[:T] if residual else None, gpu.empty((T, N), bf16), gpu.empty((T, N), bf16)
        linear_room.launch(x[:T], weight, None, r, expected, gated)
        linear_silu_and_mul(x[:T], weight, out=y) if gated else linear(x[:T], weight, None, r, out=y)
        assert np.array_equal(y.numpy().view(np.uint16), expected.numpy().view(np.uint16)), T
    found = [c for c in gpu.cublas.classes if (c["rows"], c["K"]) == (rows, K)]
    assert found and (residual or K % 64 or gpu.chip != "sm_90a" or all(c["used"] for c in found)), found


@pytest.mark.gpu
def test_on_a_gpu_it_is_recorded_in_a_graph(gpu):
    host = np.random.default_rng(1)
    x, weight = (gpu.array(host.standard_normal(shape).astype(bf16)) for shape in ((300, 512), (1024, 512)))
    y, expected = gpu.empty((300, 1024), bf16), linear(x, weight).numpy()
    with gpu.capture() as graph:
        linear(x, weight, out=y)
    for _ in range(2):
        y.fill(0xFF)
        graph.replay()
        assert np.array_equal(y.numpy(), expected)


@pytest.mark.gpu
def test_on_a_gpu_algorithms_that_split_a_sum_are_found_to_differ(gpu):
    library = gpu.cublas._library
    product, layer = Product(library, 512, 8192, may_split=True), Layer(512, 8192, "plain")
    inputs = Inputs(gpu, layer, 256)
    splitting = [algorithm for algorithm in product.algorithms(256) if algorithm.splits_sums]
    wrong = [inputs.count_differing(256, lambda *arrays: product.run(algorithm, *arrays)) for algorithm in splitting]
    assert wrong and min(wrong) > inputs.y.size // 8

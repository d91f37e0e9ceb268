"""What is asked of cuBLASLt, which a stand-in answers: operands that it reads by columns, no split sums, our stream and workspace."""

import ctypes
import sys
from contextlib import nullcontext
from enum import IntEnum
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from vtlite.cuda.cublas_lt import WORKSPACE_BYTES, CublasLt
from vtlite.cuda.lang import bf16, f32

BF16, F32, COMPUTE_F32 = 14, 0, 68
T, N, K = 5, 16, 24


class Lt:
    """cuBLASLt as its documentation has it, for what vtlite asks: products of bf16 matrices stored by columns, with f32 sums."""

    class cuBLASLtError(Exception):
        pass

    MatmulDescAttribute = IntEnum("MatmulDescAttribute", {"TRANSA": 3, "TRANSB": 4})
    MatrixLayoutAttribute = IntEnum("MatrixLayoutAttribute", {"ROWS": 2, "COLS": 3, "LD": 4})
    MatmulPreferenceAttribute = IntEnum("MatmulPreferenceAttribute", {"MAX_WORKSPACE_BYTES": 1, "REDUCTION_SCHEME_MASK": 3})
    MatmulAlgoConfigAttribute = IntEnum("MatmulAlgoConfigAttribute", {"TILE_ID": 1, "SPLITK_NUM": 2, "REDUCTION_SCHEME": 3})
    ReductionScheme = IntEnum("ReductionScheme", {"NONE": 0, "COMPUTE_TYPE": 2, "MASK": 7})
    matmul_heuristic_result_dtype = np.dtype([("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"),
                                              ("waves_count", "<f4"), ("reserved", "<i4", (4,))])

    def __init__(self):
        self.objects, self.offered, self.most_rows, self.calls = {}, [(20, 1, 0)], 100, []

    def _new(self, **values) -> int:
        self.objects[len(self.objects) + 1] = values
        return len(self.objects)

    def _set(self, handle, attribute, address, nbytes):
        self.objects[handle][attribute.name] = int.from_bytes(ctypes.string_at(address, nbytes), sys.byteorder)

    matmul_desc_set_attribute = matrix_layout_set_attribute = matmul_preference_set_attribute = _set

    def create(self):
        return self._new()

    def get_version(self):
        return 130100

    def matmul_desc_create(self, compute_type, scale_type):
        assert (compute_type, scale_type) == (COMPUTE_F32, F32)
        return self._new()

    def matrix_layout_create(self, kind, rows, columns, leading):
        assert kind == BF16
        return self._new(ROWS=rows, COLS=columns, LD=leading)

    def matmul_preference_create(self):
        return self._new()

    def matmul_algo_get_heuristic(self, handle, descriptor, a, b, c, d, preference, most, results, count):
        asked = self.objects[preference]
        assert asked == {"MAX_WORKSPACE_BYTES": WORKSPACE_BYTES, "REDUCTION_SCHEME_MASK": 0}
        found = np.ctypeslib.as_array((ctypes.c_uint8 * (most * 96)).from_address(results)).view(self.matmul_heuristic_result_dtype)
        for i, words in enumerate(self.offered):
            found[i]["algo"]["data_"][:3] = words
        found[len(self.offered)]["state"] = 15                          # not supported
        ctypes.c_int32.from_address(count).value = len(self.offered) + 1

    def matmul_algo_check(self, handle, descriptor, a, b, c, d, algorithm, result):
        if self.objects[b]["COLS"] > self.most_rows:
            raise self.cuBLASLtError

    def get_matmul_algo_config_attribute_dtype(self, attribute):
        return np.uint32

    def matmul_algo_config_get_attribute(self, algorithm, attribute, address, nbytes, written):
        words = (ctypes.c_uint64 * 8).from_address(algorithm)
        ctypes.c_uint32.from_address(address).value = words[attribute - 1]

    def matmul(self, handle, descriptor, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, workspace, nbytes,
               stream):
        self.calls.append((workspace, nbytes, stream))
        transposed = self.objects[descriptor]["TRANSA"] == 1 and "TRANSB" not in self.objects[descriptor]
        a, b, c, d = map(self.matrix, (a, b, c, d), (a_layout, b_layout, c_layout, d_layout))
        alpha, beta = (f32(ctypes.c_float.from_address(address).value) for address in (alpha, beta))
        assert transposed and alpha == 1
        total = a.astype(f32).T @ b.astype(f32)
        d[...] = (total + beta * c.astype(f32) if beta else total).astype(bf16)

    def matrix(self, address, layout) -> np.ndarray:
        """[rows, columns], of memory that holds column after column."""
        rows, columns, leading = (self.objects[layout][name] for name in ("ROWS", "COLS", "LD"))
        flat = np.ctypeslib.as_array((ctypes.c_uint16 * (columns * leading)).from_address(address)).view(bf16)
        return flat.reshape(columns, leading)[:, :rows].T


class Host:
    """An array, or a device, in this process's memory."""

    def __init__(self, values=None):
        self.values, self.used = values, []

    address = property(lambda self: self.values.ctypes.data)
    nbytes = property(lambda self: self.values.nbytes)

    def __len__(self):
        return len(self.values)

    def empty(self, shape, dtype):
        return Host(np.empty(shape, dtype))

    def lasting(self):
        return nullcontext()

    def run_library(self, name, call, *arrays):
        call(77)
        self.used = arrays


@pytest.fixture
def library(monkeypatch):
    """CublasLt over the stand-in; `library.lt` is that."""
    lt = Lt()
    nvmath, bindings = ModuleType("nvmath"), ModuleType("nvmath.bindings")
    nvmath.CudaDataType = SimpleNamespace(CUDA_R_16BF=BF16, CUDA_R_32F=F32)
    bindings.cublasLt = lt
    bindings.cublas = SimpleNamespace(ComputeType=SimpleNamespace(COMPUTE_32F=COMPUTE_F32), Operation=SimpleNamespace(T=1))
    monkeypatch.setitem(sys.modules, "nvmath", nvmath)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", bindings)
    return CublasLt(Host())


def draw(*shape):
    return np.random.default_rng(len(shape) + shape[0]).integers(-8, 8, shape).astype(bf16)             # sums are exact


@pytest.mark.parametrize("added", [False, True])
def test_rows_of_x_times_rows_of_w_and_what_is_added(library, added):
    product = library.product(N, K)
    algorithm, = product.algorithms(T)
    for rows in (T, 3, T):
        x, weight, residual, y = draw(rows, K), draw(N, K), draw(rows, N), np.zeros((rows, N), bf16)
        product.run(algorithm, Host(x), Host(weight), Host(residual) if added else None, Host(y))
        expected = x.astype(f32) @ weight.astype(f32).T + (residual.astype(f32) if added else 0)
        assert np.array_equal(y, expected.astype(bf16))


def test_the_sum_may_go_where_the_residual_was(library):
    product = library.product(N, K)
    algorithm, = product.algorithms(T)
    x, weight, y = draw(T, K), draw(N, K), draw(T, N)
    expected = (x.astype(f32) @ weight.astype(f32).T + y.astype(f32)).astype(bf16)
    product.run(algorithm, Host(x), Host(weight), Host(y), Host(y))
    assert np.array_equal(y, expected)


def test_it_runs_on_our_stream_with_our_workspace_which_a_graph_keeps(library):
    product = library.product(N, K)
    algorithm, = product.algorithms(T)
    product.run(algorithm, Host(draw(T, K)), Host(draw(N, K)), None, Host(draw(T, N)))
    assert library.lt.calls == [(library.workspace.address, WORKSPACE_BYTES, 77)]
    assert library.workspace in library.device.used


@pytest.mark.parametrize("splits, scheme, splits_sums", [(1, 0, False), (0, 0, False), (2, 0, True), (1, 2, True)])
def test_an_algorithm_that_splits_sums_says_so(library, splits, scheme, splits_sums):
    library.lt.offered = [(20, splits, scheme)]
    algorithm, = library.product(N, K).algorithms(T)
    assert algorithm.splits_sums == splits_sums and algorithm.attribute("TILE_ID") == 20


def test_rows_that_an_algorithm_does_not_take_are_refused(library):
    product = library.product(N, K)
    algorithm, = product.algorithms(T)
    assert [product.takes(algorithm, rows) for rows in (100, 101, 100, 100)] == [True, False, True, True]


def test_the_version_is_written_as_nvidia_writes_it(library):
    assert library.version == "13.1.0"

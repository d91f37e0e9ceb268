"""cuBLASLt for y = x W^T (+ r), by nvmath-python's low-level bindings: algorithms that are asked not to split a sum, one by one.

cuBLASLt counts columns first, so that what is [T, K] here is K x T to it, and y = x W^T becomes y (N x T) = W^T (N x K) x (K x T),
the first operand transposed. bf16 in and out, f32 sums; r is its C, with beta = 1, and may be y itself. Work goes to our stream,
with a workspace of ours. Descriptors live as long as the process: there are a few for each shape of weights.
Source: https://docs.nvidia.com/cuda/cublas/, "Using the cuBLASLt API".
"""

from collections.abc import Iterator

import numpy as np

WORKSPACE_BYTES = 32 << 20              # what NVIDIA advises on Hopper, and torch gives it
ALIGNMENT = 256                         # bytes: the preference's default for every operand
MOST_ALGORITHMS = 8                     # asked for

ZERO, ONE = np.zeros((), np.float32), np.ones((), np.float32)          # alpha and beta, on the host
ZERO_AT, ONE_AT = ZERO.ctypes.data, ONE.ctypes.data


class CublasLt:
    """The library, opened in a device's context. Any exception there means that it cannot be had."""

    def __init__(self, device, workspace_bytes: int = WORKSPACE_BYTES):
        from nvmath import CudaDataType
        from nvmath.bindings import cublas, cublasLt
        self.device, self.lt, self.Error = device, cublasLt, cublasLt.cuBLASLtError
        self.compute_type, self.transpose = int(cublas.ComputeType.COMPUTE_32F), int(cublas.Operation.T)
        self.bf16, self.f32 = int(CudaDataType.CUDA_R_16BF), int(CudaDataType.CUDA_R_32F)
        self.handle = cublasLt.create()
        with device.lasting():
            self.workspace = device.empty((workspace_bytes,), np.uint8)

    @property
    def version(self) -> str:
        """13.1.0"""
        number = self.lt.get_version()
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def product(self, N: int, K: int) -> "Product":
        return Product(self, N, K)


class Product:
    """x [T, K], W [N, K] -> [T, N] for any T, K and N multiples of 8."""

    def __init__(self, library: CublasLt, N: int, K: int, may_split: bool = False):
        """`may_split`: also ask for algorithms that add up an output from several blocks', to see what they do."""
        lt = library.lt
        schemes = lt.ReductionScheme.MASK if may_split else lt.ReductionScheme.NONE
        self._library, self._lt = library, lt
        self._rows, self._taken = 1, None
        self._descriptor = lt.matmul_desc_create(library.compute_type, library.f32)
        self._set(lt.matmul_desc_set_attribute, self._descriptor, lt.MatmulDescAttribute.TRANSA, np.int32(library.transpose))
        self._weight = lt.matrix_layout_create(library.bf16, K, N, K)
        self._x, self._y = (lt.matrix_layout_create(library.bf16, size, self._rows, size) for size in (K, N))
        self._preference = lt.matmul_preference_create()
        for name, value in (("MAX_WORKSPACE_BYTES", np.uint64(library.workspace.nbytes)),
                            ("REDUCTION_SCHEME_MASK", np.uint32(schemes))):
            self._set(lt.matmul_preference_set_attribute, self._preference, lt.MatmulPreferenceAttribute[name], value)

    def algorithms(self, T: int) -> Iterator["Algorithm"]:
        """What the library's heuristic holds to be fastest for T rows, best first."""
        lt, library = self._lt, self._library
        self._set_rows(T)
        results, count = np.zeros(MOST_ALGORITHMS, lt.matmul_heuristic_result_dtype), np.zeros((), np.int32)
        lt.matmul_algo_get_heuristic(library.handle, self._descriptor, self._weight, self._x, self._y, self._y, self._preference,
                                     MOST_ALGORITHMS, results.ctypes.data, count.ctypes.data)
        for result in results[: int(count)]:
            if result["state"] == 0:
                yield Algorithm(lt, result["algo"].tobytes(), int(result["workspace_size"]))

    def takes(self, algorithm: "Algorithm", T: int) -> bool:
        """Whether an algorithm can compute T rows, with the workspace there is."""
        if self._taken == (algorithm, T):
            return True
        lt, result = self._lt, np.zeros((), self._lt.matmul_heuristic_result_dtype)
        self._set_rows(T)
        try:
            lt.matmul_algo_check(self._library.handle, self._descriptor, self._weight, self._x, self._y, self._y, algorithm.address,
                                 result.ctypes.data)
        except lt.cuBLASLtError:
            return False
        if int(result["workspace_size"]) > self._library.workspace.nbytes:
            return False
        self._taken = algorithm, T                                      # a step asks the same for every layer of the model
        return True

    def run(self, algorithm: "Algorithm", x, weight, residual, y) -> None:
        """Queue y = x W^T, or x W^T + residual, all bf16."""
        library = self._library
        self._set_rows(len(x))
        added, beta = (y, ZERO_AT) if residual is None else (residual, ONE_AT)
        library.device.run_library("cublas_lt", lambda stream: self._lt.matmul(
            library.handle, self._descriptor, ONE_AT, weight.address, self._weight, x.address, self._x, beta, added.address, self._y,
            y.address, self._y, algorithm.address, library.workspace.address, library.workspace.nbytes, stream),
            x, weight, added, y, library.workspace)

    def _set_rows(self, T: int) -> None:
        if T != self._rows:
            for layout in (self._x, self._y):
                self._set(self._lt.matrix_layout_set_attribute, layout, self._lt.MatrixLayoutAttribute.COLS, np.uint64(T))
            self._rows = T

    @staticmethod
    def _set(setter, descriptor: int, attribute: int, value: np.generic) -> None:
        buffer = np.array(value)
        setter(descriptor, attribute, buffer.ctypes.data, buffer.nbytes)


class Algorithm:
    """A kernel of the library with its configuration: `code` is the library's own 64 bytes."""

    def __init__(self, lt, code: bytes, workspace_bytes: int):
        self._lt, self.code, self.workspace_bytes = lt, code, workspace_bytes
        self._words = np.frombuffer(code, np.uint64).copy()
        self.address = self._words.ctypes.data

    def attribute(self, name: str) -> int:
        """One of MatmulAlgoConfigAttribute: TILE_ID, STAGES_ID, ..."""
        attribute = self._lt.MatmulAlgoConfigAttribute[name]
        value, written = np.zeros((), self._lt.get_matmul_algo_config_attribute_dtype(attribute)), np.zeros((), np.uint64)
        self._lt.matmul_algo_config_get_attribute(self.address, attribute, value.ctypes.data, value.nbytes, written.ctypes.data)
        return int(value)

    @property
    def splits_sums(self) -> bool:
        """Whether it says that several blocks add up one output."""
        return self.attribute("SPLITK_NUM") not in (0, 1) or self.attribute("REDUCTION_SCHEME") != self._lt.ReductionScheme.NONE

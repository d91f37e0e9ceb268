"""Linear for many rows through cuBLASLt (the extra `cublas`), wherever its bits have been shown to be ours

    plain      bf16(x W^T)                    as it comes
    residual   bf16(x W^T + r)                its C, with beta = 1: the sum in f32, then one rounding
    gated      silu_and_mul(bf16(x W^T))      the product by cuBLASLt, then activation.py's kernel: linear_silu_and_mul's definition

Where a bias stands in the order of additions is ours, so layers with one stay with our kernels; so do f32 outputs, which few
rows have, and few rows, which the bytes of W bound. A class is a layer (the shape of W, and its kind) with a number of rows up to
a power of two. When it is first met it gets the algorithm that it keeps: the best by the library's heuristic that says it splits
no sum, and gives every bit of our kernel's outputs on same_bits.py's inputs, for the most rows and the fewest rows of the class,
and for a number between that fills no tile. A class for which there is none is ours. The engine meets all its classes before
it serves, in the largest step there can be, by which it measures memory; while a graph is captured none is met.

On an H200 all algorithms that cuBLASLt 13.1 offered without splits for 20 shapes (152, and as many without a workspace) had our
bits; the 16 that split a sum differed in half of the outputs, which are the even rows (bench/linear_cublas.py).
"""

import logging
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from vtlite.cuda import cublas_record, linear
from vtlite.cuda.activation import silu_and_mul
from vtlite.cuda.cublas_lt import ALIGNMENT, Algorithm, CublasLt, Product
from vtlite.cuda.lang import bf16
from vtlite.cuda.same_bits import ADDED, WEIGHT, X, count_differing, draw

log = logging.getLogger(__name__)

MOST_FOR_OURS = 128                     # rows: up to there the bytes of W bound a linear layer
MOST_TRIED = 4                          # algorithms of a class
SEED = 11


class Layer(NamedTuple):
    """What is alike in all linear layers of one kind: the shape of W [rows, K], and the epilogue."""

    rows: int
    K: int
    kind: str                           # plain, residual or gated


class Verdict(NamedTuple):
    """What is known of a class: its algorithm, or why it has none."""

    algorithm: Algorithm | None
    why: str = ""


def open_cublas(device) -> "CublasLinear | None":
    """For `device.cublas`; None without the extra, or if the library cannot be opened: then the record says why."""
    if find_spec("nvmath") is None:
        return None
    try:
        return _opened(device)
    except Exception as error:          # of a package that may lack any of its parts
        problem = _sentence(error)
        log.info("prefill without cuBLASLt: %s", problem)
        cublas_record.write(device.name, "", [], problem)
        return None


@cache
def _opened(device) -> "CublasLinear":
    """Once for all engines of a process, so that each class is met once."""
    return CublasLinear(device, CublasLt(device))


class CublasLinear:
    """The classes of one device that have been met."""

    def __init__(self, device, library: CublasLt):
        self._device, self._library = device, library
        self._products: dict[tuple[int, int], Product] = {}
        self._verdicts: dict[tuple[Layer, int], Verdict] = {}

    def run(self, x, weight, bias, residual, y, gated: bool) -> bool:
        """Queue a linear layer, as linear.py has checked it. False, and nothing queued, if it is one for our kernels."""
        (T, K), rows = x.shape, len(weight)
        if T <= MOST_FOR_OURS or bias is not None or y.dtype != bf16 or rows % 8:
            return False
        top, arrays = 1 << (T - 1).bit_length(), [x, weight, y] if residual is None else [x, weight, y, residual]
        if top * rows >= 1 << 32 or any(array.address % ALIGNMENT for array in arrays):
            return False
        layer = Layer(rows, K, "gated" if gated else "plain" if residual is None else "residual")
        if (layer, top) not in self._verdicts:
            if self._device.capturing:
                return False
            self._meet(layer, top)
        algorithm = self._verdicts[layer, top].algorithm
        if algorithm is None:
            return False
        try:
            if not self._product(layer).takes(algorithm, T):
                return False
            self._launch(layer, algorithm, x, weight, residual, y)
        except self._library.Error as error:
            self._verdicts[layer, top] = Verdict(None, _sentence(error))
            self._write_record()
            return False
        return True

    @property
    def classes(self) -> list[dict]:
        """Every class that was met: its layer, `most_rows`, whether it is `used`, and if not, why."""
        return [{**layer._asdict(), "most_rows": top, "used": verdict.algorithm is not None, "why": verdict.why}
                for (layer, top), verdict in sorted(self._verdicts.items(), key=lambda item: item[0])]

    def _product(self, layer: Layer) -> Product:
        size = layer.rows, layer.K
        if size not in self._products:
            self._products[size] = self._library.product(*size)
        return self._products[size]

    def _launch(self, layer: Layer, algorithm: Algorithm, x, weight, residual, y) -> None:
        product = y if layer.kind != "gated" else self._device.empty((len(x), layer.rows), bf16)
        self._product(layer).run(algorithm, x, weight, residual, product)
        if layer.kind == "gated":
            silu_and_mul(product, out=y)

    def _meet(self, layer: Layer, most: int) -> None:
        """Find the verdicts of a layer's classes up to `most` rows."""
        tops, top = [], 2 * MOST_FOR_OURS
        while top <= most:
            tops += [top] * ((layer, top) not in self._verdicts)
            top *= 2
        with self._device.lasting():
            try:
                inputs = Inputs(self._device, layer, most)
            except Exception as error:                                  # no memory for them
                self._verdicts |= {(layer, top): Verdict(None, _sentence(error)) for top in tops}
            else:
                self._verdicts |= {(layer, top): self._choose(layer, top, inputs) for top in tops}
        self._write_record()

    def _choose(self, layer: Layer, top: int, inputs: "Inputs") -> Verdict:
        """The first algorithm whose bits are ours."""
        problems, sizes = [], (top, top // 2 + 1, top - top // 4 + 1)
        try:
            product = self._product(layer)
            candidates = [algorithm for algorithm in product.algorithms(top) if not algorithm.splits_sums]
            for algorithm in candidates[:MOST_TRIED]:
                problem = self._problem(layer, product, algorithm, sizes, inputs)
                if not problem:
                    return Verdict(algorithm)
                problems.append(problem)
        except Exception as error:      # of the library; or no memory for a product, no kernel for an activation
            problems.append(_sentence(error))
        return Verdict(None, "; ".join(dict.fromkeys(problems)) or "the library has no algorithm that splits no sum")

    def _problem(self, layer: Layer, product: Product, algorithm: Algorithm, sizes: tuple[int, ...], inputs: "Inputs") -> str:
        """What speaks against an algorithm; empty if nothing does."""
        for T in sizes:
            if not product.takes(algorithm, T):
                return f"an algorithm does not take {T} rows"
        for T in sizes:
            wrong = inputs.count_differing(T, lambda *arrays: self._launch(layer, algorithm, *arrays))
            if wrong:
                return f"{wrong} of {inputs.y[:T].size} outputs of {T} rows differ"
        return ""

    def _write_record(self) -> None:
        cublas_record.write(self._device.name, self._library.version, self.classes)


class Inputs:
    """Inputs of up to `most` rows for a layer, with what our kernels make of them."""

    def __init__(self, device, layer: Layer, most: int):
        gated = layer.kind == "gated"
        shape = most, layer.rows // (1 + gated)
        self.x, self.weight = draw((most, layer.K), SEED, X), draw((layer.rows, layer.K), SEED + 1, WEIGHT)
        self.residual = draw(shape, SEED + 2, ADDED) if layer.kind == "residual" else None
        self.expected, self.y = device.empty(shape, bf16), device.empty(shape, bf16)
        linear.launch(self.x, self.weight, None, self.residual, self.expected, gated)

    def count_differing(self, T: int, compute) -> int:
        """How many outputs of the first T rows `compute(x, weight, residual, y)` gives another bit than our kernel."""
        self.y.fill(0xFF)
        compute(self.x[:T], self.weight, None if self.residual is None else self.residual[:T], self.y[:T])
        return int(count_differing(self.y[:T], self.expected[:T]).numpy().sum())


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]

"""How kernels may see their arguments: contiguous, or as tokens, or heads of tokens, a fixed distance apart."""

from vtlite.errors import DeviceError


def need_contiguous(**arrays) -> None:
    """DeviceError for the first array that has gaps."""
    for name, array in arrays.items():
        if not array.is_contiguous:
            raise DeviceError(f"{name} {list(array.shape)} has strides {list(array.strides)}; this kernel takes contiguous "
                              "arrays: copy it")


def vectors_between_tokens(name: str, x) -> int:
    """16-byte vectors from one token of x [T, ...] to the next. Within a token x is contiguous, between tokens it may have
    gaps, as the q, k and v parts of one product do; DeviceError for any other layout."""
    expected = x.dtype.itemsize
    for length, stride in zip(reversed(x.shape[1:]), reversed(x.strides[1:])):
        if length > 1 and stride != expected:
            raise DeviceError(f"{name} {list(x.shape)} has strides {list(x.strides)}; only the first may leave gaps: copy it")
        expected *= length
    return _in_vectors(name, x, x.strides[0] if len(x) > 1 else expected)


def vectors_between_heads(name: str, x) -> tuple[int, int, int]:
    """Heads per token of x [T, D] (one) or [T, H, D], and 16-byte vectors from one token and from one head to the next. Both
    may leave gaps, as queries do that lie between their gates; DeviceError if the elements of a head do."""
    if x.ndim not in (2, 3) or x.strides[-1] != x.dtype.itemsize:
        raise DeviceError(f"{name} {list(x.shape)} has strides {list(x.strides)}; expected [tokens, D] or [tokens, heads, D] "
                          "with the D elements side by side: copy it")
    heads = x.shape[1] if x.ndim == 3 else 1
    return (heads, _in_vectors(name, x, x.strides[0] if len(x) > 1 else 0),
            _in_vectors(name, x, x.strides[1] if heads > 1 else 0))


def _in_vectors(name: str, x, stride: int) -> int:
    if stride % 16 or x.address % 16:
        raise DeviceError(f"the rows of {name} {list(x.shape)} begin {x.address % 16} bytes past a multiple of 16 and are "
                          f"{stride} bytes apart; vector access needs multiples of 16")
    return stride // 16


def splits_rows(array, shape: tuple[int, ...]) -> bool:
    """Whether `shape` keeps the first axis of an array whose rows are contiguous, so that gaps between them do not matter."""
    return array.ndim > 0 and shape[:1] == array.shape[:1] and len(array) > 0 and array[0].is_contiguous

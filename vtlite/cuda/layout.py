"""How kernels may see their arguments: contiguous, or as rows a fixed distance apart."""

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
    stride = x.strides[0] if len(x) > 1 else expected
    if stride % 16 or x.address % 16:
        raise DeviceError(f"the rows of {name} {list(x.shape)} begin {x.address % 16} bytes past a multiple of 16 and are "
                          f"{stride} bytes apart; vector access needs multiples of 16")
    return stride // 16

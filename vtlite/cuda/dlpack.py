"""DLPack capsules: the C structure through which array libraries hand memory to each other.

Layout and codes: dlpack.h of https://github.com/dmlc/dlpack, structures DLTensor and DLManagedTensor (unversioned: every
consumer takes it).
"""

import ctypes

import ml_dtypes
import numpy as np

from vtlite.errors import DeviceError

CUDA = 2                                # DLDeviceType kDLCUDA
NO_SYNCHRONIZATION = -1                 # value of `stream` for which the producer need not wait
NAME = b"dltensor"
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}                    # NumPy kind -> DLDataTypeCode
SPECIAL = {np.dtype(ml_dtypes.bfloat16): (4, 16), np.dtype(ml_dtypes.float8_e4m3fn): (10, 8),
           np.dtype(ml_dtypes.float8_e5m2): (12, 8)}


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("dtype", DataType), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class ManagedTensor(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(ManagedTensor))
ManagedTensor._fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]
Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, Destructor]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_unused = ctypes.pythonapi.PyCapsule_IsValid
_is_unused.restype, _is_unused.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))

_lent: dict[int, tuple] = {}            # address of a ManagedTensor -> all that must live while a consumer holds it


@Deleter
def _delete(managed):
    _lent.pop(ctypes.addressof(managed.contents), None)


@Destructor
def _destroy(capsule):
    """A capsule dies: if nobody has taken the tensor (and renamed the capsule), take it back."""
    if _is_unused(capsule, NAME):
        _lent.pop(_pointer_of(capsule, NAME), None)


def export(array):
    """A capsule over a DeviceArray, which it keeps alive."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(stride // array.dtype.itemsize for stride in array.strides))
    tensor = Tensor(array.address, CUDA, array.device.ordinal, array.ndim, _data_type(array.dtype),
                    ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)), 0)
    managed = ManagedTensor(tensor, None, _delete)
    _lent[ctypes.addressof(managed)] = (managed, shape, strides, array)
    return _new_capsule(ctypes.addressof(managed), NAME, _destroy)


def take(device, capsule):
    """A DeviceArray over the tensor of somebody's capsule. The capsule stays unused and is kept, so that the producer's own
    destructor frees the tensor when the array goes.
    """
    from vtlite.cuda.device_array import DeviceArray
    tensor = ctypes.cast(_get_pointer(capsule, NAME), ctypes.POINTER(ManagedTensor)).contents.tensor
    dtype = _numpy_type(tensor.dtype)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(s * dtype.itemsize for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    return DeviceArray(device, capsule, (tensor.data or 0) + tensor.byte_offset, shape, dtype, strides)


def _data_type(dtype: np.dtype) -> DataType:
    code, bits = SPECIAL.get(dtype) or (CODES.get(dtype.kind), 8 * dtype.itemsize)
    if code is None:
        raise BufferError(f"DLPack has no type for {dtype}")
    return DataType(code, bits, 1)


def _numpy_type(kind: DataType) -> np.dtype:
    for dtype, codes in SPECIAL.items():
        if codes == (kind.code, kind.bits):
            return dtype
    letters = {code: letter for letter, code in CODES.items()}
    if kind.code not in letters or kind.lanes != 1 or kind.bits % 8:
        raise DeviceError(f"a DLPack array of type code {kind.code}, {kind.bits} bits, {kind.lanes} lanes is not supported")
    return np.dtype(np.bool_) if kind.code == CODES["b"] else np.dtype(f"{letters[kind.code]}{kind.bits // 8}")

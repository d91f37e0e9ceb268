"""Weights on their way to a device: pieces one below another, rounded to the type the kernels read, counted."""

import ml_dtypes
import numpy as np

from vtlite.cuda.upload import Upload


def test_pieces_of_any_float_type_make_one_array(device):
    heard = []
    upload = Upload(device, heard.append)
    pieces = [np.arange(6, dtype=dtype).reshape(2, 3) + 1 / 3 for dtype in (np.float32, np.float16)]
    array = upload((4, 3), iter(pieces))
    assert array.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(array.numpy(), np.concatenate([piece.astype(ml_dtypes.bfloat16) for piece in pieces]))
    assert heard == [pieces[0].nbytes, pieces[0].nbytes + pieces[1].nbytes]


def test_a_type_that_is_asked_for_is_kept(device):
    transposed = np.arange(6, dtype=np.float32).reshape(2, 3).T
    array = Upload(device)(transposed.shape, [transposed], np.float32)
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array.numpy(), transposed)

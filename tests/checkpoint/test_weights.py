"""vtlite/checkpoint/weights.py: every tensor is found, checked and accounted for, in one file or in shards."""

import json

import ml_dtypes
import numpy as np
import pytest

from vtlite.checkpoint.safetensors import write_safetensors
from vtlite.checkpoint.weights import Weights
from vtlite.errors import CheckpointError

BF16 = np.dtype(ml_dtypes.bfloat16)


def save(path, **arrays):
    write_safetensors(path, {name: (a.dtype, a.shape) for name, a in arrays.items()}, arrays.values())


def shard(directory, weight_map, **files):
    """Shards `files` (name -> tensors) and the index that claims `weight_map`."""
    for name, arrays in files.items():
        save(directory / f"{name}.safetensors", **arrays)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def array(*shape, dtype=BF16):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def test_takes_tensors_from_one_file_without_a_copy(tmp_path):
    save(tmp_path / "model.safetensors", w=array(2, 3), norm=array(3, dtype=np.float32))
    weights = Weights(tmp_path)
    w = weights.take("w", (2, 3))
    assert w.dtype == BF16 and not w.flags.owndata and not w.flags.writeable
    np.testing.assert_array_equal(w, array(2, 3))
    assert weights.take("norm", (3,)).dtype == np.float32
    assert "w" in weights and "v" not in weights
    weights.finish()


def test_takes_tensors_from_shards(tmp_path):
    shard(tmp_path, {"w": "a.safetensors", "v": "b.safetensors"}, a={"w": array(2, 2)}, b={"v": array(4)})
    weights = Weights(tmp_path)
    assert weights.names == ["v", "w"]
    np.testing.assert_array_equal(weights.take("v", (4,)), array(4))
    np.testing.assert_array_equal(weights.take("w", (2, 2)), array(2, 2))
    weights.finish()


def test_stacks_along_axis_0_in_one_dtype_if_all_agree_else_float32(tmp_path):
    save(tmp_path / "model.safetensors", q=array(2, 3), k=array(1, 3), v=array(1, 3, dtype=np.float16))
    weights = Weights(tmp_path)
    same = weights.take_stacked(["q", "k"], [(2, 3), (1, 3)])
    assert same.dtype == BF16
    np.testing.assert_array_equal(same, np.concatenate([array(2, 3), array(1, 3)]))
    mixed = weights.take_stacked(["q", "v"], [(2, 3), (1, 3)])
    assert mixed.dtype == np.float32
    np.testing.assert_array_equal(mixed[2:], array(1, 3))


def test_a_missing_tensor_is_named_with_one_whose_name_ends_alike(tmp_path):
    save(tmp_path / "model.safetensors", **{"model.language_model.norm.weight": array(3)})
    with pytest.raises(CheckpointError, match=r"'model.norm.weight' of shape \[3\] is missing.*'model.language_model.n"):
        Weights(tmp_path).take("model.norm.weight", (3,))


def test_a_wrong_shape_names_file_tensor_expected_and_found(tmp_path):
    save(tmp_path / "model.safetensors", w=array(2, 3))
    with pytest.raises(CheckpointError, match=r"model.safetensors: tensor 'w': expected shape \[3, 2\].*found \[2, 3\]"):
        Weights(tmp_path).take("w", (3, 2))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, ml_dtypes.float8_e4m3fn])
def test_quantised_weights_are_refused(tmp_path, dtype):
    save(tmp_path / "model.safetensors", w=array(2, dtype=dtype))
    with pytest.raises(CheckpointError, match="quantised weights are not implemented"):
        Weights(tmp_path).take("w", (2,))


def test_unused_tensors_are_an_error_unless_ignored(tmp_path):
    save(tmp_path / "model.safetensors", w=array(2), **{f"layers.{i}.rotary_emb.inv_freq": array(2) for i in range(9)})
    weights = Weights(tmp_path)
    with pytest.raises(CheckpointError, match=r"does not use 10 of the checkpoint's 10 tensors: layers.0.*and 2 more"):
        weights.finish()
    assert len(weights.ignore(r".*\.rotary_emb\.inv_freq", "recomputed from rope_theta")) == 9
    with pytest.raises(CheckpointError, match=r"does not use 1 of .*: w \[2\]"):
        weights.finish()
    weights.take("w", (2,))
    weights.finish()


def test_a_tensor_that_the_index_does_not_list_is_not_dropped_in_silence(tmp_path):
    shard(tmp_path, {"w": "a.safetensors"}, a={"w": array(2), "v": array(1)})
    weights = Weights(tmp_path)
    weights.take("w", (2,))
    with pytest.raises(CheckpointError, match="does not use 1 of .*: v"):
        weights.finish()


@pytest.mark.parametrize("weight_map, files, found", [
    ({"w": "a.safetensors", "v": "b.safetensors"}, {"a": {"w": array(1)}}, "1 of 2 shards are missing: b.safetensors"),
    ({"w": "a.safetensors", "v": "a.safetensors"}, {"a": {"w": array(1)}}, "a.safetensors: tensor 'v' is not there"),
    ({"w": "a.safetensors", "v": "b.safetensors"}, {"a": {"w": array(1), "v": array(1)}, "b": {"u": array(1)}},
     "b.safetensors: tensor 'v' is not there"),
    ({"w": "a.safetensors", "v": "b.safetensors"}, {"a": {"w": array(1)}, "b": {"v": array(1), "w": array(1)}},
     "tensor 'w' is also in a.safetensors"),
    ({"w": "../a.safetensors"}, {}, "expected the name of a file beside the index, found '../a.safetensors'"),
    ({"w": 3}, {}, "expected the name of a file"),
    ({}, {}, "'weight_map' should map"),
    (["w"], {}, "'weight_map' should map"),
])
def test_an_index_that_lies_is_refused(tmp_path, weight_map, files, found):
    shard(tmp_path, weight_map, **files)
    with pytest.raises(CheckpointError, match=found):
        Weights(tmp_path)


def test_an_index_that_is_not_json_or_repeats_a_tensor_is_refused(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text("{")
    with pytest.raises(CheckpointError, match="index.json: not valid JSON"):
        Weights(tmp_path)
    index.write_text('{"weight_map": {"w": "a", "w": "b"}}')
    with pytest.raises(CheckpointError, match="key 'w' appears twice"):
        Weights(tmp_path)


def test_a_directory_without_weights_says_what_would_help(tmp_path):
    with pytest.raises(CheckpointError, match="neither model.safetensors nor model.safetensors.index.json"):
        Weights(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(CheckpointError, match="pickled .bin weights are never loaded"):
        Weights(tmp_path)
    (tmp_path / "x.gguf").touch()
    with pytest.raises(CheckpointError, match="vtlite convert"):
        Weights(tmp_path)
    with pytest.raises(CheckpointError, match="not a directory"):
        Weights(tmp_path / "absent")


def test_an_upload_gets_the_pieces_of_all_tensors_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("vtlite.checkpoint.safetensors.PIECE_BYTES", 100)           # four rows of 24 bytes
    q, k, norm = np.arange(54, dtype=np.float32).reshape(9, 6), np.ones((2, 6), np.float32), np.arange(3, dtype=np.float32)
    save(tmp_path / "model.safetensors", q=q, k=k, norm=norm)
    seen = []

    def upload(shape, pieces, dtype):
        pieces = [piece.copy() for piece in pieces]
        seen.append([len(piece) for piece in pieces])
        return np.concatenate(pieces).reshape(shape).astype(dtype or np.float16)

    weights = Weights(tmp_path, upload)
    assert weights.num_bytes == 4 * (54 + 12 + 3)
    np.testing.assert_array_equal(weights.take_stacked(["q", "k"], [(9, 6), (2, 6)]), np.concatenate([q, k]))
    assert weights.take("norm", (3,), np.float32).dtype == np.float32
    np.testing.assert_array_equal(weights.read("q", (9, 6)), q)                     # the pages come back when they are read again
    assert weights.place(norm * 2).dtype == np.float16
    assert seen == [[4, 4, 1, 2], [3], [3]]
    weights.finish()


def test_without_an_upload_a_dtype_is_made_on_the_host(tmp_path):
    save(tmp_path / "model.safetensors", norm=np.ones(3, np.float16))
    weights = Weights(tmp_path)
    assert weights.take("norm", (3,), np.float32).dtype == np.float32
    assert weights.place(np.ones(2), np.float32).dtype == np.float32

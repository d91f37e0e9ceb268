"""The tensors of one checkpoint directory, handed to a model by name, with an account of what was used."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vtlite.checkpoint.safetensors import SafetensorsFile
from vtlite.strict_json import quote, read_object
from vtlite.errors import CheckpointError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_FLOATS = ("BF16", "F16", "F32")


class Weights:
    """What model.safetensors, or the shards of model.safetensors.index.json, hold.

    A model takes each tensor by the shape its config implies, then calls `finish`: a tensor of the file that the
    model did not ask for means the two disagree about the architecture, and is an error, not a detail.

    `upload(shape, pieces, dtype)` puts tensors where the model runs: it makes an array of the pieces, one below another.
    Without it tensors stay on the mapped file.
    """

    def __init__(self, directory: str | Path, upload: Callable | None = None):
        self.directory, self._upload = Path(directory), upload
        self._file_of = self._open()
        self._unused = set(self._file_of)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    @property
    def names(self) -> list[str]:
        return sorted(self._file_of)

    @property
    def num_bytes(self) -> int:
        """What all tensors take in the files."""
        return sum(file.num_bytes(name) for name, file in self._file_of.items())

    def take(self, name: str, shape: tuple[int, ...], dtype=None):
        """The tensor `name` where the model runs; see `take_stacked`."""
        return self.take_stacked([name], [shape], dtype)

    def take_stacked(self, names: list[str], shapes: list[tuple[int, ...]], dtype=None):
        """The tensors one below another (along axis 0), where the model runs.

        `dtype` None is what the wing computes with: on a device bfloat16; else what is stored, float32 if that differs.
        A single tensor is not copied: it stays read-only on the mapped file. CheckpointError as in `read`.
        """
        if self._upload is not None:
            files = [self._file(name, shape) for name, shape in zip(names, shapes, strict=True)]
            rows = sum(shape[0] for shape in shapes)
            return self._upload((rows, *shapes[0][1:]), (piece for file, name in zip(files, names) for piece in file.pieces(name)), dtype)
        parts = [self.read(name, shape) for name, shape in zip(names, shapes, strict=True)]
        if dtype is None:
            dtype = parts[0].dtype if len({part.dtype for part in parts}) == 1 else np.dtype(np.float32)
        return parts[0].astype(dtype, copy=False) if len(parts) == 1 else np.concatenate(parts, dtype=dtype, casting="unsafe")

    def place(self, array: np.ndarray, dtype=None):
        """An array that the model made, such as one of `read` rearranged, where the model runs; `dtype` as in `take`."""
        if self._upload is not None:
            return self._upload(array.shape, [array], dtype)
        return array if dtype is None else array.astype(dtype, copy=False)

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """The tensor `name` on the host: read-only, on the mapped file, in the dtype it has there.

        CheckpointError if it is missing, has another shape, or is not a float tensor (bfloat16, float16, float32).
        """
        return self._file(name, shape).tensor(name)

    def _file(self, name: str, shape: tuple[int, ...]) -> SafetensorsFile:
        """The file of a tensor, which counts as used from now on."""
        file = self._file_of.get(name)
        if file is None:
            raise CheckpointError(f"{self.directory}: tensor {name!r} of shape {list(shape)} is missing from the "
                                  f"checkpoint{self._nearest(name)}")
        if file.shape(name) != tuple(shape):
            raise CheckpointError(f"{file.path}: tensor {name!r}: expected shape {list(shape)} from config.json, "
                                  f"found {list(file.shape(name))}")
        if file.dtype(name) not in _FLOATS:
            raise CheckpointError(f"{file.path}: tensor {name!r}: expected one of {', '.join(_FLOATS)}, found "
                                  f"{file.dtype(name)}; quantised weights are not implemented")
        self._unused.discard(name)
        return file

    def ignore(self, pattern: str, reason: str = "") -> list[str]:
        """Count tensors whose whole name matches the regex `pattern` as used; returns their names.

        `reason` is for the reader of the model file: why the arithmetic does not need them.
        """
        matching = [name for name in self.names if re.fullmatch(pattern, name)]
        self._unused.difference_update(matching)
        return matching

    def finish(self) -> None:
        """CheckpointError naming every tensor that was neither taken nor ignored."""
        if not self._unused:
            return
        names = sorted(self._unused)
        shown = ", ".join(f"{name} {list(self._file_of[name].shape(name))}" for name in names[:8])
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        raise CheckpointError(f"{self.directory}: the model does not use {len(names)} of the checkpoint's "
                              f"{len(self._file_of)} tensors: {shown}{more}; config.json and the weights disagree, "
                              "or this variant is not implemented")

    def _open(self) -> dict[str, SafetensorsFile]:
        if not self.directory.is_dir():
            raise CheckpointError(f"{self.directory}: not a directory; a checkpoint is a directory with config.json "
                                  f"and {SINGLE_FILE}")
        if (self.directory / SINGLE_FILE).is_file():
            file = SafetensorsFile(self.directory / SINGLE_FILE)
            return dict.fromkeys(file.names, file)
        if not (self.directory / INDEX_FILE).is_file():
            raise CheckpointError(f"{self.directory}: neither {SINGLE_FILE} nor {INDEX_FILE} is there{self._other()}")
        return self._open_shards()

    def _open_shards(self) -> dict[str, SafetensorsFile]:
        index = self.directory / INDEX_FILE
        shard_of = read_object(index).get("weight_map")
        if not isinstance(shard_of, dict) or not shard_of:
            raise CheckpointError(f"{index}: 'weight_map' should map tensor names to files, found {quote(shard_of)}")
        for name, shard in shard_of.items():
            if not isinstance(shard, str) or Path(shard).name != shard:
                raise CheckpointError(f"{index}: tensor {quote(name)}: expected the name of a file beside the index, "
                                      f"found {quote(shard)}")
        shards = sorted(set(shard_of.values()))
        missing = [shard for shard in shards if not (self.directory / shard).is_file()]
        if missing:
            raise CheckpointError(f"{self.directory}: {len(missing)} of {len(shards)} shards are missing: "
                                  f"{', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}; "
                                  "download the checkpoint again")
        file_of: dict[str, SafetensorsFile] = {}
        for shard in shards:
            file = SafetensorsFile(self.directory / shard)
            for name in file.names:
                if name in file_of:
                    raise CheckpointError(f"{file.path}: tensor {quote(name)} is also in {file_of[name].path.name}")
                file_of[name] = file
        for name, shard in shard_of.items():
            if name not in file_of or file_of[name].path.name != shard:
                raise CheckpointError(f"{self.directory / shard}: tensor {quote(name)} is not there, although "
                                      f"{INDEX_FILE} says so")
        return file_of   # tensors that the index does not list included: `finish` will name them

    def _nearest(self, name: str) -> str:
        """The stored tensor whose name ends alike, because a foreign prefix is the usual mistake."""
        tail = name.removeprefix("model.")
        alike = next((stored for stored in self._file_of if stored.endswith(tail)), None)
        return f" (it holds {alike!r})" if alike else f" (it holds {len(self._file_of)} others)"

    def _other(self) -> str:
        """What is there instead, if it is something we can advise on."""
        for pattern, advice in (("*.gguf", "`vtlite convert FILE.gguf OUT_DIR` imports a GGUF"),
                                ("*.bin", "pickled .bin weights are never loaded; save them as safetensors")):
            if any(self.directory.glob(pattern)):
                return f"; {advice}"
        return ""

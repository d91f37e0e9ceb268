"""The tokenizer of GGUFs whose tokenizer.ggml.model is "llama": sentencepiece BPE, as `tokenizers` can run it.

Sentencepiece joins the neighbours whose joined piece has the best score; `tokenizers` applies an ordered list of
merges. So every way to cut a piece into two pieces becomes a merge, ordered by the score of the whole.
"""

import tokenizers
from tokenizers import decoders, models, normalizers

from vtlite.checkpoint.gguf_file import GGUFFile
from vtlite.errors import CheckpointError

SPACE = "\u2581"
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]


def sentencepiece_bpe(file: GGUFFile, used: dict[str, int], mergeable: list[str]) -> tokenizers.Tokenizer:
    """A tokenizer of the pieces `used` (piece -> id), in which `mergeable` pieces are built from shorter ones.

    Characters without a piece become byte pieces. CheckpointError if the metadata asks for a normalisation of the text.
    """
    for key in ("tokenizer.ggml.remove_extra_whitespaces", "tokenizer.ggml.precompiled_charsmap"):
        if file.metadata.get(key):
            raise CheckpointError(f"{file.path}: '{key}' is set, which is not implemented")
    scores = file.get("tokenizer.ggml.scores", list)
    if len(scores) != len(file.metadata["tokenizer.ggml.tokens"]):
        raise CheckpointError(f"{file.path}: {len(file.metadata['tokenizer.ggml.tokens'])} tokens but "
                              f"{len(scores)} scores")
    absent = [piece for piece in BYTE_PIECES if piece not in used]
    if absent:
        raise CheckpointError(f"{file.path}: {len(absent)} byte tokens are missing, such as {absent[0]}; "
                              "sentencepiece without byte fallback is not implemented")
    pieces = set(mergeable)
    merges = [(piece[:cut], piece[cut:])
              for piece in sorted(mergeable, key=lambda piece: -scores[used[piece]])   # stable: ties in order of id
              for cut in range(1, len(piece)) if piece[:cut] in pieces and piece[cut:] in pieces]
    backend = tokenizers.Tokenizer(models.BPE(used, merges, byte_fallback=True, fuse_unk=True))
    marks = [normalizers.Replace(" ", SPACE)]
    spaces = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if file.get("tokenizer.ggml.add_space_prefix", bool, True):
        marks, spaces = [normalizers.Prepend(SPACE), *marks], [*spaces, decoders.Strip(" ", 1, 0)]
    backend.normalizer, backend.decoder = normalizers.Sequence(marks), decoders.Sequence(spaces)
    return backend

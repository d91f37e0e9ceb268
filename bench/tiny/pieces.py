"""Take a corpus from one machine to another: compressed, in pieces of 15 MiB.

    python pieces.py split --corpus corpus1.jsonl --out pieces/ --limit 19     # MiB together
    python pieces.py join --pieces pieces/ --corpus joined.jsonl

The pieces, corpus1.jsonl.xz.00 and so on, are one .xz file cut up, named after the corpus. A corpus that would be
larger than the limit loses conversations at random, in the file too. `join` puts all corpora of a directory end to end.
"""
import argparse
import lzma
from multiprocessing import Pool
from pathlib import Path
from random import Random

BLOCK, PIECE, MIB = 1 << 25, 15 << 20, 1 << 20


def compress(text: bytes) -> bytes:
    return lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)


def compress_blocks(text: bytes) -> bytes:
    """Blocks of 32 MiB side by side; .xz streams end to end are an .xz file."""
    with Pool() as pool:
        return b"".join(pool.map(compress, [text[i:i + BLOCK] for i in range(0, len(text), BLOCK)], 1))


def split(corpus: Path, out: Path, limit: float):
    text = corpus.read_bytes()
    packed = compress_blocks(text)
    print(f"{len(text) / MIB:.1f} MiB become {len(packed) / MIB:.1f}", flush=True)
    if len(packed) > limit * MIB:
        lines = text.splitlines(keepends=True)
        keep = int(len(lines) * limit * MIB / len(packed) * 0.98)
        lines = Random(1).sample(lines, keep)
        corpus.write_bytes(b"".join(lines))
        packed = compress_blocks(corpus.read_bytes())
        print(f"kept {keep} conversations: {len(packed) / MIB:.1f} MiB", flush=True)
    out.mkdir(parents=True, exist_ok=True)
    for n, start in enumerate(range(0, len(packed), PIECE)):
        (out / f"{corpus.name}.xz.{n:02d}").write_bytes(packed[start:start + PIECE])


def join(pieces: Path, corpus: Path):
    packed = b"".join(piece.read_bytes() for piece in sorted(pieces.glob("*.jsonl.xz.*")))
    corpus.write_bytes(lzma.decompress(packed))             # .xz streams end to end, several corpora too


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["split", "join"])
    parser.add_argument("--corpus", required=True, type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pieces", type=Path)
    parser.add_argument("--limit", type=float, default=19.0)
    args = parser.parse_args()
    if args.way == "split":
        split(args.corpus, args.out, args.limit)
    else:
        join(args.pieces, args.corpus)


if __name__ == "__main__":
    main()

#!/bin/bash
# Write and filter a corpus: make_data.sh GGUF OUT MINUTES [SEED]
#
# Leaves in OUT: raw.jsonl, corpus.jsonl, corpus.jsonl.xz.00, .01, ... (pieces of 15 MiB, at most LIMIT_MIB together)
# and make_data.log.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
gguf=$1 out=$2 minutes=$3 seed=${4:-1}
export PYTHONUNBUFFERED=1
mkdir -p "$out"
{
    python3 "$here/make_corpus.py" --gguf "$gguf" --out "$out/raw.jsonl" --minutes "$minutes" --seed "$seed"
    python3 "$here/clean_corpus.py" --raw "$out/raw.jsonl" --out "$out/corpus.jsonl"
    python3 "$here/pieces.py" split --corpus "$out/corpus.jsonl" --out "$out" --limit "${LIMIT_MIB:-19}"
    wc -l "$out/raw.jsonl" "$out/corpus.jsonl"
    ls -l "$out"
} 2>&1 | tee -a "$out/make_data.log"

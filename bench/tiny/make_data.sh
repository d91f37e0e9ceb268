#!/bin/bash
# Write and filter a corpus: make_data.sh GGUF OUT MINUTES SEED
#
# Leaves in OUT, each with the seed in its name: raw1.jsonl, corpus1.jsonl, corpus1.jsonl.xz.00, .01, ... (pieces of
# 15 MiB, at most LIMIT_MIB together) and make_data1.log, which says how many conversations broke which rule.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
gguf=$1 out=$2 minutes=$3 seed=$4
raw=$out/raw$seed.jsonl corpus=$out/corpus$seed.jsonl
tokenizer=${TOKENIZER:-$here/../../vtlite/checkpoint/bundled/tiny-dense}
export PYTHONUNBUFFERED=1
mkdir -p "$out"
{
    python3 "$here/make_corpus.py" --gguf "$gguf" --out "$raw" --minutes "$minutes" --seed "$seed"
    python3 "$here/clean_corpus.py" --raw "$raw" --tokenizer "$tokenizer/tokenizer.json" --out "$corpus"
    python3 "$here/pieces.py" split --corpus "$corpus" --out "$out" --limit "${LIMIT_MIB:-19}"
    wc -l "$raw" "$corpus"
    ls -l "$out"
} 2>&1 | tee "$out/make_data$seed.log"

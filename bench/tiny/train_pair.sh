#!/bin/bash
# Train two shapes at once on the visible GPU: train_pair.sh PIECES OUT MINUTES SHAPE SHAPE
#
# PIECES holds *.jsonl.xz.* of one or more runs of make_data.sh; joined, they pass the filter once more. Leaves in OUT:
# rows/corpus.json, data.log and, for each shape, a checkpoint directory with log.json, and SHAPE.log. One that fails does
# not stop the other. COPIES, STEPS and TOKENIZER may be set.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pieces=$1 out=$2 minutes=$3 shapes=("$4" "$5")
tokenizer=${TOKENIZER:-$here/../../vtlite/checkpoint/bundled/tiny-dense}
export PYTHONUNBUFFERED=1
mkdir -p "$out"

{
    python3 "$here/pieces.py" join --pieces "$pieces" --corpus "$out/joined.jsonl"
    python3 "$here/clean_corpus.py" --raw "$out/joined.jsonl" --tokenizer "$tokenizer/tokenizer.json" --out "$out/corpus.jsonl"
    python3 "$here/pack_rows.py" --corpus "$out/corpus.jsonl" --tokenizer "$tokenizer/tokenizer.json" --out "$out/rows" \
        --copies "${COPIES:-5}"
} 2>&1 | tee "$out/data.log"

jobs=()
for shape in "${shapes[@]}"; do
    python3 "$here/train_tiny.py" --shape "$shape" --rows "$out/rows" --tokenizer "$tokenizer" --out "$out/$shape" \
        --steps "${STEPS:-2000}" --minutes "$minutes" > "$out/$shape.log" 2>&1 &
    jobs+=($!)
done
failed=0
for job in "${jobs[@]}"; do wait "$job" || failed=1; done
for shape in "${shapes[@]}"; do tail -n 4 "$out/$shape.log"; done
exit $failed

#!/bin/bash
# Sample a trained checkpoint and write its card: card.sh SHAPE OUT BASELINE_LOG CONVERSATIONS
#
# OUT is that of train_pair.sh for SHAPE; BASELINE_LOG the log.json of dense-8m; CONVERSATIONS the lines of raw*.jsonl.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
shape=$1 out=$2 baseline=$3 conversations=$4
python3 "$here/samples.py" --model "$out/$shape" --out "$out/$shape.samples.json"
python3 "$here/topics.py" --model "$out/$shape" --out "$out/$shape.topics.json"
python3 "$here/model_card.py" --model "$out/$shape" --log "$out/$shape/log.json" --baseline "$baseline" \
    --samples "$out/$shape.samples.json" --topics "$out/$shape.topics.json" --corpus "$out/rows/corpus.json" --conversations "$conversations"

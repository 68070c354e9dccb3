#!/bin/sh
# Makes model/crumb-tiny.gguf from nothing: corpus, tokenizer, training, export, perplexity.
# Usage: tools/train/train.sh [WORK_FOLDER]      (an interrupted run continues where it stopped)
set -eu
. "$(dirname "$0")/setup.sh"
model=$here/model/crumb-tiny.gguf

mkdir -p "$here/model"
[ -f "$work/round2.txt" ] || "$python" corpus.py "$work/round2.txt" --texts 50000 --seed 3 --quiz-share 0.25 --quiz-facts 25
"$python" train.py --corpus "$work/train.txt" --tokenizer "$work/tokenizer.json" --checkpoint "$work/round1.npz" \
    --quant ternary --steps 1800 --cooldown 0.45 --seed 1
# The second round is for what the first leaves weak: facts, and names and things that stay the same all story long.
"$python" train.py --corpus "$work/round2.txt" --tokenizer "$work/tokenizer.json" --checkpoint "$work/round2.npz" \
    --begin-with "$work/round1.npz" --quant ternary --steps 1800 --batch 8 --muon-lr 0.014 --adam-lr 0.002 \
    --cooldown 0.8 --seed 2
"$python" export.py "$work/round2.npz" "$work/tokenizer.json" "$model" --quant ternary
"$python" check_gguf.py "$model"
"$python" perplexity.py "$model" "$work/heldout.txt"
(cd "$here/model" && sha256sum crumb-tiny.gguf >crumb-tiny.gguf.sha256)
"$python" sample.py "$model" --prompt "Once upon a time" --temp 0.8 --seed 1

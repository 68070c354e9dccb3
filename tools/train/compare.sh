#!/bin/sh
# The same model at full precision, 2 bits, three levels and 1 bit: trains, exports and judges each, all with one budget.
# Usage: tools/train/compare.sh [WORK_FOLDER [STEPS]]      (an interrupted run continues where it stopped)
# CRUMB: the command that judges as well; without it the reference in Python alone does.
set -eu
. "$(dirname "$0")/setup.sh"
steps=${2:-1000}
crumb=${CRUMB:-}

[ -f "$work/heldout-100.txt" ] || head -n 100 "$work/heldout.txt" | sed 's/\\n/\n/g; s/$/\n/' >"$work/heldout-100.txt"
for quant in none seq ternary sign; do
    name=$work/$quant-$steps
    "$python" train.py --corpus "$work/train.txt" --tokenizer "$work/tokenizer.json" --checkpoint "$name.npz" \
        --quant "$quant" --steps "$steps" --batch 8 --seed 1
    "$python" export.py "$name.npz" "$work/tokenizer.json" "$name.gguf" --quant "$quant"
    "$python" check_gguf.py "$name.gguf"
    echo "$quant, each text by itself: $("$python" perplexity.py "$name.gguf" "$work/heldout.txt" --texts 100)"
    echo "$quant, in chunks: $("$python" perplexity.py "$name.gguf" "$work/heldout-100.txt" --chunk 256)"
    [ -z "$crumb" ] ||
        echo "$quant, by crumb: $("$crumb" perplexity --log-disable -m "$name.gguf" -f "$work/heldout-100.txt" -c 256 --device cpu | tail -n 1)"
done

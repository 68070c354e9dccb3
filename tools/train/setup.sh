#!/bin/sh
# What train.sh and compare.sh begin with; they source it. $work: where everything is kept that is not the result.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${1:-${TMPDIR:-/tmp}/crumb-train}

mkdir -p "$work"
[ -d "$work/venv" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q -r "$here/requirements.txt"
python=$work/venv/bin/python

# One BLAS thread keeps sums in one order; large arrays from the heap are reused instead of mapped again each step.
export OPENBLAS_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=2000000000 MALLOC_TRIM_THRESHOLD_=8000000000
export PYTHONDONTWRITEBYTECODE=1

cd "$here"
[ -f "$work/train.txt" ] || "$python" corpus.py "$work/train.txt" --texts 90000 --seed 1
[ -f "$work/heldout.txt" ] || "$python" corpus.py "$work/heldout.txt" --texts 1000 --seed 2
[ -f "$work/tokenizer.json" ] || "$python" tokenizer.py "$work/train.txt" "$work/tokenizer.json"
"$python" train.py --selftest

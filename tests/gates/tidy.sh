#!/usr/bin/env bash
# clang-tidy finds nothing in the library, its modules and the command. A file whose preprocessed text was clean before is
# not read again.
# usage: tidy.sh SOURCE WORK [NODES that clang's analyzer visits of a function: 225000, its own limit, takes most of the time]
# shellcheck disable=SC2016 # the shells that xargs starts expand it
set -euo pipefail
source=$1 work=$2 nodes=${3:-225000}
cd "$source"
mkdir -p "$work/clean"
cmake -G Ninja -S . -B "$work/commands" -DCMAKE_C_COMPILER=clang-19 -DCMAKE_BUILD_TYPE=Release -DCRUMB_TESTS=ON \
    -DCRUMB_GATES=OFF >"$work/log"

check() { # FILE
    local key
    key=$({
        echo "$version $nodes"
        cat .clang-tidy "$work/commands/compile_commands.json"
        # shellcheck disable=SC2086 # words
        clang-19 -E -P -D_GNU_SOURCE -I. -I"$work/commands/generated" $headers -mavx2 -mfma -mf16c -mbmi2 -mavxvnni -mavx512f -mavx512bw -mavx512vl \
            -mavx512dq -mavx512vnni -mavx512vbmi "$1"
    } | sha256sum | cut -c1-64)
    [ ! -e "$work/clean/$key" ] || return 0
    clang-tidy-19 --quiet -p "$work/commands" --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang \
        --extra-arg=max-nodes="$nodes" "$1" 2>&1 | grep -v ' warnings\? generated\.$' && return 1
    touch "$work/clean/$key"
}
headers=$(grep -oE -- '-isystem [^ "]+' "$work/commands/compile_commands.json" | sort -u | tr '\n' ' ' || true)
export -f check
version=$(clang-tidy-19 --version) || exit 1
export nodes version work headers
folders=(host cl cpu scheduler)
if grep -q /spirv/ "$work/commands/compile_commands.json"; then # Level Zero's headers are there
    folders+=(spirv)
fi
find "${folders[@]}" tools/crumb tools/cl-survey -name '*.c' -print0 | xargs -0 -P "$(nproc)" -n1 bash -c 'check "$@"' _

#!/usr/bin/env bash
# AVX-VNNI's own code on a processor that may have AVX512-VNNI alone: with CRUMB_AVXVNNI_EVEX it is the code that ships,
# instruction by instruction, and computes what the reference does.
# usage: evex.sh SOURCE WORK BUILD-FOLDER
set -euo pipefail
source=$1 work=$2 build=$3
if ! grep -q -m1 -w avx512_vnni /proc/cpuinfo; then
    echo "skipped: without AVX512-VNNI this processor cannot run AVX-VNNI's kernels in its encoding"
    exit 77
fi
mkdir -p "$work"
cmake -G Ninja -S "$source" -B "$work" -DCMAKE_C_COMPILER="$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER_LAUNCHER="$(command -v ccache)" -DCRUMB_AVXVNNI_EVEX=ON -DCRUMB_WERROR=ON \
    >"$work/log" || { cat "$work/log" && exit 1; }
cmake --build "$work" -j "$(nproc)" --target crumb >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }

# Instructions with their registers; not where they lie, which longer ones move, nor what fills the gaps.
instructions() {
    objdump -d --no-show-raw-insn "$1" |
        sed -n 's/[[:space:]]*#.*//; s/{vex} *//; s/[0-9a-f]* <.*>//; s/-*0x[0-9a-f]*(%rip)/(%rip)/; s/^ *[0-9a-f]*:\t//p' |
        grep -vE '^(nop|data16|cs nop|xchg +%ax,%ax)'
}
folder=CMakeFiles/crumb_objects.dir/cpu/avxvnni
for object in "$build/$folder"/*.o; do
    name=${object##*/}
    instructions "$object" >"$work/ships"
    instructions "$work/$folder/$name" >"$work/runs"
    cmp "$work/ships" "$work/runs"
    dots=$(grep -c '^vpdp' "$work/ships") # none: this compares nothing, and fails
    left=$(objdump -d --no-show-raw-insn "$work/$folder/$name" | grep -c '{vex} vpdp' || true)
    printf '%s: the same %s instructions, %s dot products, %s of them in their own encoding\n' \
        "$name" "$(wc -l <"$work/ships")" "$dots" "$left"
    [ "$left" = 0 ]
done
"$work/crumb" kernels test --target cpu:avxvnni

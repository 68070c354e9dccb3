#!/usr/bin/env bash
# Each fuzzer runs for some seconds from its corpus, under the address and undefined-behaviour sanitizers.
# usage: fuzz.sh SOURCE WORK SECONDS
# shellcheck disable=SC2016 # the shells that xargs starts expand it
set -euo pipefail
source=$1 work=$2 seconds=$3
mkdir -p "$work"
cmake -G Ninja -S "$source" -B "$work/build" -DCMAKE_C_COMPILER=clang-19 -DCMAKE_BUILD_TYPE=Release -DCRUMB_TESTS=ON \
    -DCRUMB_FUZZ=ON -DCRUMB_SANITIZE=address,undefined >"$work/log" || { cat "$work/log" && exit 1; }
cmake --build "$work/build" -j "$(nproc)" --target fuzzers

run() { # PROGRAM
    local name=${1##*/fuzz_} found
    found=$work/found/$name
    mkdir -p "$found"
    "$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1024 -verbosity=0 -print_final_stats=1 \
        -artifact_prefix="$work/crash-$name-" "$found" "$source/tests/fuzz/corpus/$name" >"$work/$name.log" 2>&1 ||
        { tail -n 60 "$work/$name.log" && return 1; }
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log") inputs in $seconds s"
}
export -f run
export source work seconds
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
programs=$(find "$work/build/tests/fuzz" -maxdepth 1 -type f -name 'fuzz_*')
[ -n "$programs" ] || { echo 'no fuzzer was built' && exit 1; }
tr '\n' '\0' <<<"$programs" | xargs -0 -r -P "$(nproc)" -n1 bash -c 'run "$@"' _

#!/usr/bin/env bash
# Another compiler or a sanitizer: everything builds without a warning, and the quick tests pass.
# usage: build.sh SOURCE WORK COMPILER BUILD-TYPE FOLDER [SANITIZERS [BUT]]   FOLDER: of the build; . is everything; BUT: tests
# that are left out, as ctest -E takes them
set -euo pipefail
source=$1 work=$2 compiler=$3 type=$4 folder=$5 sanitizers=${6:-} but=${7:-}
mkdir -p "$work"
cmake -G Ninja -S "$source" -B "$work" -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE="$type" \
    -DCMAKE_C_COMPILER_LAUNCHER="$(command -v ccache)" -DCRUMB_SANITIZE="$sanitizers" \
    -DCRUMB_TESTS=ON -DCRUMB_GATES=OFF -DCRUMB_WERROR=ON >"$work/log" || { cat "$work/log" && exit 1; }
target=all
[ "$folder" = . ] || target=$folder/all
cmake --build "$work" -j "$(nproc)" --target "$target" >"$work/log" 2>&1 || { grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)' "$work/log" && exit 1; }
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1
ctest --test-dir "$work/$folder" -L quick ${but:+-E "$but"} -j "$(nproc)" --no-tests=error --output-on-failure

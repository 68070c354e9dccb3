#!/usr/bin/env bash
# Installs what the tests need, builds, and runs all tests through CTest.
#
# usage: tests/run.sh [--quick | --ci] [--offline] [arguments of ctest]
#   --quick     only tests labelled quick (under 3 minutes)
#   --ci        and what .ci/run adds: a second compiler, clang-tidy, and the OpenCL kernels on Intel's runtime for CPUs
#               (800 MB) and through its compiler for GPUs
#   --offline   downloads nothing: files of tests/deps.lock come from the user's cache, or their tests are skipped
#
# It never calls sudo: without root and with packages missing it prints the line to run, and exits with 2.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# shellcheck source=tools/packages.sh
. tools/packages.sh

select=(-LE '^(ci|deep)$') # deep: by hand
models=1 # real ones, for tests of the label full
offline=
while [ $# -gt 0 ]; do
    case $1 in
        --quick) select=(-L quick) models= ;;
        --ci) select=(-LE '^deep$') ;;
        --offline) offline=1 ;;
        -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
        *) break ;;
    esac
    shift
done

test_needs="$build_needs
ninja-build cmd:ninja
ccache cmd:ccache
libcmocka-dev pc:cmocka
python3 cmd:python3
python3-venv py:ensurepip
clang-19 cmd:clang-19
libclang-rt-19-dev file:/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.asan-$(uname -m).a
llvm-19 cmd:llvm-symbolizer-19
clang-format-19 cmd:clang-format-19
clang-tidy-19 cmd:clang-tidy-19
shellcheck cmd:shellcheck
binutils cmd:nm
ocl-icd-opencl-dev pc:OpenCL
oclgrind cmd:oclgrind
libclblast1 file:/usr/lib/$(uname -m)-linux-gnu/libclblast.so.1"
missing=$(packages_missing <<<"$test_needs")
if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ] || [ -n "$offline" ] || ! command -v apt-get >/dev/null; then
        printf 'tests/run.sh: packages are missing; install them and run this again:\n' >&2
        printf '  sudo apt-get install --no-install-recommends %s\n' "$missing" >&2
        exit 2
    fi
    echo "tests/run.sh: installing $missing"
    # shellcheck disable=SC2086 # one word per package
    packages_install '' $missing
fi

[ -z "$offline" ] || export CRUMB_TEST_OFFLINE=1
if [ -n "$models" ] && [ -z "${CRUMB_TEST_SMOLLM2:-}" ]; then
    CRUMB_TEST_SMOLLM2=$(tools/get-model.sh ${offline:+--offline} smollm2) && export CRUMB_TEST_SMOLLM2 ||
        echo 'tests/run.sh: without SmolLM2 its tests are skipped' >&2
fi
python3 tests/support/deps.py prefix level-zero >/dev/null || # headers, which CMake finds there
    echo 'tests/run.sh: without the headers of Level Zero that backend is neither built nor tested' >&2
export CTEST_OUTPUT_ON_FAILURE=1
jobs=$(nproc)
cmake -G Ninja -S . -B build-tests -DCMAKE_BUILD_TYPE=Release -DCRUMB_TESTS=ON -DCRUMB_WERROR=ON \
    -DCMAKE_C_COMPILER_LAUNCHER=ccache
cmake --build build-tests -j "$jobs"
exec ctest --test-dir build-tests -j "$jobs" --no-tests=error ${select[@]+"${select[@]}"} "$@"

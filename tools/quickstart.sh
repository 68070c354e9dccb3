#!/usr/bin/env bash
# From a fresh clone to text: installs what the build needs, builds into build/, and runs crumb's embedded model.
#
# usage: tools/quickstart.sh [arguments of crumb run]
#
# Packages are installed as root, or through sudo after saying so; with neither, the line to run is printed and the exit
# status is 2. A second run installs and says nothing and builds only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/packages.sh
. tools/packages.sh

say() { printf '%s\n' "$*" >&2; }

needs=$build_needs
command -v make >/dev/null || needs="$needs
ninja-build cmd:ninja"
missing=$(packages_missing <<<"$needs")
if [ -n "$missing" ]; then
    say "crumb needs these packages: $missing"
    install="apt-get install --no-install-recommends $missing"
    if ! command -v apt-get >/dev/null; then
        say "Install them (the names are Debian's) and run this again."
        exit 2
    elif [ "$(id -u)" = 0 ]; then
        sudo=''
        say "Installing: $install"
    elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        sudo=sudo
        say "Installing: sudo $install"
    else
        say "Install them as root and run this again: $install"
        exit 2
    fi
    # shellcheck disable=SC2086 # one word per package
    packages_install "$sudo" $missing || { say "The packages could not be installed: $install" && exit 2; }
fi

log=build/quickstart.log
if [ ! -x build/crumb ]; then say "Building into build/ (about a minute; $log) ..."; fi
mkdir -p build
[ -e build/CMakeCache.txt ] || ! command -v ninja >/dev/null || export CMAKE_GENERATOR=Ninja
{ cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --parallel "$(nproc)"; } >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    say "The build failed; all of its output is in $log."
    exit 1
}

build/crumb run "$@"

cat >&2 <<'NEXT'

Next:
  build/crumb run -p "Once upon a time"    your own beginning, with the embedded model
  tools/get-model.sh smollm2               a bigger model: 98 MB, Apache-2.0; prints how to run it
  build/crumb help                         all commands
NEXT

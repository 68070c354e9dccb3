#!/usr/bin/env bash
# Two builds in different folders are identical: no dates, no paths, no order of the directory in them.
# usage: reproducible.sh SOURCE WORK BUILD-FOLDER
set -euo pipefail
source=$1 work=$2 build=$3
mkdir -p "$work/another/place"
for entry in "$source"/*; do
    case ${entry##*/} in build* | tests) continue ;; esac
    rm -rf "$work/another/place/${entry##*/}"
    cp -r "$entry" "$work/another/place/"
done
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt") # they order the linker's files each its way
cmake -G "$generator" -S "$work/another/place" -B "$work/out" -DCMAKE_BUILD_TYPE=Release >"$work/log" || { cat "$work/log" && exit 1; }
CCACHE_DISABLE=1 cmake --build "$work/out" -j "$(nproc)" >"$work/log" || { cat "$work/log" && exit 1; }
for file in libcrumb.so crumb libcrumb-cl.so crumb-cl-survey; do
    [ -e "$build/$file" ] || continue # without OpenCL there is no module
    cmp "$build/$file" "$work/out/$file"
    sha256sum "$work/out/$file"
done

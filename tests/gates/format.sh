#!/usr/bin/env bash
# Every C file is formatted as .clang-format says.
set -euo pipefail
cd "$1"
find ./*/ -path './build*' -prune -o -name '*.[ch]' -print0 |
    xargs -0 -P "$(nproc)" -n 16 clang-format-19 --dry-run --Werror

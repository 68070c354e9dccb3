#!/usr/bin/env bash
# The library exports what crumb.h declares, and nothing else.
set -euo pipefail
source=$1 work=$2 library=$3
mkdir -p "$work"
nm -D --defined-only "$library" | awk '{ print $NF }' | sort >"$work/exported"
tr '\n' ' ' <"$source/host/crumb.h" | grep -o 'CRUMB_API [^;{]*(' | grep -v __attribute__ |
    sed 's/(.*//; s/.*[ *]//' | sort >"$work/declared"
[ -s "$work/declared" ]
diff -u "$work/declared" "$work/exported"
echo "$(wc -l <"$work/exported") symbols, all declared in crumb.h"

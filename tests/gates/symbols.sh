#!/usr/bin/env bash
# The library exports what crumb.h declares, and nothing else; a module its entry. Only the module needs OpenCL.
# usage: symbols.sh SOURCE WORK LIBRARY [MODULE]
set -euo pipefail
source=$1 work=$2 library=$3 module=${4:-}
mkdir -p "$work"
nm -D --defined-only "$library" | awk '{ print $NF }' | sort >"$work/exported"
tr '\n' ' ' <"$source/host/crumb.h" | grep -o 'CRUMB_API [^;{]*(' | grep -v __attribute__ |
    sed 's/(.*//; s/.*[ *]//' | sort >"$work/declared"
[ -s "$work/declared" ]
diff -u "$work/declared" "$work/exported"
if readelf -d "$library" | grep NEEDED | grep -i opencl; then exit 1; fi
if [ -n "$module" ]; then
    [ "$(nm -D --defined-only "$module" | awk '{ print $NF }')" = crumb_module_entry ] ||
        { nm -D --defined-only "$module" && exit 1; }
fi
echo "$(wc -l <"$work/exported") symbols, all declared in crumb.h"

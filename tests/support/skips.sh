#!/usr/bin/env bash
# Lists what a run of CTest skipped, and fails when a skip is not allowed.
# usage: skips.sh CTEST-OUTPUT LASTTEST-LOG ALLOWED
#   Skips are CTest's (exit status 77, reported after its closing line) and cmocka's inside a program that passed.
#   ALLOWED: one name or pattern a line, # begins a comment.
set -euo pipefail
output=$1 last_test=$2 allowed=$3

skipped=$({
    sed -n 's/^[[:space:]]*[0-9]* - \([^ ]*\) (\(Skipped\|Disabled\))$/\1/p' "$output"
    sed -n 's/^\[  SKIPPED \] \([A-Za-z0-9_]*\)$/\1/p' "$last_test"
} | sort -u)
mapfile -t patterns < <(sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "$allowed")

is_allowed() {
    local pattern
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053 # a pattern
        if [[ $1 == $pattern ]]; then return 0; fi
    done
    return 1
}

status=0
for name in $skipped; do
    if is_allowed "$name"; then
        echo "skipped, as $allowed allows: $name"
    else
        echo "skipped, and $allowed does not list it: $name"
        status=1
    fi
done
exit $status

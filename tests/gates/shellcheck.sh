#!/usr/bin/env bash
# No script gives the linter anything to say.
set -euo pipefail
cd "$1"
{
    find tools tests -name '*.sh' -print0
    grep -rlZ '^#!/usr/bin/env bash' .ci
} | sort -z | xargs -0 shellcheck -x -P SCRIPTDIR -P .

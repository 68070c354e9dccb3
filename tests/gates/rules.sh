#!/usr/bin/env bash
# Rules that no compiler checks: which folder may include which, where POSIX calls may stand, that the library neither
# exits nor prints, how long a file may be, and nothing left for later.
set -euo pipefail
cd "$1"
status=0
found() { # MESSAGE LINES
    [ -z "$2" ] || { printf '%s:\n%s\n' "$1" "$2" && status=1; }
}

# Folder: what its files may include of this project, besides itself. Dependencies point one way; model and graph, which
# are written in terms of each other, count as one step.
while read -r folder allowed; do
    [ -d "$folder" ] || continue
    pattern=$(tr ' ' '|' <<<"$folder/ $allowed")
    found "$folder may include only $allowed" \
        "$(grep -rnE '^#include "' "$folder" --include='*.[ch]' | grep -vE "#include \"($pattern)" || true)"
done <<'RULES'
host/base host/crumb.h
host/lowbit host/base/
host/container host/base/ host/lowbit/
host/kernel host/base/ host/backend.h host/lowbit/
host/jinja host/base/
host/text host/base/ host/crumb.h host/container/ host/jinja/
host/graph host/base/ host/backend.h host/lowbit/ host/model/
host/checkpoint host/base/ host/lowbit/ host/container/ host/text/ host/model/
host/gptq host/base/ host/backend.h host/lowbit/ host/container/ host/kernel/ host/model/ host/checkpoint/
host/model host/base/ host/backend.h host/lowbit/ host/container/ host/graph/
host/sample host/base/ host/crumb.h
scheduler host/base/
cpu host/base/ host/backend.h host/lowbit/ host/kernel/ scheduler/topology.h scheduler/balance.h scheduler/choice.h scheduler/chunks.h
cl host/base/ host/backend.h host/lowbit/ host/kernel/
spirv host/base/ host/backend.h host/lowbit/ host/kernel/ cl/
RULES

found 'cl/ is the same for every API: only cl/opencl/ knows OpenCL' \
    "$(grep -nE '^#include ("cl/opencl/|<CL/)' cl/*.[ch] || true)"

library=(host cpu cl spirv scheduler)
found 'POSIX outside host/base/{cache,file,file_out,memory,module,process,thread}.c' \
    "$(grep -rnE '#include <(unistd|pthread|fcntl|sched|signal|setjmp|dirent|dlfcn|poll|spawn|semaphore|sys/[a-z]*|linux/[a-z]*)\.h>' \
        "${library[@]}" | grep -vE '^host/base/(cache|file|file_out|memory|module|process|thread)\.c:' || true)"
found 'the library exits, aborts or prints' \
    "$(grep -rnE '(^|[^A-Za-z0-9_])(exit|_exit|abort|assert|printf|fprintf|vprintf|puts|fputs|putchar|perror)\(' \
        "${library[@]}" --include='*.[ch]' || true)"
found 'left for later' "$(grep -rnE '\b(TODO|FIXME|XXX)\b|#if 0' --include='*.[ch]' --include='*.sh' --include='*.py' \
    host cpu cl spirv scheduler tools tests | grep -v '^tests/gates/rules.sh:' || true)"
found 'a path of one machine' "$(grep -rnE '(^|[^A-Za-z0-9_}.])/(work|root|mnt)/' host cpu cl spirv scheduler tools tests ./*.md |
    grep -v '^tests/gates/rules.sh:' || true)"
found 'longer than 600 lines' "$(find host cpu cl spirv scheduler tools tests \( -name '*.[ch]' -o -name '*.cl' -o -name '*.py' -o -name '*.sh' \) -print0 |
    xargs -0 wc -l | awk '$1 > 600 && $2 != "total"')"
exit $status

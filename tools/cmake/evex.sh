#!/usr/bin/env bash
# Compiles one file of the library; one of cpu/avxvnni through its assembly, where the dot products are given the encoding
# that processors with AVX512-VNNI have for the same instruction on the same registers. All else of the code stays.
# usage: evex.sh COMPILER COMMAND...   COMMAND: as CMake has it for this compiler, with -o OBJECT -c SOURCE at its end
set -euo pipefail
compiler=$1
shift
case ${!#} in
    */cpu/avxvnni/*.c) ;;
    *) exec "$@" ;;
esac
object=
arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        -o) object=$2 && shift ;;
        -c) arguments+=(-S) ;;
        *) arguments+=("$1") ;;
    esac
    shift
done
"${arguments[@]}" -o "$object.s"
sed -i 's/{vex}\([[:space:]]*vpdp\)/{evex}\1/' "$object.s"
"$compiler" -c -o "$object" "$object.s"

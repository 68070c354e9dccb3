#!/usr/bin/env bash
# An installed tree is complete and usable: command, manual page, completions, and programs built on the library through
# pkg-config and find_package, from C and with the header in C++.
# usage: install.sh SOURCE WORK BUILD-FOLDER
set -euo pipefail
source=$1 work=$2 build=$3
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/log"
mv "$work/first" "$work/prefix" # an installed tree can be moved
prefix=$work/prefix
libdir=$(dirname "$(dirname "$(find "$prefix" -name crumb.pc)")")

for file in bin/crumb include/crumb.h share/doc/crumb/LICENSE share/doc/crumb/NOTICE share/man/man1/crumb.1 \
    share/bash-completion/completions/crumb share/zsh/site-functions/_crumb; do
    [ -s "$prefix/$file" ] || { echo "not installed: $file" && exit 1; }
done
"$prefix/bin/crumb" --version
if [ -e "$build/libcrumb-cl.so" ]; then # and it is found from where it is installed
    [ -x "$libdir/crumb/crumb-cl-survey" ] && [ -s "$libdir/crumb/libcrumb-cl.so" ]
    if "$prefix/bin/crumb" devices | grep 'no GPU backend'; then exit 1; fi
fi
bash -n "$prefix/share/bash-completion/completions/crumb"
head -n 5 "$prefix/share/man/man1/crumb.1" | grep -q '^\.TH' || { echo "crumb.1 has no title line" && exit 1; }

export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
# shellcheck disable=SC2046 # flags are words
cc "$source/tests/install/main.c" -o "$work/by-pkg-config" $(pkg-config --cflags --libs crumb)
"$work/by-pkg-config" "$(pkg-config --modversion crumb)"

cmake -G Ninja -S "$source/tests/install" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log"
cmake --build "$work/consumer" >"$work/log" || { cat "$work/log" && exit 1; }
"$work/consumer/consumer" "$(pkg-config --modversion crumb)"

for language in c++ c; do
    echo '#include <crumb.h>' | clang-19 -x $language -Wall -Wextra -pedantic -Werror -fsyntax-only \
        -I"$prefix/include" -
done

# shellcheck shell=bash disable=SC2034 # its variables are used by who sources it
# Sourced by the scripts that need packages of the system. Reads a list of needs, one a line:
#
#     PACKAGE PROBE      Debian's and Ubuntu's name, and how to see that it is there:
#                        cmd:NAME a command, pc:NAME a pkg-config module, file:PATH a file, py:NAME a Python module
#
# Probing for what is used, and not for the package, lets other distributions and hand-made installs pass.

package_present() { # PROBE
    case $1 in
        cmd:*) command -v "${1#cmd:}" >/dev/null 2>&1 ;;
        pc:*) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "${1#pc:}" ;;
        file:*) [ -e "${1#file:}" ] ;;
        py:*) command -v python3 >/dev/null 2>&1 && python3 -c "import ${1#py:}" >/dev/null 2>&1 ;;
        *) echo "packages.sh: unknown probe $1" >&2 && return 2 ;;
    esac
}

packages_missing() { # reads needs on stdin, prints the packages of those that are missing, on one line
    local package probe missing=''
    while read -r package probe; do
        [ -z "$package" ] || package_present "$probe" || missing="$missing $package"
    done
    echo "${missing# }"
}

packages_install() { # COMMAND-PREFIX PACKAGE...: prefix is empty or sudo; quiet unless it fails
    local prefix=$1 output
    shift
    output=$({
        $prefix apt-get -qq update &&
            $prefix env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@"
    } </dev/null 2>&1) || { echo "$output" >&2 && return 1; }
}

# What the build itself needs. libc6-dev is only recommended by gcc, and a minimal system installs no recommendations.
build_needs='
cmake cmd:cmake
gcc cmd:cc
libc6-dev file:/usr/include/stdio.h
pkg-config cmd:pkg-config
libpcre2-dev pc:libpcre2-8
libutf8proc-dev pc:libutf8proc
libcjson-dev pc:libcjson
libsqlite3-dev pc:sqlite3
libhwloc-dev pc:hwloc
libedit-dev pc:libedit
ocl-icd-opencl-dev pc:OpenCL'

#!/usr/bin/env python3
"""Runs a program with one OpenCL runtime, and no other, behind the loader.

usage: on_runtime.py intel|pocl PROGRAM [argument...]
    intel   Intel's OpenCL runtime for CPUs, from PyPI through tests/support/deps.py
    pocl    Debian's pocl-opencl-icd, where it is installed

Exit status 77: the runtime cannot be had here, for the reason on stderr. Else the program's.
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POCL = Path("/etc/OpenCL/vendors/pocl.icd")


def intel_runtime():
    """(text of an .icd file, folder of libraries)"""
    deps = subprocess.run([sys.executable, ROOT / "tests/support/deps.py", "venv", "intel-cpu-rt"],
                          stdout=subprocess.PIPE, text=True)
    if deps.returncode != 0:
        sys.exit(deps.returncode)
    libraries = Path(deps.stdout.strip()) / "lib"
    return str(libraries / "libintelocl.so"), libraries


def pocl_runtime():
    if not POCL.exists():
        print(f"on_runtime.py: {POCL} is missing: install pocl-opencl-icd", file=sys.stderr)
        sys.exit(77)
    return POCL.read_text().strip(), None


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("intel", "pocl"):
        sys.exit(__doc__)
    icd, libraries = {"intel": intel_runtime, "pocl": pocl_runtime}[sys.argv[1]]()
    with tempfile.TemporaryDirectory() as vendors:
        Path(vendors, "only.icd").write_text(icd + "\n")
        environment = dict(os.environ, OCL_ICD_VENDORS=vendors)
        if libraries:
            environment["LD_LIBRARY_PATH"] = str(libraries)
        sys.exit(subprocess.run(sys.argv[2:], env=environment).returncode)


if __name__ == "__main__":
    main()

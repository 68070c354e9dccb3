#!/usr/bin/env python3
"""Runs a program with one runtime for GPUs, and no other, behind the loader.

usage: on_runtime.py RUNTIME PROGRAM [argument...]
    intel      Intel's OpenCL runtime for CPUs, from PyPI through tests/support/deps.py
    card       the same, which claims to be a GPU with memory of its own, by the layer that CRUMB_CLAIMS_LAYER names
               (tests/cl/claims_layer.c)
    xe16, xe8  the same, with the matrix instructions of Intel's GPUs in software, for sub-groups of 16 or 8, put before it
               by the layer that CRUMB_XE_LAYER names (tests/xe/matrix_layer.c); programs are cached apart from others
    spirv      intel, for the tests of this folder: kernels come to it as the SPIR-V of Intel's compiler for GPUs
    pocl7      PoCL of Debian unstable (tests/deps.lock), told to use the method that compiles kernels right
    pocl       the same as it comes: as cl/opencl/survey.c says, it compiles some wrong
    ze-GPU     Level Zero: the driver of tests/ze/driver_over_opencl, which CRUMB_ZE_DRIVER names, over intel, behind Debian
               unstable's loader; it claims to be that GPU: bmg, dg2, lnl or tgllp. CRUMB_COMMAND is then a script
    oclgrind   Debian's oclgrind, where it is installed: OpenCL 1.2 on a simulator that looks for data races, for accesses
               out of bounds and for wrong use of the API; anything that it finds fails the program

Exit status 77: the runtime cannot be had here, for the reason on stderr. Else the program's, which fails where its device or
rung is not there, since the runtime is: what is found no longer, or computes wrongly, is no skip.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cl"))
from system_loader import system_loader  # noqa: E402

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crumb"
BUILTINS = ROOT / "tests/xe/xe_builtins.cl"
OCLGRIND = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")


def deps(kind, group):
    done = subprocess.run([sys.executable, ROOT / "tests/support/deps.py", kind, group], stdout=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return Path(done.stdout.strip())


def intel():
    """(text of an .icd file, environment)"""
    libraries = deps("venv", "intel-cpu-rt") / "lib"
    return str(libraries / "libintelocl.so"), {"LD_LIBRARY_PATH": str(libraries), "CRUMB_XE_HAS_ALL": "1"}


def cache_of(kind, *files):
    """A folder for crumb's cache, by texts that no key of crumb's knows."""
    texts = b"".join(file.read_bytes() for file in sorted(files))
    cache = CACHE / f"{kind}-{hashlib.sha256(texts).hexdigest()[:16]}"
    for old in CACHE.glob(f"{kind}-*"):
        if old.stat().st_mtime < time.time() - 7 * 86400:
            shutil.rmtree(old, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    cache.chmod(0o700)
    os.utime(cache)
    return {"XDG_CACHE_HOME": str(cache)}


def xe(sub_group):
    icd, environment = intel()
    return icd, environment | cache_of("xe-layer", BUILTINS, ROOT / "tests/xe/matrix_layer.c") | {
        "OPENCL_LAYERS": os.environ["CRUMB_XE_LAYER"], "CRUMB_LAYER_SUB_GROUP": str(sub_group),
        "CRUMB_LAYER_BUILTINS": str(BUILTINS)}


def card():
    """Layers need the system's loader, the runtime's own has none."""
    icd, environment = intel()
    loader = system_loader("what a card with memory of its own computes")
    folder = CACHE / "system-loader"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "libOpenCL.so.1"
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(loader)
    return icd, environment | {"LD_LIBRARY_PATH": f"{folder}:{environment['LD_LIBRARY_PATH']}",
                               "XDG_CACHE_HOME": str(CACHE / "card"),
                               "OPENCL_LAYERS": os.environ["CRUMB_CLAIMS_LAYER"], "CRUMB_CLAIM": "card"}


def ze(gpu):
    """The loader, and the compiler that makes SPIR-V, need their own C library: programs run with it."""
    icd, environment = intel()
    libraries = next(deps("prefix", "intel-gpu").glob("usr/lib/*/libze_loader.so.1")).parent
    texts = [*(ROOT / "tests/ze/driver_over_opencl").iterdir(), *(ROOT / "cl/kernels").rglob("*.cl")]
    return icd, cache_of("ze-driver", BUILTINS, *texts) | {
        "ZE_ENABLE_ALT_DRIVERS": os.environ["CRUMB_ZE_DRIVER"], "CRUMB_DRIVER_GPU": gpu,
        "CRUMB_LAYER_BUILTINS": str(BUILTINS),
        "CRUMB_RUN": f"{libraries}/ld-linux-x86-64.so.2 --library-path {libraries}:{environment['LD_LIBRARY_PATH']}"}


def spirv():
    icd, environment = intel()
    prefix = deps("prefix", "intel-gpu")
    return icd, environment | {"CRUMB_XE_OCLOC": f"{prefix}/run {next((prefix / 'usr/bin').glob('ocloc-*'))}"}


def missing(file, package):
    print(f"on_runtime.py: {file} is missing: install {package}", file=sys.stderr)
    sys.exit(77)


def pocl7():
    prefix = deps("prefix", "pocl")
    cache = CACHE / "pocl"
    cache.mkdir(parents=True, exist_ok=True)
    return str(next(prefix.glob("usr/lib/*/libpocl.so.2"))), {
        "POCL_WORK_GROUP_METHOD": "cbs", "POCL_CACHE_DIR": str(cache), "CRUMB_RUN": str(prefix / "run")}


def pocl():
    icd, environment = pocl7()
    environment.pop("POCL_WORK_GROUP_METHOD")
    return icd, environment


def oclgrind():
    if not OCLGRIND.exists():
        missing(OCLGRIND, "oclgrind")
    return str(OCLGRIND), {"OCLGRIND_DATA_RACES": "1", "OCLGRIND_CHECK_API": "1", "CRUMB_XE_SMALL": "1"}


RUNTIMES = {"intel": intel, "card": card, "xe16": lambda: xe(16), "xe8": lambda: xe(8), "spirv": spirv, "pocl": pocl,
            "pocl7": pocl7, "oclgrind": oclgrind,
            **{f"ze-{gpu}": lambda gpu=gpu: ze(gpu) for gpu in ("bmg", "dg2", "lnl", "tgllp")}}


def run_in_prefix(run, folder):
    """Makes crumb's modules, the surveys that they start, and the command run with a prefix's libraries."""
    modules, command = os.environ.get("CRUMB_MODULE_DIR"), os.environ.get("CRUMB_COMMAND")
    programs = {"crumb": command} if command else {}
    for backend in ("cl", "ze") if modules else ():
        if Path(modules, f"libcrumb-{backend}.so").exists():
            shutil.copy(Path(modules, f"libcrumb-{backend}.so"), folder)
            programs[f"crumb-{backend}-survey"] = f"{modules}/crumb-{backend}-survey"
    for name, program in programs.items():
        script = Path(folder, name)
        where = f"CRUMB_MODULE_DIR='{folder}' " if modules else ""  # tests that clear the environment: not beside the program
        script.write_text(f"#!/bin/sh\n{where}exec {run} '{program}' \"$@\"\n")
        script.chmod(0o755)
    return {"CRUMB_MODULE_DIR": str(folder)} | ({"CRUMB_COMMAND": str(Path(folder, "crumb"))} if command else {})


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in RUNTIMES:
        sys.exit(__doc__)
    icd, environment = RUNTIMES[sys.argv[1]]()
    program = sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "only.icd").write_text(icd + "\n")
        findings = Path(folder, "findings")
        environment |= {"OCL_ICD_VENDORS": folder, "OCLGRIND_LOG": str(findings),
                        "CRUMB_PATIENCE_MS": "3600000"}  # software is slower than any GPU
        run = environment.pop("CRUMB_RUN", None)
        if run:
            environment |= run_in_prefix(run, folder)
            if not Path(program[0]).name.startswith("python"):  # which starts CRUMB_COMMAND
                program = run.split() + program
        status = subprocess.run(program, env=os.environ | environment).returncode
        found = findings.read_text(errors="replace") if findings.exists() else ""
    if found.strip():
        print(found[:8000], file=sys.stderr)
        sys.exit("on_runtime.py: Oclgrind found the above")
    sys.exit(status)


if __name__ == "__main__":
    main()

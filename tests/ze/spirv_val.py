#!/usr/bin/env python3
"""The SPIR-V that drivers get, checked by Khronos's spirv-val: what the tests of whole models have left in crumb's cache, where
driver_over_opencl keeps a module's SPIR-V before its binary.

Exit status 77: spirv-val cannot be had here."""
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = Path(os.environ["XDG_CACHE_HOME"], "crumb/ze-modules")
MARK, MAGIC = b"ze-on-cl", 0x07230203


def find_prefix():
    deps = subprocess.run([sys.executable, ROOT / "tests/support/deps.py", "prefix", "spirv-tools"],
                          stdout=subprocess.PIPE, text=True, env={k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"})
    if deps.returncode != 0:
        sys.exit(deps.returncode)
    return Path(deps.stdout.strip())


def read_module(path):
    """(what crumb calls it, SPIR-V)"""
    key, _, rest = path.read_bytes().partition(b"\0")
    blob = rest[rest.index(MARK) + len(MARK):]
    n_bytes, = struct.unpack_from("<Q", blob)
    spirv = blob[8:8 + n_bytes]
    assert len(spirv) == n_bytes and struct.unpack_from("<I", spirv)[0] == MAGIC, path
    return " ".join(key.decode().splitlines()[6:]), spirv


def check(prefix, module):
    """What is wrong with it."""
    name, spirv = module
    version = spirv[6], spirv[5]
    done = subprocess.run([prefix / "run", "spirv-val", "--target-env", f"spv{version[0]}.{version[1]}", "-"], input=spirv,
                          capture_output=True)
    return None if done.returncode == 0 else f"{name}: {(done.stdout + done.stderr).decode(errors='replace')}"


def main():
    prefix = find_prefix()
    modules = [read_module(path) for path in sorted(MODULES.iterdir())]
    assert modules, f"{MODULES} is empty: the tests of whole models come first"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [words for words in pool.map(lambda module: check(prefix, module), modules) if words]
    broken = bytearray(modules[0][1])
    broken[-4:] = b"\xff" * 4
    assert check(prefix, ("a damaged one", bytes(broken))), "spirv-val finds nothing wrong with a damaged module"
    print(f"{len(modules)} modules, {sum(len(spirv) for _, spirv in modules)} bytes of SPIR-V")
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

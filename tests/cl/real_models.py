#!/usr/bin/env python3
"""Real models on a runtime for GPUs against the CPU: test_cl_models with files of tools/peer_models.py.

usage: real_models.py RUNTIME TEST_CL_MODELS TARGET NAME...   RUNTIME as in tests/xe/on_runtime.py, NAME smollm2-Q4_1

Models that cannot be had are left out, for the reason printed; exit status 77 where none can.
"""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import peer_models  # noqa: E402


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    runtime, program, target, *names = sys.argv[1:]
    files = []
    for name in names:
        try:
            files.append(str(peer_models.model(name)))
        except peer_models.Unavailable as reason:
            print(f"{name} is left out: {reason}")
    if not files:
        sys.exit(77)
    sys.exit(subprocess.run([sys.executable, ROOT / "tests/xe/on_runtime.py", runtime, program, target, *files]).returncode)


if __name__ == "__main__":
    main()

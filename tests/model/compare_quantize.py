#!/usr/bin/env python3
"""crumb quantize against llama-quantize on a tiny model: the same bytes of every tensor, in every type that both
write.

usage: compare_quantize.py --build FOLDER     exit status 77: llama.cpp cannot be had here
"""
import argparse
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q2_0", "Q1_0", "TQ1_0", "TQ2_0")
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def run(*command):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")


def tensors(path):
    """{name: (dims, type id, bytes)}, and whatever lies between tensors as part of the one before."""
    data = path.read_bytes()
    n_tensors, n_keys = struct.unpack_from("<QQ", data, 8)
    at = 24

    def string(at):
        return at + 8 + struct.unpack_from("<Q", data, at)[0]

    def skip(kind, at):
        if kind == 8:
            return string(at)
        if kind != 9:
            return at + SCALARS[kind]
        kind, n = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(n):
            at = skip(kind, at)
        return at

    for _ in range(n_keys):
        at = string(at)
        at = skip(struct.unpack_from("<I", data, at)[0], at + 4)
    found = []
    for _ in range(n_tensors):
        name, at = data[at + 8:string(at)].decode(), string(at)
        dims = struct.unpack_from(f"<{struct.unpack_from('<I', data, at)[0]}Q", data, at + 4)
        at += 4 + 8 * len(dims)
        kind, offset = struct.unpack_from("<IQ", data, at)
        at += 12
        found.append((offset, name, dims, kind))
    start = -(-at // 32) * 32
    found.sort()
    ends = [offset for offset, *_ in found[1:]] + [len(data) - start]
    return {name: (dims, kind, data[start + offset:start + end])
            for (offset, name, dims, kind), end in zip(found, ends)}


def same(name, a, b):
    """The same shape, type and bytes up to padding."""
    (dims, kind, x), (other_dims, other_kind, y) = a[name], b[name]
    n = min(len(x), len(y))
    return dims == other_dims and kind == other_kind and x[:n] == y[:n] and not any(x[n:]) and not any(y[n:])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=ROOT / "build")
    crumb = p.parse_args().build / "crumb"
    found = subprocess.run([sys.executable, str(ROOT / "tests" / "support" / "deps.py"), "prefix", "llama.cpp"],
                           stdout=subprocess.PIPE, text=True)
    if found.returncode != 0:
        sys.exit(found.returncode)
    llama = Path(found.stdout.strip()) / "run"
    good = True
    with tempfile.TemporaryDirectory() as folder:
        base, ours, theirs = (Path(folder) / name for name in ("base.gguf", "ours.gguf", "theirs.gguf"))
        run(crumb, "quantize", ROOT / "tests/oracle/models/llama-k-quants.gguf", base, "F32")
        for kind in TYPES:
            run(crumb, "quantize", "--pure", base, ours, kind)
            run(llama, "llama-quantize", "--pure", base, theirs, kind, "1")
            a, b = tensors(ours), tensors(theirs)
            different = [name for name in a if not same(name, a, b)]
            print(f"{kind}: {len(a)} tensors, different: {', '.join(different) or 'none'}")
            good = good and a.keys() == b.keys() and len(a) > 8 and not different
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

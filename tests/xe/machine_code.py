#!/usr/bin/env python3
"""What Intel's compiler makes of the linear kernels: compiles them with ocloc, reads the binaries, judges and reports.

usage: machine_code.py check LIST_VARIANTS [--all]   fails where a rule below is broken: for one device of each kind, and
                                                     gemm.cl and 2 bits for all; --all: everything for all (minutes)
       machine_code.py report LIST_VARIANTS [WORD...]   prints the table, of variants whose line has all the words

LIST_VARIANTS is the program of list_variants.c. Rules, per variant and device:
    it builds; the binary has matrix instructions exactly where its rung says so; nothing spills
    gemm.cl: the inner loop has at most 2 instructions beside matrix instructions and sync per 8x8 matrix instruction,
    7 with scales of 128 (int8 activations; prefetch included)
    dense_matrix.cl, many rows: at most 2, in sub-groups of 8 at most 5
    linear.cl: matrix instructions are in a loop, or unrolled in one

Compilations are kept by hash in the user's cache. Exit status 77: the compiler cannot be had here.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "crumb" / "ocloc"
DEVICES = {("dp4a", 0): ["mtl", "tgllp"], 16: ["bmg", "lnl", "ptl"], 8: ["dg2", "arl-h"]}


class Compiler:
    def __init__(self):
        deps = subprocess.run([sys.executable, ROOT / "tests/support/deps.py", "prefix", "intel-gpu"],
                              stdout=subprocess.PIPE, text=True)
        if deps.returncode != 0:
            sys.exit(deps.returncode)
        prefix = Path(deps.stdout.strip())
        self.program = next((prefix / "usr/bin").glob("ocloc-*"))
        self.command = [prefix / "run", self.program]

    def run(self, *arguments):
        done = subprocess.run([*self.command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.stdout + done.stderr

    def compile(self, text, device, options):
        """(.ze_info, assembly of the kernel) of a program, from the cache or made; the log instead when it fails."""
        key = hashlib.sha256("\0".join([self.program.name, device, options, text]).encode()).hexdigest()[:32]
        folder = CACHE / key
        if not (folder / "ze_info").exists():
            with tempfile.TemporaryDirectory() as work:
                source = Path(work) / "k.cl"
                source.write_text(text)
                log = self.run("compile", "-file", source, "-device", device, "-options", options, "-out_dir", work,
                               "-output", "k", "-output_no_suffix")
                made = [p for p in Path(work).iterdir() if p.name in ("k", "k.bin", f"k_{device}.bin")]
                if not made:
                    return None, log
                self.run("disasm", "-file", made[0], "-device", device, "-dump", Path(work) / "d")
                partial = CACHE / f".{key}.{os.getpid()}.{threading.get_ident()}"
                partial.mkdir(parents=True)
                shutil.copyfile(Path(work) / "d/.ze_info", partial / "ze_info")
                shutil.copyfile(next(Path(work, "d").glob(".text.[a-z]*.asm")), partial / "asm")
                try:
                    partial.rename(folder)
                except OSError:
                    shutil.rmtree(partial)
        return (folder / "ze_info").read_text(), (folder / "asm").read_text()


def kind_of(instruction):
    """dpas, send, sync, jump or alu."""
    op = re.sub(r"^\(.*?\)\s*", "", instruction).split()[0]
    for kind in ("dpas", "send", "sync"):
        if op.startswith(kind):
            return kind
    return "jump" if op.split(".")[0] in ("jmpi", "goto", "while", "brd", "join", "if", "else", "endif") else "alu"


def loops_of(asm):
    """Counters of the innermost loops, by kind, and of matrix instructions by shape."""
    labels, code = {}, []
    for line in asm.splitlines():
        label = re.match(r"^(\w+):", line)
        if label:
            labels[label[1]] = len(code)
        elif line.strip() and not line.startswith("//") and not line.startswith("."):
            code.append(line.strip())
    spans = set()
    for end, line in enumerate(code):
        if kind_of(line) == "jump":
            spans |= {(labels[t], end) for t in re.findall(r"\b(\w+)\b", line) if labels.get(t, end + 1) <= end}
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [Counter(kind_of(line) for line in code[a:b + 1]) for a, b in sorted(inner)], \
        Counter(kind_of(line) for line in code)


class Variant:
    def __init__(self, line):
        (self.name, self.rung, sub_group, registers, tokens, self.layer, self.file, self.options) = \
            line.rstrip("\n").split("\t")
        self.sub_group, self.registers, self.tokens = int(sub_group), int(registers), int(tokens)
        self.matrix = self.rung.startswith("dpas")

    def devices(self):
        return DEVICES[self.sub_group] if self.matrix else DEVICES["dp4a", 0]

    def stands_for_all(self, device):
        return device == self.devices()[0] or self.file == "gemm.cl" or "_u2_" in self.name

    def text(self):
        folder = ROOT / "cl/kernels"
        return (folder / "common.cl").read_text() + (folder / self.file).read_text()


class Result:
    def __init__(self, variant, device, ze_info, asm):
        self.variant, self.device, self.failure = variant, device, None
        if ze_info is None:
            self.failure = "does not build: " + asm[-400:]
            return
        self.has_dpas = bool(re.search(r"has_dpas:\s+true", ze_info))
        self.grf = int(re.search(r"grf_count:\s+(\d+)", ze_info)[1])
        scratch = re.search(r"type:\s+scratch[\s\S]*?size:\s+(\d+)", ze_info)
        self.scratch = int(scratch[1]) if scratch else 0
        loops, whole = loops_of(asm)
        with_dpas = [l for l in loops if l["dpas"]]
        self.loop = max(with_dpas, key=lambda l: l["dpas"], default=Counter())
        self.whole = whole
        self.failure = self.judge()

    def other(self):
        """Instructions of the inner loop beside matrix instructions and sync, per matrix instruction."""
        return (sum(self.loop.values()) - self.loop["dpas"] - self.loop["sync"]) / max(self.loop["dpas"], 1)

    def judge(self):
        if self.has_dpas != self.variant.matrix:
            return f"has_dpas is {self.has_dpas}"
        if self.scratch:
            return f"spills {self.scratch} bytes"
        if self.variant.matrix and not self.whole["dpas"]:
            return "has no matrix instruction"
        if self.variant.file == "gemm.cl" and "16x128" in self.variant.name:
            budget = 2 if self.variant.layer == "row" else 7
            if not self.loop["dpas"]:
                return "has no matrix instruction in its inner loop"
            if self.other() > budget:
                return f"has {self.other():.1f} other instructions per matrix instruction, more than {budget}"
        if self.variant.layer == "dense" and "_gemm_" in self.variant.name:
            budget = 2 if self.variant.sub_group == 16 else 5
            if not self.loop["dpas"] or self.other() > budget:
                return f"has {self.other():.1f} other instructions per matrix instruction, more than {budget}"
        return None

    def row(self):
        if not hasattr(self, "grf"):
            return f"{self.variant.name:32} {self.variant.layer:10} {self.device:6} {self.failure}"
        threads = 4 if self.grf == 256 else 8
        loop = self.loop
        return (f"{self.variant.name:32} {self.variant.layer:10} {self.device:6} {self.grf:4} {threads:3} "
                f"{self.whole['dpas']:5} {loop['dpas']:5} {loop['send']:5} {loop['alu'] + loop['jump']:5} "
                f"{self.other() if loop['dpas'] else 0:6.2f}  {self.failure or 'ok'}")


def judge(compiler, variant, device):
    return Result(variant, device, *compiler.compile(variant.text(), device, variant.options))


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("check", "report"):
        sys.exit(__doc__)
    compiler = Compiler()
    lines = subprocess.run([sys.argv[2]], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    sample, words = sys.argv[1] == "check" and "--all" not in sys.argv, [w for w in sys.argv[3:] if w != "--all"]
    pairs = [(variant, device) for variant in map(Variant, lines) for device in variant.devices()
             if all(word in f"{variant.name} {variant.layer} {device}" for word in words)
             and not (sample and not variant.stands_for_all(device))]
    failed = 0
    print(f"{'kernel':32} {'layer':10} {'device':6} {'GRF':>4} {'thr':>3} {'DPAS':>5} "
          f"{'loop:':>5} {'loads':>5} {'other':>5} {'/DPAS':>6}")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(lambda pair: judge(compiler, *pair), pairs):
            print(result.row(), flush=True)
            failed += result.failure is not None
    if failed:
        print(f"{failed} variants break a rule")
    sys.exit(1 if failed and sys.argv[1] == "check" else 0)


if __name__ == "__main__":
    main()

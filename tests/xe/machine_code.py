#!/usr/bin/env python3
"""What Intel's compiler makes of the linear kernels: compiles them with ocloc, reads the binaries and judges.

usage: machine_code.py LIST_VARIANTS [--all]   fails where a rule below is broken: for one device of each kind, and
                                               2 bits, and gemm.cl with int8 activations, for all; --all: everything for all (some 4600 compilations)

LIST_VARIANTS is the program of list_variants.c. Rules, per variant and device, of every kernel:
    it builds; the binary has matrix instructions exactly where its rung says so; nothing spills (no scratch memory)
of linear layers and attention also, for one matrix as for several in one launch (q/k/v, gate/up), each with its own loop:
    8x8 matrix instructions (gemm.cl, gemv.cl with 8 rows): the inner loop has at most 2 instructions beside them and
    sync for each, 7 with scales of 128; prefetch included
    8 where activations are quantized in registers
    gemm.cl in sub-groups of 8: 3.5 and 10, or 4 where a sub-group has one tile-row, since fewer instructions share the loads
    of activations. There loads of more than 128 bytes are two, and have an instruction per address;
    beside what puts an operand together, which TM matrix instructions share: 3 instructions with 1 bit, 13 with 3 bits
    (which makes one operand of 4 bits of them: half the matrix instructions that 2 + 1 bits would take), else a move per
    dword (8 bits: two), since loads bring dwords of two operands in turn
    gemv.cl with one row: at most 1 instruction per 64 bytes of weights beside loads, matrix instructions and sync; in
    sub-groups of 8 in groups of 32 1.5: each group's sums are stored, and a store has an instruction per address
    dense_matrix.cl, many rows: at most 2, in sub-groups of 8 at most 5
    attention_matrix.cl, many rows: at most 8, in sub-groups of 8 12, where three loads bring a values' operand; of int8 caches KEYS_BUDGET with keys, whose sums become floats for each 32
    dimensions, and VALUES_BUDGET with values, where weights become integers
    linear.cl: matrix instructions are in a loop, or unrolled in one; dp4a: DP4A_BUDGETS. Of those that stand beside a dp4a one
    takes its codes out of a dword (3, 5 and 6 bits: four put them together of two dwords; a codebook: eight look them up), the
    others count addresses, which more rows of activations share; in groups of 128 sums become floats. In groups of 32 and 16
    that is most of it: for a sum of 16 rows of weights 23 to 35 instructions with 8 rows of activations, 29 to 45 with 4, 50 to
    90 with one. 8 are two multiplications of 32 bits, 3 make a float of it and multiply that with the activations' scale, 1 joins
    two parts; the others are addresses, of the activations, their scale and sum, and of local memory; weights' scales; and the
    loop of the items that add groups up, which more rows share. In groups of 16 a sum has half as many dp4a, but for 8 bits,
    whose dwords are of both halves: two dp4a for each
Scales of 32 and of 16 have no budget elsewhere: their floats alone are 3 instructions per sum.

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
SMALL_GROUPS = ("group32", "group16", "group16-wide")
ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
ROUGH = ("dg2", "tgllp")  # which have no double precision, and by their drivers no correctly rounded division
DEVICES = {("dp4a", 0): ["mtl", "tgllp"], 16: ["bmg", "lnl", "ptl"], 8: ["dg2", "arl-h"]}


KEYS_BUDGET, VALUES_BUDGET = 24, 60
# Beside each dp4a of linear.cl, by what makes its operand, and by rows of activations: with row scales, in groups of 128, 32, 16.
DP4A_GROUPS = ("row", "group128", "group32", "group16")
DP4A_BUDGETS = {"mask": {1: (3, 5.5, 12.4, 19.1), 4: (1.5, 2.6, 6.1, 9), 8: (1.2, 1.2, 4.6, 6.7)},
                "split": {1: (6.5, 8.2, 14.8, 21.5), 4: (2.3, 3.3, 6.9, 9.7), 8: (1.5, 1.6, 5, 7.1)},
                "codebook": {1: (11.5, 13.2, 19.8, 26.5), 4: (3.5, 3.6, 8.1, 11), 8: (2.4, 2.5, 5.8, 7.9)},
                "half": {1: (None, None, None, 9.8), 4: (None, None, None, 4.6), 8: (None, None, None, 3.6)}}


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

    def compile(self, text, entry, device, options):
        """(.ze_info, assembly of an entry point) of a program, from the cache or made; the log instead when it fails."""
        key = hashlib.sha256("\0".join([self.program.name, device, options, entry, text]).encode()).hexdigest()[:32]
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
                shutil.copyfile(Path(work) / f"d/.text.{entry}.asm", partial / "asm")
                try:
                    partial.rename(folder)
                except OSError:
                    shutil.rmtree(partial)
        return (folder / "ze_info").read_text(), (folder / "asm").read_text()


def kind_of(instruction):
    """dpas, send, sync, jump or alu; idle: a dpas of registers with themselves, which the compiler puts before some on dg2."""
    op = re.sub(r"^\(.*?\)\s*", "", instruction).split()[0]
    if op.startswith("dpas") and len(set(re.findall(r"\b(?:r\d+|null)\b", instruction))) == 2 and "null" in instruction:
        return "idle"
    for kind in ("dpas", "send", "sync"):
        if op.startswith(kind):
            return kind
    return "jump" if op.split(".")[0] in ("jmpi", "goto", "while", "brd", "join", "if", "else", "endif") else "alu"


def beside(loop):
    """Instructions that a budget counts beside a matrix instruction."""
    return (loop["alu"] + loop["jump"] + loop["send"] + loop["idle"]) / max(loop["dpas"], 1)


def count(code):
    """Instructions by kind; mad, dp4a: those of alu that multiply and add."""
    counts = Counter(kind_of(line) for line in code)
    for op in ("mad", "dp4a"):
        counts[op] = sum(re.sub(r"^\(.*?\)\s*", "", line).startswith(op) for line in code)
    return counts


def loops_of(asm, op=""):
    """(counters of the innermost loops with an instruction op, by kind; that of all)."""
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
    spans = {(a, b) for a, b in spans if any(op in line for line in code[a:b])}
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [count(code[a:b + 1]) for a, b in sorted(inner)], count(code)


def options_on(device, options):
    """What cl/program.c makes of them there."""
    return options.replace(ROUNDED, "-D ROUND_DIVISION=1") if device in ROUGH else options


class Variant:
    def __init__(self, line):
        self.name, self.rung, *numbers, self.layer, self.file, self.entry, self.options = line.rstrip("\n").split("\t")
        (self.bits, self.sub_group, self.registers, self.tiles, self.tokens, self.items, self.max_n,
         self.rank) = map(int, numbers)
        self.matrix = self.rung.startswith("dpas")
        self.parts = self.layer.endswith(("-qkv", "-gate"))
        self.linear = self.file in ("linear.cl", "gemv.cl", "gemm.cl")  # with weights in tiles
        self.gemv = self.file == "gemv.cl" and self.tokens == 1
        self.bytes = "-q8" in self.layer  # attention over an int8 cache
        self.in_registers = "-D IN_REGISTERS=1" in self.options

    def lines_per_dpas(self):
        """64 bytes of weights that a matrix instruction of gemv.cl stands for (its comments say why)."""
        if self.sub_group == 16:
            return self.bits / {1: 2, 3: 3}.get(self.bits, 1)
        return 1 / (8 if self.bits == 1 else 2)

    def operand_cost(self):
        """Instructions that put an operand of gemm.cl together in sub-groups of 8."""
        return {1: 3, 3: 13, 8: 16}.get(self.bits, self.bits)

    def operand(self):
        """What makes linear.cl's operands of codes."""
        if self.bits == 8 and self.layer.startswith("group16"):
            return "half"
        return "codebook" if "-D CODEBOOK=1" in self.options else "split" if self.bits in (3, 5, 6) else "mask"

    def devices(self):
        if self.matrix:
            return DEVICES[self.sub_group]
        if not self.linear:
            return DEVICES[16] + DEVICES[8] + DEVICES["dp4a", 0]
        return DEVICES["dp4a", 0] if self.rung == "dp4a" else DEVICES["dp4a", 0][:1]

    def stands_for_all(self, device):
        if not self.linear and not self.matrix:
            return device == self.devices()[0] and not self.name.endswith("_bf16")
        if self.rung == "portable":
            return False
        if self.parts:
            return device == self.devices()[0] and (
                self.decodes() or self.file == "gemm.cl" and self.layer == "row-gate" and self.sub_group == 8)
        if self.layer in SMALL_GROUPS and self.file != "gemm.cl":  # dp4a: where it takes the most instructions
            return self.rung == "dp4a" and self.layer != "group16-wide" and device == self.devices()[-1]
        if self.name.endswith("_bf16"):  # dense_bf16_...: of weights
            return device == self.devices()[0] and (self.in_registers or "_u2_" in self.name)
        if device == self.devices()[0] or "_u2_" in self.name:
            return True
        return self.file == "gemm.cl" and self.layer in ("row", "group128")

    def decodes(self):
        """q/k/v or gate/up of one row of activations: gemv.cl's, what stands in for it, and dense_matrix.cl's."""
        return self.tokens == 1 and (self.layer.startswith("dense-") or
                                     self.layer.startswith("row-") and (self.gemv or "_u2_" in self.name))

    def option(self, name):
        return int(re.search(rf"-D {name}=(\d+)", self.options)[1])


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
        self.simd = int(re.search(r"simd_size:\s+(\d+)", ze_info)[1])
        self.unit = "dpas" if variant.matrix else "dp4a"
        self.loops, whole = loops_of(asm, "dp4a" if variant.rung == "dp4a" else "")
        with_unit = [l for l in self.loops if l[self.unit]]
        most = max((l[self.unit] for l in with_unit), default=0)  # parts have a loop each, a rest of K a smaller one
        self.loop = max((l for l in with_unit if variant.bytes or l[self.unit] == most), key=beside, default=Counter())
        self.keys = min(with_unit, key=beside, default=Counter())  # of int8 caches, whose self.loop is that of values
        self.whole = whole
        self.failure = self.judge()

    def other(self):
        """Instructions of the inner loop that have a budget, and per what."""
        alu = self.loop["alu"] + self.loop["jump"]
        if self.unit == "dp4a":
            return (alu - self.loop["dp4a"]) / max(self.loop["dp4a"], 1), "dp4a"
        if self.variant.gemv:
            return alu / max(self.loop["dpas"] * self.variant.lines_per_dpas(), 1), "64 B"
        dpas = self.loop["dpas"]
        if self.variant.in_registers:  # one of TN + 1 sums activations up
            dpas *= self.variant.option("TN") / (self.variant.option("TN") + 1)
        return (alu + self.loop["send"] + self.loop["idle"]) / max(dpas, 1), "DPAS"

    def budget(self):
        v = self.variant
        if not v.matrix and not v.linear:
            return None
        if v.layer.startswith("dense"):
            return (2 if v.sub_group == 16 else 5) if "_gemm_" in v.name else None
        if v.layer.startswith("heads"):
            return None if "_split_" in v.name else VALUES_BUDGET if v.bytes else 8 if v.sub_group == 16 else 12
        row = v.layer.startswith("row")
        if v.gemv and v.layer == "group32":
            return 1 if v.sub_group == 16 else 1.5
        if v.rung == "dp4a":
            return DP4A_BUDGETS[v.operand()][v.tokens][DP4A_GROUPS.index(v.layer.split("-")[0])]
        if v.layer in SMALL_GROUPS or v.rung == "portable":
            return None
        if v.file == "linear.cl" or v.tokens not in (1, 8, 16, 32, 64):
            return None
        if v.in_registers:
            return 8
        if v.file == "gemm.cl" and v.sub_group == 8:
            return (10 if not row else 3.5 if v.option("TN") > 1 else 4) + v.operand_cost() / v.option("TM")
        return 1 if v.gemv else 2 if row else 7

    def judge(self):
        if self.has_dpas != self.variant.matrix:
            return f"has_dpas is {self.has_dpas}"
        if self.scratch:
            return f"spills {self.scratch} bytes"
        if self.variant.matrix and not self.whole["dpas"]:
            return "has no matrix instruction"
        budget, (other, what) = self.budget(), self.other()
        if budget and not self.loop[self.unit]:
            return f"has no {self.unit} in its inner loop"
        if budget and self.variant.bytes and beside(self.keys) > KEYS_BUDGET:
            return f"has {beside(self.keys):.2f} other instructions per DPAS with keys, more than {KEYS_BUDGET}"
        if budget and other > budget:
            return f"has {other:.2f} other instructions per {what}, more than {budget}"
        return None

    def unbuilt(self):
        return not hasattr(self, "grf")

    def row(self):
        if self.unbuilt():
            return f"{self.variant.name:32} {self.variant.layer:10} {self.device:6} {self.failure}"
        threads = 4 if self.grf == 256 else 8
        loop = self.loop
        return (f"{self.variant.name:32} {self.variant.layer:10} {self.device:6} {self.grf:4} {threads:3} "
                f"{self.whole[self.unit]:5} {loop[self.unit]:5} {loop['send']:5} {loop['alu'] + loop['jump']:5} "
                f"{self.other()[0] if loop else 0:6.2f}  {self.failure or 'ok'}")


HEADING = (f"{'kernel':32} {'layer':10} {'device':6} {'GRF':>4} {'thr':>3} {'DPAS':>5} "
           f"{'loop:':>5} {'loads':>5} {'other':>5} {'/unit':>6}")


def results_of(list_variants, wanted):
    """The results of all pairs of a variant and a device that are wanted, in their order, as they come."""
    def told(*file):
        return subprocess.run([list_variants, *file], stdout=subprocess.PIPE, text=True, check=True).stdout

    compiler = Compiler()
    pairs = [(v, device) for v in map(Variant, told().splitlines()) for device in v.devices() if wanted(v, device)]
    texts = {file: told(file) for file in {v.file for v, _ in pairs}}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda p: Result(*p, *compiler.compile(texts[p[0].file], p[0].entry, p[1],
                                                                   options_on(p[1], p[0].options))), pairs)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    everything, failed = "--all" in sys.argv, 0
    print(HEADING)
    for result in results_of(sys.argv[1], lambda v, device: everything or v.stands_for_all(device)):
        print(result.row(), flush=True)
        failed += result.failure is not None
    if failed:
        print(f"{failed} variants break a rule")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What Intel's compiler makes of the linear kernels: compiles them with ocloc, reads the binaries and judges.

usage: machine_code.py LIST_VARIANTS           fails where a rule below is broken: for one device of each kind, and 2 bits, and
                                               gemm.cl with int8 activations, for all
       machine_code.py LIST_VARIANTS --all     all that LIST_VARIANTS names, for all or, of layers that are seldom() and of
                                               to_bf16(), one of each kind (some 11000 compilations)
       machine_code.py LIST_VARIANTS --knobs N of rows with other knobs, as crumb tune tries them, every N-th, for one device of
                                               each kind: that they build, and have matrix instructions. They may spill, and
                                               lose by it: how many do is printed

LIST_VARIANTS is the program of list_variants.c. Rules, per variant and device, of every kernel:
    it builds; the binary has matrix instructions exactly where its rung says so; nothing spills (no scratch memory, nor
    private memory, where variables lie that have no registers)
of linear layers and attention also, for one matrix as for several in one launch (q/k/v, gate/up), each with its own loop:
    8x8 matrix instructions (gemm.cl, gemv.cl with 8 rows): the inner loop has at most 2 instructions beside them and
    sync for each, 7 with scales of 128, MINS more where these have mins; prefetch included
    8 where activations are quantized in registers
    gemm.cl in sub-groups of 8: 3.5 and 10, or 4 and 12.3 where a sub-group has one tile-row, since fewer instructions share the
    loads of activations. There loads of more than 128 bytes are two, and have an instruction per address;
    beside what puts an operand together, which TM matrix instructions share: 3 instructions with 1 bit, 13 with 3 bits
    (which makes one operand of 4 bits of them: half the matrix instructions that 2 + 1 bits would take), else a move per
    dword (8 bits: two), since loads bring dwords of two operands in turn
    gemv.cl with one row: at most 1 instruction per 64 bytes of weights beside loads, matrix instructions and sync; in
    groups ONE_BUDGETS: in sub-groups of 8 each group's sums are two registers, which are put into one store
    gemv.cl with one row that each work-group quantizes: before that loop, QUANTIZING for 64 activations; QUANTIZING_NORM where
    it quantizes the row's norm, QUANTIZING_ORDER in another order
    gemv.cl with 2 and 4 rows: FEW_BUDGETS per 64 bytes of weights, for memory limits these too; beside matrix instructions and
    sync alone, since most of the rest are messages: activations of several rows, and sums of groups. (The numbers are those of
    gate/up in one launch, which has two instructions more in a pass)
    dense_matrix.cl, many rows: at most 2 beside each matrix instruction, in sub-groups of 8 at most 5; 1 to 8 rows, which memory
    limits: DENSE_BUDGETS per 64 bytes of weights
    attention_matrix.cl: loops with keys and with values each; many rows beside each matrix instruction WHOLE_BUDGETS (in
    sub-groups of 8 three loads bring a values' operand), of int8 caches, whose sums of keys become floats for each 32 dimensions,
    and whose weights become integers, WHOLE_Q8_BUDGETS; decoding per 64 bytes of the cache SPLIT_BUDGETS, SPLIT_Q8_BUDGETS
    linear.cl: matrix instructions are in a loop, or unrolled in one; LINEAR_OPERANDS and LINEAR_ROWS beside each of them and
    loads, which are as many as bits: codes become bytes, whatever reads them. dp4a: DP4A_BUDGETS. Of those that stand beside a dp4a one
    takes its codes out of a dword (3, 5 and 6 bits: four put them together of two dwords; a codebook: eight look them up), the
    others count addresses, which more rows of activations share; in groups of 128 sums become floats. In groups of 32 and 16
    that is most of it: for a sum of 16 rows of weights 23 to 35 instructions with 8 rows of activations, 29 to 45 with 4, 50 to
    90 with one. 8 are two multiplications of 32 bits, 3 make a float of it and multiply that with the activations' scale, 1 joins
    two parts; the others are addresses, of the activations, their scale and sum, and of local memory; weights' scales; and the
    loop of the items that add groups up, which more rows share. In groups of 16 a sum has half as many dp4a, but for 8 bits,
    whose dwords are of both halves: two dp4a for each
    gemm.cl with scales of 64, 32 and 16: SMALL_BUDGETS; gemv.cl with 8 rows: GEMV_8_BUDGETS

Compilations are kept by hash in the user's cache. Exit status 77: the compiler cannot be had here.
"""
import hashlib
import math
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
SMALL_GROUPS = ("group64", "group32", "group16")
ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
# Which have no double precision, and by Level Zero's driver no correctly rounded division. OpenCL's has one for dg2.
ROUGH = ("dg2", "tgllp")
DIVIDES = "dg2+divide"  # dg2 by OpenCL's driver
# Threads of an engine: (registers of each, at most so many threads). Of Xe3 the compiler chooses the registers of each
# kernel; the steps are those of calculateAvailableThreadCount in Intel's compute-runtime.
THREADS = {"ptl": ((96, 10), (128, 8), (160, 6), (192, 5), (256, 4)), "tgllp": ((128, 7),)}
OTHERS_THREADS = ((128, 8), (256, 4))
# Of dp4a's the first takes the most instructions.
DEVICES = {("dp4a", 0): ["tgllp", "mtl"], 16: ["bmg", "lnl", "ptl"], 8: ["dg2", "arl-h"]}


# Attention on matrix instructions, by sub-groups: (with keys, with values). Many rows, beside each matrix instruction; f16
# caches have one number for both.
WHOLE_BUDGETS = {16: (8, 8), 8: (12, 12)}
WHOLE_Q8_BUDGETS = {16: (20, 60), 8: (24, 49)}
# Decoding, per 64 bytes of the cache, messages included. Memory takes some 64 clocks of a B580's engine for so much, more
# elsewhere, and these loops 2 to 24 instructions: 16 keys' pairs are put together (in sub-groups of 8 values' too), and of an
# int8 cache floats are made for each row of a matrix instruction: (at all, for each).
SPLIT_BUDGETS = {16: (5.1, 2.25), 8: (6.75, 9.9)}
SPLIT_Q8_BUDGETS = {16: ((6.2, 0.36), (6.3, 1.03)), 8: ((9.3, 0.9), (9.4, 1.83))}
# gemv.cl with 2 and 4 rows, per 64 bytes of weights, messages included, by sub-groups, rows and bits: with row scales, those
# quantized by each work-group, in groups of 128, of 32. Bytes of weights are shared by few matrix instructions where codes are
# narrow; each group's sums are stored for each row, with an address for each store in sub-groups of 8, whose loads of
# activations are one for each row and 32 columns, and which mask these for each place in a dword.
# Groups count as they do where scales have mins, and where each work-group quantizes, whichever takes more.
FEW_LAYERS = ("row", "row-fused", "group128", "group64", "group32")
FEW_BUDGETS = {(16, 2): {1: (1.12, 2.6, 5.2, 6.6, None), 2: (0.6, 1.35, 2.15, 2.3, 4.8), 3: (0.46, 0.96, 1.83, 2.3, None),
                         4: (0.46, 0.82, 1.2, 1.3, 2.5), 8: (0.4, 0.56, 0.72, 0.77, 1.35)},
               (16, 4): {1: (0.98, 1.7, 6, 9.75, None), 2: (0.53, 0.88, 2.03, 2.9, 5.6), 3: (0.51, 0.75, 2.2, 3.45, None),
                         4: (0.46, 0.62, 1.16, 1.6, 2.95), 8: (0.23, 0.31, 0.58, 0.81, 1.5)},
               (8, 2): {1: (3.5, 2.9, 6.7, 9.9, None), 2: (3.85, 3.2, 5, 6.2, 8.45), 3: (2.65, 2.65, 3.75, 4.8, None),
                        4: (2.95, 2.65, 3.55, 4.15, 5.25), 8: (2.3, 2.3, 2.55, 2.85, 3.4)},
               (8, 4): {1: (9.8, 6.7, 16.4, 22.8, None), 2: (5.9, 4.25, 8.15, 10.3, 14.6), 3: (7, 7, 9.2, 11.3, None),
                        4: (7.95, 6.3, 9.1, 10.3, 12.5), 8: (3.3, 3.3, 3.85, 4.4, 5.45)}}
# gemv.cl with one row, per 64 bytes of weights beside loads: what is more than 1, all but one in sub-groups of 8. Of 1 bit in
# groups of 128 a group's sums take 0.5 there, since it has 4 times 64 bytes, and both halves of its rows two instructions. In
# sub-groups of 16 of 1 bit in groups of 64, which no file type has, they take 1.5: of twice, plus and minus (gemv.cl, total) a
# shift, a subtraction and an addition for each 128 bytes; the others are addresses of loads and stores, also of codes in local
# memory where each work-group makes them.
ONE_BUDGETS = {8: {"group128": {1: 1.65, 2: 1.35, 3: 1.3}, "group64": {1: 2.25, 2: 1.6, 3: 1.5, 4: 1.2, 8: 1.05},
                   "group32": {2: 2.15, 4: 1.45, 8: 1.15}},
               16: {"group64": {1: 2}}}
# What a work-group does to quantize 64 activations of one row, of which 64 bytes of 2-bit weights need 16 and 64 bytes of 1-bit weights
# 32, by sub-groups: with row scales, in groups. The largest value is found in one loop, codes are made in another, of four values for
# each item; in groups each item divides, on dg2 with more instructions. Items of sub-groups of 8 are half as many.
QUANTIZING = {16: (92, 135), 8: (192, 475)}
# The same of a norm: its sum of squares has a loop of one value for each item, 22 instructions, most of which add up pairs of
# floats, so 88 or 176 for 64 activations; the weight is read, and multiplied with, in both other loops. And in another order, whose
# columns are loaded one by one. What items do to add up their sums is a row's, however long: the tables of report count it.
QUANTIZING_NORM = {16: (210, 228), 8: (440, 670)}
QUANTIZING_ORDER = {16: (230, 270), 8: (435, 710)}
MINS = 2.25  # gemm.cl in groups of 128, beside each matrix instruction: a product more for each sum, and what it takes to have it
# gemm.cl in smaller groups, beside each matrix instruction, by sub-groups and operands of a code: groups of 64, with mins, of 32,
# with mins, of 16. A group's floats are most of it: 3 instructions for each sum, 4 with mins; with two operands a sum has two matrix
# instructions. gemv.cl with 8 rows: groups of 64, of 32, whose floats come behind the loop.
SMALL_BUDGETS = {(16, 1): (13.9, 17.9, 28.4, 53.5, 48.6), (16, 2): (10.6, 12.7, 19.4, 27.8, 28.2),
                 (8, 1): (24.1, 28.3, 40, 55.8, 50.2), (8, 2): (13.8, 15.9, 23.5, 31.4, 28.8),
                 (8, "u8"): (26.1, 30.3, 41.5, 57.5, 50.9)} # 8 bits: an operand is put together from two loads
GEMV_8_BUDGETS = {"group64": 10.3, "group32": 18.9}
# dense_matrix.cl with 1 to 8 rows, the same, by sub-groups and rows: (one matrix, several in a launch, whose parts' addresses
# are 64 bits). One row is split into its terms where it is read: f16, and bf16, of which rounding takes instructions.
DENSE_BUDGETS = {16: {"f16": (1.75, 2.25), "bf16": (3.6, 4.25), 2: (1.3, 1.45), 4: (1.3, 1.45), 8: (0.75, 0.82)},
                 8: {"f16": (7.6, 8.9), "bf16": (10.8, 13), 2: (3.5, 5.2), 4: (3.5, 5.2), 8: (2.6, 4.2)}}
# Beside each dp4a of linear.cl, by what makes its operand, and by rows of activations: with row scales, in groups of 128, 64, 32,
# 16; and what mins add, which are a product more for each sum. Groups of 16 run there on Xe2 and Xe3 too, whose sub-groups are
# half as many items, so that what a sub-group does once stands beside half the dp4a; elsewhere of one row where the compiler takes
# sub-groups of 16 and not 32, as of a norm in 8 bits.
DP4A_GROUPS = ("row", "group128", "group64", "group32", "group16")
DP4A_BUDGETS = {"mask": {1: (3, 5.5, 8.95, 12.45, 19.4), 4: (1.5, 2.6, 3.75, 6.15, 9.2), 8: (1.2, 1.2, 2.8, 4.6, 6.8)},
                "split": {1: (6.5, 8.2, 10.4, 14.85, 21.8), 4: (2.3, 3.3, 4.5, 6.9, 10), 8: (1.5, 1.6, 3.2, 5, 7.2)},
                "codebook": {1: (11.5, 13.9, 15.4, 19.85, 26.7), 4: (3.5, 3.6, 5.75, 8.15, 11.2), 8: (2.4, 2.5, 4.1, 5.85, 8.1)},
                "half": {1: (None, None, None, None, 9.9), 4: (None, None, None, None, 4.75), 8: (None, None, None, None, 3.6)}}
DP4A_MINS = {"group128": {1: 0.4, 4: 0.1, 8: 0}, "group64": {1: 1, 4: 0.2, 8: 0.1}, "group32": {1: 2.75, 4: 0.85, 8: 0.4}}
DP4A_XE2 = {"mask": {1: 26.1, 4: 10.9, 8: 8.4}, "split": {1: 27.9, 4: 11.5, 8: 8.6}, "codebook": {1: 41.2, 4: 15.6, 8: 10.8},
            "half": {1: 12.9, 4: 5.4, 8: 4.2}}
# linear.cl on matrix instructions, beside each of them and the loads: what makes its operand, 8 dwords of bytes, of codes (8
# bits: their signs alone; a codebook: each is looked up), and by rows of activations, 1, 2, 4 or 8, addresses of these and the
# floats of groups, of which those of 32 have one matrix instruction. In sub-groups of 8 addresses of a launch's parts are 64
# bits, 4 instructions for each load, of which there are as many as bits; with 3, 5 and 6 bits rows' are so in any launch.
LINEAR_OPERANDS = {16: {1: 22, 2: 21, 4: 19, 8: 7, "split": 42, "codebook": 187},
                   8: {1: 22, 2: 22, 4: 22.75, 8: 14.75, "split": 38.5, "codebook": 98}}
LINEAR_ROWS = {16: {"row": (0, 3, 6, 12), "row-parts": (0, 3, 6, 12), "split row-parts": (5, 8, 11, 17),
                    "row-fused": (-1, -1, -1, -1), "row-fused-parts": (-1, -1, -1, -1),
                    "group128": (11.5, 17.25, 27.25, 47.25), "group128-parts": (14.75, 23, 35, 59),
                    "codebook group128": (-20, -13, -2, 20), "group64": (26, 34.5, 51.5, 85.5),
                    "group64-parts": (32.5, 46, 67, 109), "group32": (53, 67, 98, 160), "codebook group32": (-19, -5, 26, 88),
                    "group32-parts": (62, 86, 125, 203)},
               8: {"row": (0, 1, 4, 8), "row-parts": (6.5, 14.5, 24.5, 44.5),
                   "split row": (12, 20, 30, 50), "split row-parts": (12, 20, 30, 50),
                   "row-fused": (0, 0, 0, 1), "row-fused-parts": (0.5, 0.5, 0.5, 1.5),
                   "group128": (13.5, 17.25, 25.75, 40.75), "group128-parts": (22.75, 35.25, 53.25, 105.25),
                   "group64": (28, 34.5, 48.5, 74.5), "group64-parts": (45, 62.5, 88.5, 140.5),
                   "group32": (56.25, 68.25, 93.25, 141.25), "group32-parts": (81.5, 109.5, 151.5, 235.5)}}
LINEAR_MINS = {16: {"group128": 5.25, "group64": 7, "group32": 36}, 8: {"group128": 8.5, "group64": 7, "group32": 31.25}}
LINEAR_ROOM = 1.05


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
                source, product = Path(work) / "k.cl", device.split("+")[0]
                source.write_text(text)
                log = self.run("compile", "-file", source, "-device", product, "-options", options, "-out_dir", work,
                               "-output", "k", "-output_no_suffix")
                made = [p for p in Path(work).iterdir() if p.name in ("k", "k.bin", f"k_{product}.bin")]
                if not made:
                    return None, log
                self.run("disasm", "-file", made[0], "-device", product, "-dump", Path(work) / "d")
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


def issued(loop):
    return loop["alu"] + loop["send"] + loop["jump"]


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


def spilled_bytes(ze_info):
    """Bytes of a thread's memory: scratch, where registers are spilled to, and private memory, where variables lie."""
    scratch = re.search(r"type:\s+scratch[\s\S]*?size:\s+(\d+)", ze_info)
    private = re.search(r"private_size:\s+(\d+)", ze_info)
    return sum(int(found[1]) for found in (scratch, private) if found)


def threads_of(device, registers):
    """Threads of an engine of a kernel with so many registers."""
    return next(threads for most, threads in THREADS.get(device, OTHERS_THREADS) if registers <= most)


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
        self.tuned = "/" in self.name  # a row with knobs of crumb tune
        self.fused = self.linear and self.option("X") == 32 and not self.in_registers  # each work-group quantizes

    def lines_per_dpas(self):
        """64 bytes of weights, or of a cache, that a matrix instruction stands for (the kernels' comments say why); of attention
        where one has all queries."""
        if not self.linear:  # an operand is 8 or 4 of them, and meets two terms, or bytes, of the other side
            return self.sub_group / 4
        if self.file == "linear.cl":  # an operand is bytes
            return self.bits * self.sub_group / 16
        if self.sub_group == 16:
            return self.bits / {1: 2, 3: 3}.get(self.bits, 1)
        return {1: 1 / 12, 3: 3 / 16, 8: 2}.get(self.bits, 1 / 2)

    def one_layer(self):
        """The layer, of one matrix, of what is quantized as it lies."""
        return re.sub("(-norm|-order|-gated)?(-relu2)?(-qkv|-gate)?$", "", self.layer)

    def to_bf16(self):
        """Codes from memory, results in bf16: of each such row one layer, which --all alone compiles; the loop is that of the row
        in f32."""
        return self.linear and self.name.endswith("_bf16") and self.option("X") == 8

    def seldom(self):
        """Layers that one device of each kind stands for with --all: those whose loop another layer has, and the fallback's."""
        groups = self.layer.split("-")[0]
        if re.search("-order|-gated|-relu2|-mins.*-fused", self.layer) or self.layer == "group64-mins":
            return True
        if "-norm" in self.layer:
            return not self.gemv or groups != "row"
        if groups in SMALL_GROUPS and (self.parts or "-fused" in self.layer and groups != "group32"):
            return True
        return self.file == "linear.cl" and groups != "row" and (groups == "group64" or "-mins" in self.layer
                                                                 or "-fused" in self.layer)

    def few_layer(self):
        """That of FEW_LAYERS, and in groups of ONE_BUDGETS."""
        return self.one_layer() if self.layer.startswith("row") else self.layer.split("-")[0]

    def few(self):
        """Whether weights, or a cache, are loaded for few rows: what a budget counts beside is 64 bytes of them."""
        if self.layer.startswith("dense"):
            return self.matrix and "_gemm_" not in self.name
        if self.layer.startswith("heads"):
            return self.matrix and "_split_" in self.name
        return self.file == "gemv.cl" and self.tokens <= 4

    def queries(self):
        """Rows of a matrix instruction of attention that decodes."""
        n = self.tokens * self.option("N_HEAD") // self.option("N_HEAD_KV")
        return next(rows for rows in (1, 2, 4, 8) if n <= rows or rows == 8)

    def operand_cost(self):
        """Instructions that put an operand of gemm.cl together in sub-groups of 8."""
        return {1: 3, 3: 13, 8: 16}.get(self.bits, self.bits)

    def operand(self):
        """What makes linear.cl's operands of codes."""
        if self.bits == 8 and self.layer.startswith("group16"):
            return "half"
        return "codebook" if "-D CODEBOOK=1" in self.options else "split" if self.bits in (3, 5, 6) else "mask"

    def devices(self):
        if not self.linear and not self.matrix:
            return DEVICES[16] + DEVICES[8] + DEVICES["dp4a", 0]
        if self.rung == "portable":
            return DEVICES["dp4a", 0][-1:]
        kinds = [DEVICES[self.sub_group] if self.matrix else DEVICES["dp4a", 0]]
        if self.rung == "dp4a" and self.layer.startswith("group16"):  # which matrix instructions on whole blocks do not serve
            kinds += [DEVICES[16], DEVICES[8]]
        if self.seldom() or self.to_bf16():
            return [kind[0] for kind in kinds]
        divides = self.matrix and self.sub_group == 8 and "-D X=32" in self.options
        return sum(kinds, []) + ([DIVIDES] if divides else [])

    def stands_for_all(self, device):
        if not self.linear and not self.matrix:
            return device == self.devices()[0] and not self.name.endswith("_bf16")
        if self.rung == "portable" or self.to_bf16() or device == DIVIDES:
            return False
        if "-norm" in self.layer:
            return device == self.devices()[0] and "_u2_" in self.name and self.stands_behind_norm()
        if re.search("-relu2|-order-", self.layer):
            return False
        if self.seldom():
            return device == self.devices()[0] and "_u2_" in self.name and self.file != "linear.cl"
        if self.rung == "dp4a" and device not in DEVICES["dp4a", 0]:
            return device == DEVICES[16][0] and "_u2_" in self.name and self.layer == "group16"
        if self.parts:
            return device == self.devices()[0] and ("_bf16" not in self.name or "_u2_" in self.name) and (
                self.decodes() or self.file == "gemm.cl" and self.layer == "row-gate" and self.sub_group == 8)
        of_groups = self.layer.split("-")[0]
        if self.layer.endswith(("-mins", "-fused")) and of_groups != "row":
            return device == self.devices()[0] and self.bits in (2, 4)
        if self.matrix and of_groups in SMALL_GROUPS and self.file != "gemm.cl":
            return device == self.devices()[0]
        if of_groups in SMALL_GROUPS and self.file != "gemm.cl":  # dp4a: where it takes the most instructions
            return self.rung == "dp4a" and self.layer != "group16-wide" and device == self.devices()[0]
        if self.name.endswith("_bf16"):  # dense_bf16_...: of weights
            return device == self.devices()[0] and (self.in_registers or "_u2_" in self.name)
        if device == self.devices()[0] or "_u2_" in self.name:
            return True
        return self.file == "gemm.cl" and self.layer in ("row", "group128")

    def stands_behind_norm(self):
        """Of those that a GPU runs for one row by itself: all of rows with one scale, of groups a gate's, which have two loops."""
        if self.name.endswith("_bf16"):
            return self.layer == "row-fused-norm-gate"
        if self.layer.startswith("row"):
            return self.gemv or self.rung == "dp4a"
        return self.layer.endswith("-gate") and (self.gemv and "_small_" not in self.name or self.layer.startswith("group16"))

    def decodes(self):
        """q/k/v or gate/up of one row of activations: gemv.cl's, what stands in for it, and dense_matrix.cl's."""
        return self.tokens == 1 and (self.layer.startswith("dense-") or
                                     self.layer.startswith("row-") and (self.gemv or "_u2_" in self.name))

    def option(self, name):
        return int(re.search(rf"-D {name}=(\d+)", self.options)[1])


def attention_budgets(v):
    """With keys, with values."""
    if "_split_" not in v.name:
        return (WHOLE_Q8_BUDGETS if v.bytes else WHOLE_BUDGETS)[v.sub_group]
    if not v.bytes:
        return SPLIT_BUDGETS[v.sub_group]
    return tuple(at_all + each * v.queries() for at_all, each in SPLIT_Q8_BUDGETS[v.sub_group])


def dense_budget(v):
    if "_gemm_" in v.name:
        return 2 if v.sub_group == 16 else 5
    of = v.name.split("_")[1] if v.tokens == 1 else v.tokens
    return DENSE_BUDGETS[v.sub_group][of][v.layer != "dense"]


def dp4a_budget(v, device, simd):
    groups = v.layer.split("-")[0]
    if groups == "group16" and (device in DEVICES[16] or v.tokens == 1 and simd == 16):
        return DP4A_XE2[v.operand()][v.tokens]
    mins = DP4A_MINS.get(groups, {}).get(v.tokens, 0) if v.option("MINS") else 0
    return DP4A_BUDGETS[v.operand()][v.tokens][DP4A_GROUPS.index(groups)] + mins


def linear_budget(v):
    rows, groups = LINEAR_ROWS[v.sub_group], v.layer.split("-")[0]
    operand = v.operand() if v.operand() in ("split", "codebook") else v.bits
    mins = LINEAR_MINS[v.sub_group].get(groups, 0) if v.option("MINS") else 0
    layer = (v.one_layer() if groups == "row" else groups) + ("-parts" if v.parts else "")
    own = f"{operand} {layer}" in rows and not mins  # numbers of this operand's own, addresses included
    addresses = 4 * v.bits if v.parts and v.sub_group == 8 and not own else 0
    each = rows[f"{operand} {layer}" if own else layer][(1, 2, 4, 8).index(v.tokens)]
    return (LINEAR_OPERANDS[v.sub_group][operand] + addresses + each + mins) * LINEAR_ROOM


def small_budget(v):
    groups = v.few_layer()
    if v.file == "gemv.cl":
        return GEMV_8_BUDGETS[groups]
    operands = 2 if v.bits in (5, 6) or v.bits == 3 and v.sub_group == 16 else 1
    if v.bits == 8 and v.sub_group == 8:
        operands = "u8"
    place = {"group64": 0, "group32": 2}.get(groups, 4)
    return SMALL_BUDGETS[v.sub_group, operands][place + (place < 4 and v.option("MINS"))]


class Result:
    def __init__(self, variant, device, ze_info, asm):
        self.variant, self.device, self.failure = variant, device, None
        if ze_info is None:
            self.failure = "does not build: " + asm[-400:]
            return
        self.has_dpas = bool(re.search(r"has_dpas:\s+true", ze_info))
        self.grf = int(re.search(r"grf_count:\s+(\d+)", ze_info)[1])
        self.spilled = spilled_bytes(ze_info)
        self.simd = int(re.search(r"simd_size:\s+(\d+)", ze_info)[1])
        self.unit = "dpas" if variant.matrix else "dp4a"
        self.loops, whole = loops_of(asm, self.unit if variant.file == "linear.cl" and variant.rung != "portable" else "")
        self.with_unit = [l for l in self.loops if l[self.unit]]  # of attention the first is that of keys
        most = max((l[self.unit] for l in self.with_unit), default=0)  # parts have a loop each, a rest of K a smaller one
        self.loop = max((l for l in self.with_unit if variant.bytes or l[self.unit] == most), key=beside, default=Counter())
        self.whole = whole
        self.failure = self.judge()

    def other(self, loop):
        """Instructions of an inner loop that have a budget, and per what."""
        v, alu, dpas = self.variant, loop["alu"] + loop["jump"], loop["dpas"]
        if self.unit == "dp4a":
            return (alu - loop["dp4a"]) / max(loop["dp4a"], 1), "dp4a"
        if v.file == "linear.cl":
            return alu / max(dpas, 1), "DPAS"
        all_beside = alu + loop["send"] + loop["idle"]
        if v.few():
            return (alu if v.gemv else all_beside) / max(dpas * v.lines_per_dpas(), 1), "64 B"
        if v.in_registers:  # one of TN + 1 sums activations up
            dpas *= v.option("TN") / (v.option("TN") + 1)
        return all_beside / max(dpas, 1), "DPAS"

    def quantizing(self):
        """Instructions of a work-group for one row before it multiplies: (of 64 activations, of the row); zeros where it does not
        quantize, or a gate's product, which no launch of one row does."""
        v = self.variant
        if not v.gemv or not v.fused or v.option("INPUT") > 1:
            return 0, 0
        loops = [issued(l) for l in self.loops[:next(i for i, l in enumerate(self.loops) if l["dpas"])]]
        each = of_row = 0
        if v.option("INPUT"):  # a square for each item; items' sums, half as many at a time
            squares, halves, *loops = loops
            each = squares * 64 / self.simd
            of_row = halves * math.log2(v.items) * v.items / self.simd
        group = v.option("X_GROUP")
        if group and len(loops) == 4:  # the first and the last are over groups: zeros, and scales
            loops = [(loops[0] + loops[3]) * 4 / group, loops[1], loops[2]]
        return each + sum(loops) * 16 / self.simd, of_row

    def quantizing_budget(self):
        v = self.variant
        of = QUANTIZING_ORDER if "-order" in v.layer else QUANTIZING_NORM if v.option("INPUT") else QUANTIZING
        return of[v.sub_group][not v.layer.startswith("row")]

    def budgets(self):
        """What is held to a budget: loops, their budget or None, and what they are with."""
        v = self.variant
        if not v.matrix or not v.layer.startswith("heads"):
            return [(self.loop, self.budget(), "")]
        keys, *values = self.with_unit or [Counter()]
        of_keys, of_values = attention_budgets(v)
        if "_split_" not in v.name and not v.bytes:
            return [(self.loop, of_keys, "")]
        return [(keys, of_keys, " with keys"), *((loop, of_values, " with values") for loop in values)]

    def budget(self):
        v = self.variant
        if not v.matrix and not v.linear or v.rung == "portable":
            return None
        if v.layer.startswith("dense"):
            return dense_budget(v)
        if v.file == "linear.cl":
            return dp4a_budget(v, self.device, self.simd) if v.rung == "dp4a" else linear_budget(v)
        if v.file == "gemv.cl" and v.tokens in (2, 4):
            return FEW_BUDGETS[v.sub_group, v.tokens][v.bits][FEW_LAYERS.index(v.few_layer())]
        if v.gemv:
            return ONE_BUDGETS[v.sub_group].get(v.few_layer(), {}).get(v.bits, 1)
        if v.few_layer() in SMALL_GROUPS:
            return small_budget(v)
        row = v.layer.startswith("row")
        if v.in_registers:
            return 8
        mins = MINS if v.option("MINS") else 0
        if v.file == "gemm.cl" and v.sub_group == 8:
            one_tile = v.option("TN") == 1
            return ((4 if one_tile else 3.5) if row else 12.3 if one_tile else 10) + v.operand_cost() / v.option("TM") + mins
        return 2 if row else 7 + mins

    def judge(self):
        if self.has_dpas != self.variant.matrix:
            return f"has_dpas is {self.has_dpas}"
        if self.spilled and not self.variant.tuned:
            return f"spills {self.spilled} bytes"
        if self.variant.matrix and not self.whole["dpas"]:
            return "has no matrix instruction"
        if self.variant.tuned:
            return None
        for loop, budget, where in self.budgets():
            other, what = self.other(loop)
            if budget and not loop[self.unit]:
                return f"has no {self.unit} in its inner loop"
            if budget and other > budget:
                return f"has {other:.2f} other instructions per {what}{where}, more than {budget:.2f}"
        quantizing = self.quantizing()[0]
        if quantizing and quantizing > self.quantizing_budget():
            return f"quantizes 64 activations with {quantizing:.0f} instructions, more than {self.quantizing_budget()}"
        return None

    def unbuilt(self):
        return not hasattr(self, "grf")

    def row(self):
        if self.unbuilt():
            return f"{self.variant.name:32} {self.variant.layer:10} {self.device:6} {self.failure}"
        threads = threads_of(self.device, self.grf)
        loop = self.loop
        return (f"{self.variant.name:32} {self.variant.layer:10} {self.device:6} {self.grf:4} {threads:3} "
                f"{self.whole[self.unit]:5} {loop[self.unit]:5} {loop['send']:5} {loop['alu'] + loop['jump']:5} "
                f"{self.other(loop)[0] if loop else 0:6.2f}  {self.failure or 'ok'}")


HEADING = (f"{'kernel':32} {'layer':10} {'device':6} {'GRF':>4} {'thr':>3} {'DPAS':>5} "
           f"{'loop:':>5} {'loads':>5} {'other':>5} {'/unit':>6}")


def results_of(list_variants, wanted, *arguments):
    """The results of all pairs of a variant and a device that are wanted, in their order, as they come."""
    def told(*file):
        return subprocess.run([list_variants, *file], stdout=subprocess.PIPE, text=True, check=True).stdout

    compiler = Compiler()
    pairs = [(v, device) for v in map(Variant, told(*arguments).splitlines()) for device in v.devices() if wanted(v, device)]
    texts = {file: told(file) for file in {v.file for v, _ in pairs}}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda p: Result(*p, *compiler.compile(texts[p[0].file], p[0].entry, p[1],
                                                                   options_on(p[1], p[0].options))), pairs)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    everything, failed, spilled = "--all" in sys.argv, 0, 0
    knobs = sys.argv[2:] if sys.argv[2:3] == ["--knobs"] else []
    wanted = (lambda v, device: device == v.devices()[0]) if knobs else lambda v, device: everything or v.stands_for_all(device)
    print(HEADING)
    for result in results_of(sys.argv[1], wanted, *knobs):
        print(result.row(), flush=True)
        failed += result.failure is not None
        spilled += not result.unbuilt() and result.spilled > 0
    if knobs:
        print(f"{spilled} spill")
    if failed:
        print(f"{failed} variants break a rule")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

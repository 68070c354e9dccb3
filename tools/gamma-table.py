#!/usr/bin/env python3
"""Prints gamma, the cycles per 256-bit vector of 8 outputs x 4 inputs, of the GEMV kernels' inner loops as they ship.

usage: tools/gamma-table.py [--attention] [--build FOLDER] [--mca COMMAND] [--cpu MODEL,...] [--json]

Names: gemv_WIDTH_cCOLUMNS_sSTREAMS over tiles, u for codes of so many bits, c for a codebook's, _u2 behind it where
two lines are taken at once; index_1 and _2 look up 1-bit and ternary weights, trits multiplies the latter.

COMMAND is llvm-mca-21 or -19 where it is installed; --mca "$(tests/support/deps.py prefix mca)/run llvm-mca-21" brings 21.

For tiers and processors that the machine at hand is not: the loops are cut out of the object files and given to
llvm-mca, whose models know ports and latencies but neither caches nor memory; the paper's gamma (Georganas et al.,
"Pushing the Envelope of LLM Inference on AI-PC and Intel GPUs", 2025, section III-F) leaves loads out likewise. The
paper's own sequences are among the kernels, with vpdpbssd: what llvm-mca says of them beside what the paper measured on
P-cores (1.25 for 2 bits, 2.4 for 1 bit) calibrates the rest, so the last column scales each figure by that ratio of its
width. LLVM has no model of E-cores: for them the table counts uops per vector, two for an instruction on 256-bit
registers, whose halves an E-core computes one by one, and one for any other, with a load or without; and it scales them
likewise, by the 2.175 and 4.71 that the paper measured there. From 21 on LLVM has Lunar Lake's P-core (19 takes Alder
Lake's for it), but gives each product of bytes, words or floats two cycles, four times those of the cores before it,
which nobody has measured: the scaled column leans on that less. --attention prints the loops over keys and over values
instead: cycles per line of 64 bytes of the cache, and the GB/s that one core could take at 4 GHz if memory were free,
which stand beside those that it gets from memory. llvm-mca 21 has no model of Zen 5 (its znver5 is Zen 4, with half the
width); cascadelake is the one with two 512-bit ports for products of both kinds. Compared on this machine, real and
modelled: `crumb kernels perf`.
"""
import argparse
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

PAPER = {"u2": (1.25, 2.175), "u1": (2.4, 4.71)}  # P-core, E-core
DOT = {"avx2": "vpmaddubsw", "avxvnni": "vpdpbusd", "avxvnniint8": "vpdpbssd", "avx512ymm": "vpdpbusd",
       "avx512": "vpdpbusd", "avx512vbmi": "vpdpbusd"}
STREAMS = (1, 2, 4)  # tile-rows that a GEMV reads at once
WIDTHS = {"u1": "1", "u2": "2", "u3": "3", "u4": "4", "u5": "5", "u6": "6", "u8": "8", "c4": "4 codebook"}
SPLIT = ("u3", "u5", "u6")  # have one loop, for the streams that suit the tier
TRITS = "1.6 ternary"

GHZ = 4
LUNAR_LAKE = "lunarlake"
ATTENTION = [("f16", "f16_scores", "vcvtph2ps", "vfmadd"), ("f16", "f16_values", "vcvtph2ps", "vfmadd"),
             ("q8", "q8_scores", "vpmovsxbw", "vpmaddwd|vpdpwssd"), ("q8", "q8_values_group", "vpmovsxbw", "vpmaddwd|vpdpwssd")]


def functions(path):
    """{name: [(address, instruction)]} of an object file."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-M", "intel", path], check=True, capture_output=True,
                          text=True).stdout
    found, name = {}, None
    for line in text.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            name = head[1]
            found[name] = []
        elif name and (match := re.match(r" *([0-9a-f]+):\t(.+?)(?:\s+#.*)?$", line)):
            found[name].append((int(match[1], 16), re.sub(r"\s+", " ", match[2]).strip()))
    return found


def loops(code):
    """Bodies of the innermost loops: from the target of a backward jump to the jump."""
    spans = []
    for i, (address, text) in enumerate(code):
        if jump := re.match(r"j[a-z]+ ([0-9a-f]+)", text):
            start = next((j for j, (a, _) in enumerate(code[:i + 1]) if a == int(jump[1], 16)), None)
            if start is not None:
                spans.append((start, i))
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [[text for _, text in code[a:b + 1]] for a, b in inner]


def hot_loop(code, dot):
    """The innermost loop with the most dot products."""
    counted = [(sum(dot in line for line in body), body) for body in loops(code)]
    return max(counted, key=lambda pair: pair[0], default=(0, []))


def modelled_cycles(mca, cpu, body):
    """Cycles per iteration; None where the model lacks an instruction. Jumps and prefetches are left out: memory is not modelled."""
    lines = [re.sub(r"<[^>]*>", "", line).replace("{vex} ", "") for line in body
             if not re.match(r"j[a-z]+ |prefetch", line)]
    text = ".intel_syntax noprefix\n" + "\n".join(lines) + "\n"
    done = subprocess.run([*mca, f"-mcpu={cpu}", "-iterations=200", "--instruction-info=0", "--resource-pressure=0"],
                          input=text, capture_output=True, text=True)
    if "unsupported instruction" in done.stderr:
        return None  # a tier that this processor does not have
    if done.returncode:
        sys.exit(f"{shlex.join(mca)} -mcpu={cpu}: {done.stderr.strip().splitlines()[0]}")
    cycles = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    return int(cycles[1]) / 200


def knows(mca, cpu):
    done = subprocess.run([*mca, f"-mcpu={cpu}"], input="nop\n", capture_output=True, text=True)
    return done.returncode == 0 and "not a recognized" not in done.stderr


def e_core_uops(body):
    """None for what E-cores lack: 512-bit registers, masks, and registers from 16 on."""
    if any(re.search(r"zmm|[xy]mm(1[6-9]|2\d|3[01])|\bk[0-7]\b", line) for line in body):
        return None
    return sum(2 if "ymm" in line else 1 for line in body)


def vectors_of(body, on_ymm):
    """256-bit vectors of weights that the loop serves, from those that it would on ymm registers: zmm counts twice."""
    return on_ymm * (2 if any("zmm" in line for line in body) else 1)


def tile_loops(form):
    """The loops over tiles of codes of this form, one column."""
    if form in SPLIT:
        return [f"gemv_{form}_c1"]
    return [f"gemv_{form}_c1_s{n}{lines}" for n in STREAMS for lines in ("", "_u2")]  # one line at once, and two


def loops_of_tier(tier):
    """(source, function, bits of weights, form of the paper's width or none, what to count, 256-bit vectors of weights
    that each of those serves)."""
    dot = DOT[tier]
    for form, bits in WIDTHS.items():
        for name in tile_loops(form):
            # AVX2's products are of 4-bit halves of bytes.
            yield "gemv", name, bits, form, dot, 0.5 if (tier, form) == ("avx2", "u8") else 1
    for name in tile_loops("c4"):  # wider codebooks on AVX2, and those with -128, whose products are of 16-bit numbers
        yield "gemv_signed", name, WIDTHS["c4"], None, dot, 1
        yield "gemv_wide", name, WIDTHS["c4"], None, "vpmaddwd", 0.5
    # Look-ups: four for 16 rows x 16 k of 1 bit, or x 10 k of ternary weights; a zmm register's are of two tile-rows.
    for n in STREAMS:
        unused = 0.5 if tier == "avx512" and n == 1 else 1
        yield "gemv_index", f"index_1_s{n}", WIDTHS["u1"], "u1", "vpshufb", 8 / 4
        yield "gemv_index", f"index_2_s{n}", TRITS, "u2", "vpshufb", 5 / 4 * unused
        yield "gemv_index", f"trits_c1_s{n}", TRITS, "u2", dot, 1
    for form in PAPER:
        yield "georganas", f"crumb_georganas_{form}_i8__{tier}", WIDTHS[form], form, dot, 1


def rows(build, mca, cpus):
    for tier in DOT:
        paths = glob.glob(os.path.join(build, "CMakeFiles", "*", "cpu", tier, "*.c.o"))  # not those of other builds below
        found = {os.path.basename(path)[:-len(".c.o")]: functions(path) for path in paths}
        for source, name, bits, form, counted, each in loops_of_tier(tier):
            n, body = hot_loop(found.get(source, {}).get(name, []), counted)
            if not n:
                continue
            vectors = vectors_of(body, n * each)
            uops = e_core_uops(body) if not tier.startswith("avx512") else None
            cycles = {cpu: modelled_cycles(mca, cpu, body) for cpu in cpus}
            yield {"kernel": name, "by": "paper" if source == "georganas" else "crumb", "tier": tier, "source": source,
                   "bits": bits, "form": form, "vectors": vectors, "e_core_uops": uops and uops / vectors,
                   "gamma": {cpu: c / vectors for cpu, c in cycles.items() if c is not None}}


def attention_loop(code, widen, dot, queries):
    """(bytes of the cache an iteration, body): of the loops that fetch ahead for so many queries, the widest."""
    found = (0, [])
    for body in loops(code):
        reads = len([line for line in body if re.match(widen, line)])
        dots = len([line for line in body if re.match(f"(?:{{vex}} )?(?:{dot})", line)])
        if reads and dots == reads * queries and any("prefetch" in line for line in body):
            found = max(found, (reads * (32 if any("zmm" in line for line in body) else 16), body), key=lambda f: f[0])
    return found


def attention_rows(build, mca, cpus):
    for tier in DOT:
        for path in glob.glob(os.path.join(build, "CMakeFiles", "*", "cpu", tier, "attention.c.o")):
            found = functions(path)
            for cache, name, widen, dot in ATTENTION:
                for queries in (1, 2, 3, 4, 6):
                    size, body = attention_loop(found.get(name, []), widen, dot, queries)
                    if not size:
                        continue
                    lines, cycles = size / 64, {cpu: modelled_cycles(mca, cpu, body) for cpu in cpus}
                    yield {"kernel": name, "tier": tier, "cache": cache, "queries": queries,
                           "instructions": len(body) / lines,
                           "cycles": {cpu: c / lines for cpu, c in cycles.items() if c is not None}}


def print_attention(table, cpus):
    print("| kernel | tier | queries | instructions | " + " | ".join(f"{c} cycles | GB/s" for c in cpus) + " |")
    print("|---|---|---:|---:|" + "---:|---:|" * len(cpus))
    for row in table:
        rates = {cpu: 64 * GHZ / c for cpu, c in row["cycles"].items()}
        figures = " | ".join(figure(row["cycles"], c) + " | " + figure(rates, c, 0) for c in cpus)
        print(f"| {row['kernel']} | {row['tier']} | {row['queries']} | {row['instructions']:.1f} | {figures} |")


def is_measured(row):
    """A sequence that the paper measured: with vpdpbssd."""
    return row["by"] == "paper" and row["tier"] == "avxvnniint8"


def calibrate(table):
    """Adds what each row says, scaled by what the paper measured over what is said of its sequence of that width."""
    factors = {}
    for row in table:
        if is_measured(row):
            p_core, e_core = PAPER[row["form"]]
            factors |= {(row["form"], cpu): p_core / gamma for cpu, gamma in row["gamma"].items()}
            factors[row["form"], "e_core"] = e_core / row["e_core_uops"]
    for row in table:
        said = row["gamma"] | ({"e_core": row["e_core_uops"]} if row["e_core_uops"] else {})
        row["calibrated"] = {core: value * factors[row["form"], core] for core, value in said.items()
                             if (row["form"], core) in factors}


def figure(values, cpu, digits=2):
    return f"{values[cpu]:.{digits}f}" if cpu in values else ""


def print_table(table, cpus):
    print("| kernel | tier, source | bits | vectors | " + " | ".join(f"gamma {c} | scaled" for c in cpus) +
          " | E-core uops | scaled | paper P | paper E |")
    print("|---|---|---|---:|" + "---:|---:|" * len(cpus) + "---:|---:|---:|---:|")
    for row in table:
        said = row["gamma"] | ({"e_core": row["e_core_uops"]} if row["e_core_uops"] else {})
        figures = " | ".join(figure(said, c) + " | " + figure(row["calibrated"], c) for c in [*cpus, "e_core"])
        paper = PAPER[row["form"]] if is_measured(row) else None
        print(f"| {row['kernel']} | {row['tier']}, {row['source']} | {row['bits']} | {row['vectors']:g} | {figures} | " +
              (f"{paper[0]} | {paper[1]} |" if paper else " | |"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--mca", default=shutil.which("llvm-mca-21") or shutil.which("llvm-mca-19") or "llvm-mca")
    parser.add_argument("--cpu")
    parser.add_argument("--attention", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    mca = shlex.split(options.mca)
    if not shutil.which(mca[0]):
        sys.exit(f"{options.mca}: not found; apt-get install llvm-19 has llvm-mca-19")
    usual = ["alderlake", "znver3", "cascadelake"] if options.attention else ["alderlake", "sapphirerapids"]
    if not options.attention and knows(mca, LUNAR_LAKE):
        usual.append(LUNAR_LAKE)
    cpus = options.cpu.split(",") if options.cpu else usual
    table = list((attention_rows if options.attention else rows)(options.build, mca, cpus))
    if not table:
        sys.exit(f"{options.build}: no object files of the kernels; build there first")
    if not options.attention:
        calibrate(table)
    if options.json:
        return print(json.dumps({"schema_version": 3, "mca": options.mca, "rows": table}, indent=1))
    (print_attention if options.attention else print_table)(table, cpus)


if __name__ == "__main__":
    main()

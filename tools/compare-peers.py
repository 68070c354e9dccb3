#!/usr/bin/env python3
"""Prints crumb's speed beside llama.cpp's: same files, same threads, shipped defaults, in one run.

usage: tools/compare-peers.py [--build FOLDER] [--rounds N] [--threads N] [--json FILE] [--only smollm2|ternary]

The two programs take turns, and who begins changes every round, so that a machine whose speed drifts treats both
alike; a figure is the median of its rounds, a ratio the median of the rounds' ratios with their range. llama.cpp is
the one of tests/deps.lock (or CRUMB_LLAMA_PREFIX), with its best CPU library for this processor. Nothing else should
run meanwhile: the load average is printed with the table. About 5 minutes.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import peer_models

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Case:
    name: str  # of peer_models.model
    title: str
    n_prompt: int
    n_gen: int
    decode_wanted: float
    prefill_wanted: float


CASES = [Case("smollm2-Q4_1", "SmolLM2-135M Q4_1", 256, 128, 1.3, 3.0),
         Case("ternary-TQ2_0", "ternary 1.26B TQ2_0", 512, 64, 1.5, 2.5)]
PROMPT = "The capital of France is"


@dataclass
class Row:
    case: str
    what: str
    unit: str
    llama: list
    crumb: list
    wanted: float  # least ratio in crumb's favour
    higher_is_better: bool

    def ratios(self):
        pairs = zip(self.crumb, self.llama)
        return [c / t if self.higher_is_better else t / c for c, t in pairs]

    def ratio(self):
        return statistics.median(self.ratios())


def run(command):
    """-> stdout, seconds, peak resident bytes. Ends the comparison when the program fails."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:  # a pipe nobody reads could fill
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        output = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if process.returncode != 0:
            said = errors.read().decode(errors="replace")[-800:]
            sys.exit(f"{' '.join(command)}: exit status {process.returncode}\n{said}")
    return output, seconds, usage.ru_maxrss * 1024


def bench_rates(command):
    """llama-bench's JSON, which crumb bench writes too -> (prefill, decode) in tokens a second."""
    results = json.loads(run(command)[0])
    prefill = next(r["avg_ts"] for r in results if r["n_prompt"] and not r["n_gen"])
    decode = next(r["avg_ts"] for r in results if r["n_gen"] and not r["n_prompt"])
    return prefill, decode


def in_turn(rounds, first, second):
    """Calls both `rounds` times, who begins alternating -> two lists of results."""
    results = ([], [])
    for i in range(rounds):
        for which in ((0, 1), (1, 0))[i % 2]:
            results[which].append((first, second)[which]())
    return results


def measure_speed(case, path, a):
    flags = ["-m", str(path), "-t", str(a.threads), "-p", str(case.n_prompt), "-n", str(case.n_gen), "-r", "1",
             "-o", "json"]
    llama, crumb = in_turn(a.rounds, lambda: bench_rates(peer_models.llama("llama-bench", *flags)),
                           lambda: bench_rates([str(a.build / "crumb"), "bench", *flags]))
    return [Row(case.title, f"prefill {case.n_prompt}", "tok/s", [r[0] for r in llama], [r[0] for r in crumb],
                case.prefill_wanted, True),
            Row(case.title, f"decode {case.n_gen}", "tok/s", [r[1] for r in llama], [r[1] for r in crumb],
                case.decode_wanted, True)]


def measure_start(case, path, a):
    """The whole life of a process that prints one token: loading, packing and the prompt included. The file is read
    before each, since some machines drop cached files after minutes."""
    def timed(command):
        path.read_bytes()
        return run(command)

    flags = ["-m", str(path), "-t", str(a.threads), "-p", PROMPT, "-n", "1", "--temp", "0"]
    llama, crumb = in_turn(a.rounds, lambda: timed(peer_models.llama("llama-completion", "-no-cnv", *flags)),
                           lambda: timed([str(a.build / "crumb"), "run", *flags]))
    return [Row(case.title, "start to first token", "s", [r[1] for r in llama], [r[1] for r in crumb], 1.0, False),
            Row(case.title, "peak memory of that", "MB", [r[2] / 1e6 for r in llama], [r[2] / 1e6 for r in crumb], 0,
                False)]


def measure_memory(path, a):
    """What crumb takes at its peak, and what the sum of its parts allows; None without the tests' program."""
    program = a.build / "tests" / "model" / "memory_of_model"
    if not program.exists():
        return None
    done = subprocess.run([program, path], capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout else None


def machine():
    with open("/proc/cpuinfo") as f:
        info = f.read()
    flags = set(re.search(r"^flags\s*: (.*)", info, re.M)[1].split())
    told = [f for f in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8") if f in flags]
    return {"cpu": re.search(r"model name\s*: (.*)", info)[1], "cpus": os.cpu_count(), "isa": told,
            "kernel": platform.release(), "load_average": os.getloadavg()[0]}


def describe(row):
    low, high = min(row.ratios()), max(row.ratios())
    verdict = "" if not row.wanted else ("yes" if row.ratio() >= row.wanted else "NO")
    wanted = f">= {row.wanted:g}" if row.wanted else ""
    digits = 2 if row.unit == "s" else 1
    return (f"| {row.case} | {row.what} | {statistics.median(row.llama):.{digits}f} | "
            f"{statistics.median(row.crumb):.{digits}f} | {row.unit} | {row.ratio():.2f} ({low:.2f}-{high:.2f}) | "
            f"{wanted} | {verdict} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=ROOT / "build")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--json", type=Path)
    p.add_argument("--only", choices=("smollm2", "ternary"))
    a = p.parse_args()
    report = {"machine": machine(), "threads": a.threads, "rounds": a.rounds, "rows": [], "memory": {}}
    try:
        report["llama.cpp"] = peer_models.llama_version()
        report["crumb"] = run([str(a.build / "crumb"), "--version"])[0].splitlines()[0]
        print(f"{report['machine']['cpu']}, {report['machine']['cpus']} CPUs ({' '.join(report['machine']['isa'])}), "
              f"load {report['machine']['load_average']:.1f}; {a.threads} threads, {a.rounds} rounds\n"
              f"{report['crumb']}; llama.cpp {report['llama.cpp']}\n\n"
              "| model | test | llama.cpp | crumb | unit | crumb's advantage | wanted | met |\n"
              "|---|---|---:|---:|---|---:|---|---|", flush=True)
        for case in CASES:
            if a.only and not case.name.startswith(a.only):
                continue
            path = peer_models.model(case.name)
            path.read_bytes()  # a warm file cache
            for row in measure_speed(case, path, a) + measure_start(case, path, a):
                report["rows"].append({**vars(row), "ratio": row.ratio()})
                print(describe(row), flush=True)
            report["memory"][case.name] = measure_memory(path, a)
    except peer_models.Unavailable as reason:
        sys.exit(f"compare-peers: {reason}")
    for name, m in report["memory"].items():
        if m:
            parts = (m["weight_bytes"], m["kv_bytes"], m["scratch_bytes"], m["largest_tensor_bytes"])
            print(f"\n{name}: peak {m['peak_bytes'] / 1e6:.1f} MB; packed weights, KV cache, scratch and one tensor: "
                  f"{' + '.join(f'{b / 1e6:.1f}' for b in parts)} = {sum(parts) / 1e6:.1f} MB")
    if a.json:
        a.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

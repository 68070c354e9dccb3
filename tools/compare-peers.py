#!/usr/bin/env python3
"""Prints crumb's speed beside its peers': same weights, same threads, shipped defaults, in one run.

usage: tools/compare-peers.py [--build FOLDER] [--rounds N] [--threads N] [--json FILE] [--only CASE] [--avx2]
                              [--target TARGET] [--openvino] [--peer NAME:TYPE=FOLDER]...

The programs take turns, and who begins changes every round, so that a machine whose speed drifts treats all alike; a
figure is the median of its rounds, a ratio the median of the rounds' ratios with their range. CASE is one of the
models: smollm2, ternary (with a head in f16) or ternary8 (in 8 bits); all by default. llama.cpp is the one of
tests/deps.lock (or CRUMB_LLAMA_PREFIX), with its best CPU library for this processor. A descendant of it that you have
built takes part in the ternary cases with --peer: FOLDER holds its llama-bench and llama-quantize, which makes the
file of TYPE from the same weights (ik_llama.cpp:IQ2_BN, bitnet.cpp:I2_S). With --openvino SmolLM2's Q8_0 file is one
more case, which OpenVINO GenAI reads too: that of tests/deps.lock (85 MB, installed in the user's cache), or of the
Python that CRUMB_OPENVINO_PYTHON names. "least" is what the first release asks of crumb, "aim" what its CPU kernels
are to reach on a processor with VNNI. With --avx2 crumb and llama.cpp use plain AVX2 on any processor, and the aims
are those for it; with --target crumb alone is held to a tier (cpu:avxvnni), and its peers to nothing. Nothing else
should run meanwhile: the load average is printed with the table. About 5 minutes, and 2 more with each peer.
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
from dataclasses import asdict, dataclass
from pathlib import Path

import peer_models

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Goal:
    least: float = 0  # ratios in crumb's favour; 0: none
    aim: float = 0


@dataclass
class Case:
    name: str  # of peer_models.model
    title: str
    n_prompt: int
    n_gen: int
    decode: Goal
    prefill: Goal
    start: bool  # also from start to first token


CASES = [Case("smollm2-Q4_1", "SmolLM2-135M Q4_1", 256, 128, Goal(1.3, 2), Goal(3, 6), True),
         Case("ternary-TQ2_0", "ternary 1.26B, f16 head", 512, 64, Goal(1.5, 2), Goal(2.5, 4), True),
         Case("ternary8-TQ2_0", "ternary 1.26B, 8-bit head", 512, 64, Goal(0, 2), Goal(0, 4), False)]
OPENVINO_CASE = Case("smollm2-Q8_0", "SmolLM2-135M Q8_0", 256, 128, Goal(), Goal(), False)
PREFILL_AIMS = {"ik_llama.cpp": 1.3}  # others: the case's
AVX2_GOALS = Goal(0, 1.3), Goal(0, 2)  # prefill, decode
PROMPT = "The capital of France is"


@dataclass
class Peer:
    name: str
    type: str  # of the files that its llama-quantize makes
    folder: Path

    def file(self, case):
        return peer_models.ternary_by(self.folder / "llama-quantize", self.type, case.name.split("-")[0])


@dataclass
class Row:
    case: str
    what: str
    peer: str
    unit: str
    theirs: list
    crumb: list
    goal: Goal
    higher_is_better: bool

    def ratios(self):
        pairs = zip(self.crumb, self.theirs)
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


def in_turn(rounds, functions):
    """Calls all of them `rounds` times, who begins going around -> a list of results for each."""
    results = [[] for _ in functions]
    for i in range(rounds):
        for j in range(len(functions)):
            which = (i + j) % len(functions)
            results[which].append(functions[which]())
    return results


def openvino_command(*arguments):
    return [peer_models.openvino_python(), "-B", str(ROOT / "tools" / "openvino-bench.py"), *arguments]


def measure_speed(case, path, peers, a):
    def asked(file):
        return ["-m", str(file), "-t", str(a.threads), "-p", str(case.n_prompt), "-n", str(case.n_gen)]

    def flags(file):
        return [*asked(file), "-r", "1", "-o", "json"]

    forced = ["--target", a.target] if a.target else []
    commands = [("crumb", [str(a.build / "crumb"), "bench", *flags(path), *forced]),
                ("llama.cpp", peer_models.llama("llama-bench", *flags(path)))]
    for peer in peers:
        commands.append((f"{peer.name} {peer.type}", [str(peer.folder / "llama-bench"), *flags(peer.file(case))]))
    if case is OPENVINO_CASE:
        commands.append(("OpenVINO GenAI", openvino_command(*asked(path))))
    crumb, *others = in_turn(a.rounds, [lambda command=command: bench_rates(command) for _, command in commands])
    rows = []
    for (name, _), theirs in zip(commands[1:], others):
        aim = PREFILL_AIMS.get(name.split()[0], case.prefill.aim)
        goals = (case.prefill, case.decode) if name == "llama.cpp" else (Goal(0, aim), Goal(0, case.decode.aim))
        goals = AVX2_GOALS if a.avx2 else goals
        for i, what in enumerate((f"prefill {case.n_prompt}", f"decode {case.n_gen}")):
            rows.append(Row(case.title, what, name, "tok/s", [r[i] for r in theirs], [r[i] for r in crumb], goals[i],
                            True))
    return rows


def measure_start(case, path, a):
    """The whole life of a process that prints one token: loading, packing and the prompt included. Each is run once
    before it is timed: some machines drop cached files after minutes, and a virtual one gives free memory back to its
    host after seconds, from which a program gets it ten times slower than from its own kernel."""
    def timed(command):
        path.read_bytes()
        run(command)
        return run(command)

    flags = ["-m", str(path), "-t", str(a.threads), "-p", PROMPT, "-n", "1", "--temp", "0"]
    crumb, llama = in_turn(a.rounds, [lambda: timed([str(a.build / "crumb"), "run", *flags]),
                                      lambda: timed(peer_models.llama("llama-completion", "-no-cnv", *flags))])
    return [Row(case.title, "start to first token", "llama.cpp", "s", [r[1] for r in llama], [r[1] for r in crumb],
                Goal(1), False),
            Row(case.title, "peak memory of that", "llama.cpp", "MB", [r[2] / 1e6 for r in llama],
                [r[2] / 1e6 for r in crumb], Goal(), False)]


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
    goals = [g for g in (row.goal.least, row.goal.aim) if g]
    met = ["yes" if row.ratio() >= g else "NO" for g in goals]
    digits = 2 if row.unit == "s" else 1
    return (f"| {row.case} | {row.what} | {row.peer} | {statistics.median(row.theirs):.{digits}f} | "
            f"{statistics.median(row.crumb):.{digits}f} | {row.unit} | {row.ratio():.2f} ({low:.2f}-{high:.2f}) | "
            f"{', '.join(f'{g:g}' for g in goals)} | {', '.join(met)} |")


def read_peer(text):
    name, _, rest = text.partition(":")
    type_name, _, folder = rest.partition("=")
    if not (name and type_name and (Path(folder) / "llama-bench").exists()):
        raise argparse.ArgumentTypeError(f"{text}: is not NAME:TYPE=FOLDER with a llama-bench in FOLDER")
    return Peer(name, type_name, Path(folder))


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=ROOT / "build")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--json", type=Path)
    p.add_argument("--only", choices=[c.name.split("-")[0] for c in CASES])
    p.add_argument("--avx2", action="store_true")
    p.add_argument("--target")
    p.add_argument("--openvino", action="store_true")
    p.add_argument("--peer", type=read_peer, action="append", default=[])
    a = p.parse_args()
    if a.avx2 and a.target:
        p.error("--avx2 is a target for both; --target would be another for crumb")
    a.target = "cpu:avx2" if a.avx2 else a.target
    if a.openvino and a.avx2:
        p.error("--openvino: OpenVINO chooses its instructions itself, so that --avx2 would not be for it")
    return a


def print_head(report):
    machine_info = report["machine"]
    print(f"{machine_info['cpu']}, {machine_info['cpus']} CPUs ({' '.join(machine_info['isa'])}), "
          f"load {machine_info['load_average']:.1f}; {report['threads']} threads, {report['rounds']} rounds\n"
          f"{report['crumb']}; llama.cpp {report['llama.cpp']}"
          f"{'; OpenVINO GenAI ' + report['openvino'] if 'openvino' in report else ''}\n\n"
          "| model | test | peer | peer's | crumb | unit | crumb's advantage | least, aim | met |\n"
          "|---|---|---|---:|---:|---|---:|---|---|", flush=True)


def print_memory(name, m):
    parts = (m["weight_bytes"], m["kv_bytes"], m["scratch_bytes"], m["largest_tensor_bytes"])
    print(f"\n{name}: peak {m['peak_bytes'] / 1e6:.1f} MB; packed weights, KV cache, scratch and one tensor: "
          f"{' + '.join(f'{b / 1e6:.1f}' for b in parts)} = {sum(parts) / 1e6:.1f} MB")


def main():
    a = parse()
    report = {"machine": machine(), "threads": a.threads, "rounds": a.rounds, "rows": [], "memory": {}}
    try:
        if a.avx2:
            os.environ["GGML_BACKEND_PATH"] = str(peer_models.llama_library("haswell"))
        report["llama.cpp"] = peer_models.llama_version() + (", both on plain AVX2" if a.avx2 else "")
        report["crumb"] = run([str(a.build / "crumb"), "--version"])[0].splitlines()[0]
        report["crumb"] += f" on {a.target}" if a.target else ""
        if a.openvino:
            report["openvino"] = peer_models.openvino_version()
        print_head(report)
        cases = [*CASES, OPENVINO_CASE] if a.openvino else CASES
        for case in [c for c in cases if not a.only or c.name.split("-")[0] == a.only]:
            path = peer_models.model(case.name)
            path.read_bytes()  # a warm file cache
            peers = a.peer if case.name.startswith("ternary") else []
            rows = measure_speed(case, path, peers, a)
            if case.start and not a.target:
                rows += measure_start(case, path, a)
                report["memory"][case.name] = measure_memory(path, a)
            for row in rows:
                report["rows"].append({**asdict(row), "ratio": row.ratio()})
                print(describe(row), flush=True)
    except peer_models.Unavailable as reason:
        sys.exit(f"compare-peers: {reason}")
    for name, m in report["memory"].items():
        if m:
            print_memory(name, m)
    if a.json:
        a.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

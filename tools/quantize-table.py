#!/usr/bin/env python3
"""Prints what low-bit weights cost SmolLM2-135M: bits 4, 3 and 2 x groups of 16 to 128 and a whole row x rounding to
nearest and GPTQ, with perplexity, speed and memory. host/gptq/README.md has its table.

usage: tools/quantize-table.py [--build FOLDER] [--keep FOLDER] [--threads N] [--rounds N] [--speed]
                               [--calibration-tokens N] [--chunks N]

The base is the model's f16 file (dequantized from Q4_1). The text is the first 100 KiB of the Debian FAQ: perplexity is
that of chunks of 512 tokens from its start, by llama-perplexity's rules; GPTQ calibrates on the second half, of which
no perplexity is taken. The weights that it makes stay in --keep (3 GB), and what is known of them in FOLDER/cells.json:
nothing is made or read twice, and the command can be ended and given again.

tok/s: `crumb run` decodes 32 tokens; the models take turns, another one begins each round, and a figure is the median of
its rounds. MB read are all weights as they lie in memory. Peaks are what the process that runs the model, and the one
that made its weights, held in memory at most. With --speed that is all that is measured, in some minutes, of the weights
in --keep: for a machine on which nothing else runs. The load average of before is printed below the table.
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import peer_models

ROOT = Path(__file__).resolve().parents[1]
BITS = (4, 3, 2)
GROUPS = (16, 32, 64, 128, -1)
METHODS = ("rtn", "gptq")
BASE = "f16"
N_DECODED = 32


def run(command):
    """What a command prints, and the most bytes that it held."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        log.seek(0)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: exit status {process.returncode}\n{out.read()}\n{log.read()}")
        return out.read(), usage.ru_maxrss * 1024


def note(text):
    print(text, file=sys.stderr, flush=True)


class Table:
    def __init__(self, args):
        self.args, self.crumb, self.folder = args, args.build / "crumb", args.keep
        self.names = [BASE] + [f"{b}.{g}.{m}" for b, g, m in itertools.product(BITS, GROUPS, METHODS)]
        self.common = ["--device", "cpu", "-t", args.threads]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "cells.json"
        known = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.settings = {"calibration_tokens": args.calibration_tokens, "chunks": args.chunks}
        if known and known["settings"] != self.settings and not args.speed:
            sys.exit(f"{self.path} was made with {known['settings']}: give the same, or another --keep")
        self.cells = known.get("cells", {})

    def save(self, name, **figures):
        self.cells.setdefault(name, {}).update(figures)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({"settings": self.settings, "cells": self.cells}, indent=1) + "\n")
        part.rename(self.path)

    def model(self, name):
        return peer_models.model("smollm2-F16") if name == BASE else self.folder / name

    def texts(self):
        """The text to be predicted, and the one to calibrate on."""
        text = peer_models.text().read_bytes()
        paths = self.folder / "predicted.txt", self.folder / "calibration.txt"
        for path, part in zip(paths, (text[:len(text) // 2], text[len(text) // 2:])):
            path.write_bytes(part)
        return paths

    def quantize(self, name, calibration):
        bits, group, method = name.split(".")
        command = [self.crumb, "quantize", self.model(BASE), self.folder / name, f"GPTQ{bits}", "--group-size", group,
                   "-t", self.args.threads]
        if method == "gptq":
            command += ["--method", "gptq", "--calibration", calibration, "--calibration-tokens",
                        self.args.calibration_tokens]
        _, peak = run(command)
        self.save(name, quantizing_bytes=peak)

    def predict(self, name, predicted):
        out, _ = run([self.crumb, "perplexity", "-m", self.model(name), "-f", predicted, "-c", 512, "--chunks",
                      self.args.chunks, *self.common, "--json"])
        self.save(name, ppl=json.loads(out)["perplexity"])

    def make(self):
        """The weights and their perplexities, as far as they are not there."""
        predicted, calibration = self.texts()
        for i, name in enumerate(self.names):
            note(f"{name}: {i + 1} of {len(self.names)}")
            if name != BASE and "quantizing_bytes" not in self.cells.get(name, {}):
                self.quantize(name, calibration)  # what a run that was ended has left is taken up
            if "ppl" not in self.cells.get(name, {}):
                self.predict(name, predicted)

    def decode(self, name):
        """Tokens per second, bytes of weights that it read for each, and the most bytes that it held."""
        out, peak = run([self.crumb, "run", "-m", self.model(name), "-p", "The capital of France is", "-n", N_DECODED + 1,
                         "-c", 64, "--temp", 0, "--ignore-eos", *self.common, "--json"])
        end = json.loads(out.splitlines()[-1])
        assert end["n_decode"] == N_DECODED, end
        seconds = end["decode_ms"] / 1000 / N_DECODED
        return 1 / seconds, end["bandwidth_gb_s"] * 1e9 * seconds, peak

    def time(self):
        """The speeds of all models in turns."""
        missing = [n for n in self.names if n != BASE and not (self.folder / n / "config.json").exists()]
        if missing:
            sys.exit(f"{self.folder} has no {', '.join(missing)}: the same command without --speed makes them")
        load = os.getloadavg()[0]
        figures = {name: [] for name in self.names}
        for i in range(self.args.rounds):
            first = i * len(self.names) // self.args.rounds
            note(f"round {i + 1} of {self.args.rounds}")
            for name in self.names[first:] + self.names[:first]:
                figures[name].append(self.decode(name))
        for name, found in figures.items():
            speeds, sizes, peaks = zip(*found)
            self.save(name, tokens_per_second=statistics.median(speeds), slowest=min(speeds), fastest=max(speeds),
                      read_bytes=statistics.median(sizes), running_bytes=max(peaks))
        return load

    def write(self):
        print("| bits | group | method | perplexity | tok/s | MB read a token | peak while running, MB | while quantizing, MB |")
        print("|---|---|---|---|---|---|---|---|")
        for name in self.names:
            c = self.cells[name]
            bits, group, method = (BASE, "", "") if name == BASE else name.split(".")
            columns = [bits, "row" if group == "-1" else group, method, f"{c['ppl']:.4g}" if "ppl" in c else "",
                       f"{c['tokens_per_second']:.0f}"]
            columns += [f"{c[key] / 1e6:.0f}" if key in c else ""
                        for key in ("read_bytes", "running_bytes", "quantizing_bytes")]
            print(f"| {' | '.join(columns)} |")

    def lost(self):
        """Cells in which rounding to nearest is as good as GPTQ; None where some perplexities are not known."""
        if not all("ppl" in c for c in self.cells.values()):
            return None
        return [n for n in self.names if n.endswith(".gptq") and
                not self.cells[n]["ppl"] < self.cells[n.replace(".gptq", ".rtn")]["ppl"]]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=ROOT / "build")
    p.add_argument("--keep", type=Path, default=peer_models.CACHE / "quantize-table")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--speed", action="store_true")
    p.add_argument("--calibration-tokens", type=int, default=1024)
    p.add_argument("--chunks", type=int, default=4)
    args = p.parse_args()
    if args.rounds < 1:
        p.error("--rounds: at least 1")
    table = Table(args)
    if not args.speed:
        table.make()
    load = table.time()
    table.write()
    spread = max(c["fastest"] / c["slowest"] for c in table.cells.values())
    print(f"\nMedians of {args.rounds} rounds with -t {args.threads}; fastest and slowest round of a model are up to "
          f"{spread:.2f} x apart; load average before: {load:.1f}.")
    lost = table.lost()
    if lost is None:
        sys.exit("some perplexities are not known: the same command without --speed finds them")
    print(f"GPTQ is ahead of rounding to nearest in every cell{' but ' + ', '.join(lost) if lost else ''}.")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    try:
        main()
    except peer_models.Unavailable as e:
        print(e, file=sys.stderr)
        sys.exit(77)

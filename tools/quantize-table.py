#!/usr/bin/env python3
"""Prints what low-bit weights cost SmolLM2-135M: bits 4, 3 and 2 x groups of 16 to 128 and a whole row x rounding to
nearest and GPTQ, with perplexity, speed and memory. host/gptq/README.md has its table.

usage: tools/quantize-table.py [--build FOLDER] [--keep FOLDER] [--threads N] [--calibration-tokens N] [--chunks N]

The base is the model's f16 file (dequantized from Q4_1). The text is the first 100 KiB of the Debian FAQ: perplexity is
that of chunks of 512 tokens from its start, by llama-perplexity's rules; GPTQ calibrates on the second half, of which
no perplexity is taken. tok/s: 32 tokens of `crumb bench`, so on a busy machine a figure to compare with nothing;
memory: what the process that made the weights held at most. A cell that is there in FOLDER/cells.json is not made
again, so that the command can be ended and given again.
"""
import argparse
import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import peer_models

ROOT = Path(__file__).resolve().parents[1]
BITS = (4, 3, 2)
GROUPS = (16, 32, 64, 128, -1)
METHODS = ("rtn", "gptq")


def run(command):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Table:
    def __init__(self, args):
        self.args, self.crumb = args, args.build / "crumb"
        self.folder = args.keep
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cells_path = self.folder / "cells.json"
        self.cells = json.loads(self.cells_path.read_text()) if self.cells_path.exists() else {}
        self.common = ["-t", args.threads]

    def texts(self):
        """The text to be predicted, and the one to calibrate on."""
        text = peer_models.text().read_bytes()
        paths = self.folder / "predicted.txt", self.folder / "calibration.txt"
        for path, part in zip(paths, (text[:len(text) // 2], text[len(text) // 2:])):
            path.write_bytes(part)
        return paths

    def quantize(self, model, out, bits, group, method, calibration):
        command = [self.crumb, "quantize", model, out, f"GPTQ{bits}", "--group-size", group, *self.common, "--json"]
        if method == "gptq":
            command += ["--method", "gptq", "--calibration", calibration, "--calibration-tokens",
                        self.args.calibration_tokens]
        return json.loads(run(command))["peak_bytes"]

    def measure(self, model, predicted):
        found = json.loads(run([self.crumb, "perplexity", "-m", model, "-f", predicted, "-c", 512, "--chunks",
                                self.args.chunks, "--device", "cpu", *self.common, "--json"]))
        speed = json.loads(run([self.crumb, "bench", model, "-p", 0, "-n", 32, "-r", 1, "--device", "cpu", *self.common,
                                "-o", "json"]))
        return {"ppl": found["perplexity"], "tokens_per_second": speed[0]["avg_ts"], "weight_bytes": speed[0]["model_size"]}

    def save(self, name, **figures):
        self.cells.setdefault(name, {}).update(figures)
        self.cells_path.write_text(json.dumps(self.cells, indent=1) + "\n")

    def cell(self, bits, group, method, base, predicted, calibration):
        name = f"{bits}.{group}.{method}"
        out = self.folder / name
        if "peak_bytes" not in self.cells.get(name, {}):  # what a run that was ended has left is taken up
            self.save(name, peak_bytes=self.quantize(base, out, bits, group, method, calibration))
        if "ppl" not in self.cells[name]:
            self.save(name, **self.measure(out, predicted))
        shutil.rmtree(out, ignore_errors=True)
        return self.cells[name]

    def rows(self):
        predicted, calibration = self.texts()
        base = peer_models.model("smollm2-F16")
        if "f16" not in self.cells:
            self.save("f16", **self.measure(base, predicted))
        yield "f16", "", "", self.cells["f16"]
        for bits, group, method in itertools.product(BITS, GROUPS, METHODS):
            yield bits, group, method, self.cell(bits, group, method, base, predicted, calibration)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=ROOT / "build")
    p.add_argument("--keep", type=Path, default=peer_models.CACHE / "quantize-table")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--calibration-tokens", type=int, default=1024)
    p.add_argument("--chunks", type=int, default=4)
    table, lost = Table(p.parse_args()), []
    print("| bits | group | method | perplexity | tok/s | weights, MB | peak while quantizing, MB |")
    print("|---|---|---|---|---|---|---|")
    for bits, group, method, c in table.rows():
        group = "row" if group == -1 else group
        peak = f"{c['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in c else ""
        print(f"| {bits} | {group} | {method} | {c['ppl']:.4g} | {c['tokens_per_second']:.0f} | "
              f"{c['weight_bytes'] / 1e6:.0f} | {peak} |", flush=True)
    for name, c in table.cells.items():
        if name.endswith(".gptq") and not c["ppl"] < table.cells[name.replace(".gptq", ".rtn")]["ppl"]:
            lost.append(name)
    print(f"\nGPTQ is ahead of rounding to nearest in every cell{' but ' + ', '.join(lost) if lost else ''}.")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    try:
        main()
    except peer_models.Unavailable as e:
        print(e, file=sys.stderr)
        sys.exit(77)

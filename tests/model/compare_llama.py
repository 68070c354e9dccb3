#!/usr/bin/env python3
"""Runs real models with crumb as shipped: against llama.cpp's answers in tests/oracle/llama, and against the memory
that they may take.

usage: compare_llama.py --build FOLDER tokens NAME                  ten prompts continue alike (of K-quants also four as their
                                                      f16 file continues them); smollm2-chat: questions
                                                      are put through the chat template, and answered, alike
       compare_llama.py --build FOLDER perplexity NAME [--chunks N] [--kv8-chunks N]
                                                      within 0.5 %; an 8-bit KV cache keeps that of f16's in N chunks
       compare_llama.py --build FOLDER divergence NAME    both find the same divergence from SmolLM2's F16 file, each in
                                                      the file of predictions that the other has written
       compare_llama.py --build FOLDER memory NAME    no more than its parts and one tensor

NAME is smollm2-Q4_1, smollm2-Q8_0, smollm2-Q4_0, smollm2-F16, one of SmolLM2's K-quants, smollm2-Q4_K_M ...,
ternary-TQ2_0 or ternary-TQ1_0. Without --chunks the whole text is judged (100 KiB of English). Exit status 77: a model or program cannot be had here.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import peer_models  # noqa: E402

TOLERANCE = 0.005
KV8_TOLERANCE = 0.001
DIVERGENCE_FLAGS = ["-c", "128", "--chunks", "8", "-t", "2"]
# Predictions differ by how activations are quantized: of the mean divergence as a part, of the likeliest token in percent.
DIVERGENCE_TOLERANCE, SAME_TOP_TOLERANCE = 0.05, 3


def measure(build, path, text, chunks, *flags):
    """The perplexity of the first 1, 2, ... chunks."""
    command = [str(build / "crumb"), "perplexity", "-m", str(path), "-f", str(text), *flags]
    if chunks:
        command += ["--chunks", str(chunks)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    said = done.stdout + done.stderr
    by_chunk = [float(value) for value in re.findall(r"\[\d+\](\d+\.\d+),", said)]
    final = float(re.search(r"Final estimate: PPL = (\d+\.\d+)", said).group(1))
    assert by_chunk and by_chunk[-1] == final, said
    return by_chunk


def perplexity(build, path, expected, a):
    text = peer_models.text()
    if peer_models.sha256(text) != expected["text_sha256"]:
        raise peer_models.Unavailable("the package debian-faq has another text now: run tests/oracle/llama_fixtures.py")
    ours = measure(build, path, text, a.chunks)
    theirs = expected["by_chunk"][a.chunks - 1] if a.chunks else expected["final"]
    difference = ours[-1] / theirs - 1
    print(f"perplexity of {len(ours)} chunks: {ours[-1]:.4f}, llama.cpp {theirs:.4f}: {difference:+.3%} of at most "
          f"{TOLERANCE:.1%}")
    good = abs(difference) <= TOLERANCE
    if a.kv8_chunks:
        f16, q8 = ours[a.kv8_chunks - 1], measure(build, path, text, a.kv8_chunks, "--kv-cache", "q8")[-1]
        print(f"perplexity of {a.kv8_chunks} chunks with an f16 cache {f16:.4f}, with an 8-bit one {q8:.4f}: "
              f"{q8 / f16 - 1:+.3%} of at most {KV8_TOLERANCE:.1%}")
        good = good and abs(q8 / f16 - 1) <= KV8_TOLERANCE
    return good


def say(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout + done.stderr


def divergence(build, path):
    base, text = str(peer_models.model("smollm2-F16")), str(peer_models.text())
    programs = {"crumb": [str(build / "crumb"), "perplexity"], "llama.cpp": peer_models.llama("llama-perplexity")}
    good = True
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for writer, command in programs.items():
            kept = f"{folder}/{writer}"
            say([*command, "-m", base, "-f", text, *DIVERGENCE_FLAGS, "--kl-divergence-base", kept])
            for reader, compare in programs.items():
                said = say([*compare, "-m", str(path), *DIVERGENCE_FLAGS, "--kl-divergence-base", kept, "--kl-divergence"])
                found[writer, reader] = [float(re.search(line + r" +(\d+\.\d+)", said).group(1))
                                         for line in (r"Mean    KLD:", r"Same top p:")]
                print(f"predictions kept by {writer}, compared by {reader}: mean divergence {found[writer, reader][0]}, "
                      f"same likeliest token {found[writer, reader][1]} %")
        kld, top = found["llama.cpp", "llama.cpp"]
        for k, t in found.values():
            good = good and abs(k / kld - 1) <= DIVERGENCE_TOLERANCE and abs(t - top) <= SAME_TOP_TOLERANCE
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=ROOT / "build")
    p.add_argument("what", choices=("tokens", "perplexity", "divergence", "memory"))
    p.add_argument("name")
    p.add_argument("--chunks", type=int, default=0)
    p.add_argument("--kv8-chunks", type=int, default=0)
    a = p.parse_args()
    fixture = ROOT / "tests" / "oracle" / "llama" / f"{a.name}.json"
    expected = json.loads(fixture.read_text())
    try:
        path = peer_models.model(expected["model"])
        programs = a.build / "tests" / "model"
        if a.what != "memory" and peer_models.sha256(path) != expected["model_sha256"]:
            print(f"note: {path} is not byte for byte the file that {fixture.name} was made with")
        if a.what == "perplexity":
            good = perplexity(a.build, path, expected["perplexity"], a)
        elif a.what == "divergence":
            good = divergence(a.build, path)
        elif a.what == "memory":
            good = subprocess.run([programs / "memory_of_model", path]).returncode == 0
        else:
            good = subprocess.run([programs / "continue_like_peer", path, fixture]).returncode == 0
    except peer_models.Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

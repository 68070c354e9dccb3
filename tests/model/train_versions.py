#!/usr/bin/env python3
"""What tools/train/compare.sh does, with few steps of a small corpus: each of its four versions of the embedded model is
trained, exported, and read by crumb, which must predict what the reference in numpy does.

usage: train_versions.py --build FOLDER     exit status 77: numpy cannot be had here
"""
import argparse
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "tools" / "train"
N_CTX, CHUNKS, STEPS = 64, 4, 40
VERSIONS = ("none", "seq", "ternary", "sign")
LEVELS = {"Q4_0": {-3, -1, 1, 3}, "I2_S": {-1, 0, 1}, "Q1_0": {-1, 1}}
TYPES = {"none": "F16", "seq": "Q4_0", "ternary": "I2_S", "sign": "Q1_0"}


def with_numpy():
    """This script again, by a Python that has numpy."""
    found = subprocess.run([sys.executable, str(ROOT / "tests" / "support" / "deps.py"), "venv", "oracle"],
                           stdout=subprocess.PIPE, text=True)
    if found.returncode != 0:
        sys.exit(found.returncode)
    python = os.path.join(found.stdout.strip(), "bin", "python")
    os.execve(python, [python, "-B", *sys.argv], {**os.environ, "CRUMB_TEST_NUMPY": "1", "OPENBLAS_NUM_THREADS": "1"})


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def script(name, *arguments):
    return run(sys.executable, "-B", TRAIN / name, *arguments)


def read_base(path):
    """-> (tokens [chunks][n_ctx], logarithms of probabilities [chunks][rows][n_vocab]) as tools/crumb/kld.h has them."""
    import numpy as np
    data = path.read_bytes()
    n_ctx, n_vocab, n_chunks = struct.unpack_from("<Iii", data, 8)
    tokens = np.frombuffer(data, "<i4", n_chunks * n_ctx, 20).reshape(n_chunks, n_ctx)
    rows = np.frombuffer(data, "<u2", offset=20 + tokens.nbytes).reshape(-1, 4 + n_vocab + n_vocab % 2)
    scale, lowest = rows[:, :4].copy().view("<f4").T
    logs = scale[:, None] * rows[:, 4:4 + n_vocab] + lowest[:, None]
    return tokens, logs.reshape(n_chunks, -1, n_vocab)


def check_levels(reference_model, version):
    """Every layer's codes are those that the version may have, and all of them occur."""
    import numpy as np
    if version == "none":
        return
    for name, w in reference_model.weights.items():
        if name.startswith("blk.") and "norm" not in name:
            seen = {int(c) for c in np.unique(w.codes)}
            if seen != LEVELS[TYPES[version]]:
                sys.exit(f"{version}: {name} has codes {sorted(seen)}")


def check_version(version, crumb, work):
    import numpy as np
    import reference
    checkpoint, model, base = (work / f"{version}{end}" for end in (".npz", ".gguf", ".kld"))
    script("train.py", "--corpus", work / "train.txt", "--tokenizer", work / "tokenizer.json", "--checkpoint",
           checkpoint, "--quant", version, "--steps", STEPS, "--batch", 4, "--seq", N_CTX, "--adam-lr", 0.01)
    script("export.py", checkpoint, work / "tokenizer.json", model, "--quant", version)
    loaded = reference.load(str(model))
    check_levels(loaded, version)
    run(crumb, "perplexity", "-m", model, "-f", work / "heldout.txt", "-c", N_CTX, "--chunks", CHUNKS, "--device", "cpu",
        "--kl-divergence-base", base)
    tokens, got = read_base(base)
    off, nll = [], []
    for chunk, rows in zip(tokens, got):
        ids = [loaded.tokenizer.end_id, *chunk[1:]]
        want = reference.log_softmax(reference.logits(loaded, ids[:-1])[N_CTX // 2:])
        off.append(np.abs(want - rows))
        nll.append(-want[np.arange(len(want)), ids[N_CTX // 2 + 1:]].mean())
    perplexity, n_vocab = float(np.exp(np.mean(nll))), loaded.config.vocab_size
    mean, most = float(np.mean(off)), float(np.max(off))
    print(f"{version}: perplexity {perplexity:.1f} of {n_vocab} tokens, log probabilities off by {mean:.5f}, at most {most:.4f}")
    if mean > 0.02 or most > 0.2:  # keys and values are f16 there, and an int8 activation may round the other way
        sys.exit(f"{version}: crumb's logarithms of probabilities are not the reference's")
    if perplexity > 0.6 * n_vocab:
        sys.exit(f"{version}: nothing was learned")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, default=ROOT / "build")
    crumb = p.parse_args().build.resolve() / "crumb"
    if "CRUMB_TEST_NUMPY" not in os.environ:
        with_numpy()
    sys.path.insert(0, str(TRAIN))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        print(script("train.py", "--selftest").strip())
        script("corpus.py", work / "train.txt", "--texts", 400, "--seed", 1)
        script("tokenizer.py", work / "train.txt", work / "tokenizer.json", "--vocab-size", 320)
        script("corpus.py", work / "heldout-lines.txt", "--texts", 10, "--seed", 2)
        text = (work / "heldout-lines.txt").read_text(encoding="utf-8")
        (work / "heldout.txt").write_text(text.replace("\\n", "\n"), encoding="utf-8")
        for version in VERSIONS:
            check_version(version, crumb, work)


if __name__ == "__main__":
    main()

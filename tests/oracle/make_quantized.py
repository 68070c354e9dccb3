#!/usr/bin/env python3
"""Makes tests/oracle/quantized.safetensors: rows of weights, and the bytes that the `gguf` package's quantizers make of
them, by type. tests/unit/test_encode.c holds crumb's encoders to these.

usage: make_quantized.py [FILE]     (needs the packages of group oracle in tests/deps.lock)
"""
import os
import sys

import gguf
import numpy as np

import make_checkpoints

TYPES = ("Q8_0", "Q4_0", "Q4_1", "TQ1_0", "TQ2_0", "MXFP4", "BF16", "F16")


def weights():
    """Rows of all kinds: usual ones, few large ones, ternary ones, zeros, powers of two and what lies beside them."""
    rng = np.random.default_rng(3)
    k = 512
    rows = [rng.normal(0, 0.05, k) for _ in range(24)]
    rows += [rng.normal(0, 0.02, k) * np.exp(rng.normal(0, 1.5, k)) for _ in range(8)]
    rows += [rng.integers(-1, 2, k) * 0.75, np.zeros(k), rng.integers(-8, 8, k) / 8, rng.integers(-127, 128, k) / 64]
    edges = 2.0 ** rng.integers(-20, 6, k)
    rows += [edges, np.nextafter(edges.astype(np.float32), np.float32(0)), -edges, rng.integers(-15, 16, k) / 2]
    rows += [rng.normal(0, 1e-6, k), rng.normal(0, 300, k)]
    return np.stack(rows).astype("<f4")


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(make_checkpoints.HERE, "quantized.safetensors")
    w = weights()
    out = {"weights": w}
    for name in TYPES:
        data = gguf.quants.quantize(w, gguf.GGMLQuantizationType[name])
        out[name] = np.ascontiguousarray(data).view(np.uint8).reshape(len(w), -1)
    make_checkpoints.write_safetensors(path, out)


if __name__ == "__main__":
    main()

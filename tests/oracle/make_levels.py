#!/usr/bin/env python3
"""Makes tests/oracle/levels.safetensors: matrices as ParetoQ trains them, and the codes of the levels that its rounding
puts them on, written from its definitions. tests/unit/test_levels.c holds crumb's reading to these.

behind.BITS.DTYPE: weights behind the levels and the scale of each row (.weight, .weight_clip_val). BITS as w_bits, 0 being
ternary. on.BITS.DTYPE: the levels themselves as weights. With each .codes, bytes that are 8 more than a code, and .units,
what a row's codes are multiplied with: of weights that are levels only near what is found, as these are rounded.

usage: make_levels.py [FILE]     (needs numpy)
"""
import os
import sys

import numpy as np

import make_checkpoints

ROWS, K = 6, 256
DTYPES = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}


def to_bf16(x):
    """The nearest, as bits; of two the even one."""
    bits = np.ascontiguousarray(x, "<f4").view("<u4")
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2")


def rounded(x, dtype):
    """f32 values that a dtype holds."""
    x = np.asarray(x, np.float32)
    if dtype == "bf16":
        return (to_bf16(x).astype("<u4") << 16).view("<f4").reshape(x.shape)
    return x.astype(np.float16).astype(np.float32) if dtype == "f16" else x


def stored(x, dtype):
    return to_bf16(x) if dtype == "bf16" else x.astype(DTYPES[dtype])


def pareto(w, scale, bits, dtype):
    """(codes, unit of each row): as PyTorch computes it in a dtype, each operation rounded."""
    def r(x):
        return rounded(x, dtype)
    part = r(w / scale)
    if bits == 1:
        return np.sign(w), scale
    if bits == 0:
        return np.rint(r(np.clip(part, -0.99, 0.99) * np.float32(1.5))), r(r(np.float32(1) / np.float32(1.5)) * scale)
    if bits == 2:
        return 2 * np.rint(r(r(np.clip(part, -0.99, 0.99) * 2) - np.float32(0.5))) + 1, scale / 4
    return np.clip(np.rint(part), -(1 << bits - 1), (1 << bits - 1) - 1), scale


def first_scale(w, bits):
    magnitude = np.abs(w)
    if bits == 1:
        return magnitude.mean(axis=1, keepdims=True)
    largest = magnitude.max(axis=1, keepdims=True)
    return largest * np.float32(0.7) if bits in (0, 2) else largest / ((1 << bits - 1) - 1)


def add(out, name, weight, codes, units, dtype):
    out.update({f"{name}.weight": stored(weight, dtype), f"{name}.codes": (codes + 8).astype(np.uint8),
                f"{name}.units": np.asarray(units, "<f4").reshape(-1)})


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(make_checkpoints.HERE, "levels.safetensors")
    rng, out = np.random.default_rng(11), {}
    for bits in range(5):
        for dtype in ("f32", "bf16"):
            w = rounded(rng.normal(0, 0.05, (ROWS, K)), dtype)
            scale = rounded(first_scale(w, bits), dtype)
            borders = np.outer(scale, np.arange(-8, 8)) / (2 if bits in (0, 2) else 1)
            w[:, :32] = rounded(np.concatenate([borders, borders * (1 + 2 ** -9)], axis=1), dtype)
            if bits == 1:
                w[:, 8] = w[:, 24] = scale[:, 0]  # no zeros
            codes, units = pareto(w, scale, bits, dtype)
            add(out, f"behind.{bits}.{dtype}", w, codes, units, dtype)
            out[f"behind.{bits}.{dtype}.weight_clip_val"] = stored(scale, dtype)
        for dtype in DTYPES:
            low, high = ((-1, 1), (-1, 1), (-3, 3), (-4, 3), (-8, 7))[bits]
            codes = rng.integers(low, high + 1, (ROWS, K))
            if bits in (1, 2):
                codes = np.where(codes % 2 == 0, codes - 1, codes)
                codes[0] = codes[0] | 1
            codes[2] = np.where(codes[2] > 0, 1, -1)  # one magnitude
            codes[0, :2] = low, high
            units = rng.uniform(0.01, 0.1, (ROWS, 1)).astype(np.float32)
            if dtype != "f32":
                units[4:] = rounded(units[4:], dtype)
            units[1] = 0  # a row of zeros
            add(out, f"on.{bits}.{dtype}", units * codes.astype(np.float32), codes, units, dtype)
    make_checkpoints.write_safetensors(path, out)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/oracle/gptq.safetensors: weights of small layers, inputs of theirs, and the codes, scales and zero points
that GPTQ (Frantar et al. 2022) finds for them, by the paper's definition: one column after the other, with numpy's
inverse and Cholesky factor, and grids of the least squared error. tests/unit/test_gptq.c holds crumb's solver to these.

usage: make_gptq.py [FILE]     (needs the packages of group oracle in tests/deps.lock)
"""
import os
import sys

import numpy as np

import make_checkpoints

DAMPING = 0.01
# (layer, bits, group; 0: a row, order)
CASES = [("usual", bits, group, order) for bits in (2, 3, 4) for group in (16, 32, 96, 0) for order in
         ("plain", "static", "free") if group < 96 or order != "static"]
CASES += [("dead", bits, group, order) for bits in (3, 4) for group in (16, 40, 0) for order in ("plain", "free")]
CASES += [("usual", bits, 64, order) for bits in (2, 4) for order in ("plain", "static", "free")]  # the last is shorter
CASES += [("single", 4, 16, "plain"), ("single", 2, 0, "free"), ("wide", 4, 128, "plain"), ("wide", 3, 64, "static")]


def layers():
    """{name: (weights [m][k], inputs [n][k])}: correlated inputs of uneven size; fewer of them than columns, of which
    some are always zero; a single one; one with blocks to spare."""
    rng = np.random.default_rng(8)

    def layer(m, k, n):
        mix = rng.normal(0, 1, (k, k)) * np.exp(rng.normal(0, 1, k))
        return [rng.normal(0, 0.05, (m, k)).astype("<f4"), (rng.normal(0, 1, (n, k)) @ mix).astype("<f4")]

    out = {"usual": layer(24, 96, 150), "dead": layer(33, 80, 50), "single": layer(5, 64, 1), "wide": layer(8, 256, 70)}
    out["dead"][1][:, [0, 17, 18, 79]] = 0
    out["dead"][0][3] = 0
    return out


def away(x):
    """To the nearest whole number, halves away from 0."""
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def fit(w, importance, bits):
    """Scales and zero points of rows: of ranges from the least to the largest weight and narrower ones, the one with the
    least squared error, columns counting as they matter."""
    most = 2**bits - 1
    low, high, best, scale, zero = np.minimum(w.min(1), 0), np.maximum(w.max(1), 0), np.full(len(w), np.inf), 0, 1
    for part in np.arange(24, 5, -1) / 24:
        s = ((high - low) * part / most).astype(np.float32).astype(np.float16).astype(np.float64)
        step = np.where(s > 0, s, 1)
        z = np.clip(np.where(s > 0, away(-low * part / step), 1), 1, most)
        codes = np.clip(away(w / step[:, None]) + z[:, None], 0, most)
        error = ((w - s[:, None] * (codes - z[:, None]))**2) @ importance
        scale, zero = np.where(error < best, s, scale), np.where(error < best, z, zero)
        best = np.minimum(best, error)
    return scale, zero


def gptq(w, x, bits, group, order):
    (m, k), w, x = w.shape, w.astype(np.float64), x.astype(np.float64)
    group = group or k
    n_groups = -(-k // group)
    h = x.T @ x
    dead = np.diag(h) == 0
    h[dead, dead] = 1
    importance = np.diag(h).copy()
    w[:, dead] = 0
    turn = np.argsort(-np.diag(h), kind="stable") if order != "plain" else np.arange(k)
    h[np.diag_indices(k)] += DAMPING * np.mean(np.diag(h))
    upper = np.linalg.cholesky(np.linalg.inv(h[turn][:, turn])).T
    group_of = np.empty(k, np.int32)
    group_of[turn if order == "free" else np.arange(k)] = np.arange(k) // group
    scales, zeros, codes = np.zeros((m, n_groups)), np.zeros((m, n_groups)), np.zeros((m, k), np.uint8)
    if order == "static":
        for g in range(n_groups):
            scales[:, g], zeros[:, g] = fit(w[:, group_of == g], importance[group_of == g], bits)
    w = w[:, turn]
    for i in range(k):
        if order != "static" and i % group == 0:
            scales[:, i // group], zeros[:, i // group] = fit(w[:, i:i + group], importance[turn[i:i + group]], bits)
        scale, zero = scales[:, group_of[turn[i]]], zeros[:, group_of[turn[i]]]
        code = np.clip(np.where(scale > 0, away(w[:, i] / np.where(scale > 0, scale, 1)), 0) + zero, 0, 2**bits - 1)
        codes[:, turn[i]] = code
        w[:, i:] -= np.outer((w[:, i] - scale * (code - zero)) / upper[i, i], upper[i, i:])
    return codes, scales.astype("<f4"), zeros.astype(np.uint8), group_of


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(make_checkpoints.HERE, "gptq.safetensors")
    out, found = {}, layers()
    for name, (w, x) in found.items():
        out[f"{name}.w"], out[f"{name}.x"] = w, x
    for name, bits, group, order in CASES:
        results = gptq(*found[name], bits, group, order)
        for part, result in zip(("codes", "scales", "zeros", "group_of"), results):
            out[f"{name}.{bits}.{group}.{order}.{part}"] = np.ascontiguousarray(result)
    make_checkpoints.write_safetensors(path, out)


if __name__ == "__main__":
    main()

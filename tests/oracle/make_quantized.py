#!/usr/bin/env python3
"""Makes tests/oracle/quantized.safetensors: rows of weights, and the bytes that the `gguf` package's quantizers make of
them, by type. tests/unit/test_encode.c holds crumb's encoders to these. For the methods that nobody else has, the bytes
are made here, from the methods' definitions: "seq.TYPE" (ParetoQ's levels) and "absmean.TYPE" (BitNet b1.58).

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


def seq_unit(x):
    """The unit with the least squared error of levels -3, -1, 1, 3: the best of all places to cut the magnitudes."""
    m = np.sort(np.abs(x.astype(np.float64)))
    best, most = 0.0, -1.0
    for inner in range(len(m), -1, -1):
        total, squares = np.add.accumulate(np.append(0, m))[-1], inner + 9.0 * (len(m) - inner)
        for outer in m[inner:][::-1]:
            total += 2 * outer
        if total * total / squares > most:
            best, most = total / squares, total * total / squares
    return best


def seq_codes(x, unit):
    """0..3 as ParetoQ rounds: clip(x / scale), times 2, less a half, to even; scale is four units."""
    if unit == 0:
        return np.where(x > 0, 3, np.where(x < 0, 0, 2))
    part = np.clip(x.astype(np.float64) / (4 * np.float64(unit)), -0.99, 0.99)
    return (np.rint(2 * part - 0.5) + 2).astype(int)


def seq_q4_0(x):
    unit = np.float16(np.float32(seq_unit(x)))
    codes = (8 + 2 * seq_codes(x, np.float32(unit)) - 3).astype(np.uint8)
    return unit.tobytes() + (codes[:16] | codes[16:] << 4).tobytes()


def seq_q2_k(x):
    """The best of 14 units for a block, and for each of its 16 groups the better of two multiples of it."""
    groups, wanted = x.reshape(16, 16), [seq_unit(g) for g in x.reshape(16, 16)]
    tries = [seq_unit(x) / j for j in range(1, 6)] + [max(wanted) * (1 - i * 0.05) / 5 for i in range(9)]
    least, chosen = np.inf, None
    for unit in (np.float32(np.float16(np.float32(u))) for u in tries):
        multiples, error = [], 0.0
        for g, want in zip(groups, wanted):
            low = min(int(want // np.float64(unit)), 4) if unit > 0 else 0
            errors = []
            for m in (low, low + 1):
                level = np.float64(unit * np.float32(m)) * (2 * seq_codes(g, unit * np.float32(m)) - 3)
                errors.append(np.add.accumulate((g.astype(np.float64) - level) ** 2)[-1])
            multiples.append(low + int(errors[1] < errors[0]))
            error += min(errors)
        if error < least:
            least, chosen = error, (unit, multiples)
    unit, multiples = chosen
    codes = np.concatenate([seq_codes(g, unit * np.float32(m)) for g, m in zip(groups, multiples)])
    planes = codes.reshape(2, 4, 32).astype(np.uint8)
    packed = planes[:, 0] | planes[:, 1] << 2 | planes[:, 2] << 4 | planes[:, 3] << 6
    d = np.float16(unit).tobytes()
    return bytes(2 * m | 3 * m << 4 for m in multiples) + packed.tobytes() + d + d


def absmean_codes(w):
    """0..2, and the scale: the mean magnitude of the whole tensor."""
    scale = np.float32(np.abs(w.astype(np.float64)).mean())
    return np.clip(np.trunc(w / scale + np.copysign(np.float32(0.5), w)), -1, 1).astype(int) + 1, scale


def absmean_tq2_0(codes, scale):
    planes = codes.reshape(2, 4, 32).astype(np.uint8)
    packed = planes[:, 0] | planes[:, 1] << 2 | planes[:, 2] << 4 | planes[:, 3] << 6
    return packed.tobytes() + np.float16(scale).tobytes()


def absmean_tq1_0(codes, scale):
    def trits(c, n):
        value = sum(c.reshape(-1, n)[t] * 3 ** (4 - t) for t in range(len(c) // n))
        return (-(-value * 256 // 243)).astype(np.uint8).tobytes()
    return trits(codes[:160], 32) + trits(codes[160:240], 16) + trits(codes[240:], 4) + np.float16(scale).tobytes()


def rows_of_blocks(w, n, encode):
    return np.stack([np.frombuffer(b"".join(encode(x) for x in row.reshape(-1, n)), np.uint8) for row in w])


def methods(w):
    codes, scale = absmean_codes(w)
    return {"seq.Q4_0": rows_of_blocks(w, 32, seq_q4_0), "seq.Q2_K": rows_of_blocks(w, 256, seq_q2_k),
            "absmean.TQ1_0": rows_of_blocks(codes, 256, lambda c: absmean_tq1_0(c, scale)),
            "absmean.TQ2_0": rows_of_blocks(codes, 256, lambda c: absmean_tq2_0(c, scale))}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(make_checkpoints.HERE, "quantized.safetensors")
    w = weights()
    out = {"weights": w}
    for name in TYPES:
        data = gguf.quants.quantize(w, gguf.GGMLQuantizationType[name])
        out[name] = np.ascontiguousarray(data).view(np.uint8).reshape(len(w), -1)
    out.update(methods(w))
    make_checkpoints.write_safetensors(path, out)


if __name__ == "__main__":
    main()

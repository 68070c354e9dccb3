#!/usr/bin/env python3
"""Makes tests/oracle/types/*.gguf, one file per type of low-bit or dense weights: tensors and what they decode to.

Tensor "quantized" comes from the `gguf` package's own quantizer, "random" has random bytes with finite scales: every
code occurs, also those that no quantizer writes. "NAME.expected" holds the floats, decoded by the `gguf` package where
it knows the type, and else by decode() below, written straight from the layouts. tests/unit/test_types.c compares.

usage: make_types.py [FOLDER]     (needs requirements.txt)
"""
import os
import struct
import sys

import gguf
import numpy as np

import block_types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
import gguf_write  # noqa: E402

ROWS = 3
# type: offsets of the f16 fields in a block
F16_FIELDS = {"Q4_0": [0], "Q4_1": [0, 2], "Q8_0": [0], "TQ1_0": [52], "TQ2_0": [64], "Q1_0": [0], "Q2_0": [0],
              "Q2_0_G128": [0], "PTQ1_0": [26], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
              "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "MXFP4": []}


def finite_halves(rng, n):
    """f16 patterns of all finite kinds: zeros, subnormals, both signs, the largest."""
    bits = rng.integers(0, 0x10000, n).astype("<u2")
    bits[(bits & 0x7c00) == 0x7c00] ^= 0x4000
    bits[:4] = [0, 0x8000, 1, 0x7bff]
    return bits


def random_bytes(rng, name, k):
    _, block, size = gguf_write.TYPES[name]
    if name == "F32":
        bits = rng.integers(0, 1 << 32, ROWS * k).astype("<u4")
        bits[(bits & 0x7f800000) == 0x7f800000] ^= 0x40000000
        return bits.tobytes()
    if name in ("F16", "BF16"):
        bits = finite_halves(rng, ROWS * k)
        if name == "BF16":
            bits[(bits & 0x7f80) == 0x7f80] ^= 0x4000
        return bits.tobytes()
    if name == "I2_S":
        codes = rng.integers(0, 3, (ROWS, k)).astype(np.uint8)
        return gguf_write.pack_i2_s(codes, -0.7071)
    raw = rng.integers(0, 256, (ROWS * k // block, size)).astype(np.uint8)
    if name == "TQ2_0":
        raw &= ~(raw >> 1 & 0x55)  # no code 3, which is damage
    if name == "MXFP4":
        raw[:, 0] = rng.permutation(np.linspace(0, 252, len(raw)).astype(np.uint8))  # 253 and more is damage
    for at in F16_FIELDS[name]:
        raw[:, at:at + 2] = rng.permutation(finite_halves(rng, len(raw))).view(np.uint8).reshape(-1, 2)
    return raw.tobytes()


def decode(name, data, k):
    """What the `gguf` package lacks."""
    _, block, size = gguf_write.TYPES[name]
    raw = np.frombuffer(data[:ROWS * k // block * size], np.uint8).reshape(-1, size)
    if name == "PTQ1_0":
        values, scale, _ = block_types.ptq1_0(raw)
        return (scale * values.astype(np.float32)).astype(np.float32)
    if name == "I2_S":
        d = np.full((len(raw), 1), struct.unpack_from("<f", data, raw.size)[0], np.float32)
        codes = raw[:, None, :] >> np.array([6, 4, 2, 0], np.uint8)[:, None] & 3
    else:
        d = np.ascontiguousarray(raw[:, :2]).view("<f2").astype(np.float32)
        bits = 1 if name == "Q1_0" else 2
        codes = raw[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2 ** bits - 1)
    codes = codes.reshape(len(raw), block).astype(np.float32)
    return (d * (2 * codes - 1 if name == "Q1_0" else codes - 1)).astype(np.float32)


def expected(name, data, k):
    kind = gguf.GGMLQuantizationType.__members__.get(name)
    _, block, size = gguf_write.TYPES[name]
    if kind is not None and name != "I2_S":
        try:
            raw = np.frombuffer(data, np.uint8).reshape(ROWS, k // block * size)
            return gguf.quants.dequantize(raw, kind).astype("<f4"), "gguf"
        except NotImplementedError:
            pass
    return decode(name, data, k), "transcribed"


def quantized(rng, name, k):
    """The package's quantizer on plausible weights, or None where it has none."""
    kind = gguf.GGMLQuantizationType.__members__.get(name)
    weights = rng.normal(0, 0.05, (ROWS, k)).astype(np.float32)
    weights[1, :k // 2] = 0  # a block of zeros
    try:
        return gguf.quants.quantize(weights, kind).tobytes() if kind is not None else None
    except NotImplementedError:
        return None


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "types")
    os.makedirs(folder, exist_ok=True)
    for seed, (name, (_, block, _)) in enumerate(gguf_write.TYPES.items()):
        rng = np.random.default_rng(seed)
        k = 192 if block <= 64 else 768  # whole blocks, and large enough for id 42 to be told by size
        writer = gguf_write.Writer()
        for tensor, data in (("quantized", quantized(rng, name, k)), ("random", random_bytes(rng, name, k))):
            if data is None:
                continue
            values, source = expected(name, data, k)
            writer.put(f"{tensor}.decoded_by", source)
            writer.add(tensor, [k, ROWS], name, data)
            writer.add(f"{tensor}.expected", [k, ROWS], "F32", values.astype("<f4").tobytes())
        path = os.path.join(folder, name.lower() + ".gguf")
        writer.write(path)
        print(f"{path}: {os.path.getsize(path)} bytes, decoded by {source}")


if __name__ == "__main__":
    main()

"""Writes GGUF v3 files and packs low-bit weights, straight from the layouts of each type (numpy only).

The tools and tests that make models use it. The `gguf` package knows fewer types (no I2_S, no Q2_0, no PTQ1_0); where it knows
one, tests/oracle/make_models.py holds this module to it.

TYPES has all types, PACK those that something is written in. A packer takes codes u, uint8 [M][K], and per block the f16 scale d (and min m, for Q4_1), [M][K/block], and returns the
tensor's bytes. What a code stands for: Q4_0 (u-8)d, Q4_1 u*d+m, Q8_0 (u-128)d, ternary (u-1)d, Q1_0 (2u-1)d, Q2_0 (u-1)d.
"""
import os
import struct

import numpy as np

ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # value types

# name: (tensor type id, weights per block, bytes per block)
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20),
         "Q8_0": (8, 32, 34), "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "I2_S": (36, 128, 32),
         "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18), "Q2_0_G128": (42, 128, 34), "PTQ1_0": (143, 128, 28),
         "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110),
         "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ4_NL": (20, 32, 18),
         "MXFP4": (39, 32, 17)}


def half_bytes(d, n):
    """n f16 values as [n][2] bytes; one value serves all."""
    return np.broadcast_to(np.asarray(d, "<f2").reshape(-1, 1).view(np.uint8), (n, 2))


def nibbles(u):
    """Blocks of 32: byte j holds code j in its low bits and code j + 16 in its high bits."""
    q = u.reshape(-1, 2, 16)
    return q[:, 0] | q[:, 1] << 4


def base3(trits):
    """[n][5 or 4][w] trits -> [n][w] bytes, ceil(256 v / 243) with the first trit the most significant."""
    value = np.zeros((trits.shape[0], trits.shape[2]), np.uint16)
    for i in range(5):
        value = value * 3 + (trits[:, i] if i < trits.shape[1] else 0)
    return ((value * 256 + 242) // 243).astype(np.uint8)


def blocks(*parts):
    return np.concatenate(parts, axis=1).tobytes()


def pack_q4_0(u, d):
    q = nibbles(u)
    return blocks(half_bytes(d, len(q)), q)


def pack_q4_1(u, d, m):
    q = nibbles(u)
    return blocks(half_bytes(d, len(q)), half_bytes(m, len(q)), q)


def pack_q8_0(u, d):
    q = (u.astype(np.int16) - 128).astype(np.int8).view(np.uint8).reshape(-1, 32)
    return blocks(half_bytes(d, len(q)), q)


def pack_tq1_0(u, d):
    q = u.reshape(-1, 256)
    return blocks(base3(q[:, :160].reshape(-1, 5, 32)), base3(q[:, 160:240].reshape(-1, 5, 16)),
                  base3(q[:, 240:].reshape(-1, 4, 4)), half_bytes(d, len(q)))


def pack_tq2_0(u, d):
    q = u.reshape(-1, 2, 4, 32)
    return blocks((q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6).reshape(-1, 64),
                  half_bytes(d, len(q)))


def pack_i2_s(u, d):
    """One f32 scale for the tensor behind all codes, and 28 bytes of padding."""
    q = u.reshape(-1, 4, 32)
    return (q[:, 0] << 6 | q[:, 1] << 4 | q[:, 2] << 2 | q[:, 3]).tobytes() + struct.pack("<f", d) + bytes(28)


def pack_q1_0(u, d):
    q = np.packbits(u.reshape(-1, 128), axis=1, bitorder="little")
    return blocks(half_bytes(d, len(q)), q)


def pack_q2_0(u, d, block=64):
    q = u.reshape(-1, block // 4, 4)
    return blocks(half_bytes(d, len(q)), q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6)


def pack_q2_0_g128(u, d):
    return pack_q2_0(u, d, 128)


PACK = {"Q4_0": pack_q4_0, "Q4_1": pack_q4_1, "Q8_0": pack_q8_0, "TQ1_0": pack_tq1_0, "TQ2_0": pack_tq2_0,
        "I2_S": pack_i2_s, "Q1_0": pack_q1_0, "Q2_0": pack_q2_0, "Q2_0_G128": pack_q2_0_g128}


def dense(type_name, w):
    """A float array as the bytes of F32, F16 or BF16 (rounded to nearest, ties to even)."""
    if type_name != "BF16":
        return w.astype({"F32": "<f4", "F16": "<f2"}[type_name]).tobytes()
    bits = np.ascontiguousarray(w, "<f4").view("<u4")
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


def tensor_bytes(type_name, dims):
    _, block, block_bytes = TYPES[type_name]
    n = int(np.prod(dims))
    if dims[0] % block:
        raise ValueError(f"{type_name} needs rows of whole blocks of {block}, not {dims[0]}")
    return n // block * block_bytes + (32 if type_name == "I2_S" else 0)


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


class Writer:
    """Collects keys and tensors; `write` streams the tensors, so that a large model never lies in memory."""

    def __init__(self):
        self.values = []
        self.tensors = []

    def put(self, key, value):
        """str, bool, int (u32), float (f32), or a list of str, int (i32) or float."""
        if isinstance(value, list):
            if isinstance(value[0], str):
                kind, body = STRING, b"".join(map(_string, value))
            else:
                kind, dtype = (F32, "<f4") if isinstance(value[0], float) else (I32, "<i4")
                body = np.asarray(value, dtype).tobytes()
            kind, body = ARRAY, struct.pack("<IQ", kind, len(value)) + body
        elif isinstance(value, str):
            kind, body = STRING, _string(value)
        elif isinstance(value, bool):
            kind, body = BOOL, struct.pack("<?", value)
        else:
            kind, body = (F32, struct.pack("<f", value)) if isinstance(value, float) else (U32, struct.pack("<I", value))
        self.values.append(_string(key) + struct.pack("<I", kind) + body)

    def add(self, name, dims, type_name, data):
        """dims as in the file: K first. `data`: bytes, or a function that returns an iterable of them."""
        self.tensors.append((name, dims, type_name, data))

    def write(self, path):
        part = path + ".part"  # an interrupted run leaves no file that looks finished
        with open(part, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.values)) + b"".join(self.values))
            offset = 0
            for name, dims, type_name, _ in self.tensors:
                f.write(_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPES[type_name][0], offset))
                offset += -(-tensor_bytes(type_name, dims) // ALIGNMENT) * ALIGNMENT
            for name, dims, type_name, data in self.tensors:
                f.write(bytes(-f.tell() % ALIGNMENT))
                start = f.tell()
                for chunk in [data] if isinstance(data, bytes) else data():
                    f.write(chunk)
                if f.tell() - start != tensor_bytes(type_name, dims):
                    raise ValueError(f"{name}: {f.tell() - start} bytes for {dims} of {type_name}")
            f.write(bytes(-f.tell() % ALIGNMENT))
        os.replace(part, path)

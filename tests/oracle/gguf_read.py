"""Reads GGUF v3 files into numpy, low-bit tensors in their logical form (written from the format's description, and
independent of tools/gguf_write.py: make_models.py checks the two against each other and against the `gguf` package)."""
import struct
from dataclasses import dataclass

import numpy as np

import block_types

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
DENSE = {0: "F32", 1: "F16", 30: "BF16"}
# id: name, weights per block, bytes per block, mul, sub: w = scale * (mul * code - sub) + min
LOW_BIT = {2: ("Q4_0", 32, 18, 1, 8), 3: ("Q4_1", 32, 20, 1, 0), 8: ("Q8_0", 32, 34, 1, 128),
           34: ("TQ1_0", 256, 54, 1, 1), 35: ("TQ2_0", 256, 66, 1, 1), 36: ("I2_S", 128, 32, 1, 1),
           41: ("Q1_0", 128, 18, 2, 1), 42: ("Q2_0", 64, 18, 1, 1)}


@dataclass
class Matrix:
    """w[m,k] = scale[m,g] * value[m,k] + min[m,g], g = k // group; or `w` itself where it is dense."""
    type: str
    w: np.ndarray = None  # float32 [M][K]
    values: np.ndarray = None  # int64 [M][K]: what codes stand for
    scale: np.ndarray = None  # float32 [M][K/group]
    min: np.ndarray = None
    group: int = 0

    def to_float(self):
        if self.values is None:
            return self.w
        wide = np.repeat(self.scale, self.group, axis=1).astype(np.float64) * self.values
        return (wide + np.repeat(self.min, self.group, axis=1)).astype(np.float32)


class _Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        values = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return values[0] if len(values) == 1 else values

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            element, n = self.take("IQ")
            return [self.value(element) for _ in range(n)]
        return self.take(SCALARS[kind])


def trits(q, places):
    """Base-3 bytes [n][w] -> [n][places][w] trits, by the type's own fixed-point rule."""
    power = 3 ** np.arange(places)
    return ((q[:, None, :] * power[:, None] & 255) * 3) >> 8


def codes_of(name, b):
    """Codes of blocks b, int64 [n][bytes] without scales -> [n][weights]."""
    n = len(b)
    if name in ("Q4_0", "Q4_1"):
        return np.concatenate([b & 15, b >> 4], axis=1)
    if name == "Q8_0":
        return (b + 128) & 255  # two's complement + 128
    if name == "TQ2_0":
        return (b.reshape(n, 2, 1, 32) >> np.arange(0, 8, 2)[:, None] & 3).reshape(n, 256)
    if name == "TQ1_0":
        return np.concatenate([trits(b[:, :32], 5).reshape(n, -1), trits(b[:, 32:48], 5).reshape(n, -1),
                               trits(b[:, 48:], 4).reshape(n, -1)], axis=1)
    if name == "I2_S":
        return (b[:, None, :] >> np.array([6, 4, 2, 0])[:, None] & 3).reshape(n, 128)
    if name == "Q1_0":
        return (b[:, :, None] >> np.arange(8) & 1).reshape(n, -1)
    return (b[:, :, None] >> np.arange(0, 8, 2) & 3).reshape(n, -1)  # Q2_0


def read_low_bit(kind, data, rows, k):
    name, block, size, mul, sub = LOW_BIT[kind]
    if kind == 42 and len(data) < rows * k // 64 * 18:  # too short for groups of 64
        block, size = 128, 34
    n = rows * k // block
    raw = np.frombuffer(data[:n * size], np.uint8).reshape(n, size)
    scale_first = name in ("Q4_0", "Q4_1", "Q8_0", "Q1_0", "Q2_0")
    if name == "I2_S":
        scale = np.full((rows, k // block), struct.unpack_from("<f", data, n * size)[0], np.float32)
        body = raw
    else:
        half = raw[:, :2] if scale_first else raw[:, -2:]
        scale = np.ascontiguousarray(half).view("<f2").astype(np.float32).reshape(rows, -1)
        body = raw[:, 2:] if scale_first else raw[:, :-2]
    low = np.zeros_like(scale)
    if name == "Q4_1":
        low = np.ascontiguousarray(raw[:, 2:4]).view("<f2").astype(np.float32).reshape(rows, -1)
        body = raw[:, 4:]
    codes = codes_of(name, body.astype(np.int64)).reshape(rows, k)
    return Matrix(name, values=mul * codes - sub, scale=scale, min=low, group=block)


def read_pieces(kind, data, rows, k):
    name, block, size, group, decode = block_types.TYPES[kind]
    n = rows * k // block
    values, scale, low = decode(np.frombuffer(data[:n * size], np.uint8).reshape(n, size))
    return Matrix(name, values=values.reshape(rows, k), scale=scale.reshape(rows, -1), min=low.reshape(rows, -1),
                  group=group)


def read_dense(kind, data, rows, k):
    n = rows * k
    if kind == 30:
        w = (np.frombuffer(data, "<u2", n).astype("<u4") << 16).view("<f4")
    else:
        w = np.frombuffer(data, {0: "<f4", 1: "<f2"}[kind], n).astype(np.float32)
    return Matrix(DENSE[kind], w=w.reshape(rows, k))


def read(path):
    """-> (keys, tensors): metadata as Python values; Matrix objects, one-dimensional tensors with one row."""
    with open(path, "rb") as f:
        data = f.read()
    c = _Cursor(data)
    if c.take("4s") != b"GGUF" or c.take("I") != 3:
        raise ValueError(f"{path}: not GGUF v3")
    n_tensors, n_keys = c.take("QQ")
    keys = {}
    for _ in range(n_keys):
        key = c.string()
        keys[key] = c.value(c.take("I"))
    infos = []
    for _ in range(n_tensors):
        name, n_dims = c.string(), c.take("I")
        dims = [c.take("Q") for _ in range(n_dims)]
        infos.append((name, dims, *c.take("IQ")))
    alignment = keys.get("general.alignment", 32)
    start = -(-c.at // alignment) * alignment
    ends = sorted([offset for *_, offset in infos] + [len(data) - start])
    tensors = {}
    for name, dims, kind, offset in infos:
        span = data[start + offset:start + ends[ends.index(offset) + 1]]
        reader = read_dense if kind in DENSE else read_pieces if kind in block_types.TYPES else read_low_bit
        tensors[name] = reader(kind, span, int(np.prod(dims[1:])), dims[0])
    return keys, tensors

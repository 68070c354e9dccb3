"""Blocks of the types whose codes or scales are in several pieces, in their logical form (numpy, written from the
layouts; gguf_read.py reads files with it).

Each function takes raw blocks, uint8 [n][bytes], and returns values, int64 [n][weights], and float32 scales and mins,
[n][groups]: w = scale * value + min.
"""
import numpy as np

IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])


def half(raw, at):
    """The f16 at byte `at` of each block, as a column."""
    return np.ascontiguousarray(raw[:, at:at + 2]).view("<f2").astype(np.float32)


def nibbles(b):
    """[n][w] bytes: the low nibbles, then the high ones."""
    return np.concatenate([b & 15, b >> 4], axis=-1)


def planes(b, bits):
    """[n][w] bytes: the lowest `bits` bits of each, then the next ones."""
    return (b[:, None, :] >> np.arange(0, 8, bits)[:, None] & (2 ** bits - 1)).reshape(len(b), -1)


def no_min(scale):
    return np.zeros_like(scale)


def q5(raw, at, sub):
    b = raw.astype(np.int64)
    high = np.unpackbits(raw[:, at:at + 4], axis=1, bitorder="little").astype(np.int64)
    return (nibbles(b[:, at + 4:]) | high << 4) - sub


def q5_0(raw):
    scale = half(raw, 0)
    return q5(raw, 2, 16), scale, no_min(scale)


def q5_1(raw):
    return q5(raw, 4, 0), half(raw, 0), half(raw, 2)


def q2_k(raw):
    b = raw.astype(np.int64)
    values = np.concatenate([planes(b[:, 16:48], 2), planes(b[:, 48:80], 2)], axis=1)
    return values, half(raw, 80) * (b[:, :16] & 15).astype(np.float32), -half(raw, 82) * (b[:, :16] >> 4).astype(np.float32)


def q3_k(raw):
    b = raw.astype(np.int64)
    low = np.concatenate([planes(b[:, 32:64], 2), planes(b[:, 64:96], 2)], axis=1)
    scale = nibbles(b[:, 96:104]) | planes(b[:, 104:108], 2) << 4
    scale = half(raw, 108) * (scale - 32).astype(np.float32)
    return (low | planes(b[:, :32], 1) << 2) - 4, scale, no_min(scale)


def scales_and_mins(raw):
    """Eight of each, 6 bits: bytes 4 to 15 of Q4_K and Q5_K."""
    s = raw[:, 4:16].astype(np.int64)
    scale = np.concatenate([s[:, :4] & 63, s[:, 8:] & 15 | s[:, :4] >> 6 << 4], axis=1)
    low = np.concatenate([s[:, 4:8] & 63, s[:, 8:] >> 4 | s[:, 4:8] >> 6 << 4], axis=1)
    return half(raw, 0) * scale.astype(np.float32), -half(raw, 2) * low.astype(np.float32)


def q4_k(raw):
    return nibbles(raw[:, 16:].astype(np.int64).reshape(len(raw), 4, 32)).reshape(len(raw), 256), *scales_and_mins(raw)


def q5_k(raw):
    b = raw.astype(np.int64)
    low = nibbles(b[:, 48:].reshape(len(raw), 4, 32)).reshape(len(raw), 256)
    return low | planes(b[:, 16:48], 1) << 4, *scales_and_mins(raw)


def q6_k(raw):
    b = raw.astype(np.int64)
    low = nibbles(b[:, :128].reshape(len(raw), 2, 64)).reshape(len(raw), 256)
    high = np.concatenate([planes(b[:, 128:160], 2), planes(b[:, 160:192], 2)], axis=1)
    scale = half(raw, 208) * raw[:, 192:208].view(np.int8).astype(np.float32)
    return (low | high << 4) - 32, scale, no_min(scale)


def mxfp4(raw):
    scale = np.ldexp(np.float32(1), raw[:, :1].astype(np.int32) - 128).astype(np.float32)
    return E2M1[nibbles(raw[:, 1:].astype(np.int64))], scale, no_min(scale)


def iq4_nl(raw):
    scale = half(raw, 0)
    return IQ4_NL[nibbles(raw[:, 2:].astype(np.int64))], scale, no_min(scale)


def ptq1_0(raw):
    b, scale = raw.astype(np.int64), half(raw, 26)

    def trits(q, places):
        """Base-3 bytes [n][w] -> [n][places * w] trits, a plane of them after the other."""
        return ((q[:, None, :] * (3 ** np.arange(places))[:, None] & 255) * 3 >> 8).reshape(len(q), -1)

    return np.concatenate([trits(b[:, :16], 5), trits(b[:, 16:24], 5), trits(b[:, 24:26], 4)], axis=1) - 1, scale, no_min(scale)


# id: name, weights per block, bytes per block, weights per scale, decoder
TYPES = {6: ("Q5_0", 32, 22, 32, q5_0), 7: ("Q5_1", 32, 24, 32, q5_1), 10: ("Q2_K", 256, 84, 16, q2_k),
         11: ("Q3_K", 256, 110, 16, q3_k), 12: ("Q4_K", 256, 144, 32, q4_k), 13: ("Q5_K", 256, 176, 32, q5_k),
         14: ("Q6_K", 256, 210, 16, q6_k), 20: ("IQ4_NL", 32, 18, 32, iq4_nl), 39: ("MXFP4", 32, 17, 32, mxfp4),
         143: ("PTQ1_0", 128, 28, 128, ptq1_0)}

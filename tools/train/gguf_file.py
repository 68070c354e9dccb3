"""GGUF v3 files and the tensor types that the models use: F32, F16, Q8_0, Q4_0, I2_S and Q1_0."""

import struct

import numpy as np

F32, F16, Q4_0, Q8_0, I2_S, Q1_0 = 0, 1, 2, 8, 36, 41
ALIGNMENT = 32
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_SCALAR_FORMAT = {_U32: "<I", _I32: "<i", _F32: "<f", _BOOL: "<?"}


def pack_q8_0(w):
    """Blocks of 32 along K: f16 scale, then 32 int8."""
    blocks = w.astype(np.float32).reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
    step = np.where(scale == 0, 1, scale).astype(np.float32)
    codes = np.clip(np.rint(blocks / step[:, None]), -127, 127).astype(np.int8)
    return np.concatenate([scale[:, None].view(np.uint8), codes.view(np.uint8)], axis=1).tobytes()


def _blocks(raw, shape, n, n_bytes):
    """(f16 scales [rows, blocks] as f32, the other bytes [blocks, n_bytes]) of blocks of n weights."""
    blocks = np.frombuffer(raw, np.uint8).reshape(-1, 2 + n_bytes)
    return blocks[:, :2].copy().view(np.float16).astype(np.float32).reshape(shape[0], shape[1] // n), blocks[:, 2:]


def unpack_q8_0(raw, shape):
    """(codes -128..127, scales [rows, blocks of 32])"""
    scales, codes = _blocks(raw, shape, 32, 32)
    return codes.view(np.int8).reshape(shape), scales


def _with_row_scales(packed, scales):
    """Blocks [rows, blocks, bytes], each behind the f16 scale of its row."""
    first = np.repeat(scales.astype("<f2")[:, None], packed.shape[1], axis=1)
    return np.concatenate([first[:, :, None].view(np.uint8), packed], axis=2).tobytes()


def pack_q4_0(codes, scales):
    """codes -8..7 [rows, K], a scale for each row. Blocks of 32 along K: f16 scale, then 16 bytes with code i + 8 below
    code i + 16 + 8."""
    u = (codes + 8).astype(np.uint8).reshape(len(codes), -1, 2, 16)
    return _with_row_scales(u[:, :, 0] | u[:, :, 1] << 4, scales)


def unpack_q4_0(raw, shape):
    """(codes, scales [rows, blocks of 32])"""
    scales, packed = _blocks(raw, shape, 32, 16)
    return np.concatenate([packed & 15, packed >> 4], axis=1).reshape(shape).astype(np.int8) - 8, scales


def pack_q1_0(codes, scales):
    """codes -1 and +1 [rows, K], a scale for each row. Blocks of 128 along K: f16 scale, then a bit for each weight, the
    lowest first, 1 for +1."""
    bits = (codes > 0).reshape(len(codes), -1, 128)
    return _with_row_scales(np.packbits(bits, axis=2, bitorder="little"), scales)


def unpack_q1_0(raw, shape):
    """(codes, scales [rows, blocks of 128])"""
    scales, packed = _blocks(raw, shape, 128, 16)
    bits = np.unpackbits(packed, axis=1, bitorder="little")
    return 2 * bits.reshape(shape).astype(np.int8) - 1, scales


def pack_i2_s(codes, scale):
    """codes -1, 0, +1: 128 weights in 32 bytes, byte p holds weights p, p+32, p+64, p+96 from the top bits down; then
    the scale, padded to 32 bytes."""
    u = (codes + 1).astype(np.uint8).reshape(-1, 4, 32)
    packed = u[:, 0] << 6 | u[:, 1] << 4 | u[:, 2] << 2 | u[:, 3]
    return packed.tobytes() + struct.pack("<f28x", scale)


def unpack_i2_s(raw, shape):
    """(codes, scale)"""
    n = int(np.prod(shape))
    packed = np.frombuffer(raw, np.uint8, n // 4).reshape(-1, 1, 32)
    shifts = np.array([6, 4, 2, 0], np.uint8).reshape(1, 4, 1)
    codes = (packed >> shifts & 3).astype(np.int8) - 1
    return codes.reshape(shape), np.frombuffer(raw, "<f4", 1, n // 4)[0]


def tensor_bytes(kind, shape):
    n = int(np.prod(shape))
    return {
        F32: 4 * n,
        F16: 2 * n,
        Q4_0: n // 32 * 18,
        Q8_0: n // 32 * 34,
        I2_S: n // 4 + 32,
        Q1_0: n // 128 * 18,
    }[kind]


def _string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _kind_of(value):
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, str):
        return _STRING
    if isinstance(value, list):
        return _ARRAY
    return _F32 if isinstance(value, float) else _U32


def _pack_value(kind, value):
    if kind == _STRING:
        return _string(value)
    if kind != _ARRAY:
        return struct.pack(_SCALAR_FORMAT[kind], value)
    item = _STRING if isinstance(value[0], str) else _I32
    return struct.pack("<IQ", item, len(value)) + b"".join(_pack_value(item, v) for v in value)


def _padding(n):
    return bytes(-n % ALIGNMENT)


def write(path, metadata, tensors):
    """metadata: key -> str, bool, int (u32), float (f32), list of str or of int (i32).
    tensors: name -> (type, shape with K last, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        kind = _kind_of(value)
        head += _string(key) + struct.pack("<I", kind) + _pack_value(kind, value)
    offset = 0
    for name, (kind, shape, raw) in tensors.items():
        assert len(raw) == tensor_bytes(kind, shape), name
        head += _string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}QIQ", *reversed(shape), kind, offset)
        offset += len(raw) + len(_padding(len(raw)))
    with open(path, "wb") as f:
        f.write(head + _padding(len(head)))
        for _, _, raw in tensors.values():
            f.write(raw + _padding(len(raw)))


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values if len(values) > 1 else values[0]

    def string(self):
        n = self.take("<Q")
        self.at += n
        return self.data[self.at - n : self.at].decode()

    def value(self, kind):
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.take(_SCALAR_FORMAT[kind])
        item, n = self.take("<IQ")
        return [self.value(item) for _ in range(n)]


def read(path):
    """(metadata, tensors) as write takes them."""
    with open(path, "rb") as f:
        reader = _Reader(f.read())
    magic, version, n_tensors, n_keys = reader.take("<4sIQQ")
    if magic != b"GGUF" or version != 3:
        raise ValueError(f"{path}: not a GGUF v3 file")
    metadata = {}
    for _ in range(n_keys):
        key = reader.string()
        metadata[key] = reader.value(reader.take("<I"))
    places = []
    for _ in range(n_tensors):
        name, n_dims = reader.string(), reader.take("<I")
        shape = [reader.take("<Q") for _ in range(n_dims)][::-1]
        places.append((name, tuple(shape), *reader.take("<IQ")))
    start = reader.at + len(_padding(reader.at))
    tensors = {}
    for name, shape, kind, offset in places:
        begin = start + offset
        tensors[name] = (kind, shape, reader.data[begin : begin + tensor_bytes(kind, shape)])
    return metadata, tensors

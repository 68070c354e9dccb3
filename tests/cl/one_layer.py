"""A model file's first layer as a model of its own: fewer calls of a driver a token, and a text all the same."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, ALIGNMENT = 8, 9, 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at]

    def skip_value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            of, n = self.take("IQ")
            if of == STRING:
                for _ in range(n):
                    self.string()
            else:
                self.at += n * SIZES[of]
        else:
            self.at += SIZES[kind]


def write_one_layer(source, to):
    """A GGUF file of version 3 without the tensors of all layers but the first."""
    data = bytearray(source.read_bytes())
    r = Reader(data)
    r.take("II")
    n_tensors, n_keys = r.take("QQ")
    for _ in range(n_keys):
        key, kind = r.string(), r.take("I")
        if key.endswith(b".block_count"):
            struct.pack_into("<I", data, r.at, 1)
        r.skip_value(kind)
    first, tensors = r.at, []
    for _ in range(n_tensors):
        begin, name, n_dimensions = r.at, r.string(), r.take("I")
        r.at += 8 * n_dimensions + 4
        tensors.append((r.take("Q"), name, data[begin:r.at - 8]))
    values = data[-(-r.at // ALIGNMENT) * ALIGNMENT:]
    ends = [*sorted(offset for offset, _, _ in tensors)[1:], len(values)]
    head, kept, n_kept = data[:first], bytearray(), 0
    for (offset, name, described), end in zip(sorted(tensors), ends):
        if name.startswith(b"blk.") and not name.startswith(b"blk.0."):
            continue
        head += described + struct.pack("<Q", len(kept))
        kept += values[offset:end]
        n_kept += 1
    struct.pack_into("<Q", head, 8, n_kept)
    to.write_bytes(head + bytes(-len(head) % ALIGNMENT) + kept)

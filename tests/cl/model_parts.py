"""Model files made of parts of others: one layer of a model, or some tensors of another."""
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


class Gguf:
    """A file of version 3: `head`, what stands before its tensors, with keys' values at `values_at`; of each tensor, as they
    lie, its description and its bytes."""

    def __init__(self, path):
        data = path.read_bytes()
        r = Reader(data)
        r.take("II")
        n_tensors, n_keys = r.take("QQ")
        self.values_at = {}
        for _ in range(n_keys):
            key, kind = r.string(), r.take("I")
            self.values_at[key] = r.at
            r.skip_value(kind)
        self.head, found = data[:r.at], []
        for _ in range(n_tensors):
            begin, name, n_dimensions = r.at, r.string(), r.take("I")
            r.at += 8 * n_dimensions + 4
            found.append((r.take("Q"), name, data[begin:r.at - 8]))
        values = data[-(-r.at // ALIGNMENT) * ALIGNMENT:]
        ends = [*sorted(offset for offset, _, _ in found)[1:], len(values)]
        self.tensors = {name: (described, values[offset:end]) for (offset, name, described), end in zip(sorted(found), ends)}


def write_parts(path, head, tensors):
    """A file of this head and these tensors: of each its description and its bytes."""
    values = b""
    for described, own in tensors:
        head += described + struct.pack("<Q", len(values))
        values += own + bytes(-len(own) % ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + values)


def write_one_layer(source, to):
    """The model without the tensors of all layers but the first: fewer calls of a driver a token, and a text all the same."""
    model = Gguf(source)
    kept = [tensor for name, tensor in model.tensors.items() if not name.startswith(b"blk.") or name.startswith(b"blk.0.")]
    head = bytearray(model.head)
    count = next(at for key, at in model.values_at.items() if key.endswith(b".block_count"))
    struct.pack_into("<I", head, count, 1)
    struct.pack_into("<Q", head, 8, len(kept))
    write_parts(to, bytes(head), kept)


def write_mixed(path, most, other, wanted):
    """The model `most`, but its tensors whose names end with `wanted` are those of `other`, of the same shapes."""
    tensors = {name: (other if name.endswith(wanted) else most).tensors[name] for name in most.tensors}
    for name, (described, _) in tensors.items():
        assert described[:-4] == most.tensors[name][0][:-4], name
    write_parts(path, most.head, tensors.values())


def write_loud(source, to, factor):
    """The model of Q4_0 with embeddings that are larger by this power of two: of what its layers give on, little is their own."""
    model = Gguf(source)
    described, own = model.tensors[b"token_embd.weight"]
    blocks = bytearray(own)
    for at in range(0, len(own) // 18 * 18, 18):
        struct.pack_into("<e", blocks, at, factor * struct.unpack_from("<e", blocks, at)[0])
    write_parts(to, model.head, (model.tensors | {b"token_embd.weight": (described, bytes(blocks))}).values())

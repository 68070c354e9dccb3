"""A model file of which some tensors are another's."""
import struct

from one_layer import ALIGNMENT, Reader


class Gguf:
    """A file of version 3: `head`, what stands before its tensors; of each its description and its bytes."""

    def __init__(self, path):
        data = path.read_bytes()
        r = Reader(data)
        r.take("II")
        n_tensors, n_keys = r.take("QQ")
        for _ in range(n_keys):
            r.string()
            r.skip_value(r.take("I"))
        self.head, found = data[:r.at], []
        for _ in range(n_tensors):
            begin, name, n_dimensions = r.at, r.string(), r.take("I")
            r.at += 8 * n_dimensions + 4
            found.append((r.take("Q"), name, data[begin:r.at - 8]))
        values = data[-(-r.at // ALIGNMENT) * ALIGNMENT:]
        ends = [*sorted(offset for offset, _, _ in found)[1:], len(values)]
        self.tensors = {name: (described, values[offset:end]) for (offset, name, described), end in zip(sorted(found), ends)}


def write_mixed(path, most, other, wanted):
    """The model `most`, but its tensors whose names end with `wanted` are those of `other`, of the same shapes."""
    head, values = most.head, b""
    for name in most.tensors:
        described, own = (other if name.endswith(wanted) else most).tensors[name]
        assert described[:-4] == most.tensors[name][0][:-4], name
        head += described + struct.pack("<Q", len(values))
        values += own + bytes(-len(own) % ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + values)

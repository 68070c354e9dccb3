"""GPTQ's act-order as its tools write it: every matrix of a layer in 4 bits with an order of its columns, one for queries, keys
and values, and one for gate and up. No launch puts columns into an order, or norms them: a layer has no more launches than one
whose columns stay in place (cl/README.md). The text is the CPU's. With CRUMB_CLAIM=gpu the device claims to be one
(claims_layer.c), and one row is quantized by kernels themselves."""
import json
import os
import re
import shutil
import struct
import tempfile
import unittest
from pathlib import Path

from told import tell

SOURCE = Path(__file__).resolve().parents[1] / "oracle/checkpoints/llama-q4_0+order"
IS_GPU = os.environ.get("CRUMB_CLAIM") == "gpu"
N_LAYERS, N_HEADS, GROUP = 2, 4, 32
# Of a layer: rotation with storing; attention; queries, keys and values; o; gate, up and their gate; down.
REST, LINEAR = 1 + 1, 4


def read_tensors(path):
    data = path.read_bytes()
    head = json.loads(data[8:8 + struct.unpack_from("<Q", data)[0]])
    begin = len(data) - max(t["data_offsets"][1] for name, t in head.items() if name != "__metadata__")
    return {name: (t["dtype"], t["shape"], data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for name, t in head.items() if name != "__metadata__"}


def write_tensors(path, tensors):
    head, values = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(values), len(values) + len(data)]}
        values += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)


def words(rows):
    """[n][8 j] numbers of 4 bits as [n][j] words, the first lowest."""
    return b"".join(struct.pack("<I", sum(number << 4 * i for i, number in enumerate(row[at:at + 8])))
                    for row in rows for at in range(0, len(row), 8))


def quantize(tensor, group_of):
    """f32 [m][k] to the nearest codes of 4 bits, in the form that GPTQ's tools write: transposed, 8 is zero."""
    _, (m, k), data = tensor
    n_groups = k // GROUP
    w = [struct.unpack_from(f"<{k}f", data, 4 * k * i) for i in range(m)]
    scales = [[max(abs(row[c]) for c in range(k) if group_of[c] == g) / 7 for g in range(n_groups)] for row in w]
    codes = [[max(0, min(15, 8 + round(x / scale[group_of[c]]))) for c, x in enumerate(row)] for row, scale in zip(w, scales)]
    qweight = [[codes[i][at + j] for j in range(8)] for at in range(0, k, 8) for i in range(m)]
    return {"qweight": ("I32", [k // 8, m], words(qweight)),
            "qzeros": ("I32", [n_groups, m // 8], words([[8] * m] * n_groups)),
            "scales": ("F16", [n_groups, m], b"".join(struct.pack("<e", scales[i][g]) for g in range(n_groups) for i in range(m))),
            "g_idx": ("I32", [k], struct.pack(f"<{k}i", *group_of))}


class ActOrder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "model")
        shutil.copytree(SOURCE, self.path)
        tensors = read_tensors(SOURCE / "model.safetensors")
        for name in [name for name in tensors if name.endswith(("k_proj.weight", "v_proj.weight"))]:  # floats: 24 rows
            stem = name.rpartition(".")[0]
            dtype, (m, k), data = tensors.pop(name)
            groups = struct.unpack(f"<{k}i", tensors[stem[:-len("k_proj")] + "q_proj.g_idx"][2])
            quantized = quantize((dtype, (N_HEADS * m, k), data * N_HEADS), groups)
            tensors.update({f"{stem}.{end}": tensor for end, tensor in quantized.items()})
        write_tensors(self.path / "model.safetensors", tensors)
        config = json.loads((SOURCE / "config.json").read_text())
        self.assertEqual((config["num_attention_heads"], config["num_key_value_heads"]), (N_HEADS, 1))
        (self.path / "config.json").write_text(json.dumps({**config, "num_key_value_heads": N_HEADS}))

    def test_launches(self):
        told = tell(self.path, "--device", "gpu0", "--target", "cl:dp4a", "-v", "--verify", "off")
        self.assertEqual(told.stdout, tell(self.path, "--device", "cpu").stdout)
        plans = re.findall(r"a plan for (\d+) rows is (\d+) kernels .* of scratch:(.*)", told.stderr)
        self.assertIn("1", [rows for rows, _, _ in plans], told.stderr)
        for rows, n, kernels in plans:
            print(f"{rows} rows, {n} launches:{kernels}")
            named = {name: int(count) for count, name in re.findall(r" (\d+) (\w+)", kernels)}
            self.assertFalse({"gather", "gated"} & set(named), kernels)
            self.assertLessEqual(named.get("rms_norm", 0), 1, kernels)  # the head's, whose matrix is floats
            if rows == "1":
                outside = sum(count for name, count in named.items()
                              if name.startswith(("embed", "select", "top", "rms_norm", "linear_dense")))
                self.assertEqual(int(n) - outside, N_LAYERS * (REST + LINEAR + (0 if IS_GPU else LINEAR)))


if __name__ == "__main__":
    unittest.main()

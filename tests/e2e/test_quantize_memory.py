"""crumb quantize holds one layer at a time."""
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import unittest

from command import COMMAND, environment
from quantizing import SMALL, QuantizeTest


def make_folder(folder, n_layers):
    """A model of transformers in f16 with random weights of about 0.02 either way; -> bytes of a layer."""
    hidden, ff, kv = 256, 512, 64
    shutil.copytree(SMALL, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    config.update(model_type="llama", hidden_size=hidden, intermediate_size=ff, num_attention_heads=4, head_dim=64,
                  num_key_value_heads=1, num_hidden_layers=n_layers, rope_scaling=None)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    layer = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
             "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (ff, hidden), "mlp.up_proj": (ff, hidden),
             "mlp.down_proj": (hidden, ff), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
    for i in range(n_layers):
        shapes.update({f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()})
    header, data, source = {}, bytearray(), random.Random(1)
    halves = bytes(b & 0x83 | 0x24 for b in range(256))  # of a half's upper byte: its sign, and 2^-6 to 2^-5
    for name, shape in shapes.items():
        n, begin = math.prod(shape), len(data)
        values = bytearray(2 * n)
        values[0::2], values[1::2] = source.randbytes(n), source.randbytes(n).translate(halves)
        data += values
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": (begin, len(data))}
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    return 2 * sum(map(math.prod, layer.values()))


# Its parent's memory counts as a process's own before it becomes another program: a small parent.
MEASURE = """import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_bytes(*arguments):
    """What the command held at most, having succeeded."""
    done = subprocess.run([sys.executable, "-ISc", MEASURE, COMMAND, *map(str, arguments), "--log-disable"],
                          capture_output=True, text=True, timeout=100, env=environment())
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1]) * 1024


class Memory(QuantizeTest):
    @unittest.skipIf(os.environ.get("CRUMB_SANITIZE"), "memory of a layer: sanitizers keep a shadow of all that was touched")
    def test_memory_is_that_of_a_layer(self):
        """Twenty-four layers more take the memory of their names, and of a few pages here and there."""
        few, many = os.path.join(self.folder, "few"), os.path.join(self.folder, "many")
        layer = make_folder(few, 2)
        make_folder(many, 26)
        for options in (("Q4_0",), ("GPTQ4",), ("GPTQ4", "--method", "gptq", "--calibration", self.text(),
                                                "--calibration-tokens", 256)):
            peaks = [peak_bytes("quantize", model, f"{model}.{'-'.join(options[:3])}", *options, "-t", 1)
                     for model in (few, many)]
            self.assertLess(peaks[1] - peaks[0], 4 * layer, options)


if __name__ == "__main__":
    unittest.main()

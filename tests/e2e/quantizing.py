"""What the tests of crumb quantize share."""
import json
import os
import shutil
import struct
import tempfile

from command import SOURCE, CommandTest

ORACLE = os.path.join(SOURCE, "tests", "oracle")
LLAMA = os.path.join(ORACLE, "models", "llama-k-quants.gguf")  # 256 columns; embedding Q6_K, tied
SMALL = os.path.join(ORACLE, "checkpoints", "qwen2-f16-yarn")  # 64 columns
GREEDY = ("-p", "in the hat", "-n", 12, "--temp", 0, "--device", "cpu", "--no-display-prompt")


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items()}


class QuantizeTest(CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.out = os.path.join(self.folder, "out.gguf")
        self.addCleanup(shutil.rmtree, self.folder)

    def text(self):
        """A file to calibrate on."""
        path = os.path.join(self.folder, "text")
        with open(path, "w", encoding="ascii") as f:
            f.write("the cat sat on the mat, and the dog in the hat. " * 40)
        return path

"""Models with matrices of two widths where most have one: values in more bits than queries and keys, as in llama.cpp's K-quant
mixtures, whose norm goes into what quantizes for each; and up in more bits than gate, so that no launch computes both and the
gate: that goes into the launch that quantizes for down. The text is the CPU's, and a layer has the launches that cl/README.md
counts. With CRUMB_CLAIM=gpu the device claims to be one (claims_layer.c), and one row is quantized by kernels themselves."""
import os
import re
import tempfile
import unittest
from pathlib import Path

from model_parts import Gguf, write_mixed
from told import tell

MODELS = Path(__file__).resolve().parents[1] / "oracle/models"
IS_GPU = os.environ.get("CRUMB_CLAIM") == "gpu"
N_LAYERS = 2
# Of a layer: rotation with storing; attention; five linear launches, which codes are made for.
REST, LINEAR = 1 + 1, 5


class UnlikeTypes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "mixed.gguf")

    def check(self, other, wanted, quantizing):
        """The tensors `wanted` are of model `other`, all else has 4 bits; `quantizing`: a layer's launches that make codes."""
        write_mixed(self.path, Gguf(MODELS / "llama-q4_0.gguf"), Gguf(MODELS / other), wanted)
        told = tell(self.path, "--device", "gpu0", "--target", "cl:dp4a", "-v", "--verify", "off")
        self.assertEqual(told.stdout, tell(self.path, "--device", "cpu").stdout)
        plans = re.findall(r"a plan for (\d+) rows is (\d+) kernels .* of scratch:(.*)", told.stderr)
        self.assertGreater(len(plans), 1, told.stderr)
        for rows, n, kernels in plans:
            print(f"{rows} rows, {n} launches:{kernels}")
            named = {name: int(count) for count, name in re.findall(r" (\d+) (\w+)", kernels)}
            self.assertNotIn("gated", named)
            self.assertNotIn("rms_norm", named)
            if rows == "1":
                outside = sum(count for name, count in named.items() if name.startswith(("embed", "select", "top")))
                head = 1 if IS_GPU else 2
                self.assertEqual(int(n) - outside - head, N_LAYERS * (REST + LINEAR + quantizing))

    def test_values(self):
        self.check("llama-5-bit.gguf", b"attn_v.weight", 0 if IS_GPU else 5)

    def test_gates(self):
        self.check("llama-q8_0.gguf", b"ffn_up.weight", 1 if IS_GPU else 5)


if __name__ == "__main__":
    unittest.main()

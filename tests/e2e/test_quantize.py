"""crumb quantize: which tensors get which type, by which method, and what is refused."""
import json
import os
import unittest

from command import MODEL
from quantizing import GREEDY, LLAMA, ORACLE, SMALL, QuantizeTest

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "MXFP4", "Q2_0", "TQ2_0", "TQ1_0", "I2_S", "Q1_0")


class Types(QuantizeTest):
    def types(self):
        """{tensor: type} of the file."""
        listing = json.loads(self.succeeds("inspect", self.out, "--tensors", "--json").stdout)
        return {t["name"]: t["type"] for t in listing["tensors"]}

    def test_every_type_runs(self):
        for name in TYPES:
            self.succeeds("quantize", LLAMA, self.out, name.lower())
            types = self.types()
            self.assertEqual(types["blk.0.ffn_up.weight"], name)
            self.assertEqual(types["blk.0.attn_norm.weight"], "F32")
            self.assertEqual(types["token_embd.weight"], name if name in TYPES[:4] else "Q8_0")
            self.assertEqual(os.listdir(self.folder), ["out.gguf"])
            self.succeeds("run", self.out, *GREEDY)

    def test_lossless_where_nothing_is_lost(self):
        source = os.path.join(ORACLE, "models", "bitnet-b1.58-i2_s.gguf")
        self.succeeds("quantize", source, self.out, "I2_S", "--token-embedding-type", "F16")
        self.assertEqual(self.succeeds("run", self.out, *GREEDY).stdout, self.succeeds("run", source, *GREEDY).stdout)

    def test_types_of_embedding_and_output(self):
        source = os.path.join(ORACLE, "models", "qwen3-q4_1.gguf")
        self.succeeds("quantize", source, self.out, "Q4_0", "--token-embedding-type", "F16", "--output-tensor-type",
                      "Q4_1")
        self.assertEqual(self.types()["token_embd.weight"], "F16")
        self.assertEqual(self.types()["output.weight"], "Q4_1")
        self.succeeds("quantize", source, self.out, "Q4_0", "--pure")
        self.assertEqual(self.types()["output.weight"], "Q4_0")

    def test_rows_that_do_not_fit(self):
        said = self.succeeds("quantize", os.path.join(ORACLE, "models", "llama-q4_0.gguf"), self.out, "Q1_0").stderr
        self.assertIn("become Q8_0 or F16", said)
        self.assertEqual(self.types()["blk.0.ffn_up.weight"], "Q8_0")

    def test_from_folders(self):
        for name in ("llama-f16", "llama-q4_0+gptq", "bitnet-b1.58-i2_s+auto"):
            self.succeeds("quantize", os.path.join(ORACLE, "checkpoints", name), self.out, "Q8_0")
            self.succeeds("run", self.out, *GREEDY)

    def test_methods(self):
        for method, names in (("seq", ("Q2_K", "Q4_0")), ("absmean", ("TQ1_0", "TQ2_0", "I2_S"))):
            for name in names:
                self.succeeds("quantize", LLAMA, self.out, name, "--method", method)
                types = self.types()
                self.assertEqual((types["blk.0.ffn_up.weight"], types["token_embd.weight"]), (name, "Q8_0"))
                self.succeeds("run", self.out, *GREEDY)
        self.succeeds("quantize", LLAMA, self.out, "Q2_K", "--method", "seq", "--pure")
        self.assertEqual(self.types()["token_embd.weight"], "Q2_K")

    def test_what_methods_write(self):
        """The trained levels of the embedded model stay, by its own method."""
        self.succeeds("quantize", MODEL, self.out, "I2_S", "--method", "absmean")
        self.assertEqual(self.succeeds("run", self.out, *GREEDY).stdout, self.succeeds("run", MODEL, *GREEDY).stdout)
        said = self.succeeds("quantize", SMALL, self.out, "Q2_K", "--method", "seq").stderr  # rows of 64
        self.assertIn("Q4_0 by the same method", said)
        self.assertEqual(self.types()["blk.0.ffn_up.weight"], "Q4_0")

    def test_methods_refused(self):
        self.fails(2, "quantize", LLAMA, self.out, "Q2_K", says="--method rtn writes")
        self.fails(2, "quantize", LLAMA, self.out, "Q8_0", "--method", "seq", says="choose one of Q4_0, Q2_K")
        self.fails(2, "quantize", LLAMA, self.out, "Q2_0", "--method", "absmean", says="choose one of TQ1_0, TQ2_0, I2_S")
        self.fails(2, "quantize", SMALL, self.out, "GPTQ2", "--method", "seq", says="does not write GPTQ2")
        self.fails(2, "quantize", LLAMA, self.out, "Q4_0", "--method", "best", says="seq")
        self.assertEqual(os.listdir(self.folder), [])

    def test_refusals(self):
        self.fails(2, "quantize", LLAMA, self.out, says="a type")
        self.fails(2, "quantize", LLAMA, self.out, "Q9_9", says="choose one of F32, F16")
        self.fails(2, "quantize", LLAMA, self.out, "Q4_0", "--output-tensor-type", "IQ4_NL", says="IQ4_NL")
        self.fails(1, "quantize", "/nonexistent.gguf", self.out, "Q4_0", says="/nonexistent.gguf")
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()

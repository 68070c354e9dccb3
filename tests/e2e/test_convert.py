#!/usr/bin/env python3
"""crumb convert: from folders as transformers writes them, and from GGUF files."""
import json
import os
import shutil
import tempfile
import unittest

from command import MODEL, SOURCE, CommandTest

CHECKPOINTS = os.path.join(SOURCE, "tests", "oracle", "checkpoints")
GREEDY = ("-p", "in the hat", "-n", 12, "--temp", 0, "--device", "cpu", "--no-display-prompt")


class Convert(CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.out = os.path.join(self.folder, "out.gguf")
        self.addCleanup(shutil.rmtree, self.folder)

    def test_folder_and_file_say_the_same(self):
        for name in ("llama-f16", "qwen3-q4_1"):
            folder = os.path.join(CHECKPOINTS, name)
            done = self.succeeds("convert", folder, self.out)
            self.assertIn("became a file of", done.stderr)
            self.assertEqual(os.listdir(self.folder), ["out.gguf"])
            self.assertEqual(self.succeeds("run", self.out, *GREEDY).stdout,
                             self.succeeds("run", folder, *GREEDY).stdout)

    def test_perplexity_is_what_llama_found(self):
        """llama-perplexity -c 64 of the converted files (llama.cpp of tests/deps.lock) printed these."""
        text = os.path.join(self.folder, "text.txt")
        with open(text, "w", encoding="ascii") as f:
            f.write("the other then in an\n" * 40)
        for name, theirs in (("llama-f16", 210.7272), ("qwen3-q4_1", 29382.0094)):
            for model in (os.path.join(CHECKPOINTS, name), self.out):
                self.succeeds("convert", os.path.join(CHECKPOINTS, name), self.out)
                said = self.succeeds("perplexity", model, "-f", text, "-c", 64, "--device", "cpu", "--json").stdout
                self.assertAlmostEqual(json.loads(said)["perplexity"] / theirs, 1, delta=1e-3)

    def test_gguf_to_gguf(self):
        said = json.loads(self.succeeds("convert", MODEL, self.out, "--json").stdout)
        self.assertEqual(said["n_tensors_taken_up"], 0)
        self.assertEqual(said["n_bytes"], os.path.getsize(self.out))
        self.assertEqual(self.succeeds("run", self.out, *GREEDY).stdout, self.succeeds("run", MODEL, *GREEDY).stdout)

    def test_existing_file_stays_where_converting_fails(self):
        with open(self.out, "w", encoding="ascii") as f:
            f.write("mine")
        broken = os.path.join(self.folder, "broken")
        shutil.copytree(os.path.join(CHECKPOINTS, "llama-f16"), broken)
        with open(os.path.join(broken, "model.safetensors"), "r+b") as f:
            f.truncate(os.path.getsize(f.name) - 1)
        self.fails(3, "convert", broken, self.out, says="model.safetensors")
        with open(self.out, encoding="ascii") as f:
            self.assertEqual(f.read(), "mine")
        self.assertEqual(sorted(os.listdir(self.folder)), ["broken", "out.gguf"])

    def test_wrong_arguments(self):
        self.fails(2, "convert", says="no model")
        self.fails(2, "convert", MODEL, says="a file to write")
        self.fails(2, "convert", MODEL, self.folder, says="is a folder")
        self.fails(1, "convert", self.folder, self.out, says="config.json")
        self.fails(1, "convert", MODEL, os.path.join(self.folder, "none", "out.gguf"), says="No such file")
        one = os.path.join(CHECKPOINTS, "llama-f16", "model.safetensors")
        self.fails(3, "run", one, "-p", "x", says="give the folder")


if __name__ == "__main__":
    unittest.main()

"""crumb perplexity, inspect and tokenize."""
import json
import math
import os
import re
import tempfile
import unittest

from command import MODEL, SOURCE, CommandTest

ORACLE = os.path.join(SOURCE, "tests", "oracle")

STORY = ("Once upon a time there was a little girl. She had a red ball. One day she went to the park with her mom. "
         "The ball fell into the pond, and a kind duck gave it back. They were happy. ") * 4


class Perplexity(CommandTest):
    def setUp(self):
        handle, self.text = tempfile.mkstemp(prefix="crumb-e2e-", suffix=".txt")
        self.addCleanup(os.unlink, self.text)
        with os.fdopen(handle, "w") as out:
            out.write(STORY)

    def test_lines_as_llama_perplexity_prints_them(self):
        n_tokens = len(json.loads(self.succeeds("tokenize", "-f", self.text, "--ids").stdout))
        done = self.succeeds("perplexity", "-f", self.text, "-c", "48")
        numbers = re.findall(r"\[(\d+)\](\d+\.\d{4}),", done.stdout)
        self.assertEqual([int(n) for n, _ in numbers], list(range(1, n_tokens // 48 + 1)))
        last = re.search(r"(?m)^Final estimate: PPL = (\d+\.\d{4}) \+/- (\d+\.\d{5})$", done.stdout)
        self.assertEqual(last.group(1), numbers[-1][1])
        self.assertTrue(1 < float(last.group(1)) < 1000)
        self.assertRegex(done.stderr, r"seconds per pass - ETA [\d.]+ minutes")

    def test_json_and_chunks(self):
        whole = json.loads(self.succeeds("perplexity", "-f", self.text, "-c", "48", "--json", "--chunks", "2").stdout)
        self.assertEqual((whole["schema_version"], whole["n_chunks"], whole["n_scored"]), (1, 2, 2 * 23))
        self.assertTrue(math.isfinite(whole["perplexity"]) and whole["uncertainty"] > 0)

    def test_batches_and_threads_change_nothing(self):
        flags = ["perplexity", "-f", self.text, "-c", "48", "--json"]
        one = json.loads(self.succeeds(*flags, "-t", "1").stdout)["perplexity"]
        for extra in (["-t", "2"], ["-ub", "8"], ["-ub", "7", "-t", "2"]):
            self.assertEqual(json.loads(self.succeeds(*flags, *extra).stdout)["perplexity"], one)

    def test_sense_is_likelier_than_noise(self):
        words = STORY.split()
        with open(self.text + ".noise", "w", encoding="utf-8") as out:
            out.write(" ".join(sorted(words, key=lambda w: w[::-1])))
        self.addCleanup(os.unlink, self.text + ".noise")
        sense, noise = (json.loads(self.succeeds("perplexity", "-f", f, "-c", "48", "--json").stdout)["perplexity"]
                        for f in (self.text, self.text + ".noise"))
        self.assertLess(2 * sense, noise)

    def test_an_8_bit_cache_costs_no_quality(self):
        told = self.succeeds("run", "-n", "500", "-c", "1024", "-s", "1", "--ignore-eos").stdout
        with open(self.text, "w", encoding="utf-8") as out:  # a text that the model knows well
            out.write(told)
        flags = ["perplexity", "-f", self.text, "-c", "128", "--json"]
        f16, q8, ct = (json.loads(self.succeeds(*flags, *extra).stdout)["perplexity"]
                       for extra in ([], ["--kv-cache", "q8"], ["-ctk", "q8_0", "-ctv", "q8_0"]))
        self.assertNotEqual(f16, q8)
        self.assertLess(abs(q8 / f16 - 1), 0.005)  # 189 words; tests/model has a larger model and a long text
        self.assertEqual(q8, ct)

    def test_keys_and_values_are_kept_alike(self):
        self.fails(2, "perplexity", "-f", self.text, "-ctk", "q8_0", says="--kv-cache f16 or q8 alone")
        self.fails(2, "run", "-ctk", "f16", "-ctv", "q8_0", says="-ctk f16, -ctv q8_0")
        self.fails(2, "run", "--kv-cache", "q8", "-ctv", "f16", says="--kv-cache q8")
        self.fails(2, "run", "--kv-cache", "q4", says="f16|q8")

    def test_too_short_a_text(self):
        self.fails(2, "perplexity", "-f", self.text, "-c", "4096", says="8192 tokens")
        self.fails(2, "perplexity", says="-f FILE")


class Inspect(CommandTest):
    def test_text(self):
        page = self.succeeds("inspect", MODEL).stdout
        for word in ("GGUF version 3", "general.architecture", "bitnet", "token_embd.weight", "totals by type"):
            self.assertIn(word, page)
        self.assertNotIn("general.architecture", self.succeeds("inspect", MODEL, "--tensors").stdout)
        self.assertNotIn("token_embd.weight", self.succeeds("inspect", MODEL, "--keys").stdout)

    def test_json(self):
        document = json.loads(self.succeeds("inspect", MODEL, "--json").stdout)
        self.assertEqual((document["schema_version"], document["gguf_version"], document["file"]), (1, 3, MODEL))
        self.assertEqual(document["metadata"]["general.architecture"]["type"], "string")
        tokens = document["metadata"]["tokenizer.ggml.tokens"]
        self.assertGreater(tokens["n"], len(tokens["value"]))
        full = json.loads(self.succeeds("inspect", MODEL, "--json", "--full").stdout)
        self.assertEqual(len(full["metadata"]["tokenizer.ggml.tokens"]["value"]), tokens["n"])
        self.assertEqual(sum(t["n_tensors"] for t in document["totals"]), len(document["tensors"]))
        self.assertEqual(sum(t["n_bytes"] for t in document["totals"]), sum(t["n_bytes"] for t in document["tensors"]))

    def test_safetensors(self):
        page = self.succeeds("inspect", f"{ORACLE}/safetensors/dtypes.safetensors").stdout
        for word in ("f16", "3 x 5", "F64", "120", "1 tensors"):
            self.assertIn(word, page)
        self.fails(1, "run", f"{ORACLE}/safetensors", "x", says="no config.json")
        folder, index = f"{ORACLE}/safetensors", f"{ORACLE}/safetensors/model.safetensors.index.json"
        a, b = (json.loads(self.succeeds("inspect", path, "--json").stdout) for path in (folder, index))
        self.assertEqual(a, b)
        self.assertEqual([(t["name"], t["type"], t["shape"]) for t in a["tensors"]],
                         [("a.bias", "F32", [4]), ("a.weight", "F16", [4, 2]), ("b.weight", "F16", [2, 2])])

    def test_the_embedded_model(self):
        a, b = (json.loads(self.succeeds("inspect", *m, "--json").stdout) for m in ([], [MODEL]))
        self.assertEqual(a["tensors"], b["tensors"])
        self.assertEqual(a["metadata"], b["metadata"])


class Tokenize(CommandTest):
    def test_a_tokenizer_json_is_like_its_gguf(self):
        folder = f"{ORACLE}/vocabs"
        a, b = (self.succeeds("tokenize", f"{folder}/qwen2.{end}", "Hello wor1d", "--ids").stdout for end in ("json", "gguf"))
        self.assertEqual(a, b)
        self.fails(3, "tokenize", f"{ORACLE}/safetensors/model.safetensors.index.json", "x", says="'model'")

    def test_ids_join_to_the_text(self):
        text = "Once upon a time, a cat sat.\n"
        document = json.loads(self.succeeds("tokenize", "-p", text, "--no-bos", "--json").stdout)
        self.assertEqual("".join(t["text"] for t in document["tokens"]).lstrip(" "), text)
        ids = json.loads(self.succeeds("tokenize", "-p", text, "--no-bos", "--ids").stdout)
        self.assertEqual(ids, [t["id"] for t in document["tokens"]])
        self.assertEqual(document["n_tokens"], len(ids))

    def test_lines(self):
        done = self.succeeds("tokenize", "-p", "a cat\n", "--show-count")
        lines = done.stdout.splitlines()
        for line in lines[:-1]:
            self.assertRegex(line, r"^ *\d+ -> '.*'$")
        self.assertEqual(lines[-1], f"Total number of tokens: {len(lines) - 1}")
        self.assertIn("\\n", done.stdout)

    def test_sources(self):
        ids = self.succeeds("tokenize", "-p", "a cat", "--ids").stdout
        self.assertEqual(self.succeeds("tokenize", "--stdin", "--ids", input="a cat").stdout, ids)
        self.assertEqual(self.succeeds("tokenize", "-f", "-", "--ids", input="a cat\n").stdout, ids)
        self.assertEqual(self.succeeds("tokenize", MODEL, "a cat", "--ids").stdout, ids)
        self.fails(2, "tokenize", says="--stdin")

    def test_any_bytes_are_accepted(self):
        for data in ("\u00e9\u4e16\U0001f600", "\u0000a", "\ufffd"):
            self.succeeds("tokenize", "--stdin", input=data)


if __name__ == "__main__":
    unittest.main()

"""Folders of transformers as people have them: files that may be missing, keys by other names, and what is refused."""
import json
import os
import shutil
import struct
import tempfile
import unittest

from command import SOURCE, CommandTest

CHECKPOINTS = os.path.join(SOURCE, "tests", "oracle", "checkpoints")
GREEDY = ("-p", "in the hat", "-n", 6, "--temp", 0, "--device", "cpu", "--no-display-prompt")


class Folders(CommandTest):
    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="crumb-folders-")
        self.addCleanup(shutil.rmtree, self.work)

    def copy(self, name):
        shutil.rmtree(os.path.join(self.work, name), ignore_errors=True)
        return shutil.copytree(os.path.join(CHECKPOINTS, name), os.path.join(self.work, name))

    def edit(self, folder, file, change):
        """Changes what a JSON file of the folder says, or begins one."""
        path, document = os.path.join(folder, file), {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                document = json.load(f)
        change(document)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(document, f)

    def says(self, folder, *options):
        return self.succeeds("run", folder, *GREEDY, *options).stdout

    def test_names_that_changed(self):
        """torch_dtype and dtype, checkpoint_format and format, merges as texts and as pairs."""
        folder = self.copy("llama-f16")
        before = self.says(folder)
        self.edit(folder, "config.json", lambda c: c.update(dtype=c.pop("torch_dtype")))
        self.edit(folder, "tokenizer.json", lambda t: t["model"].update(merges=[m.split(" ") for m in t["model"]["merges"]]))
        self.assertEqual(self.says(folder), before)
        folder = self.copy("llama-q4_0+gptq_v2")
        before = self.says(folder)
        for change in (lambda q: q.update(format="gptq_v2"), lambda q: q.pop("checkpoint_format")):
            self.edit(folder, "config.json", lambda c: change(c["quantization_config"]))
            self.assertEqual(self.says(folder), before)
        self.edit(folder, "config.json", lambda c: c["quantization_config"].update(checkpoint_format="gptq"))
        self.fails(3, "run", folder, "x", says="config.json: key 'quantization_config.format': another version")

    def test_tokens_that_end_an_answer(self):
        """Whichever file lists them, alone or among others; also once the folder has become a file."""
        plain, made = self.says(self.copy("llama-f16")), os.path.join(self.work, "made.gguf")
        self.assertEqual(plain[0], "&")  # token 5
        for file, ends in (("generation_config.json", 5), ("generation_config.json", [2, 5]), ("config.json", [2, 3, 5])):
            folder = self.copy("llama-f16")
            self.assertEqual(self.says(folder), plain)
            self.edit(folder, file, lambda c: c.update(eos_token_id=ends))
            self.assertEqual(self.says(folder), "")
            self.succeeds("convert", folder, made)
            self.assertEqual(self.says(made), "")
        for ends in ("2", [2, 1000000], [2, -1], [], {}):
            self.edit(folder, "generation_config.json", lambda c: c.update(eos_token_id=ends))
            self.fails(3, "run", folder, "x", says="generation_config.json: key 'eos_token_id'")

    def test_tokens_that_end_an_answer_are_written(self):
        folder, made, packed = self.copy("llama-q4_1"), os.path.join(self.work, "made.gguf"), os.path.join(self.work, "packed")
        self.edit(folder, "config.json", lambda c: c.update(eos_token_id=[2, 9]))
        self.edit(folder, "generation_config.json", lambda c: c.update(eos_token_id=[9, 11]))
        self.succeeds("convert", folder, made)
        self.succeeds("quantize", made, packed, "GPTQ4", "--group-size", 32)
        with open(os.path.join(packed, "config.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f)["eos_token_id"], [2, 9, 11])

    def test_places_of_the_template(self):
        """chat_template.jinja, else tokenizer_config.json's (one, or `default` of several), else chat_template.json's."""
        folder = self.copy("llama-f16")
        chat = ("-st", "-p", "x", "--temp", 0, "-n", 0, "--device", "cpu")
        wrong = "{{ raise_exception('from %s') }}"

        def names(place):
            self.assertIn(f"refuses this: from {place}", self.fails(2, "run", folder, *chat).stderr)

        self.edit(folder, "chat_template.json", lambda c: c.update(chat_template=wrong % "json"))
        self.edit(folder, "tokenizer_config.json", lambda c: c.pop("chat_template"))
        names("json")
        several = [{"name": n, "template": wrong % n} for n in ("tool_use", "default", "rag")]
        self.edit(folder, "tokenizer_config.json", lambda c: c.update(chat_template=several))
        names("default")
        self.edit(folder, "tokenizer_config.json", lambda c: c.update(chat_template=wrong % "config"))
        names("config")
        with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
            f.write(wrong % "jinja")
        names("jinja")
        os.unlink(os.path.join(folder, "chat_template.jinja"))
        self.edit(folder, "tokenizer_config.json", lambda c: c.pop("chat_template"))
        self.edit(folder, "chat_template.json", lambda c: c.update(chat_template=7))
        self.fails(3, "run", folder, "x", says="chat_template.json: key 'chat_template': not a string")

    def test_what_is_not_there(self):
        for name, file, says in (("llama-f16", "tokenizer.json", "tokenizer.json: there is no such file"),
                                 ("llama-f16", "model.safetensors", "no model.safetensors"),
                                 ("llama-f16", "config.json", "no config.json"),
                                 ("qwen3-q4_1", "model-00002-of-00002.safetensors", "model-00002-of-00002.safetensors:")):
            folder = self.copy(name)
            os.unlink(os.path.join(folder, file))
            self.fails(1, "run", folder, "x", says=says)
        folder = self.copy("llama-f16")
        before = self.says(folder)
        os.unlink(os.path.join(folder, "tokenizer_config.json"))
        self.assertEqual(self.says(folder), before)

    def test_more_tokens_than_rows(self):
        folder = self.copy("llama-f16")
        self.edit(folder, "tokenizer.json", lambda t: t["added_tokens"].append({"id": 300, "content": "<new>"}))
        self.fails(3, "run", folder, "x", says="tokenizer.json: token 300, but config.json's key 'vocab_size' is 262")

    def test_act_order_without_groups(self):
        folder = self.copy("llama-q4_0+order")
        path = os.path.join(folder, "model.safetensors")
        with open(path, "rb") as f:
            data = f.read()
        n, = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + n])
        header = {k.replace("layers.1.mlp.up_proj.g_idx", "layers.1.mlp.inv_freq"): v for k, v in header.items()}
        text = json.dumps(header).encode()
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data[8 + n:])
        self.fails(3, "run", folder, "x", says="there is no g_idx beside it")

    def test_byte_0_in_any_text(self):
        """Which would end the text there: refused in every file, with its place named."""
        for name, file, change, place in (
                ("llama-f16", "config.json", lambda c: c.update(model_type="llama\0"), "'model_type'"),
                ("llama-f16", "generation_config.json", lambda c: c.update(a=[1, {"b": "\0"}]), "'a[1].b'"),
                ("llama-f16", "tokenizer_config.json", lambda c: c.update(chat_template="{{ a }}\0{{ b }}"), "'chat_template'"),
                ("llama-f16", "chat_template.json", lambda c: c.update(chat_template="{{ a }}\0"), "'chat_template'"),
                ("llama-f16", "tokenizer.json", lambda t: t["added_tokens"][0].update(content="<\0>"), "'added_tokens[0].content'"),
                ("llama-f16", "tokenizer.json", lambda t: t["model"]["vocab"].update({"x\0y": 1}), "'model.vocab.x'"),
                ("qwen3-q4_1", "model.safetensors.index.json", lambda c: c["weight_map"].update({"a\0": "b"}), "'weight_map.a'")):
            folder = self.copy(name)
            if file == "chat_template.json":
                self.edit(folder, "tokenizer_config.json", lambda c: c.pop("chat_template"))
            self.edit(folder, file, change)
            self.fails(3, "run", folder, "x", says=f"{file}: key {place}: a byte 0")


if __name__ == "__main__":
    unittest.main()

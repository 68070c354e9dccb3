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

    def move_settings(self, folder, file, names=()):
        """Takes quantization_config out of config.json into a file of its own, with keys by other names; what it was."""
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            settings = json.load(f)["quantization_config"]
        self.edit(folder, "config.json", lambda c: c.pop("quantization_config"))
        moved = {dict(names).get(k, k): v for k, v in settings.items() if k != "quant_method"}
        self.edit(folder, file, lambda c: c.update(moved))
        return settings

    def test_settings_in_a_file_of_their_own(self):
        """As AutoGPTQ and AutoAWQ wrote them, with the weights' file under AutoGPTQ's name."""
        awq = (("bits", "w_bit"), ("group_size", "q_group_size"))
        for name, file, names in (("llama-q4_0+gptq", "quantize_config.json", ()), ("llama-q2_0+gptq", "quantize_config.json", ()),
                                  ("llama-q4_0+gptq_v2", "quantize_config.json", ()), ("llama-q4_0+order", "quantize_config.json", ()),
                                  ("llama-q4_0+awq", "quant_config.json", ()), ("llama-q4_0+awq", "quant_config.json", awq),
                                  ("llama-q4_0+awq", "quantize_config.json", awq)):
            folder = self.copy(name)
            before = self.says(folder)
            settings = self.move_settings(folder, file, names)
            others = {"damp_percent": 0.01, "model_name_or_path": None, "model_file_base_name": "x", "quant_method": None}
            self.edit(folder, file, lambda c: c.update(others))
            os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, "gptq_model-4bit-128g.safetensors"))
            self.assertEqual(self.says(folder), before, (name, file))
            self.assertIn("qweight", self.succeeds("inspect", folder).stdout)
            os.unlink(os.path.join(folder, file))
            self.fails(3, "run", folder, "x", says="nor packed as the folder's settings")
            self.edit(folder, "config.json", lambda c: c.update(quantization_config=settings))
            self.assertEqual(self.says(folder), before)
            shutil.copy(os.path.join(folder, "gptq_model-4bit-128g.safetensors"), os.path.join(folder, "other.safetensors"))
            self.fails(3, "run", folder, "x", says="called model.safetensors: gptq_model-4bit-128g.safetensors, other.safetensors;")

    def test_indices_by_another_name(self):
        """As AutoGPTQ names that of a model in several files; the only one of its kind is read."""
        folder, index = self.copy("qwen3-q4_1"), "gptq_model-4bit-128g.safetensors.index.json"
        before = self.says(folder)
        os.rename(os.path.join(folder, "model.safetensors.index.json"), os.path.join(folder, index))
        with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w", encoding="ascii") as f:
            f.write("{}")
        self.assertEqual(self.says(folder), before)
        self.assertIn("model.layers.0.mlp.up_proj.weight", self.succeeds("inspect", folder).stdout)
        shutil.copy(os.path.join(folder, index), os.path.join(folder, "b.safetensors.index.json"))
        says = f"{folder}: none of several files is called model.safetensors.index.json: b.safetensors.index.json, {index};"
        for command in (("run", folder, "x"), ("inspect", folder), ("convert", folder, os.path.join(self.work, "made.gguf"))):
            self.fails(3, *command, says=says)
        shutil.copy(os.path.join(folder, index), os.path.join(folder, "model.safetensors.index.json"))
        self.assertEqual(self.says(folder), before)
        for file in ("model.safetensors.index.json", "b.safetensors.index.json", index):
            os.unlink(os.path.join(folder, file))
        self.fails(3, "run", folder, "x", says="model.safetensors: model-00001-of-00002.safetensors, model-00002-of-00002.safetensors;")

    def test_settings_of_another_file_that_crumb_does_not_do(self):
        for name, file, change, says in (
                ("gptq", "quantize_config.json", {"bits": 5}, "'bits'"),
                ("gptq", "quantize_config.json", {"bits": "4"}, "'bits'"),
                ("gptq", "quantize_config.json", {"group_size": None}, "'group_size': missing"),
                ("gptq", "quantize_config.json", {"desc_act": 1}, "'desc_act'"),
                ("gptq", "quantize_config.json", {"checkpoint_format": "marlin"}, "'checkpoint_format': 'marlin'"),
                ("gptq", "quantize_config.json", {"is_marlin_format": True}, "'is_marlin_format': 'true'"),
                ("gptq", "quantize_config.json", {"quant_method": "bitnet"}, "'quant_method': 'bitnet'"),
                ("gptq", "quantize_config.json", {"quant_method": 7}, "'quant_method': not a string"),
                ("gptq", "quantize_config.json", {"rotation": "hadamard"}, "'rotation': names a transform"),
                ("gptq", "quantize_config.json", {"dynamic": {"x": 1}}, "'dynamic'"),
                ("awq", "quant_config.json", {"bits": None, "w_bit": 3}, "'w_bit'"),
                ("awq", "quant_config.json", {"group_size": None, "q_group_size": 0}, "'q_group_size'"),
                ("awq", "quant_config.json", {"version": "GEMV"}, "'version': 'GEMV'"),
                ("awq", "quant_config.json", {"zero_point": False}, "'zero_point'")):
            folder = self.copy(f"llama-q4_0+{name}")
            self.move_settings(folder, file)
            self.edit(folder, file, lambda c: c.update(change))
            self.fails(3, "run", folder, "x", says=f"{folder}/{file}: key {says}")
        with open(os.path.join(folder, "quantize_config.json"), "w", encoding="ascii") as f:
            f.write("{")
        self.fails(3, "run", folder, "x", says="quantize_config.json: not a JSON object")

    def test_settings_that_do_not_agree(self):
        """transformers follows config.json, AutoGPTQ and AutoAWQ the other file: neither is right for certain."""
        v1, v2 = "llama-q4_0+gptq", "llama-q4_0+gptq_v2"
        for name, file, settings, key in (
                (v1, "quantize_config.json", {"bits": 4, "group_size": 32, "desc_act": False}, None),
                (v1, "quantize_config.json", {"bits": 4, "group_size": 32}, None),
                (v2, "quantize_config.json", {"bits": 4, "group_size": 32}, None),
                (v1, "quantize_config.json", {"bits": 3, "group_size": 32}, "bits"),
                (v1, "quantize_config.json", {"bits": 4, "group_size": -1}, "group_size"),
                (v1, "quantize_config.json", {"bits": 4, "group_size": 32, "desc_act": True}, "desc_act"),
                (v1, "quantize_config.json", {"bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"}, "checkpoint_format"),
                (v2, "quantize_config.json", {"bits": 4, "group_size": 32, "format": "gptq"}, "format"),
                (v1, "quantize_config.json", {"bits": 4, "group_size": 32, "quant_method": "awq"}, "quant_method"),
                ("llama-q4_0+awq", "quant_config.json", {"w_bit": 4, "q_group_size": 32, "version": "GEMM"}, None),
                ("llama-q4_0+awq", "quant_config.json", {"w_bit": 4, "q_group_size": 64}, "q_group_size")):
            folder = self.copy(name)
            before = self.says(folder)
            self.edit(folder, file, lambda c: c.update(settings))
            if key:
                says = f"{folder}/{file}: key '{key}': another value than {folder}/config.json has"
                self.fails(3, "run", folder, "x", says=says)
            else:
                self.assertEqual(self.says(folder), before)
        folder = self.copy("llama-q4_0+awq")
        self.move_settings(folder, "quantize_config.json", (("bits", "w_bit"),))
        self.edit(folder, "quant_config.json", lambda c: c.update(bits=4, group_size=128))
        says = f"quant_config.json: key 'group_size': another value than {folder}/quantize_config.json has"
        self.fails(3, "run", folder, "x", says=says)

    def test_sizes_that_other_models_have(self):
        """Refused by config.json's key, with the tensor named that is of another size."""
        for name, key, values in (("llama-f16", "vocab_size", (263, 4096)), ("llama-f16", "hidden_size", (32, 72)),
                                  ("llama-f16", "intermediate_size", (36, 45)), ("llama-f16", "num_hidden_layers", (1, 3)),
                                  ("llama-f16", "num_attention_heads", (1, 4)), ("qwen2-f16-yarn", "num_attention_heads", (1, 4)),
                                  ("qwen3-q4_1", "num_key_value_heads", (1, 4)), ("qwen3-q4_1", "head_dim", (16, 64)),
                                  ("llama-q4_0+gptq", "hidden_size", (32, 96)), ("llama-q4_0+gptq", "intermediate_size", (64, 128)),
                                  ("bitnet-b1.58-i2_s+auto", "intermediate_size", (128,))):
            for value in values:
                folder = self.copy(name)
                self.edit(folder, "config.json", lambda c: c.update({key: value}))
                says = f"config.json: key '{key}'"
                self.assertIn("model.", self.fails(3, "run", folder, "x", says=says).stderr.split(says)[1], (name, key, value))
        folder = self.copy("llama-f16")
        self.edit(folder, "config.json", lambda c: c.update(num_key_value_heads=2))
        self.fails(3, "run", folder, "x", says="whole heads by config.json's keys 'num_attention_heads', 'num_key_value_heads'")

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
                ("llama-f16", "quantize_config.json", lambda c: c.update(quant_method="gptq\0"), "'quant_method'"),
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

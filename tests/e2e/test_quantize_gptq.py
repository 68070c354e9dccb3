"""crumb quantize to GPTQ's safetensors, by rounding and by its method."""
import json
import os
import shutil
import struct
import unittest

from quantizing import GREEDY, ORACLE, SMALL, QuantizeTest, read_safetensors


class Gptq(QuantizeTest):
    def test_gptq_folders(self):
        for kind, group in (("GPTQ4", 32), ("GPTQ3", 64), ("GPTQ2", 16), ("GPTQ3", 16), ("GPTQ4", 16), ("GPTQ4", -1)):
            out = os.path.join(self.folder, f"{kind}.{group}")
            self.succeeds("quantize", SMALL, out, kind, "--group-size", group)
            with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
                settings = json.load(f)["quantization_config"]
            self.assertEqual((settings["bits"], settings["group_size"]), (int(kind[4]), group))
            tensors = read_safetensors(os.path.join(out, "model.safetensors"))
            before = read_safetensors(os.path.join(SMALL, "model.safetensors"))
            self.check_gptq(tensors, before, int(kind[4]), group)
            self.succeeds("run", out, *GREEDY)
            self.fails(2, "quantize", SMALL, out, kind, says="is there already")
        self.fails(3, "quantize", os.path.join(ORACLE, "models", "llama-f16.gguf"), self.out, "GPTQ4", says="multiples of 32")
        self.fails(2, "quantize", SMALL, self.out, "GPTQ4", "--group-size", 20, says="multiple of 16")

    def test_gptq_folders_of_any_model(self):
        """A GGUF file and the checkpoint of the same model become the same weights; and its vocabulary stays what it is."""
        folders = [os.path.join(self.folder, name) for name in ("gguf", "checkpoint", "again")]
        for name, kind in (("llama-q4_1", "GPTQ4"), ("qwen3-q4_1", "GPTQ3"), ("qwen2-f16-yarn", "GPTQ4")):
            gguf = os.path.join(ORACLE, "models", name + ".gguf")
            checkpoint = os.path.join(ORACLE, "checkpoints", name)
            for source, out in zip((gguf, checkpoint, folders[0]), folders):
                self.succeeds("quantize", source, out, kind, "--group-size", 32)
            made = [read_safetensors(os.path.join(out, "model.safetensors")) for out in folders]
            self.assertEqual(sorted(made[0]), sorted(made[1]))
            packed = [n for n in made[0] if n.rpartition(".")[2] in ("qweight", "qzeros", "scales", "g_idx")]
            self.assertGreater(len(packed), 20, name)
            for tensor in packed:
                self.assertEqual(made[0][tensor], made[1][tensor], tensor)
            configs = []
            for out in folders:
                with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
                    configs.append(json.load(f))
            for key in ("hidden_size", "num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps",
                        "max_position_embeddings", "tie_word_embeddings"):
                self.assertAlmostEqual(configs[0][key], configs[1].get(key, configs[0][key]), 9, key)
            scaling = [{k: v for k, v in (c.get("rope_scaling") or {}).items() if k != "beta_slow"} for c in configs]
            self.assertEqual(scaling[0], scaling[1])
            for out in folders:
                self.succeeds("run", out, *GREEDY)
            tokens = [self.succeeds("tokenize", m, "a cat in the hat 42").stdout for m in (gguf, folders[0], folders[2])]
            self.assertEqual(tokens, tokens[:1] * 3)
            for out in folders:
                shutil.rmtree(out)

    def check_gptq(self, tensors, before, bits, group):
        """Each weight is within half a step of its value, by the form's description; everything else is as it was."""
        packed = [name[:-len(".qweight")] for name in tensors if name.endswith(".qweight")]
        self.assertGreater(len(packed), 3)
        for name, (dtype, shape, data) in before.items():
            stem = name[:-len(".weight")]
            if stem not in packed:
                self.assertEqual(tensors[name], (dtype, shape, data))
                continue
            rows, k = shape
            width = k if group == -1 else group
            words = struct.unpack(f"<{k * bits // 32 * rows}I", tensors[stem + ".qweight"][2])
            zeros = struct.unpack(f"<{k // width * rows * bits // 32}I", tensors[stem + ".qzeros"][2])
            scales = struct.unpack(f"<{k // width * rows}e", tensors[stem + ".scales"][2])
            weights = struct.unpack(f"<{rows * k}e", data)
            for row in range(0, rows, 7):
                column = sum(words[i * rows + row] << 32 * i for i in range(k * bits // 32))
                for g in range(k // width):
                    line = zeros[g * rows * bits // 32:(g + 1) * rows * bits // 32]
                    zero = (sum(word << 32 * i for i, word in enumerate(line)) >> row * bits & (1 << bits) - 1) + 1
                    scale = scales[g * rows + row]
                    for i in range(g * width, (g + 1) * width):
                        value = scale * ((column >> i * bits & (1 << bits) - 1) - zero)
                        self.assertLessEqual(abs(value - weights[row * k + i]), 0.501 * scale + abs(value) / 500 + 0.51 *
                                             scale * (abs(value) > 0.999 * scale * ((1 << bits) - 1 - zero) or
                                                      abs(value) > 0.999 * scale * zero))

    def test_gptq_method(self):
        text = self.text()
        nearest = os.path.join(self.folder, "nearest")
        self.succeeds("quantize", SMALL, nearest, "GPTQ3", "--group-size", 32)
        before, seen = read_safetensors(os.path.join(nearest, "model.safetensors")), set()
        for order in ("off", "on", "free"):
            out = os.path.join(self.folder, order)
            self.succeeds("quantize", SMALL, out, "GPTQ3", "--group-size", 32, "--method", "gptq", "--calibration", text,
                          "--calibration-tokens", 700, "--act-order", order)
            with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
                self.assertEqual(json.load(f)["quantization_config"]["desc_act"], order == "free")
            tensors = read_safetensors(os.path.join(out, "model.safetensors"))
            self.assertEqual(sorted(tensors), sorted(before))
            name = "model.layers.0.self_attn.o_proj."
            groups = struct.unpack(f"<{tensors[name + 'g_idx'][1][0]}I", tensors[name + "g_idx"][2])
            self.assertEqual(sorted(groups) == list(groups), order != "free")
            self.assertEqual({groups.count(g) for g in groups}, {32})
            seen.add(tensors[name + "qweight"][2])
            self.succeeds("run", out, *GREEDY)
        self.assertEqual(len(seen | {before[name + "qweight"][2]}), 4)

    def test_gptq_method_from_what_is_packed(self):
        """Also where columns stand in an order of their own."""
        source = os.path.join(ORACLE, "checkpoints", "llama-q4_0+order")
        text, out = self.text(), [os.path.join(self.folder, n) for n in ("first", "second", "third")]
        for given, made, group in zip((source, out[0], out[1]), out, (32, 16, 32)):
            self.succeeds("quantize", given, made, "GPTQ4", "--group-size", group, "--method", "gptq", "--calibration",
                          text, "--act-order", "free")
            self.succeeds("run", made, *GREEDY)

    def test_gptq_method_writes_its_own_text(self):
        out = [os.path.join(self.folder, str(seed)) for seed in (0, 1, 2)]
        for folder, seed in zip(out, (1, 1, 2)):
            self.succeeds("quantize", SMALL, folder, "GPTQ4", "--group-size", 64, "--method", "gptq",
                          "--calibration-tokens", 600, "--seed", seed, "-t", 1 + seed)
        made = [read_safetensors(os.path.join(folder, "model.safetensors")) for folder in out]
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], made[2])

    def test_gptq_method_refusals(self):
        empty = os.path.join(self.folder, "empty")
        open(empty, "wb").close()
        gptq = ("--method", "gptq", "--group-size", 32)
        self.fails(2, "quantize", SMALL, self.out, "Q4_0", *gptq, says="writes GPTQ2, GPTQ3 and GPTQ4")
        self.fails(2, "quantize", SMALL, self.out, "GPTQ4", "--calibration", empty, says="only --method gptq")
        self.fails(2, "quantize", SMALL, self.out, "GPTQ4", *gptq, "--calibration", empty, says="no text")
        self.fails(1, "quantize", SMALL, self.out, "GPTQ4", *gptq, "--calibration", "/nonexistent", says="/nonexistent")
        self.fails(2, "quantize", SMALL, self.out, "GPTQ4", *gptq, "--calibration-tokens", 8, "--damping", 0,
                   says="more damping")
        self.fails(3, "quantize", os.path.join(ORACLE, "models", "bitnet-f32.gguf"), self.out, "GPTQ4",
                   says="llama, qwen2 and qwen3")
        self.assertFalse(os.path.exists(os.path.join(self.out, "config.json")))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""crumb quantize: which tensors get which type, what is refused, and what being killed leaves."""
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from command import COMMAND, MODEL, SOURCE, CommandTest, crumb, environment, start

ORACLE = os.path.join(SOURCE, "tests", "oracle")
LLAMA = os.path.join(ORACLE, "models", "llama-k-quants.gguf")  # 256 columns; embedding Q6_K, tied
GREEDY = ("-p", "in the hat", "-n", 12, "--temp", 0, "--device", "cpu", "--no-display-prompt")
SMALL = os.path.join(ORACLE, "checkpoints", "qwen2-f16-yarn")  # 64 columns
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "MXFP4", "Q2_0", "TQ2_0", "TQ1_0", "I2_S", "Q1_0")


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items()}


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


class Quantize(CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.out = os.path.join(self.folder, "out.gguf")
        self.addCleanup(shutil.rmtree, self.folder)

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

    def test_gptq_method(self):
        text = os.path.join(self.folder, "text")
        with open(text, "w", encoding="ascii") as f:
            f.write("the cat sat on the mat, and the dog in the hat. " * 40)
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
        text, out = os.path.join(self.folder, "text"), [os.path.join(self.folder, n) for n in ("first", "second", "third")]
        with open(text, "w", encoding="ascii") as f:
            f.write("the cat sat on the mat, and the dog in the hat. " * 40)
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

    def test_killed_at_any_point(self):
        """No final file before it is whole; the next run finishes it, and it is what one run makes."""
        self.succeeds("quantize", MODEL, self.out, "Q4_1")
        with open(self.out, "rb") as f:
            whole = f.read()
        for delay in (0, 0.002, 0.01, 0.02, 0.04):
            os.unlink(self.out)
            running = start("quantize", MODEL, self.out, "Q4_1", "-t", "1")
            time.sleep(delay)  # wherever this meets it, what follows must hold
            running.send_signal(signal.SIGKILL)
            running.communicate()
            if os.path.exists(self.out):
                with open(self.out, "rb") as f:
                    self.assertEqual(f.read(), whole)
            self.succeeds("quantize", MODEL, self.out, "Q4_1")
            with open(self.out, "rb") as f:
                self.assertEqual(f.read(), whole)
            self.assertEqual(os.listdir(self.folder), ["out.gguf"])

    def test_folders_are_taken_up(self):
        """Wherever a run was killed: no config.json before all is there, and the next one ends with the same bytes."""
        self.kill_and_go_on((0, 0.002, 0.005, 0.01))

    def test_gptq_method_is_taken_up(self):
        text = os.path.join(self.folder, "text")
        with open(text, "w", encoding="ascii") as f:
            f.write("the cat sat on the mat, and the dog in the hat. " * 40)
        self.kill_and_go_on((0, 0.01, 0.02, 0.04, 0.06), "--method", "gptq", "--calibration", text)

    def kill_and_go_on(self, delays, *options):
        whole, out = os.path.join(self.folder, "whole"), os.path.join(self.folder, "out")
        self.succeeds("quantize", SMALL, whole, "GPTQ4", "--group-size", 32, *options)
        model = os.path.join(whole, "model.safetensors")
        with open(model, "rb") as f:
            data = f.read()
        for delay in delays:
            running = start("quantize", SMALL, out, "GPTQ4", "--group-size", "32", *options)
            time.sleep(delay)
            running.send_signal(signal.SIGKILL)
            running.communicate()
            if not os.path.exists(os.path.join(out, "config.json")):
                self.succeeds("quantize", SMALL, out, "GPTQ4", "--group-size", 32, *options)
            with open(os.path.join(out, "model.safetensors"), "rb") as f:
                self.assertEqual(f.read(), data)
            self.assertFalse([name for name in os.listdir(out) if "partial" in name])
            shutil.rmtree(out)

    @unittest.skipIf(os.environ.get("CRUMB_SANITIZE"), "memory of a layer: sanitizers keep a shadow of all that was touched")
    def test_memory_is_that_of_a_layer(self):
        """Twenty-four layers more take the memory of their names, and of a few pages here and there."""
        text = os.path.join(self.folder, "text")
        with open(text, "w", encoding="ascii") as f:
            f.write("the cat sat on the mat, and the dog in the hat. " * 20)
        few, many = os.path.join(self.folder, "few"), os.path.join(self.folder, "many")
        layer = make_folder(few, 2)
        make_folder(many, 26)
        for options in (("Q4_0",), ("GPTQ4",), ("GPTQ4", "--method", "gptq", "--calibration", text,
                                                "--calibration-tokens", 256)):
            peaks = [peak_bytes("quantize", model, f"{model}.{'-'.join(options[:3])}", *options, "-t", 1)
                     for model in (few, many)]
            self.assertLess(peaks[1] - peaks[0], 4 * layer, options)

    def test_work_of_another_process_is_left_alone(self):
        import fcntl
        with open(self.out + ".partial", "wb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            done = crumb("quantize", MODEL, self.out, "Q4_1")
            self.assertEqual(done.returncode, 1)
            self.assertIn("another process is writing it", done.stderr)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Folders with weights that ParetoQ trained on few levels: they answer as the levels do as plain f32, which are worked out
here, become GGUF files that hold them, and are refused where it is not said which levels."""
import json
import math
import os
import random
import shutil
import struct
import tempfile
import unittest

from command import SOURCE, CommandTest

LIKE = os.path.join(SOURCE, "tests", "oracle", "checkpoints", "llama-f16")  # its vocabulary
TEXT = "the cat in the hat sat on the mat and that was that " * 8
WIDE, NARROW = "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"  # rows of 256 and of 32
# What matrices become as GGUF, of 0 (ternary) to 4 bits: of rows that are whole blocks of 256, and of others.
BECOMES = {0: ("TQ2_0", "Q4_0"), 1: ("Q1_0", "Q4_0"), 2: ("Q2_K", "Q4_0"), 3: ("Q4_0", "Q4_0"), 4: ("Q4_0", "Q4_0")}
SHAPES = {"self_attn.q_proj": (32, 256), "self_attn.k_proj": (16, 256), "self_attn.v_proj": (16, 256),
          "self_attn.o_proj": (256, 32), "mlp.gate_proj": (32, 256), "mlp.up_proj": (32, 256), "mlp.down_proj": (256, 32)}


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16_bytes(values):
    """To the nearest of bf16, of two the even one."""
    bits = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *((b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits))


def write_safetensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def level(w, scale, bits):
    """What ParetoQ's training multiplies by."""
    if bits == 1:
        return math.copysign(scale, w)
    if bits == 0:
        return round(max(-0.99, min(0.99, w / scale)) * 1.5) / 1.5 * scale
    if bits == 2:
        return (round(max(-0.99, min(0.99, w / scale)) * 2 - 0.5) + 0.5) / 2 * scale
    return max(-(1 << bits - 1), min((1 << bits - 1) - 1, round(w / scale))) * scale


def scale_of(row, bits, rounded):
    """An f16, which GGUF's types hold, or a float between two of them."""
    largest = max(map(abs, row))
    scale = half(sum(map(abs, row)) / len(row) if bits == 1 else largest if bits in (0, 2) else
                 largest / ((1 << bits - 1) - 1))
    return scale if rounded else single(scale * 1.0003)


class ParetoQ(CommandTest):
    @classmethod
    def setUpClass(cls):
        rng = random.Random(5)
        with open(os.path.join(LIKE, "config.json"), encoding="utf-8") as f:
            cls.config = json.load(f)
        cls.config.update(hidden_size=256, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                          num_key_value_heads=1, head_dim=16, tie_word_embeddings=True, rope_scaling=None)
        n_vocab = cls.config["vocab_size"]

        def floats(n, deviation, mean=0):
            return [single(rng.gauss(mean, deviation)) for _ in range(n)]
        cls.rest = {"model.embed_tokens.weight": ([n_vocab, 256], floats(n_vocab * 256, 0.1)),
                    "model.norm.weight": ([256], floats(256, 0.1, 1))}
        for name in ("input_layernorm", "post_attention_layernorm"):
            cls.rest[f"model.layers.0.{name}.weight"] = ([256], floats(256, 0.1, 1))
        cls.weights = {name: [floats(k, 0.06) for _ in range(m)] for name, (m, k) in SHAPES.items()}

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = os.path.join(self.folder, "out.gguf")
        self.text = os.path.join(self.folder, "text.txt")
        with open(self.text, "w", encoding="ascii") as f:
            f.write(TEXT)

    def write(self, name, matrices, **extra):
        """A folder; matrices: {stem: {part: (dtype, shape, bytes)}}. Its path."""
        folder = os.path.join(self.folder, name)
        os.makedirs(folder)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(LIKE, file), folder)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump({**self.config, **extra}, f)
        tensors = {stem: ("F32", shape, struct.pack(f"<{len(v)}f", *v)) for stem, (shape, v) in self.rest.items()}
        for stem, parts in matrices.items():
            tensors.update({f"model.layers.0.{stem}.{part}": t for part, t in parts.items()})
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        return folder

    def write_behind(self, name, bits, rounded=True, **extra):
        """Weights, and the scales that they were trained with."""
        matrices = {}
        for stem, rows in self.weights.items():
            scales, flat = [scale_of(row, bits, rounded) for row in rows], sum(rows, [])
            matrices[stem] = {"weight": ("F32", SHAPES[stem], struct.pack(f"<{len(flat)}f", *flat)),
                              "weight_clip_val": ("F32", (len(rows), 1), struct.pack(f"<{len(rows)}f", *scales))}
        return self.write(name, matrices, **extra)

    def levels(self, bits, rounded=True):
        return {stem: [level(w, scale_of(row, bits, rounded), bits) for row in rows for w in row]
                for stem, rows in self.weights.items()}

    def write_plain(self, name, bits, rounded=True):
        """The levels as f32, some of each row moved off so that they are not taken for levels."""
        matrices = {}
        for stem, flat in self.levels(bits, rounded).items():
            flat = [w * (1 + 3e-5) if i % 16 == 0 else w for i, w in enumerate(flat)]
            matrices[stem] = {"weight": ("F32", SHAPES[stem], struct.pack(f"<{len(flat)}f", *flat))}
        return self.write(name, matrices)

    def divergence(self, model, base):
        said = self.succeeds("perplexity", model, "--device", "cpu", "--activation", "float", "--kl-divergence",
                             "--kl-divergence-base", base, "--json").stdout
        return json.loads(said)["kl_divergence"]

    def types(self, model):
        listing = json.loads(self.succeeds("inspect", model, "--tensors", "--json").stdout)
        return {t["name"]: t["type"] for t in listing["tensors"]}

    def check_answers(self, folder, plain, bits, base):
        """Those of the folder and of the GGUF file that it becomes are those of its levels as plain f32."""
        self.succeeds("perplexity", plain, "--device", "cpu", "--activation", "float", "-f", self.text, "-c", 32,
                      "--chunks", 2, "--kl-divergence-base", base)
        self.assertLess(abs(self.divergence(folder, base)), 1e-5)
        self.succeeds("convert", folder, self.out)
        types = self.types(self.out)
        self.assertEqual((types[WIDE], types[NARROW]), BECOMES[bits])
        self.assertLess(abs(self.divergence(self.out, base)), 1e-5)
        os.unlink(self.out)

    def test_answers_and_types(self):
        base = os.path.join(self.folder, "base.kld")
        others = {bits: self.write_behind(f"bits{bits}", bits, w_bits=bits) for bits in BECOMES}
        for bits in BECOMES:
            self.check_answers(others[bits], self.write_plain(f"plain{bits}", bits), bits, base)
            self.assertGreater(self.divergence(others[(bits + 1) % 5], base), 1e-2)

    def test_scales_that_are_no_f16(self):
        """They are kept in memory, and rounded in GGUF's types, which have no other."""
        base = os.path.join(self.folder, "base.kld")
        for bits in BECOMES:
            behind = self.write_behind(f"bits{bits}", bits, rounded=False, w_bits=bits)
            self.check_answers(behind, self.write_plain(f"plain{bits}", bits, rounded=False), bits, base)

    def test_scales_are_rounded_alone(self):
        """By quantize, to types that have f16 as scale: all is near what it was, where rows are whole blocks."""
        base = os.path.join(self.folder, "base.kld")
        for bits, kind, most in ((2, ("Q2_K", "--method", "seq"), 1e-5), (0, ("TQ2_0",), 1e-3), (1, ("Q1_0",), 1e-3)):
            folder = self.write_behind(f"bits{bits}", bits, w_bits=bits)
            self.succeeds("perplexity", folder, "--device", "cpu", "--activation", "float", "-f", self.text, "-c", 32,
                          "--chunks", 2, "--kl-divergence-base", base)
            self.succeeds("quantize", folder, self.out, *kind, "--token-embedding-type", "F32")
            self.assertEqual(self.types(self.out)[WIDE], kind[0])
            self.assertLess(abs(self.divergence(self.out, base)), most)
            os.unlink(self.out)

    def test_levels_in_bf16(self):
        """No scales beside them: recognised by themselves, with and without w_bits."""
        for bits, wide in ((0, "TQ2_0"), (1, "Q1_0"), (2, "Q2_K"), (3, "Q4_0"), (4, "Q4_0")):
            matrices = {stem: {"weight": ("BF16", SHAPES[stem], bf16_bytes(flat))}
                        for stem, flat in self.levels(bits).items()}
            for extra in ({}, {"w_bits": bits}):
                folder = self.write(f"levels{bits}{len(extra)}", matrices, **extra)
                self.succeeds("convert", folder, self.out)
                self.assertEqual(self.types(self.out)[WIDE], wide)
                self.assertEqual(self.types(self.out)[NARROW], "Q4_0")
                os.unlink(self.out)

    def test_refusals(self):
        self.fails(3, "convert", self.write_behind("bits", 2, w_bits=6), self.out, says="w_bits")
        self.fails(3, "convert", self.write_behind("half", 2, w_bits=1.58), self.out, says="w_bits")
        self.fails(3, "convert", self.write_behind("silent", 2), self.out, says="no w_bits")
        flat = {stem: sum(rows, []) for stem, rows in self.weights.items()}
        plain = {stem: {"weight": ("F32", SHAPES[stem], struct.pack(f"<{len(v)}f", *v))} for stem, v in flat.items()}
        self.fails(3, "convert", self.write("bare", plain, w_bits=2), self.out, says="weight_clip_val")
        plain["mlp.up_proj"]["weight_clip_val"] = ("F32", (3, 1), struct.pack("<3f", 1, 1, 1))
        self.fails(3, "convert", self.write("shape", {"mlp.up_proj": plain["mlp.up_proj"]}, w_bits=2), self.out,
                   says="one scale for each row")
        plain["mlp.up_proj"]["weight_clip_val"] = ("F32", (32, 1), struct.pack("<32f", *[math.nan] * 32))
        self.fails(3, "convert", self.write("nan", {"mlp.up_proj": plain["mlp.up_proj"]}, w_bits=2), self.out,
                   says="NaN or infinite")
        self.fails(3, "quantize", self.write_behind("again", 2, w_bits=2), self.out, "GPTQ4", says="trained on few levels")
        self.assertFalse(os.path.exists(self.out))


if __name__ == "__main__":
    unittest.main()

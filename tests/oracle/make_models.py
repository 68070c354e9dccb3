#!/usr/bin/env python3
"""Makes the tiny random models that the oracle tests run (tests/oracle/models/*.gguf), from fixed seeds.

One model per line of MODELS: each type of weight at least once in each family that uses it, and each variation of an
architecture (tied and separate heads, head widths that do not divide the hidden size, grouped queries, RoPE scaling,
both vocabularies) in at least one model. Row counts that are no multiple of 16 come from odd head widths and from
the vocabulary.
"""
import argparse
import math
import os
import sys
import zlib
from dataclasses import dataclass, field

import gguf
import numpy as np

import block_types
import gguf_read
import make_types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
import gguf_write  # noqa: E402


@dataclass
class Spec:
    name: str
    type: str  # of the linear layers; those whose K is not whole blocks get `rest`
    arch: str = "llama"
    hidden: int = 64
    heads: int = 4
    kv: int = 1
    head_dim: int = 24
    ff: int = 96
    layers: int = 2
    embed: str = "F16"
    head: str = None  # None: tied to the embedding
    rest: str = "Q4_0"
    types: dict = field(default_factory=dict)  # of single linear layers: attn_q, ffn_down ...
    one_scale: bool = False  # the same scale in all blocks of a tensor, as models trained so have
    scale_tensors: bool = False  # blocks of scale 1, and the scale in a tensor NAME.scale beside each weight
    biases: bool = False  # a tensor NAME.bias beside each weight (qwen2: of q, k and v)
    rope: str = None  # "linear", "llama3", "yarn"
    vocabulary: str = "spm"
    keys: dict = field(default_factory=dict)


SMALL = {"hidden": 36, "heads": 2, "kv": 1, "head_dim": 22, "ff": 44}
K128 = {"hidden": 128, "heads": 4, "kv": 1, "head_dim": 32, "ff": 128}
K256 = {"hidden": 256, "heads": 4, "kv": 2, "head_dim": 24, "ff": 64, "layers": 1, "embed": "Q8_0",
        "head": "Q8_0"}
BITNET_K256 = {"hidden": 256, "heads": 4, "kv": 1, "head_dim": 64, "ff": 256, "layers": 1, "embed": "Q4_0"}

MODELS = [
    Spec("llama-f32", "F32", embed="F32", head="F32", **SMALL),
    Spec("llama-f16", "F16", vocabulary="bpe", **SMALL),
    Spec("llama-bf16", "BF16", embed="BF16", rope="linear", **SMALL),
    Spec("llama-q4_0", "Q4_0", embed="Q4_0"),
    Spec("llama-q4_1", "Q4_1", embed="Q4_1", head="Q8_0", rope="llama3"),
    Spec("llama-q8_0", "Q8_0", embed="Q8_0", heads=2, head_dim=48, biases=True),
    Spec("llama-tq1_0", "TQ1_0", **K256),
    Spec("llama-tq2_0", "TQ2_0", one_scale=True, **K256),
    Spec("llama-i2_s", "I2_S", head="F16", rope="llama3", **K128),
    Spec("llama-q1_0", "Q1_0", embed="Q1_0", **K128),
    Spec("llama-q2_0", "Q2_0", embed="Q2_0", head="F16", heads=2, head_dim=64, ff=128),
    Spec("llama-q2_0-g128", "Q2_0_G128", head="Q2_0_G128", **K128),
    Spec("llama-k-quants", "Q4_K", hidden=256, heads=4, kv=1, head_dim=64, ff=256, layers=1, embed="Q6_K",
         types={"attn_q": "Q2_K", "attn_k": "Q3_K", "attn_v": "Q5_K", "attn_output": "Q6_K", "ffn_down": "Q5_K"}),
    Spec("llama-5-bit", "MXFP4", embed="Q5_1", head="IQ4_NL",
         types={"attn_q": "Q5_0", "attn_k": "Q5_0", "attn_v": "Q5_1", "ffn_down": "Q5_1"}),
    Spec("llama-ptq1_0", "PTQ1_0", embed="IQ4_NL", **K128),
    Spec("qwen2-q5_0", "Q5_0", "qwen2", embed="Q5_1", biases=True, heads=4, kv=2, head_dim=16, vocabulary="qwen2"),
    Spec("qwen2-f16-yarn", "F16", "qwen2", hidden=64, heads=2, kv=1, head_dim=32, ff=44, biases=True, rope="yarn"),
    Spec("qwen3-q1_0", "Q1_0", "qwen3", embed="Q1_0", rope="yarn", **K128),
    Spec("qwen3-q4_1", "Q4_1", "qwen3", head="Q8_0", heads=4, kv=2, head_dim=32, layers=1),
    Spec("bitnet-f32", "F32", "bitnet", hidden=32, heads=2, kv=1, head_dim=16, ff=40, embed="F32"),
    Spec("bitnet-tq2_0-scales", "TQ2_0", "bitnet", scale_tensors=True, **BITNET_K256),
    Spec("bitnet-i2_s-relu2", "I2_S", "bitnet", keys={"hidden_activation": "relu2"}, **K128),
    Spec("bitnet-25-tq1_0", "TQ1_0", "bitnet-25", one_scale=True, **BITNET_K256),
    Spec("bitnet-b1.58-i2_s", "I2_S", "bitnet-b1.58", hidden=128, heads=4, kv=2, head_dim=32, ff=256),
    Spec("bitnet-b1.58-tq2_0", "TQ2_0", "bitnet-b1.58", one_scale=True, **BITNET_K256),
]


def codes_and_scales(rng, type_name, rows, k, gain, one_scale):
    """Random codes of a type, and scales such that the matrix maps unit variance to variance gain^2."""
    block = gguf_write.TYPES[type_name][1]
    shape = (rows, k)
    if type_name in ("Q4_0", "Q4_1"):
        spread, codes = 3.0, np.clip(np.rint(rng.normal(7.8, 3, shape)), 0, 15)
    elif type_name == "Q8_0":
        spread, codes = 40.0, np.clip(np.rint(rng.normal(128, 40, shape)), 1, 255)
    elif type_name == "Q1_0":
        spread, codes = 1.0, rng.integers(0, 2, shape)
    elif type_name.startswith("Q2_0"):
        spread, codes = 1.0, rng.choice(4, shape, p=(.3, .4, .25, .05))
    else:
        spread, codes = (2 / 3) ** 0.5, rng.integers(0, 3, shape)
    d = gain / (spread * math.sqrt(k))
    if type_name == "I2_S":
        return codes.astype(np.uint8), np.float32(d), None
    jitter = 1 if one_scale else np.exp(rng.normal(0, 0.3, (rows, k // block)))
    d = np.float16(d * jitter * np.ones((rows, k // block)))
    low = np.float16(-d.astype(np.float32) * rng.uniform(7, 8.5, d.shape)) if type_name == "Q4_1" else None
    return codes.astype(np.uint8), d, low


CENTER = {"Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5, "Q5_1": -15.5}  # the min that makes a mean of 0, for a scale of 1


def random_blocks(rng, type_name, rows, k, gain):
    """Random bytes, and f16 fields (or exponents) such that the matrix maps unit variance to variance gain^2."""
    kind, block, size = gguf_write.TYPES[type_name]
    n = rows * k // block
    raw = rng.integers(0, 256, (n, size)).astype(np.uint8)

    def put(*factors):
        if type_name == "MXFP4":
            raw[:, 0] = np.rint(np.log2(np.broadcast_to(factors[0], n))) + 128
        for at, factor in zip(make_types.F16_FIELDS[type_name], factors):
            raw[:, at:at + 2] = gguf_write.half_bytes(factor, n)

    center = CENTER.get(type_name, 0)
    put(1, center)
    values, scale, low = block_types.TYPES[kind][4](raw)
    group = values.shape[1] // scale.shape[1]
    spread = np.std(values * np.repeat(scale, group, axis=1) + np.repeat(low, group, axis=1))
    d = gain / (spread * math.sqrt(k)) * np.exp(rng.normal(0, 0.3, n))
    put(d, center * d)
    return raw.tobytes()


class Builder:
    def __init__(self, spec):
        self.spec = spec
        self.rng = np.random.default_rng(zlib.crc32(spec.name.encode()))
        self.out = gguf_write.Writer()

    def norm(self, name, width):
        self.out.add(name, (width,), "F32", gguf_write.dense("F32", self.rng.uniform(0.6, 1.4, width)))

    def matrix(self, name, k, rows, type_name, gain=1.5):
        if k % gguf_write.TYPES[type_name][1]:
            type_name = self.spec.rest
        if type_name in ("F32", "F16", "BF16"):
            data = gguf_write.dense(type_name, self.rng.normal(0, gain / math.sqrt(k), (rows, k)))
        elif type_name not in gguf_write.PACK:
            data = random_blocks(self.rng, type_name, rows, k, gain)
        else:
            codes, d, low = codes_and_scales(self.rng, type_name, rows, k, gain, self.spec.one_scale)
            data = gguf_write.PACK[type_name](codes, d, *([] if low is None else [low]))
        self.out.add(name, (k, rows), type_name, data)

    def linear(self, name, k, rows):
        spec = self.spec
        if spec.biases and (spec.arch != "qwen2" or name.endswith(("attn_q", "attn_k", "attn_v"))):
            self.out.add(name + ".bias", (rows,), "F32", gguf_write.dense("F32", self.rng.normal(0, 0.5, rows)))
        if not spec.scale_tensors:
            return self.matrix(name + ".weight", k, rows, spec.types.get(name.split(".")[-1], spec.type))
        codes, d, _ = codes_and_scales(self.rng, spec.type, rows, k, 1.5, True)
        self.out.add(name + ".weight", (k, rows), spec.type, gguf_write.PACK[spec.type](codes, np.float16(1)))
        self.out.add(name + ".scale", (1,), "F32", gguf_write.dense("F32", d[0, :1].astype(np.float32)))

    def put_vocabulary(self):
        """-> its size. SentencePiece-style with 70 pieces, or byte-level BPE with all 256 bytes and a few merges."""
        put = self.out.put
        if self.spec.vocabulary == "spm":
            pieces = ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581"] + [chr(c) for c in range(97, 123)]
            pieces += ["\u2581" + chr(c) for c in range(97, 123)] + ["th", "he", "\u2581th", "\u2581the", "in", "an", "er",
                                                                     "on", "at", "re", "st", "en", "or"]
            put("tokenizer.ggml.model", "llama")
            put("tokenizer.ggml.scores", [-float(i) for i in range(len(pieces))])
            put("tokenizer.ggml.token_type", [2, 3, 3, 6] + [1] * (len(pieces) - 4))
            bos, eos = 1, 2
        else:
            visible = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
            hidden = [b for b in range(256) if b not in visible]  # GPT-2 shows byte hidden[i] as character 256 + i
            pieces = [chr(b) for b in visible] + [chr(256 + i) for i in range(len(hidden))]
            merges = ["t h", "h e", "th e", "\u0120 the", "i n"]
            pieces += [m.replace(" ", "") for m in merges] + ["<|endoftext|>"]
            put("tokenizer.ggml.model", "gpt2")
            put("tokenizer.ggml.pre", "qwen2" if self.spec.vocabulary == "qwen2" else "gpt-2")
            put("tokenizer.ggml.merges", merges)
            put("tokenizer.ggml.token_type", [1] * (len(pieces) - 1) + [3])
            bos = eos = len(pieces) - 1
        put("tokenizer.ggml.tokens", pieces)
        put("tokenizer.ggml.bos_token_id", bos)
        put("tokenizer.ggml.eos_token_id", eos)
        return len(pieces)

    def put_hyper_parameters(self, n_vocab):
        s, put = self.spec, self.out.put
        put("general.architecture", s.arch)
        put("general.name", s.name)
        for key, value in {"context_length": 128, "embedding_length": s.hidden, "block_count": s.layers,
                           "feed_forward_length": s.ff, "attention.head_count": s.heads,
                           "attention.head_count_kv": s.kv, "attention.key_length": s.head_dim,
                           "attention.value_length": s.head_dim, "rope.dimension_count": s.head_dim,
                           "rope.freq_base": 10000.0, "attention.layer_norm_rms_epsilon": 1e-5,
                           "vocab_size": n_vocab, **s.keys}.items():
            put(f"{s.arch}.{key}", value)
        if s.rope == "linear":
            put(f"{s.arch}.rope.scaling.type", "linear")
            put(f"{s.arch}.rope.scaling.factor", 4.0)
        if s.rope == "yarn":
            put(f"{s.arch}.rope.scaling.type", "yarn")
            put(f"{s.arch}.rope.scaling.factor", YARN["factor"])
            put(f"{s.arch}.rope.scaling.original_context_length", YARN["original_max_position_embeddings"])
            put(f"{s.arch}.rope.scaling.yarn_beta_fast", YARN["beta_fast"])

    def build(self, path):
        s, bitnet = self.spec, self.spec.arch.startswith("bitnet")
        n_vocab = self.put_vocabulary()
        self.put_hyper_parameters(n_vocab)
        q, kv = s.heads * s.head_dim, s.kv * s.head_dim
        # As a head, a large embedding would make every token predict itself.
        self.matrix("token_embd.weight", s.hidden, n_vocab, s.embed, gain=math.sqrt(s.hidden) * (1 if s.head else 0.15))
        if s.rope == "llama3":
            self.out.add("rope_freqs.weight", (s.head_dim // 2,), "F32",
                         gguf_write.dense("F32", llama3_factors(s.head_dim)))
        for i in range(s.layers):
            b = f"blk.{i}."
            self.norm(b + "attn_norm.weight", s.hidden)
            for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
                self.linear(b + name, s.hidden, rows)
            if s.arch == "qwen3":
                self.norm(b + "attn_q_norm.weight", s.head_dim)
                self.norm(b + "attn_k_norm.weight", s.head_dim)
            if bitnet:
                self.norm(b + "attn_sub_norm.weight", q)
            self.linear(b + "attn_output", q, s.hidden)
            self.norm(b + "ffn_norm.weight", s.hidden)
            self.linear(b + "ffn_gate", s.hidden, s.ff)
            self.linear(b + "ffn_up", s.hidden, s.ff)
            if bitnet:
                self.norm(b + "ffn_sub_norm.weight", s.ff)
            self.linear(b + "ffn_down", s.ff, s.hidden)
        self.norm("output_norm.weight", s.hidden)
        if s.head:
            self.matrix("output.weight", s.hidden, n_vocab, s.head, gain=3.0)
        self.out.write(path)


YARN = {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 4.0}  # some pairs fast, some between
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def llama3_factors(dims):
    """What a converter writes as rope_freqs.weight for Llama 3's scaling: by how much each frequency is divided."""
    wavelength = 2 * math.pi * 10000.0 ** (np.arange(0, dims, 2) / dims)
    low, high, original = (LLAMA3[k] for k in ("low_freq_factor", "high_freq_factor",
                                               "original_max_position_embeddings"))
    smooth = np.clip((original / wavelength - low) / (high - low), 0, 1)  # 1: short waves, which stay
    return 1 / ((1 - smooth) / LLAMA3["factor"] + smooth)


def check_with_gguf_package(path):
    """The `gguf` package reads the file and decodes each tensor whose type it knows to the same numbers."""
    _, tensors = gguf_read.read(path)
    try:
        reader = gguf.GGUFReader(path)
    except ValueError:
        return  # it refuses a whole file for one type that it does not know
    for t in reader.tensors:
        try:
            expected = gguf.quants.dequantize(t.data, t.tensor_type)
        except NotImplementedError:
            continue
        np.testing.assert_array_equal(np.atleast_2d(expected), tensors[t.name].to_float(), err_msg=f"{path} {t.name}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", nargs="?", default=os.path.join(HERE, "models"))
    folder = p.parse_args().folder
    os.makedirs(folder, exist_ok=True)
    for spec in MODELS:
        path = os.path.join(folder, spec.name + ".gguf")
        Builder(spec).build(path)
        check_with_gguf_package(path)
        print(f"{path}: {os.path.getsize(path) / 1e3:.0f} kB")


if __name__ == "__main__":
    main()

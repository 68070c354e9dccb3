"""What the model computes, read from its GGUF file, with integer arithmetic as crumb has it: an oracle to test against.

    model = load("model/crumb-tiny.gguf")
    logits(model, [767, 79, 77])        # float32 [tokens, vocab_size]

A linear layer with low-bit weights sums codes times int8 activations exactly: of a whole row with one scale where the
weights have one (I2_S, as BitNet does), else of groups that share a scale of the weights. Everything else is float32.
"""

from dataclasses import dataclass

import numpy as np

import gguf_file
from model import Config, linear_shapes, norm_sizes, rope_tables
from tokenizer import END, Tokenizer

ARCHITECTURE = "bitnet-b1.58"


@dataclass(frozen=True)
class LowBit:
    codes: np.ndarray  # float32 [M, K]
    scales: np.ndarray  # float32 [M, groups along K]; of I2_S one for all

    def floats(self, rows):
        """The weights of some rows."""
        codes, scales = self.codes[rows], self.scales[rows]
        return (codes.reshape(*scales.shape, -1) * scales[..., None]).reshape(codes.shape)


@dataclass(frozen=True)
class Reference:
    config: Config
    tokenizer: Tokenizer
    weights: dict  # name -> float32 array or LowBit


_UNPACK = {gguf_file.Q4_0: gguf_file.unpack_q4_0, gguf_file.Q8_0: gguf_file.unpack_q8_0,
           gguf_file.I2_S: gguf_file.unpack_i2_s, gguf_file.Q1_0: gguf_file.unpack_q1_0}  # fmt: skip


def _weight(kind, shape, raw):
    if kind in _UNPACK:
        codes, scales = _UNPACK[kind](raw, shape)
        return LowBit(codes.astype(np.float32), scales)
    return np.frombuffer(raw, np.float16 if kind == gguf_file.F16 else np.float32).astype(np.float32).reshape(shape)


def load(path):
    metadata, tensors = gguf_file.read(path)
    if metadata["general.architecture"] != ARCHITECTURE:
        raise ValueError(f"{path}: general.architecture is not {ARCHITECTURE}")
    value = {key.removeprefix(ARCHITECTURE + "."): v for key, v in metadata.items()}
    config = Config(
        vocab_size=value["vocab_size"],
        hidden_size=value["embedding_length"],
        num_hidden_layers=value["block_count"],
        intermediate_size=value["feed_forward_length"],
        num_attention_heads=value["attention.head_count"],
        num_key_value_heads=value["attention.head_count_kv"],
        rope_theta=value["rope.freq_base"],
        rms_norm_eps=value["attention.layer_norm_rms_epsilon"],
        context_length=value["context_length"],
    )
    tokenizer = Tokenizer([m.split(" ") for m in metadata["tokenizer.ggml.merges"]])
    if tokenizer.tokens != metadata["tokenizer.ggml.tokens"] or tokenizer.tokens[-1] != END:
        raise ValueError(f"{path}: tokenizer.ggml.tokens is not bytes, merges, {END}")
    weights = {name.removesuffix(".weight"): _weight(*tensor) for name, tensor in tensors.items()}
    return Reference(config, tokenizer, weights)


def rms_norm(x, gain, eps):
    mean_square = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
    return x / np.sqrt(mean_square + np.float32(eps)) * gain


def quantize_rows(x):
    """int8 codes (as float32) and the factor s they were multiplied with, of what lies along the last axis."""
    s = np.float32(127) / np.maximum(np.abs(x).max(axis=-1, keepdims=True), np.float32(1e-5))
    return np.clip(np.rint(x * s), -128, 127), s


def linear(x, weight):
    """x [N, K] times weight [M, K] transposed."""
    if not isinstance(weight, LowBit):
        return x @ weight.T
    if weight.scales.ndim == 0:
        q, s = quantize_rows(x)
        # float32 holds these integers exactly: |sum| <= K * 128 < 2^24.
        return (q @ weight.codes.T) / s * weight.scales
    n_groups = weight.scales.shape[1]
    q, s = quantize_rows(x.reshape(len(x), n_groups, -1))
    sums = np.einsum("ngk,mgk->nmg", q, weight.codes.reshape(len(weight.codes), n_groups, -1), optimize=True)
    return np.einsum("nmg,mg->nm", sums / s[:, :, 0][:, None], weight.scales)


def rope(x, cosines, sines):
    """x [T, heads, head_dim]: element i turns with i + head_dim / 2."""
    a, b = np.split(x, 2, axis=-1)
    c, s = cosines[:, None], sines[:, None]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def attention(q, k, v):
    """q [T, H, hd], k and v [T, KV, hd]; query head h reads key head h / (H / KV)."""
    n, heads, head_dim = q.shape
    k, v = (np.repeat(t, heads // t.shape[1], axis=1) for t in (k, v))
    score = np.einsum("thd,shd->hts", q, k) / np.float32(head_dim**0.5)
    score = np.where(np.tri(n, dtype=bool), score, np.float32(-np.inf))
    prob = np.exp(score - score.max(axis=-1, keepdims=True))
    prob /= prob.sum(axis=-1, keepdims=True)
    return np.einsum("hts,shd->thd", prob, v).reshape(n, -1)


def logits(model, tokens):
    """The scores of the next token after every prefix of tokens."""
    c, w, n = model.config, model.weights, len(tokens)
    cosines, sines = rope_tables(c, n)
    x = w["token_embd"].floats(np.asarray(tokens))
    for i in range(c.num_hidden_layers):
        layer = {name: w[f"blk.{i}.{name}"] for name in (*norm_sizes(c), *linear_shapes(c))}
        h = rms_norm(x, layer["attn_norm"], c.rms_norm_eps)
        q, k, v = (linear(h, layer[name]).reshape(n, -1, c.head_dim) for name in ("attn_q", "attn_k", "attn_v"))
        h = attention(rope(q, cosines, sines), rope(k, cosines, sines), v)
        x = x + linear(rms_norm(h, layer["attn_sub_norm"], c.rms_norm_eps), layer["attn_output"])
        h = rms_norm(x, layer["ffn_norm"], c.rms_norm_eps)
        h = np.maximum(linear(h, layer["ffn_gate"]), 0) ** 2 * linear(h, layer["ffn_up"])
        x = x + linear(rms_norm(h, layer["ffn_sub_norm"], c.rms_norm_eps), layer["ffn_down"])
    return linear(rms_norm(x, w["output_norm"], c.rms_norm_eps), w["token_embd"])


def log_softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))

"""The forward pass of the llama, qwen and bitnet families in plain numpy: what crumb is compared with.

Three ways to multiply by a low-bit matrix (ACTIVATION):
  "float"  weights dequantized, activations not quantized; equals Hugging Face transformers
  "row"    int8 activations, one scale per token, exact integer sums: BitNet's arithmetic
  "auto"   what a file's types ask for: per token where they were trained so, else one scale per group of activations
Everything that is not an integer is float64, so that what differs is the other side's rounding.
"""
import argparse

import numpy as np

import gguf_read

TRAINED_PER_ROW = ("TQ1_0", "TQ2_0", "I2_S")


def quantize(x, group):
    """x [n][K] -> int8 codes as int64 [n][K/group][group], scales [n][K/group]; rounding half to even."""
    x = x.reshape(len(x), -1, group).astype(np.float32)  # the scale and the rounding are defined on f32
    largest = np.abs(x).max(axis=2)
    if group == x.shape[1] * group:
        largest = np.maximum(largest, np.float32(1e-5))
    with np.errstate(divide="ignore"):
        factor = np.where(largest > 0, np.float32(127) / largest, np.float32(0))
    codes = np.clip(np.rint(x * factor[:, :, None]), -128, 127).astype(np.int64)
    return codes, largest.astype(np.float64) / 127


def linear(w, x, activation):
    """y = x W^T; w is a gguf_read.Matrix."""
    if w.values is None or activation == "float":
        return x @ w.to_float().astype(np.float64).T
    rows, k = w.values.shape
    per_row = activation == "row" or w.type in TRAINED_PER_ROW
    q, scale = quantize(x, k if per_row else min(w.group, 128))
    scale = np.broadcast_to(scale, (len(x), k // w.group))
    q = q.reshape(len(x), -1, w.group)
    values = w.values.reshape(rows, -1, w.group)
    y = np.zeros((len(x), rows))
    for g in range(k // w.group):
        sums = q[:, g].sum(axis=1)[:, None]
        exact = q[:, g] @ values[:, g].T
        y += scale[:, g, None] * (w.scale[:, g].astype(np.float64) * exact + w.min[:, g].astype(np.float64) * sums)
    return y


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight.w[0].astype(np.float64)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


class Model:
    def __init__(self, path):
        self.keys, self.tensors = gguf_read.read(path)
        self.arch = self.keys["general.architecture"]
        self.n_layers = self.key("block_count")
        self.n_head = self.key("attention.head_count")
        self.n_head_kv = self.key("attention.head_count_kv", self.n_head)
        self.head_dim = self.key("attention.key_length", self.key("embedding_length") // self.n_head)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.bitnet = self.arch.startswith("bitnet")
        self.n_vocab = len(self.tensors["token_embd.weight"].to_float())

    def key(self, name, default=None):
        return self.keys.get(f"{self.arch}.{name}", default)

    def activation_fn(self, x):
        relu2 = self.arch in ("bitnet-25", "bitnet-b1.58") or self.key("hidden_activation") == "relu2"
        return np.maximum(x, 0) ** 2 if relu2 else x / (1 + np.exp(-x))

    def multiply(self, name, x, activation):
        """A linear layer with what may stand beside its weight: a scale of the tensor, a bias."""
        y = linear(self.tensors[name + ".weight"], x, activation)
        if name + ".scale" in self.tensors:
            y = y * float(self.tensors[name + ".scale"].w[0, 0])
        if name + ".bias" in self.tensors:
            y = y + self.tensors[name + ".bias"].w[0].astype(np.float64)
        return y

    def yarn(self, freq, dims):
        """Frequencies and the factor on cosines and sines, after the paper (arXiv 2309.00071, section 3.2 and A.2)."""
        factor, context = self.key("rope.scaling.factor"), self.key("rope.scaling.original_context_length")

        def pair(turns):
            return dims * np.log(context / (turns * 2 * np.pi)) / (2 * np.log(float(self.key("rope.freq_base"))))

        low = max(np.floor(pair(self.key("rope.scaling.yarn_beta_fast", 32))), 0)
        high = min(np.ceil(pair(self.key("rope.scaling.yarn_beta_slow", 1))), dims - 1)
        scaled = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
        return freq * (scaled / factor + 1 - scaled), 0.1 * np.log(factor) + 1

    def rope(self, x, positions):
        """x [n][heads][head_dim]; llama files hold pairs (2i, 2i+1), the others' pairs (i, i + head_dim/2)."""
        dims = self.key("rope.dimension_count", self.head_dim)
        freq = float(self.key("rope.freq_base", 10000.0)) ** (-np.arange(0, dims, 2) / dims)
        if "rope_freqs.weight" in self.tensors:
            freq = freq / self.tensors["rope_freqs.weight"].w[0]
        scaling, magnitude = self.key("rope.scaling.type"), 1
        if scaling == "linear":
            freq = freq / self.key("rope.scaling.factor")
        if scaling == "yarn":
            freq, magnitude = self.yarn(freq, dims)
        angle = positions[:, None] * freq
        cos, sin = magnitude * np.cos(angle)[:, None, :], magnitude * np.sin(angle)[:, None, :]
        out = x.copy()
        if self.arch != "llama":
            a, b = slice(0, dims // 2), slice(dims // 2, dims)
        else:
            a, b = slice(0, dims, 2), slice(1, dims, 2)
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., a] * sin + x[..., b] * cos
        return out

    def attention(self, layer, x, activation, kv_f16):
        n = len(x)
        q = self.multiply(f"blk.{layer}.attn_q", x, activation).reshape(n, self.n_head, self.head_dim)
        k = self.multiply(f"blk.{layer}.attn_k", x, activation).reshape(n, self.n_head_kv, self.head_dim)
        v = self.multiply(f"blk.{layer}.attn_v", x, activation).reshape(n, self.n_head_kv, self.head_dim)
        positions = np.arange(n, dtype=np.float64)
        if f"blk.{layer}.attn_q_norm.weight" in self.tensors:
            q = rms_norm(q, self.tensors[f"blk.{layer}.attn_q_norm.weight"], self.eps)
            k = rms_norm(k, self.tensors[f"blk.{layer}.attn_k_norm.weight"], self.eps)
        q, k = self.rope(q, positions), self.rope(k, positions)
        if kv_f16:
            k, v = (t.astype(np.float32).astype(np.float16).astype(np.float64) for t in (k, v))
        future = np.triu(np.full((n, n), -np.inf), 1)
        out = np.empty((n, self.n_head, self.head_dim))
        for head in range(self.n_head):
            shared = head // (self.n_head // self.n_head_kv)
            weights = softmax(q[:, head] @ k[:, shared].T / np.sqrt(self.head_dim) + future)
            out[:, head] = weights @ v[:, shared]
        return out.reshape(n, -1)

    def forward(self, tokens, activation="float", kv_f16=False):
        """Logits [n][n_vocab] of a sequence from its start."""
        t, eps = self.tensors, self.eps
        x = t["token_embd.weight"].to_float()[np.asarray(tokens)].astype(np.float64)
        for layer in range(self.n_layers):
            b = f"blk.{layer}."
            y = self.attention(layer, rms_norm(x, t[b + "attn_norm.weight"], eps), activation, kv_f16)
            if self.bitnet:
                y = rms_norm(y, t[b + "attn_sub_norm.weight"], eps)
            x = x + self.multiply(b + "attn_output", y, activation)
            y = rms_norm(x, t[b + "ffn_norm.weight"], eps)
            gate = self.activation_fn(self.multiply(b + "ffn_gate", y, activation))
            y = gate * self.multiply(b + "ffn_up", y, activation)
            if self.bitnet:
                y = rms_norm(y, t[b + "ffn_sub_norm.weight"], eps)
            x = x + self.multiply(b + "ffn_down", y, activation)
        x = rms_norm(x, t["output_norm.weight"], eps)
        return self.multiply("output" if "output.weight" in t else "token_embd", x, activation)

    def greedy(self, tokens, n, activation="float"):
        tokens = list(tokens)
        for _ in range(n):
            tokens.append(int(self.forward(tokens, activation, kv_f16=True)[-1].argmax()))
        return tokens


if __name__ == "__main__":
    p = argparse.ArgumentParser(description="Continues a sequence of token ids greedily.")
    p.add_argument("model")
    p.add_argument("tokens", type=int, nargs="+")
    p.add_argument("-n", type=int, default=8)
    p.add_argument("--activation", choices=("float", "row", "auto"), default="float")
    a = p.parse_args()
    print(*Model(a.model).greedy(a.tokens, a.n, a.activation))

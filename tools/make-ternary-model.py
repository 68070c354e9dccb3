#!/usr/bin/env python3
"""Writes a llama-shape GGUF model with random ternary weights, for timing and for comparing runtimes.

By default the 1.26 billion parameter model of the speed table: hidden 2048, feed-forward 8192, 18 layers, 8 heads of
256, 4 KV heads, vocabulary 32000; embeddings and head in f16. The same seed gives the same weights in every type.

    tools/make-ternary-model.py OUT.gguf [--type TQ2_0|TQ1_0|F16] [--hidden N --ff N --layers N ...]

Needs numpy. Weights are drawn and written in pieces: memory stays below 300 MB.
"""
import argparse
import os
import sys

import numpy as np

import gguf_write

FILE_TYPE = {"F16": 1, "TQ1_0": 36, "TQ2_0": 37}  # general.file_type, as llama.cpp numbers it
CHUNK = 1 << 22  # weights drawn at once, whole blocks


def vocabulary(n):
    """SentencePiece-style: byte tokens, and pieces "w0", "w1" ... whose prefixes are all pieces, so that they merge."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokens += ["\u2581", "w", "\u2581w"] + list("0123456789")
    n_fixed = len(tokens)
    if n < n_fixed:
        sys.exit(f"make-ternary-model: --vocab must be at least {n_fixed}")
    tokens += [f"\u2581w{i}" for i in range(n - n_fixed)]
    types = [2, 3, 3] + [6] * 256 + [1] * (n - 259)  # unknown, control, byte, normal
    scores = [0.0] * 259 + [-1e4] * (n_fixed - 259) + [-float(len(t)) for t in tokens[n_fixed:]]
    scores[tokens.index("\u2581w")] = -1.0
    return tokens, scores, types


def put_metadata(out, a):
    out.put("general.architecture", "llama")
    out.put("general.name", "random ternary")
    out.put("general.file_type", FILE_TYPE[a.type])
    for key, v in (("context_length", a.ctx), ("embedding_length", a.hidden), ("block_count", a.layers),
                   ("feed_forward_length", a.ff), ("attention.head_count", a.heads), ("attention.head_count_kv", a.kv),
                   ("rope.dimension_count", a.head_dim), ("attention.key_length", a.head_dim),
                   ("attention.value_length", a.head_dim), ("vocab_size", a.vocab),
                   ("attention.layer_norm_rms_epsilon", 1e-5), ("rope.freq_base", 10000.0)):
        out.put("llama." + key, v)
    tokens, scores, types = vocabulary(a.vocab)
    out.put("tokenizer.ggml.model", "llama")
    out.put("tokenizer.ggml.tokens", tokens)
    out.put("tokenizer.ggml.scores", scores)
    out.put("tokenizer.ggml.token_type", types)
    out.put("tokenizer.ggml.bos_token_id", 1)
    out.put("tokenizer.ggml.eos_token_id", 2)


def tensor_list(a):
    """(name, dims with K first, kind, gain). A matrix of gain g maps unit variance to variance g^2."""
    # What all layers together add is as large as the embedding: the next token then depends on the last token, on the
    # context and on every layer, and greedy text neither repeats one token nor is a function of the last one alone.
    branch = 2 * (2 * a.layers) ** -0.5
    q, kv = a.head_dim * a.heads, a.head_dim * a.kv
    out = [("token_embd.weight", (a.hidden, a.vocab), "normal", a.hidden ** 0.5)]
    for layer in range(a.layers):
        for name, dims, kind, gain in (
                ("attn_norm", (a.hidden,), "norm", 1), ("attn_q", (a.hidden, q), "ternary", 2),
                ("attn_k", (a.hidden, kv), "ternary", 2), ("attn_v", (a.hidden, kv), "ternary", 1),
                ("attn_output", (q, a.hidden), "ternary", branch), ("ffn_norm", (a.hidden,), "norm", 1),
                ("ffn_gate", (a.hidden, a.ff), "ternary", 1), ("ffn_up", (a.hidden, a.ff), "ternary", 1),
                ("ffn_down", (a.ff, a.hidden), "ternary", branch)):
            out.append((f"blk.{layer}.{name}.weight", dims, kind, gain))
    # A head of gain 4 spreads the logits as a trained model's are: the best stands several above the rest.
    return out + [("output_norm.weight", (a.hidden,), "norm", 1), ("output.weight", (a.hidden, a.vocab), "normal", 4)]


def draw(rng, dims, kind, gain, type_name):
    """Yields a tensor's bytes, piece by piece."""
    n = int(np.prod(dims))
    ternary_scale = np.float16(gain / (dims[0] * 2 / 3) ** 0.5)  # two thirds of the weights are not zero
    normal_scale = np.float32(gain / dims[0] ** 0.5)
    for start in range(0, n, CHUNK):
        count = min(CHUNK, n - start)
        if kind == "norm":
            yield gguf_write.dense("F32", 1 + 0.05 * rng.standard_normal(count))
        elif kind == "normal":
            yield gguf_write.dense("F16", rng.standard_normal(count, np.float32) * normal_scale)
        else:
            codes = rng.integers(0, 3, count, np.uint8)
            if type_name == "F16":
                yield gguf_write.dense("F16", (codes.astype(np.float16) - np.float16(1)) * ternary_scale)
            else:
                yield gguf_write.PACK[type_name](codes, ternary_scale)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--type", choices=FILE_TYPE, default="TQ2_0")
    for name, default in (("hidden", 2048), ("ff", 8192), ("layers", 18), ("heads", 8), ("kv", 4), ("head-dim", 256),
                          ("vocab", 32000), ("ctx", 4096), ("seed", 0)):
        p.add_argument("--" + name, type=int, default=default)
    a = p.parse_args()
    if a.hidden % 256 or a.ff % 256 or a.heads * a.head_dim % 256 or a.heads % a.kv:
        p.error("hidden, ff and heads * head-dim must be multiples of 256, heads a multiple of kv")
    return a


def main():
    a = parse()
    out = gguf_write.Writer()
    put_metadata(out, a)
    tensors = tensor_list(a)
    for index, (name, dims, kind, gain) in enumerate(tensors):
        type_name = {"norm": "F32", "normal": "F16", "ternary": a.type}[kind]
        out.add(name, dims, type_name, lambda index=index, dims=dims, kind=kind, gain=gain: draw(
            np.random.default_rng([a.seed, index]), dims, kind, gain, a.type))
    out.write(a.out)
    n_params = sum(int(np.prod(t[1])) for t in tensors)
    print(f"{a.out}: {n_params / 1e9:.2f} B parameters, {os.path.getsize(a.out) / 1e6:.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()

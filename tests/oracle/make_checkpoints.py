#!/usr/bin/env python3
"""Makes tests/oracle/checkpoints: some of the tiny models of tests/oracle/models as folders as transformers writes them,
written from the formats' descriptions. They must answer as those models do (tests/oracle/expected).

usage: make_checkpoints.py [FOLDER]     (needs numpy)
"""
import json
import os
import shutil
import struct
import sys

import numpy as np

import gguf_read
import make_models

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = {"<f4": "F32", "<f2": "F16", "<u2": "BF16", "|u1": "U8", "<i4": "I32"}  # u2: bf16's bits
LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "attn_sub_norm": "self_attn.attn_sub_norm",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj", "ffn_sub_norm": "mlp.ffn_sub_norm"}
MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


class Model:
    def __init__(self, name):
        self.keys, self.tensors = gguf_read.read(os.path.join(HERE, "models", name + ".gguf"))
        self.arch = self.keys["general.architecture"]

    def key(self, name):
        return self.keys.get(f"{self.arch}.{name}")


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, a in tensors.items():
        header[name] = {"dtype": DTYPES[a.dtype.str], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values()))


def halves(w, n_head):
    """Rows of a llama file's q or k from pairs (2i, 2i+1) back to Hugging Face's (i, i + head_dim/2)."""
    return w.reshape(n_head, w.shape[0] // n_head // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def hf_name(name):
    stem, _, part = name.rpartition(".")
    if stem in MODEL:
        return f"{MODEL[stem]}.{part}"
    _, layer, ours = stem.split(".")
    return f"model.layers.{layer}.{LAYER[ours]}.{part}"


def from_llama_order(model, name, w):
    """Rows as Hugging Face has them."""
    if model.arch != "llama" or name.split(".")[-2] not in ("attn_q", "attn_k"):
        return w
    return halves(w, model.key("attention.head_count" + ("" if ".attn_q." in name else "_kv")))


def dense(model, dtype):
    """All tensors, matrices as dtype; bf16 where that is u2."""
    out = {}
    for name, matrix in model.tensors.items():
        if name == "rope_freqs.weight":
            continue
        w = matrix.to_float()
        vector = name.endswith(".bias") or "norm" in name
        w = from_llama_order(model, name, w.reshape(-1, 1) if vector else w)
        w = w.reshape(-1) if vector else w
        if dtype == "<u2":
            bits = np.ascontiguousarray(w, "<f4").view("<u4")
            assert vector or not np.any(bits & 0xffff)
            out[hf_name(name)] = w.astype("<f4") if vector else (bits >> 16).astype("<u2")
        else:
            stored = w.astype("<f4" if vector else dtype)
            assert np.array_equal(stored.astype("<f4"), w)
            out[hf_name(name)] = stored
    return out


def config(model, style):
    """config.json as version 4 of transformers wrote it, or 5 does."""
    c = {"model_type": "bitnet" if model.arch.startswith("bitnet") else model.arch,
         "vocab_size": model.tensors["token_embd.weight"].to_float().shape[0],
         "hidden_size": model.key("embedding_length"), "intermediate_size": model.key("feed_forward_length"),
         "num_hidden_layers": model.key("block_count"), "num_attention_heads": model.key("attention.head_count"),
         "num_key_value_heads": model.key("attention.head_count_kv"), "head_dim": model.key("attention.key_length"),
         "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": [2, 3],
         "tie_word_embeddings": "output.weight" not in model.tensors,
         "hidden_act": "relu2" if model.arch == "bitnet-b1.58" else "silu", "torch_dtype": "float32"}
    rope = {}
    if model.key("rope.scaling.type") == "linear":
        rope = {"rope_type": "linear", "factor": model.key("rope.scaling.factor")}
    if model.key("rope.scaling.type") == "yarn":
        rope = {"rope_type": "yarn", **make_models.YARN}
    if "rope_freqs.weight" in model.tensors:
        rope = {"rope_type": "llama3", **make_models.LLAMA3}
    if style == 4:
        c.update(rope_theta=10000.0, rope_scaling=rope or None)
    else:
        c["rope_parameters"] = {"rope_theta": 10000.0, "rope_type": "default", **rope}
    return c


def tokenizer(model):
    """(tokenizer.json, tokenizer_config.json) of the model's vocabulary."""
    tokens, types = model.keys["tokenizer.ggml.tokens"], model.keys["tokenizer.ggml.token_type"]
    spm = model.keys["tokenizer.ggml.model"] == "llama"
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, t in enumerate(tokens) if types[i] in (2, 3)]
    vocab = {t: i for i, t in enumerate(tokens)}
    t = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None,
         "decoder": None}
    if spm:
        merges = [[p[:-1], p[-1]] for i, p in enumerate(tokens) if types[i] == 1 and len(p) > 1]
        t["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
        t["pre_tokenizer"] = None
        t["model"] = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                      "ignore_merges": False, "vocab": vocab, "merges": merges}
        options = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "add_bos_token": True}
    else:
        t["normalizer"] = None
        words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" \
                r"\s*[\r\n]+|\s+(?!\S)|\s+"
        gpt2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        qwen = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False},
            {**gpt2, "use_regex": False}]}
        t["pre_tokenizer"] = qwen if model.keys["tokenizer.ggml.pre"] == "qwen2" else gpt2
        t["model"] = {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocab,
                      "merges": model.keys["tokenizer.ggml.merges"]}
        options = {"bos_token": None, "eos_token": "<|endoftext|>"}
    return t, {**options, "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps(value, indent=1) + "\n")


def write(folder, model, tensors, extra=None, style=5, parts=1):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    write_json(os.path.join(folder, "config.json"), {**config(model, style), **(extra or {})})
    for name, value in zip(("tokenizer.json", "tokenizer_config.json"), tokenizer(model)):
        write_json(os.path.join(folder, name), value)
    if parts == 1:
        return write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    names, weight_map = list(tensors), {}
    for i in range(parts):
        file = f"model-{i + 1:05}-of-{parts:05}.safetensors"
        part = {name: tensors[name] for name in names[i::parts]}
        weight_map.update(dict.fromkeys(part, file))
        write_safetensors(os.path.join(folder, file), part)
    return write_json(os.path.join(folder, "model.safetensors.index.json"), {"weight_map": weight_map})


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "checkpoints")
    for name, dtype, style, parts in (("llama-f16", "<f2", 4, 1), ("llama-bf16", "<u2", 5, 1),
                                      ("llama-q4_1", "<f4", 4, 1), ("qwen2-f16-yarn", "<f2", 4, 1),
                                      ("qwen3-q4_1", "<f4", 5, 2), ("bitnet-f32", "<f4", 5, 1)):
        model = Model(name)
        write(os.path.join(out, name), model, dense(model, dtype), style=style, parts=parts)


if __name__ == "__main__":
    main()

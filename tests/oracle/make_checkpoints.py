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


def stream(codes, bits):
    """[n][m] codes, n a multiple of 32 -> int32 [n * bits / 32][m]: each column a stream of bits, the lowest first."""
    n, m = codes.shape
    each = codes.astype(np.uint64)[:, None, :] >> np.arange(bits, dtype=np.uint64)[:, None] & np.uint64(1)
    words = each.reshape(n * bits // 32, 32, m) << np.arange(32, dtype=np.uint64)[:, None]
    return words.sum(axis=1).astype("<u4").view("<i4")


def codes_of(words, bits):
    """What stream() was given; bits divides 32."""
    each = words.view("<u4")[:, None, :] >> (bits * np.arange(32 // bits, dtype="<u4"))[:, None] & ((1 << bits) - 1)
    return each.reshape(-1, words.shape[1]).astype(np.int64)


def awq_words(codes):
    """[n][m] codes of 4 bits -> int32 [n][m / 8], eight columns in the order 0 2 4 6 1 3 5 7, the first lowest."""
    n, m = codes.shape
    order = codes.astype(np.uint64).reshape(n, m // 8, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
    return (order << (4 * np.arange(8, dtype=np.uint64))).sum(axis=2).astype("<u4").view("<i4")


def gptq(codes, scale, zero, bits, less_one, group_of=None):
    """codes [M][K], scale and zero [M][groups] -> the tensors beside each other, by the ends of their names."""
    stored = (zero - 1) % (1 << bits) if less_one else zero
    groups = scale.shape[1]
    group_of = np.arange(codes.shape[1]) * groups // codes.shape[1] if group_of is None else group_of
    return {"qweight": stream(codes.T, bits), "qzeros": stream(stored, bits).T.copy(),
            "scales": scale.T.astype("<f2"), "g_idx": group_of.astype("<i4")}


def narrow(codes, scale, zero, bits):
    """The same weights in groups of 16, every other one with its codes counted down from the largest and the scale below
    zero, so that neighbours share no scale."""
    m, k = codes.shape
    scale, zero = (np.repeat(a, k // 16 // a.shape[1], axis=1) for a in (scale, zero))
    odd, top = np.arange(k // 16) % 2 == 1, (1 << bits) - 1
    columns = np.repeat(odd, 16)
    return np.where(columns, top - codes, codes), np.where(odd, -scale, scale), np.where(odd, top - zero, zero)


def awq(codes, scale, zero):
    return {"qweight": awq_words(codes.T), "qzeros": awq_words(zero.T), "scales": scale.T.astype("<f2")}


def bitnet(codes, scale, divides):
    """Row i * M / 4 + p in bits 2i of row p of bytes."""
    quarters = codes.astype(np.uint8).reshape(4, codes.shape[0] // 4, -1)
    packed = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
    return {"weight": packed, "weight_scale": np.array([1 / scale if divides else scale], "<f4")}


def online(codes, scale):
    """Floats of which BitNet's layers make these codes and this scale: round(w / mean |w|) and mean |w|."""
    rng = np.random.default_rng(10)
    zeros = codes == 0
    small = rng.uniform(-0.45, 0.45, codes.shape) * scale
    large = rng.uniform(0.6, 1, codes.shape) * scale
    missing = scale * codes.size - np.abs(small[zeros]).sum() - large[~zeros].sum()
    large += missing / (~zeros).sum()
    w = np.where(zeros, small, codes * large).astype("<f4")
    assert np.array_equal(np.clip(np.round(w / np.abs(w).mean()), -1, 1), codes)
    return {"weight": w}


def packed(model, kind, pack):
    """As dense(), but matrices of layers that are of type `kind`, and whose rows can be packed, as pack(codes, scale,
    zero) makes them; codes are at least 0 there."""
    out = dense(model, "<f4")
    for name, matrix in model.tensors.items():
        if matrix.type != kind or not name.startswith("blk.") or matrix.values.shape[0] % 32:
            continue
        low = {"I2_S": -1, "Q2_0": -1, "Q4_0": -8, "Q8_0": -128}[kind]
        codes, scale = from_llama_order(model, name, matrix.values - low), from_llama_order(model, name, matrix.scale)
        stem = hf_name(name).rpartition(".")[0]
        del out[stem + ".weight"]
        out.update({f"{stem}.{end}": np.ascontiguousarray(a)
                    for end, a in pack(codes, scale, np.full(scale.shape, -low)).items()})
    return out


def shuffled(model, tensors):
    """The same function with GPTQ's act-order: the residual stream, the columns between gate and down, and those of
    each head's values in another order each, so that neighbours in qweight are of any groups."""
    rng = np.random.default_rng(9)
    head_dim, n_heads = model.key("attention.key_length"), model.key("attention.head_count")
    hidden, ff = (rng.permutation(model.key(k)) for k in ("embedding_length", "feed_forward_length"))
    within = rng.permutation(head_dim)
    heads = {n: (head_dim * np.arange(n)[:, None] + within).reshape(-1)
             for n in (n_heads, model.key("attention.head_count_kv"))}
    rows = {"o_proj": hidden, "down_proj": hidden, "gate_proj": ff, "up_proj": ff,
            "v_proj": heads[model.key("attention.head_count_kv")]}
    columns = {"o_proj": heads[n_heads], "down_proj": ff}
    out = {}
    for name, a in tensors.items():
        stem, _, part = name.rpartition(".")
        layer = stem.rpartition(".")[2]
        row, column = rows.get(layer, np.arange(a.shape[0])), columns.get(layer, hidden)
        if a.ndim == 1 and "norm" in name:
            a = a[hidden]
        elif part == "weight":
            a = a[row][:, column]
        elif part == "g_idx":
            a = a[column]
        else:  # GPTQ's matrices lie transposed; codes and zero points are read, moved and written again
            row = rows.get(layer, np.arange(a.shape[1] * (8 if part == "qzeros" else 1)))
            if part == "scales":
                a = a[:, row]
            elif part == "qweight":
                a = stream(codes_of(a, 4)[column][:, row], 4)
            else:
                a = stream(codes_of(a.T, 4)[row], 4).T
        out[name] = np.ascontiguousarray(a)
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


def write_random(path):
    """Random codes, scales and zero points in each way of packing, NAME.qweight and so on, and NAME.expected: w.
    NAME says method, bits, "order" where groups are those of no neighbours, "narrow" where they are of 16, and
    "narrowest" where they are of 8."""
    tensors, rng = {}, np.random.default_rng(8)
    rows, k = 32, 128
    for name, bits in [(f"{m}.{b}{o}", b) for m in ("gptq", "gptq_v2") for b in (2, 3, 4, 8) for o in ("", ".order")] + \
            [("awq.4", 4), ("gptq.4.order.narrow", 4)] + [(f"gptq.{b}.narrow", b) for b in (2, 3, 4, 8)] + \
            [(f"gptq_v2.{b}.order.narrow", b) for b in (2, 3, 8)] + \
            [("awq.4.narrow", 4), ("gptq.4.narrowest", 4), ("gptq.3.order.narrowest", 3)]:
        group = 16 if name.endswith("narrow") else 8 if name.endswith("narrowest") else 64
        codes = rng.integers(0, 1 << bits, (rows, k))
        zero = rng.integers(0, 1 << bits, (rows, k // group))
        scale = rng.normal(0, 0.05, zero.shape).astype(np.float16)
        group_of = rng.permutation(k) % (k // group) if "order" in name else np.arange(k) // group
        w = scale[:, group_of].astype(np.float32) * (codes - zero[:, group_of]).astype(np.float32)
        parts = awq(codes, scale, zero) if name.startswith("awq") else \
            gptq(codes, scale, zero, bits, name.startswith("gptq."), group_of)
        if name.endswith("narrowest"):
            w = w.astype(np.float16).astype(np.float32)
        tensors.update({f"{name}.{end}": np.ascontiguousarray(a) for end, a in parts.items()})
        tensors[f"{name}.expected"] = w
    write_safetensors(path, tensors)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "checkpoints")
    for name, dtype, style, parts in (("llama-f16", "<f2", 4, 1), ("llama-bf16", "<u2", 5, 1),
                                      ("llama-q4_1", "<f4", 4, 1), ("qwen2-f16-yarn", "<f2", 4, 1),
                                      ("qwen3-q4_1", "<f4", 5, 2), ("bitnet-f32", "<f4", 5, 1)):
        model = Model(name)
        write(os.path.join(out, name), model, dense(model, dtype), style=style, parts=parts)
    one = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False}
    for name, end, kind, pack, settings in (
            ("llama-q4_0", "gptq", "Q4_0", lambda *parts: gptq(*parts, 4, True), one),
            ("llama-q4_0", "gptq_v2", "Q4_0", lambda *parts: gptq(*parts, 4, False),
             {**one, "checkpoint_format": "gptq_v2"}),
            ("llama-q2_0", "gptq", "Q2_0", lambda *parts: gptq(*parts, 2, True), {**one, "bits": 2, "group_size": 64}),
            ("llama-q8_0", "gptq", "Q8_0", lambda *parts: gptq(*parts, 8, True), {**one, "bits": 8}),
            ("llama-q4_0", "narrow", "Q4_0", lambda *parts: gptq(*narrow(*parts, 4), 4, True), {**one, "group_size": 16}),
            ("llama-q2_0", "narrow", "Q2_0", lambda *parts: gptq(*narrow(*parts, 2), 2, True),
             {**one, "bits": 2, "group_size": 16}),
            ("llama-q4_0", "awq", "Q4_0", awq,
             {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}),
            ("bitnet-b1.58-i2_s", "auto", "I2_S", lambda codes, scale, _: bitnet(codes, scale[0, 0], False),
             {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}),
            ("bitnet-b1.58-i2_s", "divides", "I2_S", lambda codes, scale, _: bitnet(codes, scale[0, 0], True),
             {"quant_method": "bitnet"}),
            ("bitnet-b1.58-i2_s", "online", "I2_S", lambda codes, scale, _: online(codes - 1, scale[0, 0]),
             {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online",
              "modules_to_not_convert": ["lm_head"]})):
        model = Model(name)
        write(os.path.join(out, f"{name}+{end}"), model, packed(model, kind, pack), {"quantization_config": settings})
    model = Model("llama-q4_0")
    for end, group, pack in (("order", 32, lambda *parts: gptq(*parts, 4, False)),
                             ("order-narrow", 16, lambda *parts: gptq(*narrow(*parts, 4), 4, False))):
        write(os.path.join(out, f"llama-q4_0+{end}"), model, shuffled(model, packed(model, "Q4_0", pack)),
              {"quantization_config": {**one, "group_size": group, "checkpoint_format": "gptq_v2", "desc_act": True}})
    write_random(os.path.join(os.path.dirname(out), "packed.safetensors"))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes what the tiny models must answer (tests/oracle/expected/NAME.bin) and checks the two references agree.

A file holds, little endian: "CRUMBFX1", u32 n_tokens, u32 n_vocab, u32 n_sets; i32 tokens[n_tokens]; then per set
u32 activation (0 auto, 1 float, 2 row: crumb_activation of host/crumb.h) and f32 logits[n_tokens][n_vocab].
  float      Hugging Face transformers in float32 on the dequantized weights
  row, auto  numpy_model.py's integer arithmetic, f16 KV cache (models with low-bit weights only)
"""
import argparse
import glob
import os
import struct
import zlib

import numpy as np
import torch
import transformers

import make_models
from numpy_model import Model

HERE = os.path.dirname(os.path.abspath(__file__))
N_TOKENS = 12
SETS = {"auto": 0, "float": 1, "row": 2}


def nmse(a, b):
    return float(np.sum((a - b) ** 2) / np.sum(b ** 2))


def hugging_face_config(model):
    """The same hyper-parameters under Hugging Face's names."""
    rope = {"rope_theta": float(model.key("rope.freq_base")), "rope_type": "default"}
    if model.key("rope.scaling.type") == "linear":
        rope.update(rope_type="linear", factor=float(model.key("rope.scaling.factor")))
    if model.key("rope.scaling.type") == "yarn":
        rope.update(rope_type="yarn", **make_models.YARN)
    if "rope_freqs.weight" in model.tensors:
        rope.update(rope_type="llama3", **make_models.LLAMA3)
    common = {"vocab_size": model.n_vocab, "hidden_size": model.key("embedding_length"),
              "intermediate_size": model.key("feed_forward_length"), "num_hidden_layers": model.n_layers,
              "num_attention_heads": model.n_head, "num_key_value_heads": model.n_head_kv, "head_dim": model.head_dim,
              "rms_norm_eps": model.eps, "rope_parameters": rope, "max_position_embeddings": 128,
              "tie_word_embeddings": "output.weight" not in model.tensors, "attn_implementation": "eager",
              "bos_token_id": 1, "eos_token_id": 2}
    if model.arch.startswith("qwen"):
        return {"qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}[model.arch](**common)
    if not model.bitnet:
        biases = "blk.0.attn_q.bias" in model.tensors
        return transformers.LlamaConfig(attention_bias=biases, mlp_bias=biases, **common)
    relu2 = model.arch != "bitnet" or model.key("hidden_activation") == "relu2"
    return transformers.BitNetConfig(hidden_act="relu2" if relu2 else "silu", **common)


def halves(w, n_head):
    """Rows of a llama file's q or k from pairs (2i, 2i+1) back to Hugging Face's (i, i + head_dim/2)."""
    return w.reshape(n_head, w.shape[0] // n_head // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def hugging_face_weights(model):
    def tensor(name, kind):
        w = model.tensors[f"{name}.{kind}"].to_float()
        if f"{name}.scale" in model.tensors:
            w = w * model.tensors[f"{name}.scale"].w[0, 0]
        if model.arch == "llama" and name.endswith(("attn_q", "attn_k")):
            n_head = model.n_head if name.endswith("attn_q") else model.n_head_kv
            w = halves(w.reshape(-1, w.shape[1] if kind == "weight" else 1), n_head)
        vector = kind == "bias" or name.endswith("norm")
        return torch.from_numpy(np.ascontiguousarray(w.reshape(-1) if vector else w))

    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    if "output.weight" in model.tensors:
        names["lm_head"] = "output"
    per_layer = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
                 "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
                 "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
                 "mlp.down_proj": "ffn_down"}
    if model.bitnet:
        per_layer.update({"self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm"})
    if model.arch == "qwen3":
        per_layer.update({"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"})
    for i in range(model.n_layers):
        names.update({f"model.layers.{i}.{hf}": f"blk.{i}.{ours}" for hf, ours in per_layer.items()})
    state = {}
    for hf, ours in names.items():
        state[hf + ".weight"] = tensor(ours, "weight")
        if ours + ".bias" in model.tensors:
            state[hf + ".bias"] = tensor(ours, "bias")
    return state


def hugging_face_logits(model, tokens):
    config = hugging_face_config(model)
    classes = {"llama": transformers.LlamaForCausalLM, "qwen2": transformers.Qwen2ForCausalLM,
               "qwen3": transformers.Qwen3ForCausalLM}
    network = classes.get(model.arch, transformers.BitNetForCausalLM)(config).float().eval()
    state = hugging_face_weights(model)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    network.load_state_dict(state, strict=True)
    with torch.no_grad():
        return network(torch.tensor([tokens])).logits[0].numpy()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default=os.path.join(HERE, "models"))
    p.add_argument("--out", default=os.path.join(HERE, "expected"))
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    for path in sorted(glob.glob(os.path.join(a.models, "*.gguf"))):
        name = os.path.splitext(os.path.basename(path))[0]
        model = Model(path)
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        tokens = [1] + rng.integers(3, model.n_vocab, N_TOKENS - 1).tolist()
        expected = {"float": hugging_face_logits(model, tokens)}
        error = nmse(model.forward(tokens, "float"), expected["float"])
        report = f"{name:22} numpy against transformers {error:.1e}"
        if not error < 1e-6:
            raise SystemExit(report + ": too far apart")
        if any(m.values is not None for m in model.tensors.values()):
            for activation in ("row", "auto"):
                expected[activation] = model.forward(tokens, activation, kv_f16=True).astype(np.float32)
                report += f", {activation} against float {nmse(expected[activation], expected['float']):.1e}"
        with open(os.path.join(a.out, name + ".bin"), "wb") as f:
            f.write(b"CRUMBFX1" + struct.pack("<III", len(tokens), model.n_vocab, len(expected)))
            f.write(np.asarray(tokens, "<i4").tobytes())
            for activation, logits in expected.items():
                f.write(struct.pack("<I", SETS[activation]) + logits.astype("<f4").tobytes())
        print(report)


if __name__ == "__main__":
    main()

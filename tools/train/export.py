"""Writes a checkpoint as GGUF: what a quantizer multiplies by, in a type that holds it exactly.

    python export.py CHECKPOINT.npz TOKENIZER.json OUT.gguf --quant ternary

ParetoQ's levels, -3, -1, 1 and 3 times a quarter of a row's scale, are codes of Q4_0: of the types with fewer bits Q2_0
has others (-1, 0, 1, 2), and Q2_K, which could hold them, wants rows of 256.
"""

import argparse

import numpy as np

import gguf_file
from model import Config
from quantizers import QUANTIZERS, seq_codes, seq_scale, sign_codes, sign_scale, ternary_codes, ternary_scale
from tokenizer import Tokenizer

ARCHITECTURE = "bitnet-b1.58"
NORMAL, CONTROL = 1, 3  # token types


def metadata(config, tokenizer):
    a = ARCHITECTURE
    return {
        "general.architecture": a,
        "general.name": "crumb-tiny",
        "general.license": "apache-2.0",
        f"{a}.vocab_size": config.vocab_size,
        f"{a}.context_length": config.context_length,
        f"{a}.embedding_length": config.hidden_size,
        f"{a}.block_count": config.num_hidden_layers,
        f"{a}.feed_forward_length": config.intermediate_size,
        f"{a}.attention.head_count": config.num_attention_heads,
        f"{a}.attention.head_count_kv": config.num_key_value_heads,
        f"{a}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        f"{a}.rope.dimension_count": config.head_dim,
        f"{a}.rope.freq_base": config.rope_theta,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokenizer.tokens,
        "tokenizer.ggml.token_type": [NORMAL] * tokenizer.end_id + [CONTROL],
        "tokenizer.ggml.merges": [" ".join(m) for m in tokenizer.merges],
        "tokenizer.ggml.bos_token_id": tokenizer.end_id,
        "tokenizer.ggml.eos_token_id": tokenizer.end_id,
        "tokenizer.ggml.add_bos_token": True,
    }


def pack_linear(w, scale, quant):
    """(type, bytes); scale [M]: where one is learned."""
    if quant == "ternary":
        return gguf_file.I2_S, gguf_file.pack_i2_s(ternary_codes(w), ternary_scale(w))
    if quant == "seq":
        return gguf_file.Q4_0, gguf_file.pack_q4_0(seq_codes(w, scale), seq_scale(scale))
    if quant == "sign":
        return gguf_file.Q1_0, gguf_file.pack_q1_0(sign_codes(w), sign_scale(w))
    return gguf_file.F16, w.astype(np.float16).tobytes()


def pack(name, params, quant):
    w = params[name]
    if name == "token_embd":
        return gguf_file.Q8_0, w.shape, gguf_file.pack_q8_0(w)
    if w.ndim == 1:
        return gguf_file.F32, w.shape, w.astype(np.float32).tobytes()
    kind, raw = pack_linear(w, params.get(f"{name}.scale"), quant)
    return kind, w.shape, raw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--quant", choices=QUANTIZERS, default="ternary")
    args = parser.parse_args()
    with np.load(args.checkpoint) as stored:
        params = {k.removeprefix("params/"): stored[k] for k in stored if k.startswith("params/")}
    tokenizer = Tokenizer.load(args.tokenizer)
    names = [name for name in params if not name.endswith(".scale")]
    tensors = {f"{name}.weight": pack(name, params, args.quant) for name in names}
    gguf_file.write(args.out, metadata(Config(vocab_size=len(tokenizer.tokens)), tokenizer), tensors)


if __name__ == "__main__":
    main()

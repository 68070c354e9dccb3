"""The BitNet b1.58 graph with a hand-written backward pass, in numpy and fused.c.

x = embedding[token]
each layer:  x += attn_output( subnorm( attention( rope(q), rope(k), v ) ) )     q, k, v of norm(x)
             x += ffn_down( subnorm( relu(gate)^2 * up ) )                       gate, up of norm(x)
logits = norm(x) . embedding

Every linear layer sees weights and activations as inference will (lowest bits, int8 steps); gradients pass the
rounding as if it were not there (straight-through) and move the full-precision weights behind it.
"""

from dataclasses import dataclass

import numpy as np

from fused import Fused
from quantizers import QUANTIZERS


@dataclass(frozen=True)
class Config:
    vocab_size: int = 768
    hidden_size: int = 128
    num_hidden_layers: int = 5
    intermediate_size: int = 384
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    context_length: int = 512

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads

    @property
    def kv_size(self):
        return self.num_key_value_heads * self.head_dim


def linear_shapes(c):
    """Per layer: GGUF name -> (output features, input features)."""
    return {
        "attn_q": (c.hidden_size, c.hidden_size),
        "attn_k": (c.kv_size, c.hidden_size),
        "attn_v": (c.kv_size, c.hidden_size),
        "attn_output": (c.hidden_size, c.hidden_size),
        "ffn_gate": (c.intermediate_size, c.hidden_size),
        "ffn_up": (c.intermediate_size, c.hidden_size),
        "ffn_down": (c.hidden_size, c.intermediate_size),
    }


def linear_names(c):
    return [f"blk.{i}.{name}" for i in range(c.num_hidden_layers) for name in linear_shapes(c)]


def norm_sizes(c):
    return {
        "attn_norm": c.hidden_size,
        "attn_sub_norm": c.hidden_size,
        "ffn_norm": c.hidden_size,
        "ffn_sub_norm": c.intermediate_size,
    }


def init_params(c, rng, quant, dtype=np.float32):
    """Names are the GGUF tensor names without '.weight'; a learned scale of a weight's rows is '<name>.scale'."""
    p = {"token_embd": rng.normal(0, 0.06, (c.vocab_size, c.hidden_size)).astype(dtype)}
    for i in range(c.num_hidden_layers):
        for name, size in norm_sizes(c).items():
            p[f"blk.{i}.{name}"] = np.ones(size, dtype)
        for name, (m, k) in linear_shapes(c).items():
            p[f"blk.{i}.{name}"] = rng.normal(0, k**-0.5, (m, k)).astype(dtype)
    p["output_norm"] = np.ones(c.hidden_size, dtype)
    first_scale = QUANTIZERS[quant].first_scale
    if first_scale:
        p |= {f"{name}.scale": first_scale(p[name]) for name in linear_names(c)}
    return p


def rope_tables(c, n_positions, dtype=np.float32):
    half = c.head_dim // 2
    inverse = c.rope_theta ** (-np.arange(half, dtype=np.float64) / half)
    angle = np.arange(n_positions, dtype=np.float64)[:, None] * inverse
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


class Model:
    def __init__(self, config, params, quant):
        self.config, self.params, self.quantizer = config, params, QUANTIZERS[quant]
        self.dtype = params["token_embd"].dtype
        self.fused = Fused(self.dtype)
        self.quant_activations = int(self.quantizer.int8_activations)
        self.cosines, self.sines = rope_tables(config, config.context_length, self.dtype)

    def loss_and_grads(self, tokens, targets):
        """tokens, targets: int32 [batch, seq], target -1 does not count. Mean loss and the gradient of every tensor."""
        batch, seq = tokens.shape
        p, saved = self.params, []
        linear = self._quantized()
        flat = np.ascontiguousarray(tokens.reshape(-1))
        x = p["token_embd"][flat]
        for i in range(self.config.num_hidden_layers):
            x, kept = self._layer_forward(i, x, linear, batch, seq)
            saved.append(kept)
        h, inv = self._norm(x, "output_norm", quant=0)
        logits = h @ p["token_embd"].T
        goal = np.ascontiguousarray(targets.reshape(-1))
        count = int((goal >= 0).sum())
        loss = self.fused.cross_entropy(logits, goal, len(goal), logits.shape[1], 1.0 / count) / count

        grads = {name: np.zeros_like(w) for name, w in p.items() if w.ndim == 1}
        grads["token_embd"] = logits.T @ h
        dx = np.zeros_like(x)
        self._norm_back(x, "output_norm", inv, logits @ p["token_embd"], dx, grads)
        for i in reversed(range(self.config.num_hidden_layers)):
            self._layer_backward(i, dx, saved.pop(), linear, grads, batch, seq)
        self.fused.scatter_add(grads["token_embd"], flat, dx, len(flat), dx.shape[1])
        self._quantizer_backward(grads)
        return loss, grads

    def _quantizer_backward(self, grads):
        """Gradients of the levels become those of the weights and of the learned scales."""
        for name in linear_names(self.config):
            w, scale = self.params[name], self.params.get(f"{name}.scale")
            grads[name], d_scale = self.quantizer.backward(w, scale, grads[name])
            if d_scale is not None:
                grads[f"{name}.scale"] = d_scale

    def _quantized(self):
        """The weights as multiplied; matrices that share their input stand in one array, for one larger product."""
        p, linear = self.params, {}
        levels = {name: self.quantizer.levels(p[name], p.get(f"{name}.scale")) for name in linear_names(self.config)}
        for i in range(self.config.num_hidden_layers):
            w = {name: levels[f"blk.{i}.{name}"] for name in linear_shapes(self.config)}
            linear[i, "qkv"] = np.concatenate([w["attn_q"], w["attn_k"], w["attn_v"]])
            linear[i, "gate_up"] = np.concatenate([w["ffn_gate"], w["ffn_up"]])
            linear[i, "attn_output"], linear[i, "ffn_down"] = w["attn_output"], w["ffn_down"]
        return linear

    def _norm(self, x, name, quant):
        y, inv = np.empty_like(x), np.empty(len(x), self.dtype)
        self.fused.norm_forward(x, self.params[name], len(x), x.shape[1], self.config.rms_norm_eps, quant, y, inv)
        return y, inv

    def _norm_back(self, x, name, inv, dy, dx, grads):
        self.fused.norm_backward(x, self.params[name], inv, dy, len(x), x.shape[1], dx, grads[name])

    def _heads(self, qkv, batch, seq):
        """Views q [B, KV, group, T, hd], k and v [B, KV, 1, T, hd] of qkv [B * T, features]."""
        c = self.config
        n_kv, group = c.num_key_value_heads, c.num_attention_heads // c.num_key_value_heads
        q, k, v = np.split(qkv.reshape(batch, seq, -1), [c.hidden_size, c.hidden_size + c.kv_size], axis=2)
        q = q.reshape(batch, seq, n_kv, group, c.head_dim).transpose(0, 2, 3, 1, 4)
        k, v = (t.reshape(batch, seq, n_kv, 1, c.head_dim).transpose(0, 2, 3, 1, 4) for t in (k, v))
        return q, k, v

    def _rope(self, qkv, seq, turn):
        c = self.config
        heads = c.num_attention_heads + c.num_key_value_heads
        self.fused.rope(qkv, self.cosines, self.sines, len(qkv), qkv.shape[1], seq, heads, c.head_dim, turn)

    def _layer_forward(self, i, x, linear, batch, seq):
        c, quant = self.config, self.quant_activations
        a, inv_a = self._norm(x, f"blk.{i}.attn_norm", quant)
        qkv = a @ linear[i, "qkv"].T
        self._rope(qkv, seq, 1)
        q, k, v = self._heads(qkv, batch, seq)
        prob = q @ k.swapaxes(-1, -2)
        self.fused.causal_softmax_forward(prob, prob.size // seq**2, seq, c.head_dim**-0.5)
        attended = np.ascontiguousarray((prob @ v).transpose(0, 3, 1, 2, 4)).reshape(-1, c.hidden_size)
        o, inv_o = self._norm(attended, f"blk.{i}.attn_sub_norm", quant)
        middle = x + o @ linear[i, "attn_output"].T

        b, inv_b = self._norm(middle, f"blk.{i}.ffn_norm", quant)
        gate_up = b @ linear[i, "gate_up"].T
        h = np.empty((len(x), c.intermediate_size), self.dtype)
        self.fused.gate_forward(gate_up, len(x), c.intermediate_size, h)
        d, inv_d = self._norm(h, f"blk.{i}.ffn_sub_norm", quant)
        kept = (x, a, inv_a, qkv, prob, attended, o, inv_o, middle, b, inv_b, gate_up, h, d, inv_d)
        return middle + d @ linear[i, "ffn_down"].T, kept

    def _layer_backward(self, i, dx, kept, linear, grads, batch, seq):
        """dx: gradient of the layer's output, turned into the gradient of its input in place."""
        c = self.config
        x, a, inv_a, qkv, prob, attended, o, inv_o, middle, b, inv_b, gate_up, h, d, inv_d = kept
        grads[f"blk.{i}.ffn_down"] = dx.T @ d
        dh = np.zeros_like(h)
        self._norm_back(h, f"blk.{i}.ffn_sub_norm", inv_d, dx @ linear[i, "ffn_down"], dh, grads)
        self.fused.gate_backward(gate_up, dh, len(x), c.intermediate_size)
        dw = gate_up.T @ b
        grads[f"blk.{i}.ffn_gate"], grads[f"blk.{i}.ffn_up"] = np.split(dw, 2)
        self._norm_back(middle, f"blk.{i}.ffn_norm", inv_b, gate_up @ linear[i, "gate_up"], dx, grads)

        grads[f"blk.{i}.attn_output"] = dx.T @ o
        d_attended = np.zeros_like(attended)
        self._norm_back(attended, f"blk.{i}.attn_sub_norm", inv_o, dx @ linear[i, "attn_output"], d_attended, grads)
        d_qkv = self._attention_backward(d_attended, qkv, prob, batch, seq)
        dw = d_qkv.T @ a
        cuts = [c.hidden_size, c.hidden_size + c.kv_size]
        for name, part in zip(("attn_q", "attn_k", "attn_v"), np.split(dw, cuts)):
            grads[f"blk.{i}.{name}"] = part
        self._norm_back(x, f"blk.{i}.attn_norm", inv_a, d_qkv @ linear[i, "qkv"], dx, grads)

    def _attention_backward(self, d_attended, qkv, prob, batch, seq):
        c = self.config
        q, k, v = self._heads(qkv, batch, seq)
        d_out = d_attended.reshape(batch, seq, *q.shape[1:3], c.head_dim).transpose(0, 2, 3, 1, 4)
        d_qkv = np.empty_like(qkv)
        dq, dk, dv = self._heads(d_qkv, batch, seq)
        dv[:, :, 0] = (prob.swapaxes(-1, -2) @ d_out).sum(axis=2)
        d_score = d_out @ v.swapaxes(-1, -2)
        self.fused.causal_softmax_backward(prob, d_score, prob.size // seq**2, seq, c.head_dim**-0.5)
        dq[...] = d_score @ k
        dk[:, :, 0] = (d_score.swapaxes(-1, -2) @ q).sum(axis=2)
        self._rope(d_qkv, seq, -1)
        return d_qkv

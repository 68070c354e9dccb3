"""What a linear layer multiplies by instead of its full-precision weights w [M, K], and how gradients pass through.

A quantizer has `levels(w, scale)`: the values multiplied by, and `backward(w, scale, d_levels)`: the gradients of w and
of the scale. `first_scale(w)` [M] is where a learned scale begins; of quantizers whose scale follows from w it is None,
and so is the gradient. Scales are rounded as the file type of export.py holds them, so that training sees what
inference will.
"""

from dataclasses import dataclass
from typing import Callable

import numpy as np

SEQ_CLIP = 0.99  # of a row's scale: what lies further out is at the outer level, and its gradient stops


def ternary_scale(w):
    """The one scale of a tensor: its mean magnitude (BitNet b1.58's absmean)."""
    return np.maximum(np.mean(np.abs(w), dtype=np.float64), 1e-5).astype(w.dtype)


def ternary_codes(w):
    return np.clip(np.rint(w / ternary_scale(w)), -1, 1)


def as_f16(x):
    return x.astype(np.float16).astype(x.dtype)


def sign_scale(w):
    """[M]: the mean magnitude of each row."""
    return as_f16(np.maximum(np.mean(np.abs(w), axis=1), 1e-5))


def sign_codes(w):
    """-1 and +1; one bit has no zero."""
    return np.where(w < 0, -1, 1).astype(w.dtype)


def seq_scale(scale):
    """[M]: a quarter of each row's scale, the distance of the inner levels from zero."""
    return as_f16(np.maximum(scale, 1e-5) / 4)


def seq_codes(w, scale):
    """-3, -1, 1, 3: ParetoQ's stretched elastic quantizer, levels in the middle of four equal parts of [-scale, scale]."""
    part = np.clip(w / np.maximum(scale, 1e-5)[:, None], -SEQ_CLIP, SEQ_CLIP)
    return 2 * np.rint(2 * part - 0.5) + 1


def seq_backward(w, scale, d_levels):
    """Rounding counts as the identity. Inside, a larger scale moves a level and moves w's place between levels the other
    way; outside, only the level."""
    place = w / np.maximum(scale, 1e-5)[:, None]
    inside = np.abs(place) <= SEQ_CLIP
    d_scale = d_levels * (seq_codes(w, scale) / 4 - place * inside)
    return d_levels * inside, d_scale.sum(axis=1)


@dataclass(frozen=True)
class Quantizer:
    levels: Callable
    backward: Callable = lambda w, scale, d_levels: (d_levels, None)  # straight through
    first_scale: Callable = None
    int8_activations: bool = True


QUANTIZERS = {
    "none": Quantizer(levels=lambda w, scale: w, int8_activations=False),
    "seq": Quantizer(
        levels=lambda w, scale: seq_codes(w, scale) * seq_scale(scale)[:, None],
        backward=seq_backward,
        first_scale=lambda w: np.abs(w).max(axis=1),
    ),
    "ternary": Quantizer(levels=lambda w, scale: ternary_codes(w) * ternary_scale(w)),
    "sign": Quantizer(levels=lambda w, scale: sign_codes(w) * sign_scale(w)[:, None]),
}

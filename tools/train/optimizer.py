"""Muon for the linear layers, Adam for the embedding and the norms.

Muon replaces the momentum of a matrix by the nearest orthogonal one, so that all directions move equally fast. Behind
a ternary quantizer this matters: a weight changes its code only after many steps in the same direction.
"""

import numpy as np

MUON_MOMENTUM = 0.95
ADAM_BETAS = (0.9, 0.98)
ADAM_EPS = 1e-10


def orthogonal(g):
    """Newton-Schulz: five steps of a quintic polynomial drive every singular value towards 1."""
    x = g if g.shape[0] <= g.shape[1] else g.T
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x if g.shape[0] <= g.shape[1] else x.T


class Optimizer:
    def __init__(self, params, muon_lr, adam_lr):
        self.params, self.muon_lr, self.adam_lr = params, muon_lr, adam_lr
        self.first = {name: np.zeros_like(w) for name, w in params.items()}
        self.second = {name: np.zeros_like(w) for name, w in params.items() if not self._is_linear(name)}

    def _is_linear(self, name):
        return self.params[name].ndim == 2 and name != "token_embd"

    def step(self, grads, n_steps, lr_factor):
        """n_steps counts from 1."""
        for name, w in self.params.items():
            if self._is_linear(name):
                self._muon(w, grads[name], self.first[name], lr_factor)
            else:
                self._adam(w, grads[name], self.first[name], self.second[name], n_steps, lr_factor)

    def _muon(self, w, g, momentum, lr_factor):
        momentum *= MUON_MOMENTUM
        momentum += g
        turn = orthogonal(g + MUON_MOMENTUM * momentum)
        w -= self.muon_lr * lr_factor * max(1.0, w.shape[0] / w.shape[1]) ** 0.5 * turn

    def _adam(self, w, g, m, v, n_steps, lr_factor):
        b1, b2 = ADAM_BETAS
        m += (1 - b1) * (g - m)
        v += (1 - b2) * (g * g - v)
        rate = self.adam_lr * lr_factor * (1 - b2**n_steps) ** 0.5 / (1 - b1**n_steps)
        w -= rate * m / (np.sqrt(v) + ADAM_EPS)

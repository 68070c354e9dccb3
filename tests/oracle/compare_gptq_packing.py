#!/usr/bin/env python3
"""Whether make_checkpoints.py packs as AutoGPTQ does, from which most published GPTQ checkpoints come: its own
QuantLinear.pack() makes the same words of 2, 3, 4 and 8 bits, in groups, whole rows and act-order. AutoGPTQ asks for
PyTorch, of which the few calls that this code makes are below, on numpy.

usage: compare_gptq_packing.py   in an environment with auto-gptq: $(tests/support/deps.py venv gptq)/bin/python
"""
import importlib.util
import sys
import sysconfig
import types
from pathlib import Path

import numpy as np

import make_checkpoints

M, K, GROUP = 96, 128, 32


class Tensor(np.ndarray):
    """As much of torch.Tensor as qlinear_cuda.py uses."""

    def t(self):
        return self.T

    def contiguous(self):
        return np.ascontiguousarray(self).view(Tensor)

    def clone(self):
        return self.copy()

    def to(self, dtype):
        return self.astype(dtype)

    def half(self):
        return self.astype(np.float16)

    def numpy(self):
        return np.asarray(self)

    def unsqueeze(self, dim):
        return np.expand_dims(self, dim)


class Module:
    def register_buffer(self, name, value):
        setattr(self, name, value)


def tensor(values, dtype=None):
    return np.array(values, dtype=dtype).view(Tensor)


def put_torch():
    """Modules by the names under which AutoGPTQ's code asks for PyTorch and transformers."""
    torch, nn, transformers = (types.ModuleType(name) for name in ("torch", "torch.nn", "transformers"))
    nn.Module, nn.Conv2d, nn.Linear = Module, type("Conv2d", (), {}), type("Linear", (), {})
    transformers.pytorch_utils = types.SimpleNamespace(Conv1D=type("Conv1D", (), {}))
    torch.nn, torch.Tensor, torch.tensor = nn, Tensor, tensor
    torch.int, torch.int32, torch.float16 = np.int32, np.int32, np.float16
    torch.zeros = lambda shape, dtype: tensor(np.zeros(shape), dtype)
    torch.round, torch.from_numpy = np.round, tensor
    torch.cat = lambda parts, dim: np.concatenate(parts, axis=dim).view(Tensor)
    sys.modules.update({"torch": torch, "torch.nn": nn, "transformers": transformers})


def quant_linear():
    """The class by itself: its package would load all of PyTorch."""
    put_torch()
    path = Path(sysconfig.get_path("purelib")) / "auto_gptq" / "nn_modules" / "qlinear" / "qlinear_cuda.py"
    spec = importlib.util.spec_from_file_location("qlinear_cuda", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.QuantLinear


def agree(layer, rng, bits, group, ordered):
    """-> the names of tensors that differ."""
    groups = K // group
    codes = rng.integers(0, 1 << bits, (M, K))
    zero = rng.integers(1, 1 << bits, (M, groups))  # of 0 AutoGPTQ stores -1, whose bits run into its neighbours
    scale = np.abs(rng.normal(0.05, 0.02, zero.shape)).astype("<f2") + np.float16(0.001)
    group_of = np.arange(K) // group
    if ordered:
        rng.shuffle(group_of)
    w = scale[:, group_of].astype(np.float32) * (codes - zero[:, group_of])
    linear = types.SimpleNamespace(weight=types.SimpleNamespace(data=tensor(w, np.float32), dtype=np.float32), bias=None)
    packed = layer(bits, group, K, M, False)
    packed.pack(linear, tensor(scale, np.float32), tensor(zero, np.float32), tensor(group_of, np.int32))
    ours = make_checkpoints.gptq(codes, scale, zero, bits, True, group_of)
    return [name for name, array in ours.items()
            if not np.array_equal(np.asarray(getattr(packed, name), array.dtype), array)]


def main():
    layer, rng, good = quant_linear(), np.random.default_rng(12), True
    for bits in (2, 3, 4, 8):
        for group in (GROUP, K):
            for ordered in (False, True):
                wrong = agree(layer, rng, bits, group, ordered)
                print(f"{bits} bits, groups of {group}{', act-order' if ordered else ''}: "
                      f"{'NOT as AutoGPTQ packs: ' + ', '.join(wrong) if wrong else 'as AutoGPTQ packs'}")
                good = good and not wrong
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

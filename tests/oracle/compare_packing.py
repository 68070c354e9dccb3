#!/usr/bin/env python3
"""Whether make_checkpoints.py packs as the program does that published AWQ checkpoints come from: AutoAWQ's own code
unpacks what it packs for AWQ, and makes of that, for GPTQ's kernels, what it packs for GPTQ with 4 bits. AutoAWQ asks for
PyTorch, of which the few calls that this code makes are below, on numpy.

usage: compare_packing.py        in an environment with autoawq: $(tests/support/deps.py venv awq)/bin/python
"""
import importlib.util
import sys
import sysconfig
import types
from pathlib import Path

import numpy as np

import make_checkpoints

M, K, GROUP = 96, 128, 32


class Tensor:
    """As much of torch.Tensor as packing_utils.py uses."""

    device = None

    def __init__(self, array):
        self.array = np.asarray(array)
        self.shape = self.array.shape

    def to(self, dtype):
        return Tensor(self.array.astype(dtype))

    def view(self, *shape):
        return Tensor(self.array.reshape(shape))

    def sum(self, dim):
        return Tensor(self.array.sum(axis=dim))

    def repeat_interleave(self, n, dim):
        return Tensor(np.repeat(self.array, n, axis=dim))

    def __getitem__(self, index):
        parts = index if isinstance(index, tuple) else (index,)
        return Tensor(self.array[tuple(p.array if isinstance(p, Tensor) else p for p in parts)])

    def __sub__(self, other):
        return Tensor(self.array - (other.array if isinstance(other, Tensor) else other))

    def __mul__(self, other):
        return Tensor(self.array * other.array)


def wide(a):
    return a.array.astype(np.int64) if isinstance(a, Tensor) else a


torch = types.ModuleType("torch")
torch.Tensor, torch.int8, torch.int32 = Tensor, np.int8, np.int32
torch.arange = lambda *args, dtype=np.int64, device=None: Tensor(np.arange(*args, dtype=dtype))
torch.bitwise_right_shift = lambda a, b: Tensor(wide(a) >> wide(b))
torch.bitwise_left_shift = lambda a, b: Tensor(wide(a) << wide(b))
torch.bitwise_and = lambda a, b: Tensor(wide(a) & wide(b))


def packing_utils():
    """The module by itself: its package would load all of PyTorch."""
    sys.modules["torch"] = torch
    path = Path(sysconfig.get_path("purelib")) / "awq" / "utils" / "packing_utils.py"
    spec = importlib.util.spec_from_file_location("packing_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    theirs, rng = packing_utils(), np.random.default_rng(11)
    codes, zero = rng.integers(0, 16, (M, K)), rng.integers(0, 16, (M, K // GROUP))
    scale = rng.normal(0, 0.05, zero.shape).astype("<f2")
    awq = make_checkpoints.awq(codes, scale, zero)
    gptq = make_checkpoints.gptq(codes, scale, zero, 4, True)
    words, zeros = Tensor(awq["qweight"]), Tensor(awq["qzeros"])
    w = theirs.dequantize_gemm(words, zeros, Tensor(awq["scales"].astype(np.float32)), 4, GROUP).array
    expected = np.repeat(scale.astype(np.float32), GROUP, axis=1) * (codes - np.repeat(zero, GROUP, axis=1))
    for_gptq = [a.array.astype("<i4") for a in theirs.unpack_reorder_pack(words, zeros, 4)]
    # a zero point of 0 is -1 here, whose bits run into those of its neighbours: only where there is none do words agree
    whole = np.all((zero > 0).T.reshape(K // GROUP, M // 8, 8), axis=2)
    checks = {"AWQ's weights": np.array_equal(w, expected.T.astype(np.float32)),
              "GPTQ's codes": np.array_equal(for_gptq[0], gptq["qweight"]),
              "GPTQ's zero points": whole.any() and np.array_equal(for_gptq[1][whole], gptq["qzeros"][whole])}
    for what, same in checks.items():
        print(f"{what}: {'as' if same else 'NOT as'} AutoAWQ packs them")
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/oracle/safetensors: a file and a model of two files with an index, as the safetensors package writes them.
tests/unit/test_safetensors.c reads them: value i of a tensor is i (modulo 2 for BOOL).

usage: make_safetensors.py [FOLDER]     (needs requirements-regenerate.txt)
"""
import json
import os
import sys

import numpy as np
from safetensors.numpy import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = {"bool": np.bool_, "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "f16": np.float16,
          "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u64": np.uint64, "i64": np.int64, "f64": np.float64}


def tensor(dtype, *shape):
    n = int(np.prod(shape))
    return (np.arange(n) % (2 if dtype is np.bool_ else 128)).astype(dtype).reshape(shape)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "safetensors")
    os.makedirs(folder, exist_ok=True)
    all_dtypes = {name: tensor(dtype, 3, 5) for name, dtype in DTYPES.items()}
    save_file({**all_dtypes, "scalar": np.array(7, np.float32), "empty": np.zeros((0, 4), np.float32)},
              os.path.join(folder, "dtypes.safetensors"), metadata={"format": "np"})
    parts = {"model-00001-of-00002.safetensors": {"a.weight": tensor(np.float16, 4, 2), "a.bias": tensor(np.float32, 4)},
             "model-00002-of-00002.safetensors": {"b.weight": tensor(np.float16, 2, 2)}}
    for file, tensors in parts.items():
        save_file(tensors, os.path.join(folder, file))
    index = {"metadata": {"total_size": 40}, "weight_map": {t: f for f, tensors in parts.items() for t in tensors}}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="ascii") as f:
        f.write(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Reads the model with the gguf package and compares with what the project's own reader sees.

    python check_gguf.py MODEL.gguf
"""

import sys

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

import gguf_file


def know_i2_s():
    """The package has no type 36: teach it 128 weights in 32 bytes (the scale that follows is outside its view)."""
    member = int.__new__(GGMLQuantizationType, gguf_file.I2_S)
    member._name_, member._value_ = "I2_S", gguf_file.I2_S
    GGMLQuantizationType._value2member_map_[gguf_file.I2_S] = member
    GGML_QUANT_SIZES[member] = (128, 32)


def main():
    know_i2_s()
    path = sys.argv[1]
    reader = gguf.GGUFReader(path)
    metadata, tensors = gguf_file.read(path)
    for key, value in metadata.items():
        seen = reader.fields[key].contents()
        if not (np.isclose(seen, value) if isinstance(value, float) else seen == value):
            raise SystemExit(f"{path}: {key} reads differently")
    if {t.name for t in reader.tensors} != set(tensors):
        raise SystemExit(f"{path}: tensor names read differently")
    end = 0
    for t in reader.tensors:
        kind, shape, raw = tensors[t.name]
        seen = t.data.tobytes()
        if t.tensor_type != kind or tuple(t.shape[::-1]) != shape or seen != raw[: len(seen)] or t.data_offset < end:
            raise SystemExit(f"{path}: {t.name} reads differently")
        end = t.data_offset + len(raw)
    print(f"{path}: {len(metadata)} keys and {len(tensors)} tensors read the same with gguf")


if __name__ == "__main__":
    main()

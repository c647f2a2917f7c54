#!/usr/bin/env python3
"""Writes tests/data/block_types.json: what gguf-py and ggml make of blocks. plait/tensor/blocks_test.cc compares.

usage: block_types.py LIBGGML_BASE      ggml's shared library (llama-cpp-python installs it as lib/libggml-base.so)

Needs: numpy, gguf 0.19.0; ggml 0.25.3 or so. Run from the repository's root.

  read   of each type: random blocks (bytes) and their values (bits of f32), by gguf-py
  make   of the types of 32: the bytes gguf-py makes of `x` (ggml makes the same)
  rms    of each type: the root mean square error of what ggml makes of 25,600 numbers of `normal` and its cube
"""
import ctypes
import json
import pathlib
import sys

import gguf
import numpy as np
from gguf import quants
from random_weights import normal, stream_of

KIND = gguf.GGMLQuantizationType
TYPES = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]
HALVES = {"q4_1": [0, 2], "q5_1": [0, 2], "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2], "q5_k": [0, 2],
          "q6_k": [208]}  # where d, m and dmin lie
ggml = ctypes.CDLL(sys.argv[1])
ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                     ctypes.c_int64, ctypes.c_void_p]


def by_ggml(x, kind):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    out = np.zeros(x.size // block * size, np.uint8)
    ggml.ggml_quantize_chunk(kind.value, x.ctypes.data, out.ctypes.data, 0, x.size // 256, 256, None)
    return out


def bits(x):
    return np.ascontiguousarray(x, np.float32).reshape(-1).view(np.uint32).astype("<u4").tobytes().hex()


rng = np.random.default_rng(4)
result = {"read": {}, "make": {}, "rms": {}}
for name in TYPES:
    kind = KIND[name.upper()]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (256 // block if block == 32 else 2, size), dtype=np.uint8)
    for at in HALVES.get(name, [0]):
        blocks[:, at:at + 2] = (rng.standard_normal(len(blocks)) * 0.1).astype(np.float16).view(np.uint8).reshape(-1, 2)
    result["read"][name] = {"bytes": blocks.tobytes().hex(), "values": bits(quants.dequantize(blocks, kind))}

x = (rng.standard_normal((8, 32)) * 0.05).astype(np.float32)
x[1] = 0
x[2] = 0.3
x[3] = -np.abs(x[3])
x[4, :16] = np.arange(-8, 8) / 8  # halves between levels, two of the largest magnitude
x[4, 16:] = x[4, :16]
x[5] *= 1e-6  # denormal scales of f16
x[6] **= 3
result["x"] = bits(x)
for name in TYPES[:5]:
    kind = KIND[name.upper()]
    made = quants.quantize(x, kind).reshape(-1)
    assert np.array_equal(made, by_ggml(x.reshape(-1), kind)), name
    result["make"][name] = made.tobytes().hex()

n = 25600
plain = (0.05 * normal(stream_of("block types"), np.arange(n, dtype=np.uint64))).astype(np.float32)
for name in TYPES:
    kind = KIND[name.upper()]
    result["rms"][name] = []
    for y in (plain, plain * plain * plain):
        back = quants.dequantize(by_ggml(y, kind), kind).reshape(-1).astype(np.float64)
        result["rms"][name].append(float(np.sqrt(np.mean((back - y) ** 2))))
pathlib.Path("tests/data/block_types.json").write_text(
    json.dumps(result, separators=(",", ":")).replace('},"', '},\n"') + "\n")

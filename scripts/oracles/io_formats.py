#!/usr/bin/env python3
"""Writes plait/io/testdata: small GGUF and safetensors files made by the formats' own Python packages, and the values
that those packages read from them. plait/io/oracle_test.cc compares.

Needs: numpy, gguf 0.19.0, safetensors 0.8.0 (pip install in a virtual environment). Run from the repository's root.
"""
import json
import pathlib

import gguf
import numpy as np
from gguf import quants
from safetensors.numpy import load_file, save_file

folder = pathlib.Path("plait/io/testdata")
folder.mkdir(exist_ok=True)
rng = np.random.default_rng(1)
expected = {}


def bits(values):
    return [int(v) for v in np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint32)]


values = rng.standard_normal((3, 64)).astype(np.float32)
writer = gguf.GGUFWriter(str(folder / "oracle.gguf"), "llama")
writer.add_block_count(2)
writer.add_rope_freq_base(10000.0)
writer.add_bool("a.flag", True)
writer.add_int64("a.i64", -5)
writer.add_float64("a.f64", 0.1)
writer.add_token_list(["<s>", "a", "\u00e9"])
writer.add_token_scores([0.0, -1.0, -2.5])
writer.add_token_types([3, 1, 1])
kinds = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
    "q4_1": gguf.GGMLQuantizationType.Q4_1,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
for name, kind in kinds.items():
    stored = quants.quantize(values, kind)
    writer.add_tensor(name, stored, raw_dtype=kind)
    expected[name] = bits(quants.dequantize(stored, kind))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

tensors = {
    "z.f32": rng.standard_normal((2, 3)).astype(np.float32),
    "a.f16": rng.standard_normal((5,)).astype(np.float16),
    "b.f64": rng.standard_normal((2, 1, 2)),
    "c.i64": np.arange(-2, 4, dtype=np.int64).reshape(3, 2),
    "scalar": np.array(1.5, dtype=np.float32),
    "empty": np.zeros((0, 4), dtype=np.float32),
}
save_file(tensors, str(folder / "oracle.safetensors"), metadata={"format": "np"})
for name, tensor in load_file(str(folder / "oracle.safetensors")).items():
    if tensor.dtype != np.int64:
        expected[name] = bits(tensor)
(folder / "oracle.json").write_text(json.dumps(expected, separators=(",", ":")).replace('],"', '],\n"') + "\n")

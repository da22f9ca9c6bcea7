#!/usr/bin/env python3
"""
Makes layers.safetensors: small random layers in every quantised format with the values that a reference decoder gives.

    make_golden.py TOOLS_DIR OUT.safetensors

TOOLS_DIR holds exl2_reference.py, which agrees bit for bit with ExLlamaV2's own decoder. GGUF's blocks are encoded and
decoded by the Python package gguf (ggml's own). Needs numpy, gguf and safetensors.

    exl2.NAME.{q_weight,q_scale,q_scale_max,q_groups,q_invperm}, exl2.NAME.expected   F16 [K, N padded]
    gptq.NAME.{qweight,qzeros,scales[,g_idx]}, gptq.NAME.expected                     F16 [K, N]
    gguf.TYPE.blocks U8 [rows, bytes], gguf.TYPE.expected                             F32 [rows, K]

NAME of a GPTQ layer: bits, v1 or v2, and "act" for a scattered g_idx.
"""

import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import exl2_reference as exl2
import gguf
from safetensors.numpy import save_file

rng = np.random.default_rng(20240229)
out = {}

# EXL2: every width at every group size, mixes with a short last group, tiny and large scales.
cases = [(f"b{b}_g{g}", 2 * g, 20, [b], [1.0], {b: g}, 0.05) for b, g in [(b, 32) for b in exl2.EXL2_BITS] + [(3, 64)]]
cases += [
    ("mix_6_3_2", 224, 33, [6, 3, 2], [0.05, 0.2, 0.75], {6: 32, 3: 64, 2: 64}, 0.05),
    ("mix_8_4_3", 224, 20, [8, 4, 3], [0.1, 0.1, 0.8], {8: 32, 4: 64, 3: 64}, 0.05),
    ("mix_all", 224, 24, [8, 6, 5, 4, 3, 2], [0.1, 0.1, 0.1, 0.1, 0.1, 0.5], {b: 32 for b in exl2.EXL2_BITS}, 0.05),
    ("subnormal", 96, 20, [8, 5], [0.3, 0.7], {8: 32, 5: 32}, 0.0005),
    ("large", 96, 20, [4, 2], [0.3, 0.7], {4: 32, 2: 32}, 300.0),
]
for name, k, n, bits, props, size, deviation in cases:
    w = (rng.standard_normal((k, n)) * deviation).astype(np.float32)
    t = exl2.encode_rtn(w, exl2.plan_groups(k, bits, props, size), rng.permutation(k))
    t.validate()
    for part in ("q_weight", "q_scale", "q_scale_max", "q_groups", "q_invperm"):
        out[f"exl2.{name}.{part}"] = getattr(t, part)
    out[f"exl2.{name}.expected"] = exl2.dequantize(t)


def pack(values, bits):
    return exl2.pack_rows(values, bits).view(np.int32)


# GPTQ: codes down the columns, zero points along them; v1 stores them minus one.
for bits in (2, 3, 4, 8):
    for version in (1, 2):
        for act in (False, True):
            k, n, g = 64, 32, 2
            top = (1 << bits) - 1
            q = rng.integers(0, top + 1, (k, n), dtype = np.int32)
            z = rng.integers(1, top + 1 + (version == 1), (g, n), dtype = np.int32)
            s = (rng.random((g, n)) * 0.02 + 1e-4).astype(np.float16)
            order = np.arange(k) // (k // g)
            g_idx = rng.permutation(order) if act else order
            stored = z - 1 if version == 1 else z
            name = f"b{bits}_v{version}" + ("_act" if act else "")
            out[f"gptq.{name}.qweight"] = pack(q, bits)
            out[f"gptq.{name}.qzeros"] = np.ascontiguousarray(pack(np.ascontiguousarray(stored.T), bits).T)
            out[f"gptq.{name}.scales"] = s
            if act:
                out[f"gptq.{name}.g_idx"] = g_idx.astype(np.int32)
            expected = (q - z[g_idx]).astype(np.float16) * s[g_idx]
            if bits == 4:
                check = exl2.gptq_dequantize(out[f"gptq.{name}.qweight"], out[f"gptq.{name}.qzeros"], s,
                                             g_idx if act else None, version == 2)
                assert np.array_equal(check, expected)
            out[f"gptq.{name}.expected"] = expected

for kind in ("Q8_0", "Q4_0", "Q4_1", "F16", "BF16"):
    t = gguf.GGMLQuantizationType[kind]
    w = (rng.standard_normal((6, 96)) * 0.1).astype(np.float32)
    blocks = gguf.quantize(w, t)
    out[f"gguf.{kind}.blocks"] = np.ascontiguousarray(blocks).view(np.uint8)
    out[f"gguf.{kind}.expected"] = gguf.dequantize(blocks, t).astype(np.float32)

save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, sys.argv[2])

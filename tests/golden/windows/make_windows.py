#!/usr/bin/env python3
"""
Makes windows-256.json: the negative log likelihood (nats, 255 predictions) of the first 256 tokens of the evaluation text.

    make_windows.py TOOLS_DIR EVAL_TEXT MODELS_DIR OUT.json

By llama_reference.py, which agrees with Transformers in float32 within 1.2e-4 of a logit. The starter model's exact weights
are read from MODELS_DIR/hf-fp32, made by `gguf_to_hf.py STARTER.gguf hf-fp32 --dtype float32`. Needs numpy, safetensors
and tokenizers.
"""

import json
import os
import sys

import numpy as np

tools, text, models, out = sys.argv[1:]
sys.path.insert(0, tools)
import llama_reference
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file(os.path.join(models, "hf-fp16", "tokenizer.json"))
ids = tokenizer.encode(open(text, encoding = "utf-8").read(), add_special_tokens = False).ids[:256]
sums = {}
for name, folder in (("starter", "hf-fp32"), ("hf-fp16", "hf-fp16"), ("exl2-3.0", "exl2-3.0"), ("gptq-v1", "gptq-v1"),
                     ("gptq-v2", "gptq-v2")):
    logits = llama_reference.forward(os.path.join(models, folder), ids).astype(np.float64)[:-1]
    largest = logits.max(-1)
    log_sum = np.log(np.exp(logits - largest[:, None]).sum(-1)) + largest
    sums[name] = round(float((log_sum - logits[np.arange(255), ids[1:]]).sum()), 4)
    print(name, sums[name])
json.dump(sums, open(out, "w"), indent = 1)

"""PyTorch: linear attention written out, and softmax attention by scaled_dot_product_attention.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    attest check --process '/tmp/torch/bin/python gpu_checks/adapters/examples/torch_attention.py [cuda]'

Without PyTorch, or without a GPU where one is named, its kernels are NOT RUN (exit status 77).
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import kernel, serve

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


@kernel(op="linear", form="chunk c=1048576", contract="input=fp32 output=fp32", features="backward", device=device)
def torch_linear_eager(q, k, v, scale=1.0):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False  # the contract says fp32
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [B, H, T, D]
    return ((scale * q) @ k.mT).tril().matmul(v).transpose(1, 2)


@kernel(op="softmax", form="stream", contract="input=bf16 product=bf16 intermediate=bf16 exp=2ulp output=bf16", device=device)
def torch_sdpa_bf16(q, k, v, scale=None):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale).transpose(1, 2)


@kernel(op="softmax", form="stream", contract="input=fp32 exp=2ulp output=fp32", device=device)
def torch_sdpa_fp32(q, k, v, scale=None):
    return torch_sdpa_bf16(q, k, v, scale)


serve()

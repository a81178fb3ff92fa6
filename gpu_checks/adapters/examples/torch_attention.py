"""PyTorch: linear attention written out, and softmax attention by each backend of scaled_dot_product_attention.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    attest check --process '/tmp/torch/bin/python gpu_checks/adapters/examples/torch_attention.py [cuda]'

The backends want one width for q, k and v, a multiple of 8: zeros beyond d and dv change no sum. Without PyTorch, or without
a GPU where one is named, the kernels are NOT RUN (exit status 77); nor is a backend that the device has not.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import Unsupported, kernel, serve

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


@kernel(op="linear", form="chunk c=1048576", contract="input=fp32 output=fp32", features="backward", device=device)
def torch_linear_eager(q, k, v, scale=1.0):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False  # the contract says fp32
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [B, H, T, D]
    return ((scale * q) @ k.mT).tril().matmul(v).transpose(1, 2)


def sdpa(backend):
    def run(q, k, v, scale=None):  # None: 1 / sqrt(d)
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        torch.backends.cuda.matmul.allow_tf32 = False
        width = -(-max(q.shape[-1], v.shape[-1]) // 8) * 8
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        heads_first = [torch.nn.functional.pad(x, (0, width - x.shape[-1])).transpose(1, 2) for x in (q, k, v)]
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                o = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True, scale=scale)
        except RuntimeError as error:
            if "No available kernel" in str(error):
                raise Unsupported(f"PyTorch has no {backend} kernel for this case") from None
            raise
        return o.transpose(1, 2)[..., :v.shape[-1]]

    return run


for name, backend, types in (("flash", "FLASH_ATTENTION", "bf16 fp16"), ("cudnn", "CUDNN_ATTENTION", "bf16 fp16"),
                             ("efficient", "EFFICIENT_ATTENTION", "bf16 fp16 fp32"), ("math", "MATH", "bf16 fp16 fp32")):
    for t in types.split():
        kernel(op="softmax", form="stream", name=f"torch_sdpa_{name}.{t}", limits="d=1..128 dv=1..128 t=1..16384", device=device,
               contract=f"input={t} product={t} accumulate=fp32 intermediate={t} exp=106ulp output={t}")(sdpa(backend))


serve()

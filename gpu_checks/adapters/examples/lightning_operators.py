"""Lightning Attention 2 (lightning_attn 0.0.5, Triton): retention, and linear attention without a decay.

    attest check --battery --process 'python gpu_checks/adapters/examples/lightning_operators.py'

After pip install lightning_attn. Products are of fp32 values in tf32; the slope of a head is -log(decay), finite. The
package refuses d and dv that divide 16 and compiles for d a power of two.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import Unsupported, kernel, serve


def every_type(op):
    def register(function):
        for t, product in (("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "tf32")):
            kernel(op=op, form="chunk c=64", features="backward", limits="d=32,64,128 dv=32..128 t=1..65536", device="cuda",
                   contract=f"input={t} product={product} accumulate=fp32 intermediate={t} state=fp32 exp=106ulp output={t}",
                   name=f"{function.__name__}.{t}")(function)
        return function
    return register


@every_type("retention")
def lightning_attention(q, k, v, scale=1.0, decay=1.0):
    import torch
    from lightning_attn.ops import lightning_attn_func

    slopes = -torch.as_tensor(decay, dtype=torch.float64, device=q.device).expand(v.shape[2]).log().float()
    if slopes.isinf().any():
        raise Unsupported("a decay of 0 has no finite slope")
    q, k, v = ((scale * q).to(q.dtype).transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    return lightning_attn_func(q, k, v, slopes.reshape(-1, 1, 1)).transpose(1, 2)


@every_type("linear")
def lightning_attention_no_decay(q, k, v, scale=1.0):
    from lightning_attn.ops import lightning_attn_func

    q, k, v = ((scale * q).to(q.dtype).transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    return lightning_attn_func(q, k, v).transpose(1, 2)


serve()

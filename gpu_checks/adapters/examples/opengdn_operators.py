"""Gated delta rule of opengdn 0.1: chunkwise in PyTorch, and its Triton kernels (bf16).

    attest check --battery --process 'python gpu_checks/adapters/examples/opengdn_operators.py [cpu|cuda]'

After pip install opengdn. It takes alpha = exp(g) in the type of q, and the state as [dv, d] in that type: both are rounded
to it here, and the contract says so (gate_sum, state). The Triton kernel goes token by token in fp32.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import Unsupported, kernel, serve

device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
features = "initial_state final_state backward"


def call(function, q, k, v, g, beta, scale, state):
    state = None if state is None else state.mT.contiguous()
    o, last = function((scale * q).to(q.dtype), k, v, g.exp().to(q.dtype), beta.to(q.dtype), state)
    return {"o": o, "final_state.S": last.mT}


@kernel(op="gated_delta", form="chunk c=64", contract="input=fp32 exp=4ulp output=fp32", features=features,
        limits="d=1..512 dv=1..512 t=1..8192", device=device)
def opengdn_chunkwise(q, k, v, g, beta, scale=1.0, initial_state_S=None):
    import torch
    from opengdn import gated_delta_chunkwise

    torch.backends.cuda.matmul.allow_tf32 = False
    return call(gated_delta_chunkwise, q, k, v, g, beta, scale, initial_state_S)


@kernel(op="gated_delta", form="stream", features=features, limits="d=1..512 dv=1..512 t=1..8192", device=device,
        contract="input=bf16 product=fp32 intermediate=fp32 state=bf16 gate_sum=bf16/chunk output=bf16")
def opengdn_triton(q, k, v, g, beta, scale=1.0, initial_state_S=None):
    from opengdn import gated_delta_triton

    if device == "cpu":
        raise Unsupported("its Triton kernels want a GPU")
    return call(gated_delta_triton, q, k, v, g, beta, scale, initial_state_S)


serve()

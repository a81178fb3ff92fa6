"""The Triton operators of flash-linear-attention (0.6): linear, simple GLA, gated delta rule, log-linear attention.

    python3 -m venv /tmp/fla && /tmp/fla/bin/pip install torch numpy flash-linear-attention==0.6.0
    attest check --time-limit 600 --process '/tmp/fla/bin/python gpu_checks/adapters/examples/fla_operators.py'

The contracts are read off the kernels: operands of products are rounded to bf16, sums and the carried state are fp32.
TRITON_INTERPRET=1 and the argument `cpu` run Triton's interpreter instead of a GPU, for what it can carry. Without
the packages or the GPU the kernels are NOT RUN (exit status 77). Gradients are asked of them through autograd.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import kernel, serve

os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")  # products of fp32 operands are not in tf32
device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
contract = "input=bf16 product=bf16 accumulate=fp32 intermediate=bf16 state=fp32 gate_sum=fp32/chunk exp=2ulp output=bf16"
sizes = "d=16..256 dv=16..256 t=1..65536"
powers = "d=16,32,64,128,256 dv=16,32,64,128,256 t=1..65536"


@kernel(op="linear", form="chunk c=64", contract=contract, features="varlen initial_state final_state backward", limits=sizes, device=device)
def fla_linear(q, k, v, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from fla.ops.linear_attn import chunk_linear_attn

    o, state = chunk_linear_attn(q, k, v, scale=scale, initial_state=initial_state_S, output_final_state=True,
                                 normalize=False, cu_seqlens=cu_seqlens)
    return {"o": o, "final_state.S": state}


@kernel(op="mamba2", form="chunk c=64", contract=contract, features="varlen initial_state final_state backward", limits=sizes, device=device)
def fla_simple_gla(q, k, v, g, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from fla.ops.simple_gla import chunk_simple_gla

    o, state = chunk_simple_gla(q, k, v, g=g, scale=scale, initial_state=initial_state_S, output_final_state=True,
                                cu_seqlens=cu_seqlens)
    return {"o": o, "final_state.S": state}


@kernel(op="gated_delta", form="chunk c=64", contract=contract + " inverse=substitution",
        features="varlen initial_state final_state backward", limits=sizes, device=device)
def fla_gated_delta_rule(q, k, v, g, beta, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    o, state = chunk_gated_delta_rule(q, k, v, g, beta, scale=scale, initial_state=initial_state_S,
                                      output_final_state=True, cu_seqlens=cu_seqlens)
    return {"o": o, "final_state.S": state}


# In fp32: the kernel multiplies weights by level scales in the type of q, k and v, and no contract says that these are
# rounded to bf16.
@kernel(op="log_linear_mamba2", form="chunk c=64", contract="input=fp32 gate_sum=fp32/chunk exp=2ulp output=fp32",
        features="varlen grouped backward", limits=powers, device=device)
def fla_log_linear(q, k, v, g, level_scales, scale=1.0, cu_seqlens=None):
    from fla.ops.log_linear_attn import chunk_log_linear_attn

    return chunk_log_linear_attn(q, k, v, g, level_scales, cu_seqlens=cu_seqlens, scale=scale)[0]


serve()

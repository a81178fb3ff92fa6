"""Gated delta rule of FlashQLA 0.1 (TileLang kernels for Hopper), d = dv = 128: zeros beyond d and dv change no sum.

    attest check --battery --time-limit 300 --process 'python gpu_checks/adapters/examples/flash_qla_operators.py'  # pip install flash-qla
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import kernel, serve

device = "cuda"


def widened(x, width=128):
    import torch

    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))


def flash_qla(q, k, v, g, beta, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from flash_qla import chunk_gated_delta_rule

    state = None if initial_state_S is None else widened(widened(initial_state_S).mT).mT.contiguous()
    o, last = chunk_gated_delta_rule(widened(q), widened(k), widened(v), g, beta, scale=scale, initial_state=state,
                                     output_final_state=True, cu_seqlens=cu_seqlens)
    return {"o": o[..., :v.shape[-1]], "final_state.S": last[..., :k.shape[-1], :v.shape[-1]]}


for t in ("bf16", "fp16"):
    kernel(op="gated_delta", form="chunk c=64", features="varlen initial_state final_state backward", device=device,
           limits="d=1..128 dv=1..128 t=1..65536 g=-10000..0", name=f"flash_qla.{t}",
           contract=f"input={t} product={t} accumulate=fp32 intermediate={t} state=fp32 gate_sum=fp32/chunk inverse=substitution "
                    f"exp=106ulp output={t}")(flash_qla)

serve()

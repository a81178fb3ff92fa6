"""Retention by the chunked scan of mamba_scan_lite 0.2 (PyTorch), whose Mamba-2 scan has a decay a head when dt = 1.

    attest check --battery --process 'python gpu_checks/adapters/examples/scan_lite_operators.py [cpu|cuda]'

After pip install mamba-scan-lite transformers. It forms the state of every token of a chunk of 32, weighing by quotients of
products of decays, and reads it. Judged as a chunk algorithm, whose rounding of the weights this is.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import kernel, serve

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"


@kernel(op="retention", form="chunk c=32", contract="input=fp32 exp=106ulp output=fp32", device=device,
        features="initial_state final_state backward", limits="d=1..256 dv=1..256 t=1..4096")
def scan_lite_retention(q, k, v, scale=1.0, decay=1.0, initial_state_S=None):
    import torch
    from mamba_scan_lite.patch import chunked_scan

    B, T, H, _ = k.shape
    A = torch.as_tensor(decay, dtype=torch.float64, device=q.device).expand(H).log().float()
    state = v.new_zeros(B, H, v.shape[3], k.shape[3]) if initial_state_S is None else initial_state_S.mT
    y, last = chunked_scan(state, v.new_ones(B, T, H), A, v, k, scale * q, v.new_zeros(H, 1))
    return {"o": y, "final_state.S": last.mT}


serve()

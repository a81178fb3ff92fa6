"""Second-order HLA in NumPy: one token at a time, and one masked product over all tokens.

    attest check --process 'python3 gpu_checks/adapters/examples/numpy_hla2.py'
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import kernel, serve


@kernel(op="hla2", form="stream algebra=direct", contract="input=fp32 output=fp32", features="initial_state final_state")
def numpy_stream(q, k, v, decay=1.0, scale=1.0, initial_state_S=None, initial_state_C=None, initial_state_G=None):
    B, T, H, d = k.shape
    gamma = np.broadcast_to(np.float32(decay), H).reshape(1, H, 1, 1)  # [H] or one for all heads
    q = np.float32(scale) * q
    S, C, F = (np.zeros((B, H, d, n), np.float32) for n in (d, v.shape[3], v.shape[3]))
    if initial_state_S is not None:
        S, C, F = initial_state_S, initial_state_C, initial_state_S @ initial_state_C - initial_state_G
    o = np.empty(v.shape, np.float32)
    for t in range(T):
        qt, kt, vt = q[:, t, :, :, None], k[:, t, :, :, None], v[:, t, :, None, :]  # [B, H, d, 1], [B, H, 1, dv]
        S = gamma * S + kt * kt.swapaxes(2, 3)
        C = gamma * C + qt * vt
        F = gamma * gamma * F + (S @ qt) * vt
        o[:, t] = (qt.swapaxes(2, 3) @ F)[:, :, 0]
    return {"o": o, "final_state.S": S, "final_state.C": C, "final_state.G": S @ C - F}


@kernel(op="linear", form="chunk c=1048576", contract="input=bf16 product=fp32 output=bf16")
def numpy_masked(q, k, v, scale=1.0):
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (np.float32(scale) * q, k, v))
    return (np.tril(q @ k.swapaxes(2, 3)) @ v).transpose(0, 2, 1, 3)


serve()

"""NumPy: linear attention with its gradients, dq, dk and dv from the cotangent `do`.

    attest check --process 'python3 gpu_checks/adapters/examples/numpy_linear_backward.py' --battery --check gradient
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import kernel, serve


@kernel(op="linear", form="direct", contract="input=fp32 output=fp32", features="backward", limits="t=0..8192")
def numpy_linear_backward(q, k, v, scale=1.0, do=None):
    heads_first = lambda x: x.transpose(0, 2, 1, 3)
    q, k, v = heads_first(np.float32(scale) * q), heads_first(k), heads_first(v)
    weights = np.tril(q @ k.swapaxes(2, 3))  # [B, H, T, T]
    outputs = {"o": weights @ v}
    if do is not None:
        do = heads_first(do)
        dweights = np.tril(do @ v.swapaxes(2, 3))
        outputs["dq"] = np.float32(scale) * (dweights @ k)
        outputs["dk"] = dweights.swapaxes(2, 3) @ q
        outputs["dv"] = weights.swapaxes(2, 3) @ do
    return {name: heads_first(x) for name, x in outputs.items()}


serve()

"""The operators of jax-linear-attention 0.1 (package jla): chunked in JAX, and its Mosaic GPU kernels for Hopper.

    attest check --battery --time-limit 300 --process 'python gpu_checks/adapters/examples/jax_linear_attention.py'  # pip install jax-linear-attention

The Mosaic kernels take d and dv of 64 or 128: zeros beyond d and dv change no sum. JAX compiles anew for every shape.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import Unsupported, kernel, serve

fields = {"simple_gla": ("mamba2", ["g"]), "deltanet": ("delta", ["beta"]), "gated_deltanet": ("gated_delta", ["g", "beta"]),
          "log_linear_simple_gla": ("log_linear_mamba2", ["g", "level_scales"])}


def widened(x, width):
    import jax.numpy as jnp

    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])


def run(kind, impl, dtype, q, k, v, gates, scale, state, cotangents):
    import jax
    import jax.numpy as jnp
    from jla.ops import linear_attention

    if impl == "mosaic_gpu" and jax.default_backend() != "gpu":
        raise Unsupported("JAX finds no GPU")
    d, dv = k.shape[-1], v.shape[-1]
    width = [64 if n <= 64 else 128 for n in (d, dv)] if impl == "mosaic_gpu" else [d, dv]
    inputs = {name: jnp.asarray(x, dtype) for name, x in (("q", q), ("k", k), ("v", v))}
    inputs.update({name: jnp.asarray(x) for name, x in gates.items()})
    if state is not None:
        inputs["initial_state"] = jnp.asarray(state)

    def forward(x):
        x = dict(x, q=widened(x["q"], width[0]), k=widened(x["k"], width[0]), v=widened(x["v"], width[1]))
        if state is not None:
            x["initial_state"] = jnp.swapaxes(widened(jnp.swapaxes(widened(x["initial_state"], width[1]), -1, -2), width[0]), -1, -2)
        o, last = linear_attention(kind, impl=impl, scale=float(scale), output_final_state="log_linear" not in kind, **x)
        return o[..., :dv], None if last is None else last[..., :d, :dv]

    def results(x, directions):
        if directions is None:
            return forward(x), {}
        out, pull = jax.vjp(forward, x)
        directions = [jnp.zeros_like(y) if w is None else jnp.asarray(w, y.dtype) for y, w in zip(out, directions)] if out[1] is not None else [jnp.asarray(directions[0], dtype), None]
        return out, pull(tuple(directions))[0]

    (o, last), gradients = jax.jit(results)(inputs, cotangents)
    import numpy as np

    plain = lambda x: np.asarray(x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x)
    answer = {"o": plain(o)} | ({} if last is None else {"final_state.S": plain(last)})
    return answer | {"d" + name.replace("initial_state", "initial_state.S"): plain(x) for name, x in gradients.items()}


def announce(kind, impl, t):
    op, names = fields[kind]
    parameters = "".join(f"{name}, " for name in names)
    states = "" if "log_linear" in kind else "initial_state_S=None, dfinal_state_S=None, "

    def body(q, k, v, scale=1.0, do=None, initial_state_S=None, dfinal_state_S=None, **gates):
        import jax.numpy as jnp

        dtype = {"bf16": jnp.bfloat16, "fp16": jnp.float16, "fp32": jnp.float32}[t]
        wants = None if do is None and dfinal_state_S is None else (do, dfinal_state_S)
        return run(kind, impl, dtype, q, k, v, gates, scale, initial_state_S, wants)

    scope = {"body": body}
    exec(f"def f(q, k, v, {parameters}scale=1.0, {states}do=None):\n    return body(**locals())", scope)
    product = t if impl == "mosaic_gpu" else "fp32"
    kernel(op=op, form="chunk c=64", name=f"jla_{kind}.{impl}.{t}", limits="d=1..128 dv=1..128 t=1..65536",
           features="backward" + ("" if "log_linear" in kind else " initial_state final_state"),
           contract=f"input={t} product={product} accumulate=fp32 intermediate={product} state=fp32 exp=106ulp output={t}")(scope["f"])


for kind in fields:
    announce(kind, "chunked", "fp32")
    for t in ("bf16", "fp16") if "log_linear" not in kind else ():
        announce(kind, "mosaic_gpu", t)

serve()

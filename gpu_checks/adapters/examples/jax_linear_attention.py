"""The chunked operators of jax-linear-attention 0.1 (package jla), in fp32.

    attest check --battery --time-limit 300 --process 'python gpu_checks/adapters/examples/jax_linear_attention.py'

After pip install jax-linear-attention. JAX compiles anew for every shape: a battery takes ten minutes. Log-gates are
finite: of -infinity it forms differences.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import kernel, serve

contract = "input=fp32 exp=4ulp output=fp32"
limits = "d=1..128 dv=1..128 t=1..65536" + os.environ.get("JLA_GATES", " g=-10000..0")
states = "initial_state final_state backward"


def run(kind, fields, scale, cotangents, state=None):
    """Outputs and, where there are cotangents of (o, S), the gradients of all fields, named as attest names them."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jla.ops import linear_attention

    inputs = {name: jnp.asarray(x) for name, x in fields.items()}
    if state is not None:
        inputs["initial_state"] = jnp.asarray(state)

    def forward(x):
        return linear_attention(kind, impl="chunked", scale=float(scale), output_final_state="log_linear" not in kind, **x)

    def everything(x, directions):
        outputs, pull = jax.vjp(forward, x)
        if all(direction is None for direction in directions):
            return outputs, {}
        directions = [None if y is None else jnp.zeros_like(y) if w is None else w for y, w in zip(outputs, directions)]
        return outputs, pull(tuple(directions))[0]

    (o, last), gradients = jax.jit(everything)(inputs, cotangents)
    answer = {"o": o, **({} if last is None else {"final_state.S": last})}
    answer.update({"d" + name.replace("initial_state", "initial_state.S"): x for name, x in gradients.items()})
    return {name: np.asarray(x) for name, x in answer.items()}


@kernel(op="mamba2", form="chunk c=64", contract=contract, features=states, limits=limits)
def jla_simple_gla(q, k, v, g, scale=1.0, initial_state_S=None, do=None, dfinal_state_S=None):
    return run("simple_gla", {"q": q, "k": k, "v": v, "g": g}, scale, (do, dfinal_state_S), initial_state_S)


@kernel(op="gated_delta", form="chunk c=64", contract=contract, features=states, limits=limits)
def jla_gated_deltanet(q, k, v, g, beta, scale=1.0, initial_state_S=None, do=None, dfinal_state_S=None):
    return run("gated_deltanet", {"q": q, "k": k, "v": v, "g": g, "beta": beta}, scale, (do, dfinal_state_S), initial_state_S)


@kernel(op="log_linear_mamba2", form="chunk c=64", contract=contract, features="backward", limits=limits)
def jla_log_linear(q, k, v, g, level_scales, scale=1.0, do=None):
    fields = {"q": q, "k": k, "v": v, "g": g, "level_scales": level_scales}
    return run("log_linear_simple_gla", fields, scale, (do, None))


serve()

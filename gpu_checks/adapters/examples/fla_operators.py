"""The Triton operators of flash-linear-attention (0.6), in bf16, fp16 and, where they take it, fp32.

    python3 -m venv /tmp/fla && /tmp/fla/bin/pip install torch numpy flash-linear-attention==0.6.0
    attest check --time-limit 600 --battery --process '/tmp/fla/bin/python gpu_checks/adapters/examples/fla_operators.py'

The contracts are read off the kernels: operands of products are rounded to the type of q, sums and the carried state are
fp32; weights are exp2 of a rounded g log2(e), and 0 below g = -104, hence exp=106ulp. Log-gates are finite: of -infinity the
kernels form differences. Gradients are asked of them through autograd. Without the packages or a GPU: NOT RUN (77).
The argument `cpu` with TRITON_INTERPRET=1 runs Triton's interpreter, for what it can carry.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from attest_adapter import Unsupported, kernel, serve

fp32_products = {"ieee": "fp32"}.get(os.environ.setdefault("TRITON_F32_DEFAULT", "ieee"), "tf32")  # tf32 where nobody says
device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
sizes = "d=1..256 dv=1..256 t=1..131071" + os.environ.get("FLA_GATES", " g=-10000..0")
features = "varlen initial_state final_state backward"


def every_type(op, form, features, types=("bf16", "fp16", "fp32"), gates="fp32", more=""):
    def register(function):
        for t in types:
            gate, ulp = (t, 1) if gates == "input" and t != "fp32" else ("fp32", 106)
            product = fp32_products if t == "fp32" else t
            contract = (f"input={t} product={product} accumulate=fp32 intermediate={t} state=fp32 gate_sum={gate}/chunk "
                        f"exp={ulp}ulp{more} output={t}")
            kernel(op=op, form=form, contract=contract, features=features, limits=sizes,
                   name=f"{function.__name__}.{t}", device=device)(function)
        return function
    return register


def widened(x, width):
    import torch

    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))


def even(q, k, v, state):
    """The backward kernels refuse odd d and dv in bf16 and fp16: zeros beyond them change no sum."""
    d, dv = (n + n % 2 if q.requires_grad and q.element_size() == 2 else n for n in (k.shape[-1], v.shape[-1]))
    if state is not None:
        state = widened(widened(state, dv).mT, d).mT
    return widened(q, d), widened(k, d), widened(v, dv), state


def differentiable(q):
    """Raises Unsupported where the package refuses gated gradients (Triton 3.4 to 3.7.0 on Hopper); FLA_ANYWAY=1 has it go on."""
    from fla.ops.common import chunk_o

    if q.requires_grad and chunk_o.IS_NVIDIA_HOPPER and chunk_o.TRITON_ABOVE_3_4_0 and not chunk_o.TRITON_ABOVE_3_7_1:
        if os.environ.get("FLA_ANYWAY") != "1":
            raise Unsupported("flash-linear-attention refuses gradients of gates with this Triton on Hopper (its issue 640)")
        chunk_o.TRITON_ABOVE_3_7_1 = True


def narrowed(o, state, k, v):
    return {"o": o[..., :v.shape[-1]], "final_state.S": state[..., :k.shape[-1], :v.shape[-1]]}


def with_heads(q, k, v, heads):
    """These operators let q and k together have fewer heads than v; any other sharing is repeated before."""
    if q.shape[2] == k.shape[2] and v.shape[2] == heads:
        return q, k, v
    return [x.repeat_interleave(heads // x.shape[2], dim=2) for x in (q, k, v)]


@every_type("linear", "chunk c=64", features)
def fla_linear(q, k, v, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from fla.ops.linear_attn import chunk_linear_attn

    wide = even(q, k, v, initial_state_S)
    o, state = chunk_linear_attn(*wide[:3], scale=scale, initial_state=wide[3], output_final_state=True,
                                 normalize=False, cu_seqlens=cu_seqlens)
    return narrowed(o, state, k, v)


@every_type("retention", "chunk c=64", features)
def fla_retention(q, k, v, scale=1.0, decay=1.0, initial_state_S=None, cu_seqlens=None):
    import torch
    from fla.ops.simple_gla import chunk_simple_gla  # what chunk_retention calls, with decays of its own

    if not torch.as_tensor(decay).all():
        raise Unsupported("a decay of 0 has no finite logarithm")
    log_decay = torch.as_tensor(decay, dtype=torch.float64, device=q.device).expand(v.shape[2]).log().float()
    wide = even(q, k, v, initial_state_S)
    o, state = chunk_simple_gla(*wide[:3], g_gamma=log_decay, scale=scale, initial_state=wide[3],
                                output_final_state=True, cu_seqlens=cu_seqlens)
    return narrowed(o, state, k, v)


@every_type("mamba2", "chunk c=64", features)
def fla_simple_gla(q, k, v, g, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from fla.ops.simple_gla import chunk_simple_gla

    differentiable(q)
    wide = even(q, k, v, initial_state_S)
    o, state = chunk_simple_gla(*wide[:3], g=g, scale=scale, initial_state=wide[3], output_final_state=True,
                                cu_seqlens=cu_seqlens)
    return narrowed(o, state, k, v)


@every_type("delta", "chunk c=64", features, types=("bf16", "fp16"), more=" inverse=substitution")
def fla_delta_rule(q, k, v, beta, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from fla.ops.delta_rule import chunk_delta_rule

    wide = even(q, k, v, initial_state_S)
    o, state = chunk_delta_rule(*wide[:3], beta, scale=scale, initial_state=wide[3], output_final_state=True,
                                cu_seqlens=cu_seqlens)
    return narrowed(o, state, k, v)


@every_type("gated_delta", "chunk c=64", features + " grouped", more=" inverse=substitution")
def fla_gated_delta_rule(q, k, v, g, beta, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    differentiable(q)
    q, k, v = with_heads(q, k, v, g.shape[2])
    wide = even(q, k, v, initial_state_S)
    o, state = chunk_gated_delta_rule(*wide[:3], g, beta, scale=scale, initial_state=wide[3],
                                      output_final_state=True, cu_seqlens=cu_seqlens)
    return narrowed(o, state, k, v)


# The kernel multiplies weights by level scales in the type of q, and wants d a multiple of 64 and dv a power of two: zeros
# beyond d and dv change no sum. Level scales are asked for in that type; gates it takes in fp32.
@every_type("log_linear_mamba2", "chunk c=64", "varlen grouped backward", gates="input")
def fla_log_linear(q, k, v, g, level_scales, scale=1.0, cu_seqlens=None):
    from fla.ops.log_linear_attn import chunk_log_linear_attn

    q, k, v = with_heads(q, k, v, g.shape[2])
    width, value_width = -(-q.shape[-1] // 64) * 64, max(16, 1 << (v.shape[-1] - 1).bit_length())
    o, _ = chunk_log_linear_attn(widened(q, width), widened(k, width), widened(v, value_width), g.float(), level_scales,
                                 cu_seqlens=cu_seqlens, scale=scale)
    return o[..., :v.shape[-1]]


# Token by token, as in decoding: products of fp32 values.
def every_recurrent_type(op, features):
    def register(function):
        for t in ("bf16", "fp16", "fp32"):
            kernel(op=op, form="stream", contract=f"input={t} gate_sum=fp32/chunk exp=2ulp output={t}", features=features,
                   limits=sizes, name=f"{function.__name__}.{t}", device=device)(function)
        return function
    return register


@every_recurrent_type("mamba2", "varlen initial_state final_state")
def fla_recurrent_simple_gla(q, k, v, g, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from fla.ops.simple_gla import fused_recurrent_simple_gla

    o, state = fused_recurrent_simple_gla(q, k, v, g=g, scale=scale, initial_state=initial_state_S,
                                          output_final_state=True, cu_seqlens=cu_seqlens)
    return {"o": o, "final_state.S": state}


@every_recurrent_type("gated_delta", "varlen initial_state final_state grouped")
def fla_recurrent_gated_delta_rule(q, k, v, g, beta, scale=1.0, initial_state_S=None, cu_seqlens=None):
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    q, k, v = with_heads(q, k, v, g.shape[2])
    o, state = fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta, scale=scale, initial_state=initial_state_S,
                                                output_final_state=True, cu_seqlens=cu_seqlens)
    return {"o": o, "final_state.S": state}


serve()

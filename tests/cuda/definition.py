"""The operators written down a second time, in PyTorch and fp64, to decide whether a kernel or its judge is wrong.

    attest check --battery --process 'python3 tests/cuda/definition.py'       # the judge and this file agree

One token after the other, S [B, H, d, dv], o_t = scale q_t^T S_t:
    linear       S += k v^T             retention   S = decay S + k v^T        mamba2  S = exp(g) S + k v^T
    delta        S += beta k (v - S^T k)^T          gated_delta  S = exp(g) S first
    log_linear_mamba2  S_0 = k v^T, a state a level; at token t with z trailing zero bits S_0 .. S_z join as S_(z+1)
    softmax      weights exp(scale q k) over s <= t, divided by their sum
"""
import inspect
import os
import sys


def join_levels(states, t):
    """Before token t > 0: the blocks that end with token t - 1 and are smaller than the next one become that one."""
    joined = (t & -t).bit_length()  # z + 1
    total = sum(states[1:joined], states[0])
    zero = total * 0
    return [zero] * joined + [total] + states[joined + 1:]


def one_sequence(op, x, scale, decay, state):
    """x: fields [B, T, H, ...] in fp64. Returns o and the last S."""
    import torch

    q, k, v = x["q"], x["k"], x["v"]
    heads = max(y.shape[2] for y in x.values())  # q, k and v may share theirs
    q, k, v = (y.repeat_interleave(heads // y.shape[2], dim=2) for y in (q, k, v))
    B, T, H, d = k.shape
    if scale is None:
        scale = d**-0.5 if op == "softmax" else 1.0
    if op == "softmax":
        mask = torch.ones(T, T, dtype=torch.bool, device=q.device).tril()
        scores = (scale * torch.einsum("bthd,bshd->bhts", q, k)).masked_fill(~mask, float("-inf"))
        return torch.einsum("bhts,bshe->bthe", scores.softmax(-1), v), None
    S = state if state is not None else v.new_zeros(B, H, d, v.shape[3])
    levels = [S] * x["level_scales"].shape[3] if "level_scales" in x else None
    rows = []
    for t in range(T):
        qt, kt, vt = scale * q[:, t], k[:, t], v[:, t]
        fade = x["g"][:, t].exp()[..., None, None] if "g" in x else decay[:, None, None] if op == "retention" else None
        if levels is not None:
            levels = [fade * level for level in (join_levels(levels, t) if t else levels)]
            levels[0] = kt[..., :, None] * vt[..., None, :]
            lam = x["level_scales"][:, t]
            S = sum(lam[..., i, None, None] * level for i, level in enumerate(levels[:t.bit_length() + 1]))
        else:
            S = S if fade is None else fade * S
            if "delta" in op:
                vt = x["beta"][:, t, :, None] * (vt - torch.einsum("bhde,bhd->bhe", S, kt))
            S = S + kt[..., :, None] * vt[..., None, :]
        rows.append(torch.einsum("bhd,bhde->bhe", qt, S))
    return torch.stack(rows, 1) if rows else v * 0, S


def definition(op, q, k, v, g=None, beta=None, level_scales=None, scale=None, decay=1.0, initial_state_S=None,
               cu_seqlens=None):
    """{"o": ..., "final_state.S": ...} in fp64, differentiable."""
    import torch

    x = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "level_scales": level_scales}
    x = {name: value.double() for name, value in x.items() if value is not None}
    decay = torch.as_tensor(decay, dtype=torch.float64, device=q.device).expand(max(y.shape[2] for y in x.values()))
    state = None if initial_state_S is None else initial_state_S.double()
    if cu_seqlens is None:
        o, S = one_sequence(op, x, scale, decay, state)
        return {"o": o, "final_state.S": S}
    ends, parts = cu_seqlens.tolist(), []
    for i, (begin, end) in enumerate(zip(ends, ends[1:])):
        part = {name: value[:, begin:end] for name, value in x.items()}
        parts.append(one_sequence(op, part, scale, decay, None if state is None else state[i:i + 1]))
    return {"o": torch.cat([o for o, _ in parts], 1), "final_state.S": torch.cat([S for _, S in parts])}  # softmax is not packed


def main():
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "gpu_checks", "adapters"))
    from attest_adapter import kernel, serve

    contract = "input=fp64 product=fp64 accumulate=fp64 intermediate=fp64 state=fp64 gate_sum=fp64/chunk exp=2ulp output=fp64"
    states = "varlen initial_state final_state "
    rows = {"linear": states, "retention": states, "mamba2": states, "delta": states, "gated_delta": states + "grouped ",
            "log_linear_mamba2": "varlen grouped ", "softmax": ""}
    gates = {"mamba2": "g", "gated_delta": "g beta", "delta": "beta", "log_linear_mamba2": "g level_scales", "retention": "decay"}
    for op, features in rows.items():
        def run(op=op, **fields):
            return definition(op, **fields)

        taken = f"q k v scale initial_state_S cu_seqlens {gates.get(op, '')}".split()
        run.__signature__ = inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in taken])
        kernel(op=op, form="stream", contract=contract, features=features + "backward", limits="t=0..4096",
               name=f"definition.{op}", device="cpu")(run)
    serve()


if __name__ == "__main__":
    main()

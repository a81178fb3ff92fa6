"""What reports/baseline/third_party_h200.md says failed, asked once more by plain calls, without attest.

    PYTHONPATH=FOLDER_WITH_THE_PACKAGES python3 tests/cuda/third_party_calls.py

flash-linear-attention 0.6.0 and lightning_attn 0.0.5, on a GPU; 77 without one. Gradients are compared with definition.py.
"""
import math
import sys

from needed import torch_on_a_gpu


def attempt(name, call):
    import torch

    try:
        print(name, call(), flush=True)
        torch.cuda.synchronize()
    except Exception as error:
        print(name, f"{type(error).__name__}: {str(error).splitlines()[0]}", flush=True)


def full(shape, value, dtype="float32"):
    import torch

    return torch.full(shape, value, device="cuda", dtype=getattr(torch, dtype))


def faded_state(dtype):
    from fla.ops.simple_gla import chunk_simple_gla

    q, k, v = (full((1, 2, 1, 16), 0, dtype) for _ in range(3))
    k[0, 0, 0, 0], v[0, 0, 0, 0] = 1024, 2.0**-10
    g = full((1, 2, 1), 0)
    g[0, 1, 0] = -8
    return chunk_simple_gla(q, k, v, g=g, scale=1.0, output_final_state=True)[1][0, 0, 0, 0].item(), "expected", math.exp(-8)


def minus_infinity(tokens):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.simple_gla import chunk_simple_gla

    ones, g, beta = full((1, tokens, 1, 16), 1, "bfloat16"), full((1, tokens, 1), 0), full((1, tokens, 1), 1)
    g[0, 0, 0] = -math.inf
    outputs = (chunk_simple_gla(ones, ones, ones, g=g, scale=1.0)[0],
               chunk_gated_delta_rule(ones, ones / 4, ones, g, beta, scale=1.0)[0])
    return [o[0, :, 0, 0].tolist() for o in outputs]


def one_product(call):
    numbers = [float.fromhex(x) for x in ("-0x1.f0df5ep-1", "0x1.623f34p+1", "0x1.887dbp-1")]
    tensors = [full((1, 1, 1, 32), 0) for _ in numbers]
    for tensor, number in zip(tensors, numbers):
        tensor[..., 0] = number
    return call(*tensors)[0, 0, 0, 0].item(), "expected", math.prod(numbers)


def gradient_errors(op, d):
    import torch
    from definition import definition
    from fla.ops.common import chunk_o
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.simple_gla import chunk_simple_gla

    chunk_o.TRITON_ABOVE_3_7_1 = True  # takes the package's own refusal away
    call = {"mamba2": lambda q, k, v, g: chunk_simple_gla(q, k, v, g=g, scale=1.0)[0],
            "gated_delta": lambda q, k, v, g, beta: chunk_gated_delta_rule(q, k, v, g, beta, scale=1.0)[0]}[op]
    torch.manual_seed(1)
    x = {name: torch.randn(1, 256, 2, d, device="cuda").bfloat16() for name in "qkv"}
    x["k"] = torch.nn.functional.normalize(x["k"].float(), dim=-1).bfloat16()
    x["g"] = -0.2 * torch.rand(1, 256, 2, device="cuda")
    if op == "gated_delta":
        x["beta"] = torch.rand(1, 256, 2, device="cuda")
    do = torch.randn(1, 256, 2, d, device="cuda").bfloat16()

    def gradients(function, convert):
        inputs = {name: convert(value).detach().requires_grad_() for name, value in x.items()}
        return torch.autograd.grad(function(**inputs), list(inputs.values()), convert(do))

    pairs = zip(x, gradients(call, lambda t: t), gradients(lambda **z: definition(op, **z)["o"], lambda t: t.double()))
    return " ".join(f"d{name} {((got.double() - right).norm() / right.norm()).item():.1e}" for name, got, right in pairs)


def main():
    if not torch_on_a_gpu():
        return 77
    from fla.ops.linear_attn import chunk_linear_attn
    from lightning_attn.ops import lightning_attn_func

    for dtype in ("float16", "bfloat16", "float32"):
        attempt(f"state of a faded value, {dtype}:", lambda: faded_state(dtype))
    for tokens in (1, 2):
        attempt(f"g = -infinity at the first of {tokens}:", lambda: minus_infinity(tokens))
    heads_first = lambda x: x.transpose(1, 2)
    attempt("lightning, one product in fp32:", lambda: one_product(
        lambda q, k, v: lightning_attn_func(*map(heads_first, (q, k, v)), full((1, 1, 1), 0))))
    attempt("linear attention, one product in fp32:", lambda: one_product(
        lambda q, k, v: chunk_linear_attn(q, k, v, scale=1.0, normalize=False)[0]))
    ones = full((1, 1, 4, 32), 1, "bfloat16")
    attempt("lightning without a decay:", lambda: lightning_attn_func(ones, ones, ones).shape)
    for op in ("mamba2", "gated_delta"):
        for d in (16, 64, 128):
            attempt(f"gradients of {op}, d = {d}:", lambda: gradient_errors(op, d))
    for count in (65535, 65536):
        ones = full((count, 1, 1, 16), 1, "bfloat16")
        attempt(f"linear attention, B H = {count}:",
                lambda: chunk_linear_attn(ones, ones, ones, scale=1.0, normalize=False)[0].mean().item())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The CUDA kernels beside flash-linear-attention (0.6) and PyTorch's flash attention: times and errors on the same tensors.

    python3 tests/cuda/peers.py build-cuda/libattest_cuda_kernels.so [T,T,... [OPERATOR,...]]

on a GPU, with PyTorch and flash-linear-attention. bf16, H = 16, d = dv = 128, forward. Of HLA, which it does not have,
flash-linear-attention runs the composition of its simple GLA (two calls, three of the third order); its kernels are tuned
anew for every T, its level scales are in bf16, as it wants them. Errors are against the definition in fp64 at T = 2048:
|error| / |o| over the tensor, and the largest in a row over the root mean square of that row. Prints Markdown tables; 77
without a GPU."""
import gc
import math
import statistics
import sys

from needed import torch_on_a_gpu

DECAY = 0.999
WORDS = {"linear": [], "mamba2": ["g"], "ahla": [], "hla2": [], "hla3": [], "gated_delta": ["g", "beta"],
         "log_linear_mamba2": ["g", "level_scales"], "log_linear_gated_delta": ["g", "beta", "level_scales"]}


def median_ms(torch, call, repeats):
    for _ in range(2):
        call()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def draw(torch, op, tokens, heads):
    torch.manual_seed(1)
    d = 128
    x = {name: torch.randn(1, tokens, heads, d, device="cuda") for name in "qkv"}
    x["q"], x["k"] = x["q"] * d**-0.25, x["k"] * d**-0.25
    if "delta" in op:
        x["k"] = torch.nn.functional.normalize(x["k"], dim=-1)
    x = {name: value.bfloat16() for name, value in x.items()}
    uniform = lambda *shape: torch.rand(1, tokens, heads, *shape, device="cuda")
    if "g" in WORDS[op]:
        x["g"] = -0.2 * uniform()
    if "beta" in WORDS[op]:
        x["beta"] = uniform()
    if "level_scales" in WORDS[op]:
        x["level_scales"] = 0.2 + 0.8 * uniform((tokens - 1).bit_length() + 1)
    return x


def definition(torch, op, x, decay):
    """In fp64, [H, T, T] weights: inclusive masked sums; the delta rules by one triangular inverse of the whole sequence."""
    q, k, v = (x[name][0].double().transpose(0, 1) for name in "qkv")
    tokens = q.shape[1]
    mask = torch.ones(tokens, tokens, device="cuda", dtype=torch.bool).tril()
    log = x["g"][0].double().T if "g" in x else torch.full(q.shape[:2], math.log(decay), device="cuda").double()
    total = log.cumsum(1)
    fade = lambda power=1: torch.where(mask, torch.exp(power * (total[:, :, None] - total[:, None, :])), 0.0)
    lin = lambda a, b, c, power=1: ((a @ b.mT) * fade(power)) @ c
    if op == "ahla":
        return lin(q, k, lin(q, k, v))
    if op == "hla2":
        return lin(q, lin(q, k, k), v, 2)
    if op == "hla3":
        return lin(q, lin(q, k, k), lin(q, k, v), 3)
    weights = (q @ k.mT) * fade()
    if "beta" in x:
        beta = x["beta"][0].double().T
        n = torch.eye(tokens, device="cuda").double() + ((beta[:, :, None] * (k @ k.mT)) * fade()).tril(-1)
        weights = torch.linalg.solve_triangular(n, weights, upper=False, left=False, unitriangular=True) * beta[:, None]
    if "level_scales" in x:
        t = torch.arange(tokens, device="cuda")
        level = torch.frexp((t[:, None] ^ t[None, :]).double()).exponent.long()  # bit_length, 0 of 0
        weights = weights * x["level_scales"][0].double().transpose(0, 1).gather(2, level.expand(len(q), -1, -1))
    return weights @ v


def errors(o, expected):
    e = o[0].double().transpose(0, 1) - expected
    worst = (e.abs().amax(-1) / expected.square().mean(-1).sqrt()).max()
    return (e.norm() / expected.norm()).item(), worst.item()


def flash_linear(torch, op, x, decay):
    """The same operator with flash-linear-attention; None where it has none."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.log_linear_attn import chunk_log_linear_attn
    from fla.ops.simple_gla import chunk_simple_gla

    q, k, v = x["q"], x["k"], x["v"]
    log = torch.full(q.shape[:3], math.log(decay), device="cuda") if decay != 1 else None
    gla = lambda a, b, c, power=1, g=log: chunk_simple_gla(a, b, c, g=None if g is None else power * g, scale=1.0)[0]
    calls = {
        "linear": lambda: gla(q, k, v),
        "mamba2": lambda: gla(q, k, v, g=x["g"]),
        "ahla": lambda: gla(q, k, gla(q, k, v)),
        "hla2": lambda: gla(q, gla(q, k, k), v, 2),
        "hla3": lambda: gla(q, gla(q, k, k), gla(q, k, v), 3),
        "gated_delta": lambda: chunk_gated_delta_rule(q, k, v, x["g"], x["beta"], scale=1.0)[0],
        "log_linear_mamba2": lambda: chunk_log_linear_attn(q, k, v, x["g"], scales, scale=1.0)[0],
    }
    scales = x["level_scales"].to(q.dtype) if "level_scales" in x else None  # it multiplies weights in that type by them
    return calls.get(op)


def forget_tuning():
    """Triton keeps the configuration that was best at the first length it met."""
    from triton.runtime.autotuner import Autotuner

    for tuner in [x for x in gc.get_objects() if isinstance(x, Autotuner)]:
        tuner.cache.clear()


def reason(error):
    return f"not run: {type(error).__name__}: {str(error).splitlines()[0][:90] if str(error) else ''}"


def title(op, decay):
    return op + ("" if "hla" not in op else f" (decay {DECAY})" if decay != 1 else " (no decay)")


def print_errors(torch, library, rows):
    print("\n| kernel, T = 2048, H = 16 | rms | worst | FLA rms | FLA worst |\n| --- | ---: | ---: | ---: | ---: |")
    for op, decay in rows:
        x = draw(torch, op, 2048, 16)
        options = {"decay": decay} if decay != 1 else {}
        expected = definition(torch, op, x, decay)
        cells = ["%.2e | %.2e" % errors(library.prepare(f"cuda.{op}.masked.bf16", x, **options)(), expected)]
        try:
            peer = flash_linear(torch, op, x, decay)
            cells.append("%.2e | %.2e" % errors(peer(), expected) if peer else "none | none")
        except Exception as error:  # what the peer does not take is its row, not the end of the table
            cells.append(reason(error) + " |")
        print("| " + " | ".join([title(op, decay)] + cells) + " |", flush=True)


def print_times(torch, library, rows, tokens):
    q, k, v = (torch.randn(1, 16, tokens, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        sdpa = median_ms(torch, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
                         15 if tokens < 100000 else 3)
    del q, k, v
    print(f"\n| kernel, T = {tokens}, H = 16 | ms | FLA ms | of FLA's time | flash SDPA ms |\n"
          "| --- | ---: | ---: | ---: | ---: |")
    for op, decay in rows:
        x = draw(torch, op, tokens, 16)
        run = library.prepare(f"cuda.{op}.masked.bf16", x, **({"decay": decay} if decay != 1 else {}))
        own, ratio = median_ms(torch, run, 15), ""
        del run
        try:
            peer = flash_linear(torch, op, x, decay)
            with torch.no_grad():
                other = median_ms(torch, peer, 15) if peer else None
            text, ratio = ("%.4f" % other, "%.0f %%" % (100 * own / other)) if peer else ("none", "")
        except Exception as error:
            text = reason(error)
        print(f"| {title(op, decay)} | {own:.4f} | {text} | {ratio} | {sdpa:.4f} |", flush=True)


def main():
    torch = torch_on_a_gpu()
    if not torch:
        return 77
    from cuda_library import Library

    library = Library(sys.argv[1])
    lengths = [int(t) for t in sys.argv[2].split(",")] if len(sys.argv) > 2 else [4096, 8192, 16384, 131072]
    operators = sys.argv[3].split(",") if len(sys.argv) > 3 else WORDS
    rows = [(op, decay) for op in operators for decay in ((1, DECAY) if "hla" in op else (1,))]
    for tokens in lengths:
        forget_tuning()
        print_times(torch, library, rows, tokens)
    print_errors(torch, library, rows)

    a = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    b = torch.empty_like(a)
    ms = median_ms(torch, lambda: b.copy_(a), 15)
    print(f"\ncopy {2 * a.numel() * 2 / ms / 1e9:.2f} TB/s", end=", ")
    m = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    ms = median_ms(torch, lambda: m @ m, 15)
    print(f"bf16 product of 8192 {2 * 8192**3 / ms / 1e9:.0f} TFLOP/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

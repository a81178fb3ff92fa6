"""Times PyTorch's scaled_dot_product_attention and the device's two ceilings beside the CUDA kernels' own times.

Run on the device after `./dev cuda time`: python3 tests/cuda/peers.py. Prints a Markdown table; 77 without a GPU."""
import statistics
import sys


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


def main():
    try:
        import torch
    except ImportError:
        print("not run: no PyTorch")
        return 77
    if not torch.cuda.is_available():
        print("not run: no GPU")
        return 77
    print("| peer | T | ms |\n| --- | ---: | ---: |")
    for tokens in (4096, 8192, 16384, 131072):
        q, k, v = (torch.randn(1, 16, tokens, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            ms = median_ms(torch, lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
                           15 if tokens < 100000 else 3)
        print(f"| flash SDPA, causal | {tokens} | {ms:.4f} |", flush=True)
    a = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    b = torch.empty_like(a)
    ms = median_ms(torch, lambda: b.copy_(a), 15)
    print(f"| copy, {2 * a.numel() * 2 / ms / 1e9:.2f} TB/s | | {ms:.4f} |")
    m = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    ms = median_ms(torch, lambda: m @ m, 15)
    print(f"| bf16 product 8192, {2 * 8192**3 / ms / 1e9:.0f} TFLOP/s | | {ms:.4f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What two third-party kernels round, done in NumPy on the CPU, to tell a fault from a contract that does not fit.

    attest check --battery --check '[vp]*' --seed 1 --process 'python3 tests/cuda/rounding_models.py'

values_faded, keys_faded   mamba2 in fp16, chunks of 64, w = e^(G_last - G): S <- e^G_last S + k^T fp16(w v), or fp16(w k)^T v
delta.values_faded, delta.keys_faded   the same of gated_delta
inverse_truncated, inverse_fp32   gated_delta in fp32: blocks of 16 of (I + L)^-1 joined by products cut to tf32, or not cut
products_truncated, products_rounded   retention in fp32 (and .fp16, of fp16 tensors): operands of products cut to tf32's 11 bits, or rounded to the nearest
reports/baseline/third_party_h200.md says what each of them shows.
"""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "gpu_checks", "adapters"))
from attest_adapter import kernel, serve

CHUNK = 64


def heads_of(tensors):
    """Every (batch entry, head) of [B, T, H, ...] arrays as fp32, with its place."""
    B, _, H = tensors[0].shape[:3]
    for b, h in np.ndindex(B, H):
        yield (b, h), [np.float32(x[b, :, h]) for x in tensors]


def gated_chunks(q, k, v, g, scale, fade_values):
    half = lambda x: np.float32(np.float16(x))
    o = np.zeros(v.shape, np.float16)
    states = np.zeros((v.shape[0], v.shape[2], k.shape[3], v.shape[3]), np.float32)
    for (b, h), (Q, K, V, gates) in heads_of([q, k, v, g]):
        S = states[b, h]
        for begin in range(0, len(Q), CHUNK):
            rows = slice(begin, begin + CHUNK)
            G = np.cumsum(gates[rows], dtype=np.float32) * np.float32(np.log2(np.e))
            weights = np.tril((Q[rows] @ K[rows].T) * np.exp2(np.minimum(G[:, None] - G, 0)))
            o[b, rows, h] = scale * ((Q[rows] @ half(S)) * np.exp2(G)[:, None] + half(weights) @ V[rows])
            fade = np.exp2(G[-1] - G)[:, None]
            added = K[rows].T @ half(V[rows] * fade) if fade_values else half(K[rows] * fade).T @ V[rows]
            S[:] = np.exp2(G[-1]) * S + added
    return {"o": o, "final_state.S": states}


def chunks_of(fields, states):
    """The chunks of every head of q, k, v, g, beta: where o goes, the state, q, k, v, beta, sums of gates, decays between tokens."""
    for (b, h), (Q, K, V, gates, betas) in heads_of(fields):
        for begin in range(0, len(Q), CHUNK):
            rows = slice(begin, begin + CHUNK)
            G = np.cumsum(gates[rows], dtype=np.float32) * np.float32(np.log2(np.e))
            yield (b, rows, h), states[b, h], Q[rows], K[rows], V[rows], betas[rows, None], G, np.exp2(np.minimum(G[:, None] - G, 0))


def states_from(initial, k, v):
    return np.zeros((v.shape[0], v.shape[2], k.shape[3], v.shape[3]), np.float32) if initial is None else np.array(initial)


def delta_chunks(q, k, v, g, beta, scale, initial, fade_values):
    half = lambda x: np.float32(np.float16(x))
    o = np.zeros(v.shape, np.float16)
    states = states_from(initial, k, v)
    for at, S, Qc, Kc, Vc, B, G, decay in chunks_of([q, k, v, g, beta], states):
        inverse = half(np.linalg.inv(np.eye(len(Kc)) + np.tril(B * (Kc @ Kc.T) * decay, -1)))
        state = half(S)
        new = inverse @ half(B * Vc)
        new = half(new) - half(inverse @ half(B * Kc * np.exp2(G)[:, None])) @ state
        o[at] = scale * ((Qc @ state) * np.exp2(G)[:, None] + half(np.tril((Qc @ Kc.T) * decay)) @ half(new))
        fade = np.exp2(G[-1] - G)[:, None]
        added = Kc.T @ half(new * fade) if fade_values else half(Kc * fade).T @ half(new)
        S[:] = np.exp2(G[-1]) * S + added
    return {"o": o, "final_state.S": states}


def cut(x):
    """The 11 leading bits of fp32 numbers."""
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def rounded(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0xFFF) + ((bits >> 13) & 1)).astype(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def joined_inverse(lower, operand):
    """(I + lower)^-1: blocks of 16 on the diagonal in fp32, the others from them by products of `operand`s, diagonal by diagonal."""
    size, product = len(lower), lambda a, b: (operand(a).astype(np.float64) @ operand(b).astype(np.float64)).astype(np.float32)
    block = lambda i: slice(16 * i, min(16 * i + 16, size))
    inverse = np.zeros_like(lower)
    blocks = range(-(-size // 16))
    for i in blocks:
        for row in range(size)[block(i)]:
            inverse[row, row] = 1
            inverse[row, block(i)] -= lower[row, block(i)] @ inverse[block(i), block(i)]
    for away in blocks[1:]:
        for i in blocks[away:]:
            j = i - away
            between = sum(product(lower[block(i), block(m)], inverse[block(m), block(j)]) for m in range(j, i))
            inverse[block(i), block(j)] = -product(inverse[block(i), block(i)], between)
    return inverse


def delta_fp32(q, k, v, g, beta, scale, initial, operand):
    o = np.zeros(v.shape, np.float32)
    states = states_from(initial, k, v)
    for at, S, Qc, Kc, Vc, B, G, decay in chunks_of([q, k, v, g, beta], states):
        inverse = joined_inverse(np.tril(B * (Kc @ Kc.T) * decay, -1), operand)
        new = inverse @ (B * Vc) - (inverse @ (B * Kc * np.exp2(G)[:, None])) @ S
        o[at] = scale * ((Qc @ S) * np.exp2(G)[:, None] + np.tril((Qc @ Kc.T) * decay) @ new)
        S[:] = np.exp2(G[-1]) * S + (Kc * np.exp2(G[-1] - G)[:, None]).T @ new
    return {"o": o, "final_state.S": states}


def retention(q, k, v, scale, decay, operand):
    product = lambda a, b: np.float32(operand(a).astype(np.float64) @ operand(b).astype(np.float64))
    o = np.zeros(v.shape, v.dtype)
    slopes = np.float32(-np.log(np.broadcast_to(np.float64(decay), v.shape[2])))
    place = np.arange(CHUNK, dtype=np.float32)[:, None]
    for (b, h), (Q, K, V) in heads_of([np.float32(scale) * q, k, v]):
        S = np.zeros((K.shape[1], V.shape[1]), np.float32)
        fade = np.tril(np.exp(-slopes[h] * np.maximum(place - place.T, 0)))
        for begin in range(0, len(Q), CHUNK):
            rows = slice(begin, begin + CHUNK)
            short = CHUNK - len(Q[rows])
            Qc, Kc, Vc = (np.pad(x[rows], ((0, short), (0, 0))) for x in (Q, K, V))
            chunk = product(product(Qc, Kc.T) * fade, Vc) + product(Qc, S) * np.exp(-slopes[h] * place)
            o[b, rows, h] = chunk[: CHUNK - short]
            S = np.exp(-slopes[h] * CHUNK) * S + product((Kc * np.exp(-slopes[h] * (CHUNK - place))).T, Vc)
    return o


def announce_gated(name, fade_values):
    def run(q, k, v, g, scale=1.0):
        return gated_chunks(q, k, v, g, scale, fade_values)

    kernel(op="mamba2", form="chunk c=64", features="final_state", limits="d=1..256 dv=1..256 t=1..131071 g=-10000..0", name=name,
           contract="input=fp16 product=fp16 accumulate=fp32 intermediate=fp16 gate_sum=fp32/chunk exp=106ulp output=fp16")(run)


def announce_delta(name, fade_values):
    def run(q, k, v, g, beta, scale=1.0, initial_state_S=None):
        return delta_chunks(q, k, v, g, beta, scale, initial_state_S, fade_values)

    kernel(op="gated_delta", form="chunk c=64", features="initial_state final_state", name=name,
           limits="d=1..256 dv=1..256 t=1..131071 g=-10000..0",
           contract="input=fp16 product=fp16 accumulate=fp32 intermediate=fp16 gate_sum=fp32/chunk exp=106ulp output=fp16")(run)


def announce_delta_fp32(name, operand):
    def run(q, k, v, g, beta, scale=1.0, initial_state_S=None):
        return delta_fp32(q, k, v, g, beta, scale, initial_state_S, operand)

    kernel(op="gated_delta", form="chunk c=64", features="initial_state final_state", name=name,
           limits="d=1..256 dv=1..256 t=1..131071 g=-10000..0",
           contract="input=fp32 product=fp32 accumulate=fp32 intermediate=fp32 state=fp32 gate_sum=fp32/chunk exp=106ulp output=fp32")(run)


def announce_retention(name, operand, type, product):
    def run(q, k, v, scale=1.0, decay=1.0):
        return retention(q, k, v, scale, decay, operand)

    kernel(op="retention", form="chunk c=64", limits="d=32,64,128 dv=32..128 t=1..65536", name=name,
           contract=f"input={type} product={product} accumulate=fp32 intermediate={type} exp=106ulp output={type}")(run)


announce_gated("values_faded", True)
announce_gated("keys_faded", False)
announce_delta("delta.values_faded", True)
announce_delta("delta.keys_faded", False)
announce_delta_fp32("inverse_truncated", cut)
announce_delta_fp32("inverse_fp32", np.asarray)
for suffix, type, product in (("", "fp32", "tf32"), (".fp16", "fp16", "fp16")):
    announce_retention("products_truncated" + suffix, cut, type, product)
    announce_retention("products_rounded" + suffix, rounded, type, product)
serve()

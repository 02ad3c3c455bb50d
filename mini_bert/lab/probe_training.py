"""The probe of the vectors room: trained beforehand, and shipped as probe.safetensors and probe.json.

    python -m mini_bert.lab.probe_training          writes both; a test says when that is necessary

For the embeddings and for the output of each block of Mini-BERT, a linear classifier learns the parts of speech of
1,000 sentences of the built-in grammar (`mini-bert data labelled --kind parsed`), as `mini-bert probe pos` does:

    scores = x W + b            x (N,H) a word's vector; W (H,K)

Vectors are standardised for training; here that is part of W and b, so that the room can use vectors as they are.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.common.atomic import write_atomic
from mini_bert.files.model_folder import write_tensors
from mini_bert.inference.loading import load
from mini_bert.models.base import Model
from mini_bert.probing.data import read
from mini_bert.probing.label_probe import L2
from mini_bert.probing.probe import probe
from mini_bert.probing.softmax_regression import fit
from mini_bert.probing.word_vectors import word_vectors

WEIGHTS, ABOUT = (Path(__file__).parent / f"probe.{kind}" for kind in ("safetensors", "json"))


def fingerprint(model: Model) -> str:
    """Of the beginning of every tensor; it tells whether a probe belongs to a model."""
    tensors = model.named_params().values()
    return hashlib.sha256(b"".join(param.data.ravel()[:64].astype("<f4").tobytes() for param in tensors)).hexdigest()


def classifier(x: np.ndarray, targets: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """W (H,K) and b (K,) for vectors that are not standardised."""
    mean, spread = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    scale = 1 / np.where(spread > 0, spread, np.inf)
    found = fit(((x - mean) * scale).astype(np.float32), targets, classes, L2)
    w = found.w * scale[:, None]
    return w, found.b - mean @ w


def trained() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The weights of all layers, and what is known about them."""
    model, tokenizer = load("mini-bert")
    data = read("pos")
    number = {name: i for i, name in enumerate(data.classes)}
    targets = np.array([number[tag] for sentence in data.train for tag in sentence.tags])
    vectors = word_vectors(model, tokenizer, [sentence.words for sentence in data.train])
    tensors = {}
    for layer, x in vectors.items():
        w, b = classifier(x, targets, len(data.classes))
        tensors[f"layer_{layer}.w"], tensors[f"layer_{layer}.b"] = w.astype(np.float32), b.astype(np.float32)
    (results,) = probe(model, tokenizer, "pos", data.train, data.dev, data.classes)
    about = {
        "model": fingerprint(model),
        "classes": data.classes,
        "sentences": results.train.sentences,
        "accuracy": [round(results.trained[layer].accuracy[0], 4) for layer in vectors],
        "control": [round(results.trained[layer].control[0], 4) for layer in vectors],
        "random": [round(results.random[layer].accuracy[0], 4) for layer in vectors],
        "baselines": {name: round(value, 4) for name, value in results.baselines.items()},
    }
    return tensors, about


def main() -> None:
    tensors, about = trained()
    write_tensors(WEIGHTS, tensors)
    write_atomic(ABOUT, (json.dumps(about, indent=1) + "\n").encode())
    print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size / 1e3:.0f} kB", *about.items(), sep="\n")


if __name__ == "__main__":
    main()

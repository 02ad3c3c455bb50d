"""The vectors room: sentences and words on a plane, nearest neighbours, and what a probe reads from each layer.

    plane        the first two principal components of the vectors of a layer (inside/model_figures.py, pca)
    neighbours   cos(a, b) = a·b / (|a| |b|); of vectors, and of rows of the table of tokens
    probe        softmax(x W + b), parts of speech from a word's vector; trained beforehand (lab/probe_training.py)

Layers are hidden states: 0 is the embeddings, l + 1 the output of layer l. A word's vector is the mean of those of its
pieces, a sentence's that of all its pieces without [CLS] and [SEP].
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from mini_bert.files.model_folder import read_tensors
from mini_bert.inference.embed import cosines
from mini_bert.inside.model_figures import pca
from mini_bert.lab.bench import Bench, Reading, rounded
from mini_bert.lab.fields import BadRequest, Fields
from mini_bert.lab.probe_training import ABOUT, WEIGHTS, fingerprint
from mini_bert.layers.softmax import softmax
from mini_bert.probing.report import layer_name

MOST_SENTENCES = 24
MOST_WORDS = 200
NEAREST = 8


def word_places(reading: Reading) -> list[list[int]]:
    """For each word the positions of its pieces. Added tokens belong to no word."""
    places: dict[int, list[int]] = {}
    for place, word in enumerate(reading.words):
        if word is not None:
            places.setdefault(word, []).append(place)
    return list(places.values())


def word_vectors(bench: Bench, reading: Reading) -> np.ndarray:
    """(L+1,N,H) one vector for each word"""
    all_states = bench.states(reading)
    return np.stack([all_states[:, places].mean(1) for places in word_places(reading)], 1)


def sentence_vector(bench: Bench, reading: Reading) -> np.ndarray:
    """(L+1,H)"""
    return bench.states(reading)[:, [place for places in word_places(reading) for place in places]].mean(1)


# ---------------------------------------------------------------------- a plane, and neighbours on it


def plane(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """Points on a plane.        text (a sentence in each line), of ("sentences" or "words"), layer (0: embeddings)"""
    fields = Fields(request)
    lines = [line.strip() for line in fields.text().splitlines() if line.strip()]
    of = fields.choice("of", ("sentences", "words"), "sentences")
    layer = fields.integer("layer", 0, bench.model.depth, bench.model.depth)
    fields.end()
    if len(lines) > MOST_SENTENCES:
        raise BadRequest(f"there are {len(lines)} sentences; at most {MOST_SENTENCES} are shown, so remove some")
    readings = [read_line(bench, number, line) for number, line in enumerate(lines, 1)]
    if of == "sentences":
        names, groups = lines, list(range(len(lines)))
        vectors = [sentence_vector(bench, reading)[layer : layer + 1] for reading in readings]
    else:
        spelt = [words_of(reading) for reading in readings]
        names = [word for words in spelt for word in words]
        groups = [number for number, words in enumerate(spelt) for _ in words]
        vectors = [word_vectors(bench, reading)[layer] for reading in readings]
    if not 3 <= len(names) <= MOST_WORDS:
        raise BadRequest(f"there are {len(names)} {of}; a plane needs from 3 to {MOST_WORDS}")
    x = np.concatenate(vectors).astype(float)  # (N,H)
    projected = pca(x)
    similar = cosines(x)
    return {
        "layers": [layer_name(number) for number in range(bench.model.depth + 1)],
        "shares": [rounded(share) for share in projected.shares],
        "points": [
            {"text": name, "group": group, "x": rounded(at[0]), "y": rounded(at[1]), "near": nearest(similar[own], own)}
            for own, (name, group, at) in enumerate(zip(names, groups, projected.points, strict=True))
        ],
        "mean": rounded((similar.sum() - len(x)) / (len(x) * (len(x) - 1))),
    }


def read_line(bench: Bench, number: int, line: str) -> Reading:
    try:
        return bench.read(line)
    except BadRequest as error:
        raise BadRequest(f"line {number}: {error}") from None


def words_of(reading: Reading) -> list[str]:
    """The words as they are in the text"""
    spans = [(reading.spans[places[0]][0], reading.spans[places[-1]][1]) for places in word_places(reading)]
    return [reading.text[start:end].strip() for start, end in spans]


def nearest(similar: np.ndarray, own: int) -> list[list[float]]:
    """[index, cosine] of the nearest others"""
    order = [int(other) for other in np.argsort(-similar, kind="stable") if other != own][:NEAREST]
    return [[other, rounded(similar[other], 4)] for other in order]


def neighbours(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The nearest rows of the table of tokens.        text, position (of a token)"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    position = fields.integer("position", 0, len(reading.ids) - 1)
    fields.end()
    table = unit_table(bench)
    own = reading.ids[position]
    similar = table @ table[own]
    similar[[own, *bench.tokenizer.special_ids]] = -2
    best = np.argpartition(-similar, NEAREST)[:NEAREST]
    best = best[np.argsort(-similar[best], kind="stable")]
    return {
        "of": reading.tokens[position],
        "near": [{"text": bench.tokenizer.readable(int(i)), "cosine": rounded(similar[i], 4)} for i in best],
    }


def unit_table(bench: Bench) -> np.ndarray:
    """(V,E) the rows of the table of tokens, of length 1"""
    table = bench.model.embed_tokens(np.arange(bench.tokenizer.vocab_size))
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    return table / np.where(lengths > 0, lengths, 1)


# ---------------------------------------------------------------------- what a probe reads


@cache
def shipped() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    return read_tensors(WEIGHTS), json.loads(ABOUT.read_text(encoding="utf-8"))


def probe(bench: Bench, request: Mapping[str, Any]) -> dict[str, Any]:
    """The part of speech of each word, as a linear classifier reads it from each layer.        text"""
    fields = Fields(request)
    reading = bench.read(fields.text())
    fields.end()
    answer: dict[str, Any] = {"tokens": reading.shown(), "words": words_of(reading), "layers": [], "why": None}
    weights, about = shipped()
    if fingerprint(bench.model) != about["model"]:
        answer["why"] = (
            "The probe of the lab was trained on Mini-BERT; for another model, run "
            f"mini-bert probe pos --model {bench.name}."
        )
        return answer
    vectors = word_vectors(bench, reading)
    for layer, x in enumerate(vectors):
        probs, _ = softmax(x @ weights[f"layer_{layer}.w"] + weights[f"layer_{layer}.b"])  # (N,K)
        order = np.argsort(-probs, 1, kind="stable")[:, :2]
        answer["layers"].append(
            {
                "name": layer_name(layer),
                **{name: about[name][layer] for name in ("accuracy", "control", "random")},
                "tags": [
                    [[about["classes"][i], rounded(p[i], 4)] for i in best]
                    for best, p in zip(order, probs, strict=True)
                ],
            }
        )
    answer |= {"sentences": about["sentences"], "baselines": about["baselines"]}
    return answer


ACTIONS = {"plane": plane, "neighbours": neighbours, "probe": probe}

"""Vectors are learnt from plain text: two vectors of a sentence must find each other among those of others."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_tasks as tiny

from mini_bert.cli.main import main
from mini_bert.data.labelled.examples import LabelError
from mini_bert.data.labelled.readers import Scored, read_sentences
from mini_bert.finetuning.data import read_data
from mini_bert.finetuning.loop import FineTuning, Measurement, fine_tune, split
from mini_bert.finetuning.model import with_task
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.layers.base import Run
from mini_bert.layers.similarity import views

LENGTH = 24


def test_the_loss_is_that_of_a_search_among_all():
    """Written as loops over the texts, without matrices."""
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    terms = []
    for i in range(5):
        lengths = [np.hypot.reduce(u[i]) * np.hypot.reduce(v[j]) for j in range(5)]
        scores = [math.exp(float(u[i] @ v[j]) / lengths[j] / 0.05) for j in range(5)]
        terms.append(-math.log(scores[i] / sum(scores)))
    assert views(u, v)[0] == pytest.approx(sum(terms) / 5)
    assert views(7 * u, v)[0] == pytest.approx(sum(terms) / 5)  # only directions count
    assert views(u, v, 10)[0] == pytest.approx(sum(terms) / 10)


def pairs(count):
    return [Scored(one.first, one.first, 1.0, one.line) for one in tiny.scored(count)]


def test_dropout_makes_the_two_views_different():
    """Without dropout the two vectors of a sentence are equal, and the loss is what other sentences leave of it."""
    task = Similarity(vectors=True, loss="views")
    batch = task.batch(task.items(pairs(5), tiny.TOKENIZER, LENGTH, training=True), tiny.TOKENIZER.padding)
    losses = []
    for dropout in (0.0, 0.4):
        model = with_task(tiny.encoder("mini"), task, dropout, 0)
        losses.append(task.loss(model, batch, Run(train=True, seed=(1, 2)), 5)[0])
    assert losses[1] > losses[0]


def test_sentences_are_compared_in_groups_of_the_same_size_whatever_the_threads():
    assert [len(part) for part in split(list(range(64)), 3, 32)] == [32, 32]
    assert [len(part) for part in split(list(range(70)), 1, 32)] == [23, 23, 24]
    task, weights = Similarity(vectors=True, loss="views"), []
    items = task.items(pairs(40), tiny.TOKENIZER, LENGTH, training=True)
    for threads in (1, 2):
        model = with_task(tiny.encoder("mini"), task, 0.3, 0)
        settings = FineTuning(epochs=1, batch_size=40, learning_rate=1e-3, threads=threads)
        fine_tune(model, task, items, lambda each: Measurement({"spearman": 0.0}), settings)
        weights.append(model.flat.data)
    np.testing.assert_allclose(*weights, atol=1e-5)


def test_sentences_are_read_from_plain_text(tmp_path):
    """Each once, with its line; headings and short exclamations are left out."""
    path = tmp_path / "text.txt"
    path.write_text("A heading\nThe cat sat on the mat. No! The dog ran after the cat.\n\nThe cat sat on the mat.\n")
    found = read_sentences(path)
    assert found == [
        Scored(text, text, 1.0, 2) for text in ("The cat sat on the mat.", "The dog ran after the cat.")
    ]  # fmt: skip
    path.write_text("No!\n")
    with pytest.raises(LabelError, match="no sentence of 5 to 60 words"):
        read_sentences(path)
    with pytest.raises(LabelError, match="expected plain text"):
        read_sentences(tmp_path / "pairs.tsv")


def test_the_command(tmp_path, capsys):
    """From plain text to a folder of vectors; without --dev or --vectors, the error says what is missing."""
    text, dev, out = tmp_path / "text.txt", tmp_path / "dev.tsv", tmp_path / "tuned"
    text.write_text("".join(f"{one.first} {one.second} .\n" for one in tiny.scored(60)))
    rows = [f"{one.first}\t{one.second}\t{one.score}" for one in tiny.scored(20, seed=1)]
    dev.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    words = ["finetune", "similarity", "--train", str(text), "--loss", "views", "--epochs", "1", "--quiet"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--dev", str(dev), "--vectors", "--out", str(out)])
    assert not ended.value.code and "spearman" in capsys.readouterr().out
    assert (out / "model" / "model.safetensors").is_file()
    with pytest.raises(ValueError, match="give both, such as --train"):
        read_data("similarity", str(text), views=True)
    with pytest.raises(SystemExit, match="'contrastive' or 'views' with vectors"):
        main([*words, "--dev", str(dev)])

"""Loss, perplexity and accuracy under seeded masks, against plain counting."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest

from mini_bert.config import MiniBertConfig
from mini_bert.data import Batch, MLMDataGenerator
from mini_bert.evaluate import Evaluation, eval_command, evaluate, unigram_entropy
from mini_bert.model import MiniBERT
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.tokenizer import SPECIAL_TOKENS, WordPieceTokenizer

WORDS = [*SPECIAL_TOKENS, ".", "the", "cat", "sat", "on", "mat", "dog", "##s"]
SIZES = MiniBertConfig(
    vocab_size=13, hidden_size=10, num_layers=2, num_heads=2, intermediate_size=7, max_seq_length=11, dropout=0.5
)
TEXT = "The cat sat on the mat. Dogs sat on the cat.\n\nCats on mats. The dog sat. The zebra sat.\n\n" * 20


@pytest.fixture
def tokenizer():
    return WordPieceTokenizer(WORDS)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def generator(corpus, tokenizer, tmp_path):
    return MLMDataGenerator(
        corpus, tokenizer, 11, 7, fixed=True, cache_dir=tmp_path / "cache", processes=1, progress=False
    )


def by_hand(model, batches) -> Evaluation:
    """Full logits, one row after the other, sorted."""
    surprise, ranks = [], []
    for batch in batches:
        logits = model.forward(batch.input_ids, batch.attention_mask)[0]
        if isinstance(model, Bert):
            logits = logits.masked_words
        for row, target in zip(
            logits.reshape(-1, logits.shape[-1])[batch.rows].astype(float), batch.targets, strict=True
        ):
            surprise.append(math.log(np.exp(row).sum()) - row[target])
            ranks.append(np.argsort(-row).tolist().index(target))
    loss = sum(surprise) / len(surprise)
    return Evaluation(loss, math.exp(loss), np.mean(np.array(ranks) < 1), np.mean(np.array(ranks) < 5), len(surprise))


@pytest.mark.parametrize("kind", ["mini", "published"])
def test_it_counts_what_counting_counts(kind, generator):
    """All five numbers equal those of full logits, sorted row by row; dropout is off even in training."""
    model = (
        MiniBERT(SIZES, seed=1)
        if kind == "mini"
        else Bert(BertConfig(13, 10, 2, 2, 7, max_position_embeddings=11), seed=1)
    )
    model.flat.data[...] *= 3  # opinions
    wanted = by_hand(model, generator.once())
    model.set_training(True)
    found = evaluate(model, generator.once())
    assert found.targets == wanted.targets > 50
    assert found == pytest.approx(wanted, rel=1e-5)
    assert 0 < found.top1 < found.top5 < 1


def test_threads_change_nothing(generator):
    """The same to the last bit on one thread and on three, and progress is told for every batch."""
    model, told = MiniBERT(SIZES), []
    alone = evaluate(model, generator.once())
    together = evaluate(model, generator.once(), 3, lambda done, loss: told.append((done, loss)))
    assert alone == together
    assert [done for done, _ in told] == list(range(1, len(generator) + 1))
    assert told[-1][1] == pytest.approx(alone.loss)


def test_ties_and_nonsense_earn_nothing(generator):
    """A model with one opinion on all words is never right, and neither is one whose weights are no numbers."""
    model = MiniBERT(SIZES)
    model.flat.data[...] = 0
    flat = evaluate(model, generator.once())
    assert (flat.top1, flat.top5) == (0, 0) and flat.perplexity == pytest.approx(13)
    model.flat.data[...] = np.nan
    with np.errstate(invalid="ignore"):
        broken = evaluate(model, generator.once())
    assert math.isnan(broken.loss) and math.isnan(broken.perplexity) and broken.top5 == 0


def test_errors_reach_the_caller(generator):
    """Nothing hidden is said; an error in a thread is raised."""
    model = MiniBERT(SIZES)
    none = np.array([], int)
    with pytest.raises(ValueError, match="nothing to measure"):
        evaluate(model, [])
    with pytest.raises(ValueError, match="nothing to measure"):
        evaluate(model, [Batch(np.array([[2, 7, 3]]), none, none)])
    with pytest.raises(ValueError, match="expected 0 to 12"):
        evaluate(model, [Batch(np.array([[2, 99, 3]]), np.array([1]), np.array([7]))] * 3, threads=2)


def test_unigram_entropy(generator, tokenizer):
    """Counted with a Counter over the words of the text; [UNK] and [SEP] are no words."""
    counts = Counter(i for i in tokenizer.encode(TEXT) if i not in tokenizer.special_ids)
    total = sum(counts.values())
    wanted = -sum(n / total * math.log(n / total) for n in counts.values())
    assert unigram_entropy(generator) == pytest.approx(wanted)


def test_the_command(corpus, tokenizer, tmp_path, monkeypatch, capsys):
    """A row for each corpus and their mean; the same text gives the same numbers; JSON for programs."""
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model"
    MiniBERT(SIZES).save_pretrained(model)
    tokenizer.save(model)
    other = tmp_path / "other.txt"
    other.write_text("The dog sat on the mat. " * 9)  # few: fewer sequences than a batch would hold
    eval_command(str(model), [str(corpus), str(other)])
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[:4]] == ["corpus", "text.txt", "other.txt", "mean"]
    assert "above the unigram entropy" in table
    results = []
    for _ in range(2):
        eval_command(str(model), [str(corpus), str(other)], as_json=True)
        results.append(capsys.readouterr().out)
    assert results[0] == results[1]
    first, second, mean = json.loads(results[0])["results"]
    assert mean["loss"] == pytest.approx((first["loss"] + second["loss"]) / 2)
    assert mean["perplexity"] == pytest.approx(math.exp(mean["loss"]))
    eval_command(str(model), [str(corpus)], max_batches=1, batch=4, as_json=True)
    assert json.loads(capsys.readouterr().out)["results"][0]["targets"] < first["targets"] / 4
    eval_command(str(model), [str(corpus)], held_out=0.5, seed=1)
    with pytest.raises(ValueError, match=r"length is 12, but .* knows 11 positions"):
        eval_command(str(model), [str(corpus)], length=12)


def test_a_model_without_a_head(tmp_path, tokenizer):
    """A sentence encoder cannot be asked for words, and that is said before any text is read."""
    Bert(BertConfig(13, 10, 1, 2, 7), masked_words=False, next_sentence=False).save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    with pytest.raises(ValueError, match="no head for masked words"):
        eval_command(str(tmp_path), ["nowhere.txt"])

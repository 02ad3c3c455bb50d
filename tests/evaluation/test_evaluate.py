"""Loss, perplexity and accuracy with seeded masks, compared with plain counting."""

from __future__ import annotations

import inspect
import json
import math
import threading
import time
from collections import Counter

import numpy as np
import pytest

from mini_bert.cli import use
from mini_bert.common.json_values import finite_values
from mini_bert.data.generator import Batch, MLMDataGenerator
from mini_bert.evaluation import metrics, word_frequencies
from mini_bert.evaluation.corpus import CorpusResult, content, measure_corpus, report
from mini_bert.evaluation.evaluate import Evaluation, evaluate, measure, word_counts
from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
from mini_bert.evaluation.unigram_baseline import verdict_on_text
from mini_bert.files.model_folder import write_tensors
from mini_bert.inference.loading import load
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.mini import MiniBERT
from mini_bert.objectives.masked_words import entropy_of, unigram_loss
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

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
    """Full logits, sorted row by row."""
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
def test_the_numbers_match_full_logits(kind, generator):
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
    """One thread and three give the same bits, and progress is reported for every batch."""
    model, told = MiniBERT(SIZES), []
    alone = evaluate(model, generator.once())
    together = evaluate(model, generator.once(), 3, lambda done, loss: told.append((done, loss)))
    assert alone == together
    assert [done for done, _ in told] == list(range(1, len(generator) + 1))
    assert told[-1][1] == pytest.approx(alone.loss)


def test_one_epoch_of_an_endless_generator(generator):
    """A data generator never ends; one epoch of it is measured, and its position does not change."""
    model, place = MiniBERT(SIZES), generator.next
    assert evaluate(model, generator) == evaluate(model, generator.once())
    assert generator.next == place


def test_ties_and_nan_are_never_right(generator):
    """A model that gives all words the same probability is never right, and neither is one with NaN weights."""
    model = MiniBERT(SIZES)
    model.flat.data[...] = 0
    flat = evaluate(model, generator.once())
    assert (flat.top1, flat.top5) == (0, 0) and flat.perplexity == pytest.approx(13)
    model.flat.data[...] = np.nan
    with np.errstate(invalid="ignore"):
        broken = evaluate(model, generator.once())
    assert math.isnan(broken.loss) and math.isnan(broken.perplexity) and broken.top5 == 0


def test_errors_reach_the_caller(generator):
    """Batches without a masked word are an error; an error in a thread is raised."""
    model = MiniBERT(SIZES)
    none = np.array([], int)
    with pytest.raises(ValueError, match="nothing to measure"):
        evaluate(model, [])
    with pytest.raises(ValueError, match="nothing to measure"):
        evaluate(model, [Batch(np.array([[2, 7, 3]]), none, none)])
    with pytest.raises(ValueError, match="expected 0 to 12"):
        evaluate(model, [Batch(np.array([[2, 99, 3]]), np.array([1]), np.array([7]))] * 3, threads=2)


@pytest.mark.parametrize("kind", ["mini", "published"])
def test_calibration_is_that_of_the_first_guesses(kind, generator):
    """Error, worst bin, table and Brier score match those from full probabilities; threads change nothing."""
    model = (
        MiniBERT(SIZES, seed=1)
        if kind == "mini"
        else Bert(BertConfig(13, 10, 2, 2, 7, max_position_embeddings=11), seed=1)
    )
    model.flat.data[...] *= 4  # opinions, of which some are strong
    found = measure(model, generator.once())
    assert repr(measure(model, generator.once(), threads=3)) == repr(found)  # to the last bit, and nan is nan
    probs, targets = [], []
    for batch in generator.once():
        logits = model.forward(batch.input_ids, batch.attention_mask)[0]
        logits = logits.masked_words if isinstance(model, Bert) else logits
        rows = np.exp(logits.reshape(-1, 13)[batch.rows].astype(float))
        probs.append(rows / rows.sum(1, keepdims=True))
        targets.append(batch.targets)
    p, y = np.concatenate(probs), np.concatenate(targets)
    wanted = metrics.calibration(p.max(1), p.argmax(1) == y)
    assert sum(one.cases > 0 for one in wanted.bins) >= 3
    assert found.calibration[:2] == pytest.approx(wanted[:2], rel=1e-5)
    assert np.array(found.calibration.bins) == pytest.approx(np.array(wanted.bins), rel=1e-5, nan_ok=True)
    assert found.brier == pytest.approx(metrics.brier(p, y), rel=1e-5)
    assert found.result == evaluate(model, generator.once())


def test_one_error_stops_all_threads():
    """After the first error, no thread starts another of the ten thousand batches."""
    model = MiniBERT(SIZES)
    good = Batch(np.array([[2, 7, 4, 3]]), np.array([2]), np.array([7]))
    taken = []

    def batches():
        for number in range(10_000):
            taken.append(number)
            yield good._replace(input_ids=np.array([[2, 99, 4, 3]])) if number == 3 else good
            time.sleep(0.001)

    with pytest.raises(ValueError, match="expected 0 to 12"):
        evaluate(model, batches(), threads=3)
    assert 3 in taken and len(taken) < 100


def test_an_interrupted_wait_stops_all_threads(monkeypatch):
    """Ctrl-C reaches the waiting thread; the others stop after their current batch."""
    from concurrent.futures import Future

    model, taken = MiniBERT(SIZES), []
    begun = threading.Event()

    def batches():
        for number in range(10_000):
            taken.append(number)
            begun.set()
            time.sleep(0.001)
            yield Batch(np.array([[2, 7, 4, 3]]), np.array([2]), np.array([7]))

    def interrupted(self, timeout=None):
        begun.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(model, batches(), threads=2)
    assert 0 < len(taken) < 1000


def test_nan_and_infinity_are_null_in_json():
    """The loss of a broken model is null in JSON, and so is the mean; never NaN or Infinity."""
    broken = Evaluation(math.nan, math.inf, 0.0, 0.0, 3)
    rows = [CorpusResult("a", broken, 1.0, math.nan, math.nan, []), CorpusResult("b", broken, 1.0, 0.5, 0.5, [])]
    values = finite_values({"results": content(rows), "pair": [-math.inf]})
    json.dumps(values, allow_nan=False)
    first, _, mean = values["results"]
    wanted = {"loss": None, "perplexity": None, "top1": 0, "top5": 0, "targets": 3}
    assert {name: first[name] for name in wanted} == wanted and mean["loss"] is None
    assert values["pair"] == [None]
    assert "The loss of broken is not finite" in report("broken", rows)


def test_unigram_entropy(generator, tokenizer):
    """Counted with a Counter over the words of the text; [UNK] and [SEP] do not count."""
    counts = Counter(i for i in tokenizer.encode(TEXT) if i not in tokenizer.special_ids)
    total = sum(counts.values())
    wanted = -sum(n / total * math.log(n / total) for n in counts.values())
    assert entropy_of(word_counts(generator)) == pytest.approx(wanted)


def test_the_baseline_is_of_the_training_text_not_of_the_measured_one(corpus, tokenizer, tmp_path, monkeypatch, capsys):
    """The loss of guessing by the frequencies of the training text is computed word by word; a text of other words has
    a low entropy, but guessing does badly there. A model without them gets no verdict."""
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "cache"))
    folder, training = tmp_path / "model", tmp_path / "training.txt"
    MiniBERT(SIZES).save_pretrained(folder)
    tokenizer.save(folder)
    training.write_text("The dog sat on the mat. " * 9)
    word_frequencies.main([str(folder), str(training), "--held-out", "0"])
    assert "log frequencies of" in capsys.readouterr().out
    use.evaluate(str(folder), [str(corpus)], json=True)
    result = json.loads(capsys.readouterr().out)["results"][0]
    seen, text = (
        Counter(i for i in tokenizer.encode(content) if i not in tokenizer.special_ids)
        for content in (training.read_text(), TEXT)
    )
    shares = {i: max(seen[i], 0.5) for i in range(tokenizer.vocab_size)}
    wanted = -sum(n * math.log(shares[i] / sum(shares.values())) for i, n in text.items()) / sum(text.values())
    assert result["unigram_loss"] == pytest.approx(wanted, rel=1e-5) and wanted > result["unigram_entropy"] + 0.3
    use.evaluate(str(folder), [str(corpus), str(training)])
    shown = capsys.readouterr().out
    assert f"{wanted:17.3f}" in shown and "the loss of guessing by the word frequencies of its training text: " in shown
    (folder / word_frequencies.FILE).unlink()
    assert word_frequencies.read_frequencies(folder) is None


def test_damaged_frequencies_are_named(tokenizer, tmp_path):
    MiniBERT(SIZES).save_pretrained(tmp_path)
    for wrong in ({"other": np.zeros(3)}, {"log_frequencies": np.ones(3)}, {"log_frequencies": np.full(3, np.nan)}):
        write_tensors(tmp_path / word_frequencies.FILE, wrong)
        with pytest.raises(ValueError, match=r"word_frequencies\.safetensors does not hold log frequencies"):
            word_frequencies.read_frequencies(tmp_path)
    with pytest.raises(ValueError, match="2 word frequencies for 3 words"):
        unigram_loss(np.log([0.5, 0.5]), np.ones(3))


def test_verdicts_on_a_text():
    assert verdict_on_text(5.2, 7.7) == "it uses context"
    assert "does no better" in verdict_on_text(7.6, 7.7) and "does hardly better" in verdict_on_text(7.2, 7.7)
    assert "very different from this" in verdict_on_text(9.0, 7.7)


def test_the_command(corpus, tokenizer, tmp_path, monkeypatch, capsys):
    """A row for each corpus and their mean; the same text gives the same numbers, also in JSON."""
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model"
    MiniBERT(SIZES).save_pretrained(model)
    tokenizer.save(model)
    other = tmp_path / "other.txt"
    other.write_text("The dog sat on the mat. " * 9)  # few: fewer sequences than a batch would hold
    use.evaluate(str(model), [str(corpus), str(other)])
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[:4]] == ["corpus", "text.txt", "other.txt", "mean"]
    assert "model has no file with the word frequencies of its training text" in table.replace(str(tmp_path) + "/", "")
    results = []
    for _ in range(2):
        use.evaluate(str(model), [str(corpus), str(other)], json=True)
        results.append(capsys.readouterr().out)
    assert results[0] == results[1]
    first, second, mean = json.loads(results[0])["results"]
    assert mean["loss"] == pytest.approx((first["loss"] + second["loss"]) / 2)
    assert mean["perplexity"] == pytest.approx(math.exp(mean["loss"]))
    for name in ("calibration_error", "brier", "unigram_entropy"):
        assert mean[name] == pytest.approx((first[name] + second[name]) / 2) and first[name] != second[name]
    assert sum(one["cases"] for one in first["bins"]) == first["targets"] and len(first["bins"]) == 10
    assert mean["bins"] == [] and first["bins"][9]["confidence"] is None  # nobody is as certain as that
    assert f"{first['calibration_error']:18.1%} {'?':>17}" in table and first["unigram_loss"] is None
    use.evaluate(str(model), [str(corpus)], max_batches=1, batch=4, json=True)
    assert json.loads(capsys.readouterr().out)["results"][0]["targets"] < first["targets"] / 4
    use.evaluate(str(model), [str(corpus)], held_out=0.5, seed=1)
    assert "`train --held-out 0.5` does not train on" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"length is 12, but the model is configured for at most 11 tokens"):
        use.evaluate(str(model), [str(corpus)], length=12)


def test_a_short_text_is_one_sequence(folder, tmp_path, capsys, caplog):
    """A text shorter than one sequence is measured, with a warning and without a verdict."""
    path = tmp_path / "short.txt"
    path.write_text("the cat sat\n")
    use.evaluate(folder, [str(path)], length=8)
    assert "too few to judge" in capsys.readouterr().out
    assert f"{path} has only 3 tokens; measuring it as one short sequence" in caplog.messages
    caplog.clear()
    path.write_text("the cat sat on the mat\n")
    use.evaluate(folder, [str(path)], length=8)
    assert not caplog.messages
    with pytest.raises(ValueError, match=r"short\.txt has 1 document, and `train --held-out 1e-09` trains on all"):
        use.evaluate(folder, [str(path)], held_out=1e-9)


@pytest.mark.parametrize("words", ["the cat", "the cat sat on the mat"])
def test_a_short_text_for_a_model_of_the_next_word(tmp_path, tokenizer, words, capsys):
    """A row has one token more than the model reads: the last one is a target only."""
    sizes = {"n_embd": 12, "n_layer": 1, "n_head": 2, "n_positions": 17}
    GPT2(GPT2Config(vocab_size=tokenizer.vocab_size, **sizes)).save_pretrained(tmp_path / "gpt2")
    tokenizer.save(tmp_path / "gpt2")
    path = tmp_path / "short.txt"
    path.write_text(f"{words}\n")
    use.evaluate(str(tmp_path / "gpt2"), [str(path)])
    assert "too few to judge" in capsys.readouterr().out


def test_a_model_without_a_head(tmp_path, tokenizer):
    """A sentence encoder cannot predict words; the error comes before any text is read."""
    Bert(BertConfig(13, 10, 1, 2, 7), output_heads=("pooler",)).save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    with pytest.raises(ValueError, match="no head for masked words"):
        use.evaluate(str(tmp_path), ["nowhere.txt"])


@pytest.fixture
def folder(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "cache"))
    model = MiniBERT(SIZES, seed=1)
    model.flat.data[...] *= 3
    model.save_pretrained(tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\tscore\nthe cat sat\ta cat sat\t5\nthe dog\tthe mat\t1\ndogs\tcats\t3\n")
    return str(path)


def test_sentences_pairs_and_words(folder, pairs, corpus, capsys):
    """All four kinds of measurement in one command; report and JSON agree with the library's functions."""
    from mini_bert.data.labelled.readers import read_scored
    from mini_bert.evaluation.embedding_quality import agreement, isotropy, neighbours, word_table

    asked = {"text": ["The cat sat.", "Dogs sat."], "pairs": [pairs, pairs], "neighbours": ["cat", "dogs"]}
    use.evaluate(folder, [str(corpus)], max_batches=1, **asked)
    shown = capsys.readouterr().out
    use.evaluate(folder, [str(corpus)], max_batches=1, json=True, whole_words=True, **asked)
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["model", "texts", "neighbours", "token_table", "pairs", "results"]
    model, tokenizer = load(folder)
    plain, whole = (pseudo_perplexity(model, tokenizer, "Dogs sat.", whole_words=whole) for whole in (False, True))
    assert found["texts"][1]["pseudo_perplexity"] == pytest.approx(whole.perplexity)
    assert found["texts"][1]["tokens"][0] == pytest.approx(whole.tokens[0]._asdict())
    assert f"pseudo-perplexity {plain.perplexity:,.2f} over 4 tokens" in shown and plain.perplexity != whole.perplexity
    near = neighbours(model, tokenizer, "dogs")
    assert found["neighbours"][1]["pieces"] == near.pieces == ["dog", "##s"]
    assert [(one["token"], one["cosine"]) for one in found["neighbours"][1]["nearest"]] == near.nearest
    assert f"nearest to dogs (the mean of dog ##s): {near.nearest[0][0]} {near.nearest[0][1]:.2f}, " in shown
    assert found["token_table"] == isotropy(word_table(model, tokenizer)[1])._asdict()
    wanted = agreement(model, tokenizer, read_scored(pairs), batch_size=32, threads=2)
    assert found["pairs"][0] == {"file": pairs, **wanted._asdict(), "isotropy": wanted.isotropy._asdict()}
    assert shown.count(f"pairs.tsv                 3 {wanted.spearman:9.3f}") == 2
    assert "unigram baseline" in shown and found["results"][0]["targets"] > 0


def test_nothing_to_measure(folder):
    """The error names the four options that measure something."""
    with pytest.raises(
        ValueError, match=r"nothing to measure; give --corpus FILE .* --text .* --pairs .* --neighbours"
    ):
        use.evaluate(folder)


def test_bad_pairs_are_reported_first(folder, corpus, tmp_path, capsys):
    """A malformed line stops the command, with its line number, before anything is measured."""
    bad = tmp_path / "bad.tsv"
    bad.write_text("sentence1\tsentence2\tscore\na\tb\tmuch\n")
    with pytest.raises(ValueError, match=r"bad\.tsv:2: score is 'much', expected a number"):
        use.evaluate("nowhere", [str(corpus)], pairs=[str(bad)])
    bad.write_text("sentence1\tscore\na\t1\n")  # eval has no options that name columns
    with pytest.raises(
        ValueError,
        match=r"no column for the second text, .*the file sentence1, sentence2 and score; .* with sentence_good",
    ):
        use.evaluate("nowhere", pairs=[str(bad)])
    assert capsys.readouterr().out == ""


def test_vectors_need_no_head(tmp_path, tokenizer, pairs, capsys):
    """A sentence encoder without a head for masked words supports --pairs and --neighbours, but not --text."""
    Bert(BertConfig(13, 10, 1, 2, 7), output_heads=("pooler",)).save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    use.evaluate(str(tmp_path), pairs=[pairs], neighbours=["cat"])
    assert "nearest to cat: " in capsys.readouterr().out
    with pytest.raises(ValueError, match="no head for masked words"):
        use.evaluate(str(tmp_path), text=["The cat"])


def test_the_command_line(folder, pairs, monkeypatch):
    """Every option of `mini-bert eval` reaches the function that measures."""
    from typer.testing import CliRunner

    from mini_bert.cli.main import app

    calls = []
    real = inspect.signature(measure_corpus)

    def note(*args):
        calls.append(real.bind(*args).arguments)
        return CorpusResult(args[2], Evaluation(1.0, math.e, 0.1, 0.2, 90), 3.0, 0.1, 0.5, [])

    monkeypatch.setattr("mini_bert.evaluation.corpus.measure_corpus", note)
    words = "--corpus a --corpus b --held-out 0.25 --seed 3 --batch 5 --max-batches 7 --threads 4 --length 9 --json"
    more = ["--text", "Dogs sat.", "--text", "cats", "--whole-words", "--pairs", pairs, "--neighbours", "cat"]
    found = json.loads(CliRunner().invoke(app, ["eval", folder, *words.split(), *more]).stdout)
    assert [row["corpus"] for row in found["results"]] == ["a", "b", "mean"]
    whole = pseudo_perplexity(*load(folder), "Dogs sat.", whole_words=True)
    assert [one["text"] for one in found["texts"]] == ["Dogs sat.", "cats"]
    assert found["texts"][0]["pseudo_perplexity"] == pytest.approx(whole.perplexity)
    assert found["pairs"][0]["file"] == pairs and found["neighbours"][0]["word"] == "cat"
    options = {"held_out": 0.25, "length": 9, "seed": 3, "batch_size": 5, "max_batches": 7, "threads": 4}
    assert [call.pop("source") for call in calls] == ["a", "b"]
    for call in calls:
        assert {name: call[name] for name in options} == options


def test_errors_about_a_text_name_options(folder, monkeypatch):
    """Not the arguments of the function that measures."""

    def fails(*_):
        raise ValueError("with held_out=0.25, none is left; use at most max_seq_length=8")

    monkeypatch.setattr("mini_bert.evaluation.corpus.measure_corpus", fails)
    with pytest.raises(ValueError, match=r"with --held-out 0\.25, none is left; use at most --length 8"):
        use.evaluate(folder, corpus=["a"], held_out=0.25)


def test_a_few_words_give_no_verdict():
    """Nine masked words are too few to judge a model by."""
    row = CorpusResult("tiny.txt", Evaluation(8.0, 2981.0, 0.1, 0.2, 9), 3.0, 0.1, 0.5, (), 3.0)
    assert "9 masked tokens: too few to judge model" in report("model", [row])
    said = report("model", [row._replace(result=row.result._replace(targets=90))])
    assert said.endswith(
        "5.00 above the unigram baseline, the loss of guessing by the word frequencies of its training text: it is "
        "hardly trained, or was trained on text very different from this."
    )
    assert said.count("word frequencies") == 1

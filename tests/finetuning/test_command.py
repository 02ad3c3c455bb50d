"""From files to a model that predicts: the commands, the model folder, and the errors for bad files."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from larger_bert import LargerBERT

sys.path.insert(0, str(Path(__file__).parent))
import tiny_tasks as tiny

from mini_bert.cli.main import app
from mini_bert.common.progress import showing
from mini_bert.data.labelled.examples import Labelled
from mini_bert.files.model_folder import read_tensors
from mini_bert.finetuning import loop
from mini_bert.finetuning import model as finetuned
from mini_bert.finetuning.data import cut, held_out, read_data
from mini_bert.finetuning.finetune import finetune, progress, settings_for, with_defaults
from mini_bert.finetuning.loop import FineTuning, TuningRun, predict
from mini_bert.finetuning.model import load
from mini_bert.finetuning.predict import gather, gather_labelled, predictions
from mini_bert.finetuning.report import PRETRAINED, SCRATCH, Result, baseline, describe, verdict
from mini_bert.finetuning.tasks.base import warn_about_cuts
from mini_bert.inference.embed import embed
from mini_bert.inference.loading import load as load_pair
from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.mini import MiniBERT

QUICK = {"epochs": 2, "batch_size": 16, "learning_rate": 5e-3, "threads": 1, "measurements": 1, "quiet": True}
EXAMPLES = {"classify": tiny.labelled, "tag": tiny.tagged, "qa": tiny.questions, "similarity": tiny.scored}
ENDING = {"classify": "tsv", "tag": "conll", "qa": "jsonl", "similarity": "tsv"}


def finetuned_on(
    kind: str, train: str | None = None, dev: str | None = None, max_samples: int | None = None, **given
) -> list[Result]:
    """Does what the command does: reads the files, fine-tunes, prints; `given` are settings and arguments of
    `finetune`."""
    quiet = given.pop("quiet")
    settings = {name: given.pop(name) for name in list(given) if name in FineTuning.__dataclass_fields__}
    data = read_data(kind, train, dev, max_samples, settings.get("seed", 0))
    print(describe(kind, given["model"], data))
    with showing(not quiet) as show:
        report = finetune(kind, data, FineTuning(**settings), show=show, **given)
    print(report.text)
    return report.results


@pytest.fixture(scope="module", params=["mini", "bert"])
def folder(request, tmp_path_factory):
    return tiny.saved(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    return tiny.saved(tmp_path_factory.mktemp("mini"))


def files(folder: Path, kind: str, count: int = 48) -> dict[str, str]:
    return {
        "train": tiny.write(folder, f"train.{ENDING[kind]}", EXAMPLES[kind](count)),
        "dev": tiny.write(folder, f"dev.{ENDING[kind]}", EXAMPLES[kind](16, seed=1)),
    }


@pytest.mark.parametrize("kind", EXAMPLES)
def test_files_in_model_out(kind, folder, tmp_path, capsys):
    """The folder holds the model that was measured: loaded again, it gives bit-identical answers."""
    out = tmp_path / "out"
    (result,) = finetuned_on(kind, **files(tmp_path, kind), out=out, model=str(folder), **QUICK)
    tuned = load(out)
    dev = EXAMPLES[kind](16, seed=1)
    items = tuned.task.items(dev, tuned.tokenizer, tuned.length, False)
    answers = predict(tuned.model, tuned.task, items)
    assert tuned.task.scores(dev, tuned.task.join(dev, items, answers)) == result.outcome.scores

    config = json.loads((out / "model/config.json").read_text())
    labels = {"classify": ["neg", "pos"], "tag": ["B-LOC", "B-PER", "O"], "similarity": ["score"]}.get(kind, [])
    assert config.get("id2label", {}) == {str(number): label for number, label in enumerate(labels)}
    assert config.get("label2id", {}) == {label: number for number, label in enumerate(labels)}
    for name in ("tokenizer.json", "vocab.txt", "README.md", "model.safetensors"):
        assert (out / "model" / name).is_file()
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {record["kind"] for record in records} == {"train", "dev", "result"}
    summary = json.loads((out / "results.json").read_text())
    assert summary["runs"][0]["scores"] == result.outcome.scores and summary["dev"] == f"dev.{ENDING[kind]}"
    assert f"mini-bert predict {out}" in capsys.readouterr().out
    assert (out / "model/README.md").read_text().startswith(f"# A {tuned.model.config.name} fine-tuned for {kind}, ")

    scored = [str(out), "--file", str(tmp_path / f"dev.{ENDING[kind]}"), "--score"]
    *said, last = ask(*scored, "--json").splitlines()
    assert len(said) == 16 and json.loads(last) == {"examples": 16, "scores": result.outcome.scores}
    main_score = f"{METRIC[kind]} {tuned.task.shown(result.outcome.scores[tuned.task.metric])}"
    assert f"16 examples of {scored[2]}: {main_score}, " in ask(*scored).splitlines()[-1]


METRIC = {"classify": "accuracy", "tag": "F1", "qa": "F1", "similarity": "Spearman"}


def test_seeds_and_a_control_are_shown_side_by_side(mini, tmp_path, capsys):
    results = finetuned_on(
        "classify", **files(tmp_path, "classify"), model=str(mini), seeds=2, from_scratch=True, **QUICK
    )
    assert [(result.start, result.seed) for result in results] == [
        ("pretrained", 0), ("pretrained", 1), ("from random weights", 0), ("from random weights", 1),
    ]  # fmt: skip
    out = capsys.readouterr().out
    assert "pretrained  " in out and "from random weights" in out and "±" in out and "of 2 seeds" in out
    assert "Nothing is saved" in out and "training: 48 examples, train.tsv; dev: 16 examples, dev.tsv" in out
    paths = files(tmp_path, "classify")
    options = ["--train", paths["train"], "--dev", paths["dev"], "--model", str(mini), "--epochs", "1", "--quiet"]
    result = CliRunner().invoke(app, ["finetune", "classify", *options, "--json"])
    assert json.loads(result.stdout)["pretrained"]["accuracy"]["spread"] == 0.0


def test_the_model_that_is_kept_is_the_best_of_all_seeds(mini, tmp_path, capsys):
    out = tmp_path / "out"
    results = finetuned_on("tag", **files(tmp_path, "tag"), out=out, model=str(mini), seeds=3, **QUICK)
    best = max(results, key=lambda result: result.outcome.scores["f1"])
    assert f"word dropout 0, seed {best.seed} |" in (out / "model/README.md").read_text()
    assert not [path for path in out.iterdir() if path.name.startswith(".")]  # nothing lies about


def test_ctrl_c_keeps_what_was_saved(signals, mini, tmp_path, monkeypatch, capsys):
    """Interrupted after the first model has been saved: the table says so, and the folder is complete and can
    predict."""
    saved = finetuned.save

    def save(*words):
        saved(*words)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("mini_bert.finetuning.finetune.save", save)
    out = tmp_path / "out"
    results = finetuned_on("classify", **files(tmp_path, "classify"), out=out, model=str(mini), seeds=2, **QUICK)
    assert len(results) == 1 and results[0].outcome.stopped == "interrupted"
    assert "Interrupted; the best model so far is kept." in capsys.readouterr().out
    assert predictions(load(out), tiny.labelled(1))[0]["label"] in ("neg", "pos")


def test_a_save_that_fails_leaves_the_old_folder(tmp_path, monkeypatch):
    task = finetuned.Classify(["a", "b"])
    model = finetuned.with_task(tiny.encoder(), task)
    finetuned.save(tmp_path / "model", model, task, tiny.TOKENIZER, 24)
    before = (tmp_path / "model/model.safetensors").read_bytes()
    monkeypatch.setattr(tiny.WordPieceTokenizer, "save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    model.flat.data[...] = 1
    with pytest.raises(OSError, match="disk full"):
        finetuned.save(tmp_path / "model", model, task, tiny.TOKENIZER, 24)
    assert (tmp_path / "model/model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# ---------------------------------------------------------------------- what else can be done with the folder


def test_the_encoder_of_a_fine_tuned_folder_can_be_used(folder, tmp_path, caplog):
    """load_model returns the encoder and says what it leaves out; it can be fine-tuned again, but not predict masked
    words."""
    out = tmp_path / "out"
    finetuned_on("classify", **files(tmp_path, "classify"), out=out, model=str(folder), **QUICK)
    with caplog.at_level(logging.WARNING):
        encoder, _ = load_pair(out)
    assert "only its encoder" in caplog.text and "no part of this model" not in caplog.text
    tuned = load(out).model
    np.testing.assert_array_equal(encoder.tokens.table.data, tuned.tokens.table.data)
    with pytest.raises(ValueError, match="no head for masked words"):
        encoder.output_head(MASKED_WORDS)
    if isinstance(encoder, MiniBERT):
        for call in (lambda: encoder.forward([[2, 3]]), lambda: encoder.loss([[2, 3]], [0], [1])):
            with pytest.raises(ValueError, match="has no head for masked words: it was fine-tuned"):
                call()
    finetuned_on("tag", **files(tmp_path, "tag"), model=str(out), **QUICK)


def test_vectors_are_those_that_embed_gives(mini, tmp_path):
    """A model for sentence vectors is an ordinary encoder: its scores are the cosines of `embed`."""
    out = tmp_path / "out"
    finetuned_on("similarity", **files(tmp_path, "similarity"), out=out, model=str(mini), vectors=True, **QUICK)
    encoder, tokenizer = load_pair(out)
    pair = ["the cat was old .", "a film is old"]
    u, v = embed(encoder, tokenizer, pair).astype(np.float64)
    (said,) = predictions(load(out), [tiny.Scored(*pair, 0.0, 1)])
    assert said["score"] == pytest.approx(5 * u @ v / np.linalg.norm(u) / np.linalg.norm(v), rel=1e-4)


def test_names_in_the_file_of_a_published_bert(tmp_path):
    """Tensors have the names of transformers; tests/finetuning/test_finetuning_peers.py opens such a folder with it."""
    bert = tiny.encoder("bert")
    for task, head in (
        (finetuned.Classify(["a", "b"], ("cls",), dense=True), "classifier"),
        (finetuned.Tag(["a", "b"]), "classifier"),
        (finetuned.Answer(), "qa_outputs"),
        (finetuned.Similarity(0, 5, pooling=("cls",), dense=True), "classifier"),
        (finetuned.Similarity(0, 5, vectors=True), None),
    ):
        finetuned.save(tmp_path / "m", finetuned.with_task(bert, task), task, tiny.TOKENIZER, 24)
        names = set(read_tensors(tmp_path / "m/model.safetensors"))
        assert {name for name in names if "bert." not in name} >= (
            {f"{head}.weight", f"{head}.bias"} if head else set()
        )
        assert ("bert.pooler.dense.weight" in names) == (task.name in ("classify", "similarity") and head is not None)
        assert ("bert." if head else "") + "embeddings.word_embeddings.weight" in names
        architecture = json.loads((tmp_path / "m/config.json").read_text())["architectures"]
        assert architecture == [f"Bert{task.architecture}"]


# ---------------------------------------------------------------------- predict


def tuned_folder(tmp_path, mini, kind, **more):
    out = tmp_path / "out"
    settings = QUICK | {"epochs": 6, "batch_size": 8}
    finetuned_on(kind, **files(tmp_path, kind, 96), out=out, model=str(mini), **settings, **more)
    return str(out)


def ask(*words):
    result = CliRunner().invoke(app, ["predict", *words])
    assert result.exit_code == 0, result.exception
    return result.stdout


def test_predict_labels(mini, tmp_path):
    out = tuned_folder(tmp_path, mini, "classify")
    shown = ask(out, "the cat was great .", "the film was dull .").splitlines()
    assert shown[0].startswith("pos ") and shown[1].startswith("neg ") and shown[1].endswith("the film was dull .")
    (tmp_path / "texts.txt").write_text("the cat was fine .\n\nthe cat was awful .\n")
    said = [json.loads(line) for line in ask(out, "--file", str(tmp_path / "texts.txt"), "--json").splitlines()]
    assert [one["label"] for one in said] == ["pos", "neg"]
    assert sum(said[0]["probabilities"].values()) == pytest.approx(1, rel=1e-5)


def test_predict_tags(mini, tmp_path):
    out = tuned_folder(tmp_path, mini, "tag")
    assert "-> ada (PER); rome (LOC)" in ask(out, "ada lives in rome.")
    said = json.loads(ask(out, "--json", "ben lives in oslo."))
    assert said["words"] == ["ben", "lives", "in", "oslo", "."] and said["tags"] == ["B-PER", "O", "O", "B-LOC", "O"]
    assert said["entities"][0] == {"type": "PER", "text": "ben", "first": 0, "last": 0}


def test_predict_answers(mini, tmp_path):
    out = tuned_folder(tmp_path, mini, "qa")
    words = ["--question", "what colour ?", "--context", "the cat is old . a film is red ."]
    assert "%  red" in ask(out, *words)
    said = json.loads(ask(out, *words, "--json"))
    assert said["answer"] in [one["answer"] for one in said["answers"]]
    start, stop = said["answers"][0]["start"], said["answers"][0]["stop"]
    assert words[3][start:stop] == said["answer"]
    lines = ask(out, "--file", tiny.write(tmp_path, "more.jsonl", tiny.questions(3)), "--json").splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["q0", "q1", "q2"]


def test_predict_similarity(mini, tmp_path):
    out = tuned_folder(tmp_path, mini, "similarity")
    said = json.loads(ask(out, "--json", "the cat was old .", "a cat is old"))
    assert set(said) == {"first", "second", "score"}
    (tmp_path / "pairs.tsv").write_text("a cat\ta cat\na cat\ta film\n")
    assert len(ask(out, "--file", str(tmp_path / "pairs.tsv")).splitlines()) == 2


def test_pairs_of_texts(folder, tmp_path):
    """A file of pairs gives a model for pairs, and its folder says so; for a published model, use --pairs."""
    rows = (f"{one.first}\t{one.second}\t{'same' if one.score else 'other'}\n" for one in tiny.scored(48))
    (tmp_path / "train.tsv").write_text("premise\thypothesis\tgold_label\n" + "".join(rows))
    finetuned_on("classify", str(tmp_path / "train.tsv"), out=tmp_path / "out", model=str(folder), **QUICK)
    assert load(tmp_path / "out").task.pairs
    assert 'predict . "A first text." "And a second."' in (tmp_path / "out" / "model" / "README.md").read_text()
    words = [str(tmp_path / "out"), "the cat was old .", "a cat is old"]
    assert "the cat was old .  |  a cat is old" in ask(*words)
    config = json.loads((tmp_path / "out/model/config.json").read_text())
    if config["model_type"] == "bert":
        del config["fine_tuning"]  # as transformers would have written it
        (tmp_path / "out/model/config.json").write_text(json.dumps(config))
        assert len(ask(*words).splitlines()) == 2 and len(ask(*words, "--pairs").splitlines()) == 1


def test_predict_reads_a_table_as_fine_tuning_does(tmp_path, caplog):
    """Header and labels are not texts; columns are found, or given by name or number; the one used is named."""
    single, pair = finetuned.Classify(["a", "b"]), finetuned.Classify(["a", "b"], pairs=True)

    def texts(task, name, content, **columns):
        (tmp_path / name).write_text(content)
        return [one[:2] for one in gather(task, [], str(tmp_path / name), **columns)]

    assert texts(single, "a.tsv", "sentence\tlabel\nthe cat\t1\nthe film\t0\n") == [
        ("the cat", None),
        ("the film", None),
    ]
    assert "a.tsv: predicting for 2 lines of column 'sentence'" in caplog.messages[-1]
    assert texts(single, "a.csv", 'zin,label\n"a, b",1\n', text="zin") == [("a, b", None)]
    assert texts(single, "b.csv", "the cat,1\nsentence,0\n", text="1") == [("the cat", None), ("sentence", None)]
    assert texts(single, "a.jsonl", '{"label": 1, "text": "x"}\n') == [("x", None)]
    assert texts(single, "one.tsv", "the cat\nthe film\n") == [("the cat", None), ("the film", None)]
    assert texts(pair, "p.tsv", "premise\thypothesis\tgold_label\na\tb\t-\n") == [("a", "b")]
    assert texts(pair, "q.tsv", "a\tb\nc\td\n") == [("a", "b"), ("c", "d")]
    scores = finetuned.Similarity(0, 5)
    assert texts(scores, "s.tsv", "x\ta\tb\t3\n", text="2", second="3") == [("a", "b")]
    with pytest.raises(ValueError, match=r"no column for the text, such as .* Name the column with --text NAME"):
        texts(single, "c.tsv", "zin\tlabel\nthe cat\t1\n")
    with pytest.raises(ValueError, match=r"--text and --second name the columns of a \.tsv"):
        texts(single, "c.txt", "the cat\n", text="sentence")
    tag = finetuned.Tag(["O", "B-PER"])
    assert texts(tag, "t.conll", "ada B-PER\nran O\n\nrome O\n") == [
        (["ada", "ran"], ["B-PER", "O"]),
        (["rome"], ["O"]),
    ]


def test_predict_scores_a_labelled_file(mini, tmp_path):
    """Columns are named as for fine-tuning; a label that the model does not have is named with its line."""
    classify, tag, alike = finetuned.Classify(["a", "b"]), finetuned.Tag(["O", "B-PER"]), finetuned.Similarity(0, 5)
    (tmp_path / "odd.tsv").write_text("zin\tkind\nthe cat\ta\nthe film\tc\n")
    file = str(tmp_path / "odd.tsv")
    with pytest.raises(ValueError, match="Name the column with --text NAME"):
        gather_labelled(classify, file)
    with pytest.raises(ValueError, match="Name the column with --label NAME"):
        gather_labelled(alike, file, "zin", "kind")
    with pytest.raises(ValueError, match=r"odd.tsv:3: the label 'c' is not in the training data, which has 'a', 'b'"):
        gather_labelled(classify, file, "zin", label="kind")
    with pytest.raises(ValueError, match="--label is 'kind', expected the number of the column of the tags"):
        gather_labelled(tag, file, label="kind")
    with pytest.raises(ValueError, match="files for qa have no columns to name; remove --text"):
        gather_labelled(finetuned.Answer(), file, "zin")
    (tmp_path / "t.conll").write_text("ada B-PER x\nran O x\n")
    assert gather_labelled(tag, str(tmp_path / "t.conll"), label="1")[0].tags == ["B-PER", "O"]
    out = str(tiny.saved(tmp_path / "m"))
    for words, message in (
        (["x", "--score"], "--score compares with the labels"),
        (["x", "--label", "y"], "add --score"),
    ):
        result = CliRunner().invoke(app, ["predict", out, *words])
        assert message in str(result.exception)


def test_predict_refuses_pairs_for_single_texts_and_single_texts_for_pairs(mini, tmp_path):
    single, pair = finetuned.Classify(["a", "b"]), finetuned.Classify(["a", "b"], pairs=True)
    for task, message in (
        (single, "classifies single texts; remove --pairs"),
        (finetuned.Tag(["O", "B"]), "is for tag"),
    ):
        with pytest.raises(ValueError, match=message):
            gather(task, ["one", "two"], pairs=True)
    with pytest.raises(ValueError, match="classifies single texts; remove --second"):
        gather(single, [], "a.tsv", second="2")
    unknown = finetuned.Classify(["a", "b"], pairs=None)  # a published model
    assert len(gather(unknown, ["one", "two"])) == 2 and len(gather(unknown, ["one", "two"], pairs=True)) == 1
    with pytest.raises(ValueError, match="classifies pairs of texts, got a single text: 'one'"):
        pair.items([Labelled("one", None, "", 1)], tiny.TOKENIZER, 10, training=False)
    with pytest.raises(ValueError, match="classifies single texts, got a pair: 'one'"):
        single.items([Labelled("one", "two", "", 1)], tiny.TOKENIZER, 10, training=False)


def test_predict_says_how_many_texts_were_cut(mini, tmp_path, caplog):
    tuned = load(tuned_folder(tmp_path, mini, "classify"))
    caplog.clear()
    predictions(tuned, gather(tuned.task, ["the cat " * 300, "the film", "a cat " * 300]))
    assert caplog.messages == [f"2 texts cut to fit into {tuned.length} tokens: the end was not used"]


def test_larger_bert_is_fine_tuned_alike(tmp_path):
    LargerBERT(tiny.MINI, seed=1).save_pretrained(tmp_path / "larger")
    tiny.TOKENIZER.save(tmp_path / "larger")
    (result,) = finetuned_on("tag", **files(tmp_path, "tag"), model=str(tmp_path / "larger"), **QUICK)
    assert result.outcome.scores["accuracy"] > 0.5


def test_labels_come_from_all_of_the_file(mini, tmp_path):
    """All labels are known, although the model trains on one example only."""
    paths = files(tmp_path, "classify")
    finetuned_on("classify", **paths, out=tmp_path / "out", model=str(mini), max_samples=1, **QUICK)
    assert load(tmp_path / "out").task.labels == ["neg", "pos"]


def test_predict_says_what_it_needs(mini, tmp_path):
    classify, pairs, qa = finetuned.Classify(["a", "b"]), finetuned.Classify(["a", "b"], pairs=True), finetuned.Answer()
    with pytest.raises(
        ValueError, match=r"^mini-bert is a model .* `mini-bert finetune classify --model mini-bert --tr"
    ):
        load("mini-bert")
    with pytest.raises(ValueError, match="give --question and --context"):
        gather(qa, ["what?"], None, None, None)
    with pytest.raises(ValueError, match="for classify, not for questions"):
        gather(classify, [], None, "who?", "she")
    with pytest.raises(ValueError, match="give either texts, or --file"):
        gather(classify, [], None, None, None)
    with pytest.raises(ValueError, match="compares two texts, got 1 text"):
        gather(pairs, ["one"], None, None, None)
    with pytest.raises(ValueError, match="text 2 is empty"):
        gather(classify, ["one", " "], None, None, None)
    (tmp_path / "pairs.txt").write_text("a\tb\nonly one\n")
    with pytest.raises(ValueError, match=r"pairs\.txt, text 2: expected two texts separated by a tab"):
        gather(pairs, [], str(tmp_path / "pairs.txt"), None, None)
    (tmp_path / "pairs.tsv").write_text("a\tb\nonly one\n")
    with pytest.raises(ValueError, match=r"pairs\.tsv:2: 1 field, expected 2"):
        gather(pairs, [], str(tmp_path / "pairs.tsv"), None, None)
    assert gather(pairs, ["a", "b"], None, None, None)[0][:2] == ("a", "b")
    with pytest.raises(ValueError, match="not fine-tuned for a task; fine-tune it with `mini-bert finetune"):
        load(mini)


# ---------------------------------------------------------------------- what is wrong with the data


def refused(kind, message, mini, tmp_path, train, dev=None, **more):
    paths = {}
    for name, text in (("train", train), ("dev", dev)):
        if text is not None:
            paths[name] = str(tmp_path / f"{name}.{ENDING[kind]}")
            Path(paths[name]).write_text(text)
    with pytest.raises(ValueError, match=message):
        finetuned_on(kind, **paths, model=str(mini), **QUICK, **more)


BAD = {
    "unknown label": ("classify", r"dev\.tsv:3: the label 'pozitive' is not in .*; did you mean 'positive'\?",
                      "sentence\tlabel\na\tpositive\nb\tnegative\n", "sentence\tlabel\na\tpositive\nb\tpozitive\n"),
    "no label column": ("classify", r"train\.tsv:1: no column for the label.* with --label NAME.* --label 2",
                        "sentence\tkind\na\tb\n", None),
    "empty sentence": ("classify", r"train\.tsv:3: sentence is empty", "sentence\tlabel\na\tx\n \ty\n", None),
    "one label": ("classify", "only the label 'x'", "sentence\tlabel\n" + "a\tx\nb\tx\n" * 20, None),
    "misaligned tags": ("tag", r"train\.conll:2: 1 field, expected 2", "cat\tO\ndog\n\n", None),
    "unknown tag": ("tag", r"dev\.conll:1: the label of word 2, 'dog', 'I-X' is not in",
                    "a\tO\nb\tB-X\n", "cat\tO\ndog\tI-X\n"),
    "no answer": ("qa", r"train\.jsonl:1: the question: the answer 'dog' is not at 4, which is 'cat'",
                  '{"question": "who?", "context": "the cat", "answers": [{"text": "dog", "answer_start": 4}]}',
                  None),
    "no text column": ("classify", r"train\.tsv:1: no column for the text.* with --text NAME",
                       "a\tlabel\na\tb\n", None),
    "no second column": ("similarity", r"train\.tsv:1: .* such as 'sentence2'; .* --second NAME",
                         "sentence1\tscore\na\t1\n", None),
    "no first column": ("similarity", r"train\.tsv:1: .* such as 's1'; .* --first NAME", "s2\tscore\na\t1\n", None),
    "no score column": ("similarity", r"train\.tsv:1: .* --score NAME", "s1\ts2\na\tb\n", None),
    "no score": ("similarity", r"train\.tsv:2: score is 'high', expected a number",
                 "score\tsentence1\tsentence2\nhigh\ta\tb\n", None),
    "all scores alike": ("similarity", "all 18 scores of the training data are 1: nothing to learn",
                         "score\tsentence1\tsentence2\n" + "".join(f"1\ta\t{n}\n" for n in range(20)), None),
    "too few": ("classify", "1 example, too few to hold some out", "sentence\tlabel\na\tx\n", None),
    "still too few": ("classify", "2 examples, too few to hold some out; give a dev file with --dev",
                      "sentence\tlabel\na\tx\nb\ty\n", None),
    "one label left": ("classify", "with 1 example held out, .* 'x', and there is nothing to learn; .* --dev",
                       "sentence\tlabel\n" + "".join(f"{n}\tx\n" for n in range(11)) + "b\ty\n", None),
    "one text": ("classify", "3 examples, all the same text, too few", "sentence\tlabel\n" + "a\tx\n" * 3, None),
    "pairs and not": ("classify", "single texts, the other pairs",
                      "sentence\tlabel\na\tx\na\ty\n", "sentence1\tsentence2\tlabel\na\tb\tx\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named_with_the_line(case, mini, tmp_path):
    kind, message, train, dev = BAD[case]
    refused(kind, message, mini, tmp_path, train, dev)


def test_bad_options(mini, tmp_path):
    with pytest.raises(ValueError, match="there is a dev file, x, but no training file"):
        read_data("classify", None, "x")
    paths = files(tmp_path, "classify")
    with pytest.raises(ValueError, match="max_length is 99, expected 8 to 24"):
        finetuned_on("classify", **paths, model=str(mini), max_length=99, **QUICK)
    with pytest.raises(ValueError, match="is not empty; choose a new or empty folder"):
        finetuned_on("classify", **paths, out=tmp_path, model=str(mini), **QUICK)


# ---------------------------------------------------------------------- what is held out, and what is drawn


def test_a_part_is_held_out_where_there_is_no_dev_file(mini, tmp_path, capsys):
    """It is held out in blocks, not every tenth line; screen, results.json and model card say that it is not an
    independent dev set."""
    rows = "".join(f"a film {n}\t{'pos' if n < 20 else 'neg'}\n" for n in range(40))
    (tmp_path / "sorted.tsv").write_text("sentence\tlabel\n" + rows)
    train = str(tmp_path / "sorted.tsv")
    data = read_data("classify", train, None)
    assert [example.line for example in data.dev] == [20, 21, 40, 41]  # of both labels, though the file is sorted
    assert sorted(example.line for example in [*data.train, *data.dev]) == list(range(2, 42))
    finetuned_on("classify", train, model=str(mini), out=tmp_path / "out", **QUICK)
    (note,) = json.loads((tmp_path / "out/results.json").read_text())["notes"]
    assert note.startswith(
        "measured on 4 examples of sorted.tsv, not used for training. They are not an independent dev set"
    )
    shown = capsys.readouterr().out
    assert "training: 36 examples, sorted.tsv; dev: 4 examples, held out of sorted.tsv\n" in shown
    assert note in shown and note[1:] in (tmp_path / "out/model/README.md").read_text()


@pytest.mark.parametrize("count", [2, 3, 9, 10, 57, 100, 999, 12_345])
def test_a_tenth_is_held_out_in_blocks_that_are_spread(count):
    chosen = sorted(held_out([1] * count))
    assert len(chosen) == max(1, count // 10) and chosen[-1] == count - 1 and chosen[0] >= 1
    starts = [place for place in chosen if place - 1 not in chosen]
    assert len(starts) == min(10, int(len(chosen) ** 0.5))
    if len(starts) > 1:
        assert max(np.diff(starts)) - min(np.diff(starts)) <= 3


def test_a_tenth_of_the_examples_is_held_out_although_texts_repeat():
    """A tenth of the lines, not of the different texts; a text on more than a tenth of the lines stays in training,
    unless all are on so many, and so does half of the texts."""
    lines = [tiny.Labelled(f"film {n // 2 if n < 20 else n}", None, "x", n) for n in range(40)]
    rest, kept, _ = cut(lines, "f.tsv")
    assert (len(rest), len(kept)) == (36, 4)
    often = [tiny.Labelled("good" if n % 40 else f"film {n}", None, "x", n) for n in range(400)]
    assert {one.text for one in cut(often, "f.tsv")[1]} == {f"film {n}" for n in (0, 240, 280, 320, 360)}
    assert held_out([30, 20, 50]) == {1}


@pytest.mark.parametrize("sizes", [[1] * 9 + [91], [91] + [1] * 9, [1, 1, 98], [2] * 5 + [1] * 5 + [400]])
def test_half_of_the_texts_stay_in_training(sizes):
    """One text that is on nearly all lines would be nothing to learn from."""
    assert 1 <= len(held_out(sizes)) <= len(sizes) // 2


def test_what_belongs_together_is_held_out_together(tmp_path):
    """All questions on a text, and all examples with the same text in any spelling, are on the same side."""
    asked = [
        tiny.Question(f"{text}.{n}", f"{n}?", f"text {text}", ["text"], [0], 1) for n in range(4) for text in range(7)
    ]
    rest, kept, note = cut(asked, "q.json")
    assert {one.context for one in kept}.isdisjoint({one.context for one in rest})
    assert len(kept) == 4 and "no text has questions on both sides" in note
    with pytest.raises(ValueError, match="has 4 examples, all the same questions on 1 text, too few"):
        cut(asked[::7], "q.json")
    same = [tiny.Labelled(f"Film {n % 20}" if n < 50 else f"film {n % 20}", None, "x", n) for n in range(100)]
    rest, kept, _ = cut(same, "f.tsv")
    assert len(kept) == 10 and {one.text.lower() for one in kept}.isdisjoint({one.text.lower() for one in rest})


def test_labels_that_are_hardly_classes_are_noted(tmp_path, caplog):
    """Numbers of lines are no classes. A file that is also the dev file is read, and warned about, once."""
    (tmp_path / "a.tsv").write_text("".join(f"a film {n}\t{n}\n" for n in range(20)))
    data = read_data("classify", *[str(tmp_path / "a.tsv")] * 2, text="1", label="2")
    assert data.notes[0].startswith("there are 20 different labels for 20 examples, such as '0': these are")
    assert len([one for one in caplog.messages if "only this line has the label '0'" in one]) == 1
    (tmp_path / "a.tsv").write_text("".join(f"a film {n}\t{n % 4}\n" for n in range(20)))
    assert len(read_data("classify", str(tmp_path / "a.tsv"), text="1", label="2").notes) == 1


def test_labels_that_are_only_held_out_are_no_error(tmp_path):
    tags = ["B-PER"] * 39 + ["B-LOC"]  # the last is held out
    (tmp_path / "t.conll").write_text("\n".join(f"w{n}\t{tag}\nis\tO\n" for n, tag in enumerate(tags)))
    data = read_data("tag", str(tmp_path / "t.conll"), None)
    assert data.labels == ["B-LOC", "B-PER", "O"]
    assert "B-LOC" in data.dev[-1].tags and not any("B-LOC" in example.tags for example in data.train)


def test_max_samples_draws_from_all_of_the_file(tmp_path):
    """Examples are not just the first of a sorted file; the same seed gives the same ones, another seed others; dev
    stays complete."""
    rows = "".join(f"a film {n}\t{'pos' if n < 100 else 'neg'}\n" for n in range(200))
    (tmp_path / "sorted.tsv").write_text("sentence\tlabel\n" + rows)
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\na cat\tpos\n")
    paths = str(tmp_path / "sorted.tsv"), str(tmp_path / "dev.tsv")
    data = read_data("classify", *paths, 40)
    assert len(data.train) == 40 == len(set(data.train)) and 10 < sum(one.label == "pos" for one in data.train) < 30
    assert [one.line for one in data.train] == sorted(one.line for one in data.train)
    assert read_data("classify", *paths, 40) == data != read_data("classify", *paths, 40, seed=1)
    assert data.notes == ["trained on 40 examples, drawn at random from 200"] and len(data.dev) == 1
    whole = read_data("classify", *paths, 200)
    assert whole == read_data("classify", *paths) and len(whole.train) == 200 and not whole.notes


def test_training_data_as_dev_data_is_said(mini, tmp_path, capsys):
    paths = files(tmp_path, "similarity")
    train = paths["train"]
    finetuned_on("similarity", train, train, model=str(mini), **QUICK)
    assert "is both training and dev data: the scores show how well" in capsys.readouterr().out
    for kind in EXAMPLES:
        (tmp_path / kind).mkdir()
        paths = files(tmp_path / kind, kind)
        copy = Path(paths["dev"])
        copy.write_text(Path(paths["train"]).read_text())
        (note,) = read_data(kind, **paths).notes
        assert note.startswith("48 of the 48 dev examples are also in the training data")


def test_tags_of_other_schemes(mini, tmp_path, capsys):
    """BILOU tags get an entity F1; with a tag of no scheme there is none, and its line is named."""
    text = "".join("ada\tB-PER\nben\tL-PER\nis\tO\n\nrome\tU-LOC\n\n" for _ in range(8))
    (tmp_path / "good.conll").write_text(text)
    (tmp_path / "bad.conll").write_text(text + "cleo\tM-PER\n")
    (result,) = finetuned_on(
        "tag", str(tmp_path / "good.conll"), str(tmp_path / "good.conll"), model=str(mini), **QUICK
    )
    assert "f1" in result.outcome.scores
    data = read_data("tag", str(tmp_path / "bad.conll"), str(tmp_path / "good.conll"))
    assert f"{tmp_path / 'bad.conll'}:49: scored word by word, without entity F1, because" in data.notes[0]
    (tmp_path / "pos.conll").write_text("dogs\tNOUN\nbark\tVERB\n\nit\tPRON\n\n" * 5)
    assert not any("word by word" in note for note in read_data("tag", str(tmp_path / "pos.conll"), None).notes)


# ---------------------------------------------------------------------- guessing


def test_guessing_is_known_by_hand():
    """Guessing means the most frequent class or tag of the dev data, the whole text, or no correlation."""
    texts = [tiny.Labelled("x", None, label, 1) for label in ("pos", "neg", "pos", "pos")]
    found = baseline(finetuned.Classify(["neg", "pos"]), texts)
    assert found.name == "always pos" and found.scores == {"accuracy": 0.75, "macro_f1": pytest.approx(3 / 7)}
    assert found.luck == pytest.approx(2 * (0.75 * 0.25 / 4) ** 0.5)
    words = [tiny.Tagged(["ada", "is", "in", "rome"], ["B-PER", "O", "O", "B-LOC"], 1)]
    found = baseline(finetuned.Tag(["B-LOC", "B-PER", "O"]), words)
    assert found[:2] == ("always O", {"f1": 0.0, "precision": 0.0, "recall": 0.0, "accuracy": 0.5}) and found.luck == 0
    asked = [tiny.Question("1", "who?", "cat sat down here", ["cat"], [0], 1)]
    found = baseline(finetuned.Answer(), asked)
    assert found[:2] == ("the whole text", {"f1": 0.4, "exact": 0.0})
    pairs = tiny.scored(17)
    found = baseline(finetuned.Similarity(0, 5), pairs)
    assert found == ("a constant", {"spearman": 0.0, "pearson": 0.0}, 0.5)


def test_what_is_no_better_than_guessing_is_called_so(mini, tmp_path, capsys):
    """With random labels, the table shows the baseline, and a sentence says that the result is not above it."""
    task = finetuned.Classify(["neg", "pos"])
    guess = baseline(task, tiny.labelled(50))
    at = guess.scores["accuracy"]
    run = TuningRun({}, 0, 400, 1.0, "done", None, (0.7, 0.6))
    assert verdict(task, at, guess, 50, run).startswith("No better than guessing: “always")
    assert verdict(task, at + 0.02, guess, 50, run).startswith(
        "Hardly better than guessing: 2.0 points more accuracy than “always"
    )
    assert "With 50 dev examples, up to 14" in verdict(task, at + 0.02, guess, 50, run)
    assert verdict(task, at + 0.2, guess, 50, run) is None
    short = run._replace(steps=16)
    assert verdict(task, at, guess, 50, short).startswith(
        "Not trained for long enough to tell: after 16 steps the new head"
    )
    assert verdict(task, at + 0.2, guess, 50, short) is None
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + "the cat\tpos\n" * 6 + "the cat\tneg\n" * 5)
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n" + "a film\tpos\na film\tneg\n" * 5)
    finetuned_on("classify", str(tmp_path / "train.tsv"), str(tmp_path / "dev.tsv"), model=str(mini), **QUICK)
    out = capsys.readouterr().out
    assert "guessing: always pos              50.0            33.3\n" in out and "reaches the same accuracy" in out
    finetuned_on("tag", **files(tmp_path, "tag"), model=str(mini), **QUICK | {"epochs": 6})
    out = capsys.readouterr().out
    assert "guessing: always O                 0.0" in out and "above guessing" not in out


def test_the_remedy_fits_what_ended_the_run():
    """If patience ended it, more epochs change nothing; if the loss rose far, the learning rate is the remedy."""
    task = finetuned.Classify(["neg", "pos"])
    guess = baseline(task, tiny.labelled(50))
    at = guess.scores["accuracy"]
    done = TuningRun({}, 0, 16, 1.0, "done", None, (0.7, 0.6))
    for steps in (16, 400):
        text = verdict(task, at, guess, 50, done._replace(steps=steps))
        assert "--epochs" in text and "--patience" not in text and "without" not in text
        text = verdict(task, at, guess, 50, done._replace(steps=steps, stopped="early"))
        assert "arger --patience" in text and "--epochs" not in text
        text = verdict(task, at, guess, 50, done._replace(steps=steps, losses=(0.7, 9e10)))
        assert text.startswith("The learning rate is far too high: the training loss rose from 0.7 to 9e+10")
        assert "smaller --learning-rate" in text and "--epochs" not in text and "--patience" not in text
    assert "trains it for longer" not in verdict(task, at, guess, 50, done._replace(stopped="interrupted"))


def test_the_data_is_described_once(mini, tmp_path, capsys):
    for quiet in (False, True):
        finetuned_on("classify", **files(tmp_path, "classify"), model=str(mini), **QUICK | {"quiet": quiet})
        shown = capsys.readouterr()
        assert shown.out.count("training: 48 examples, train.tsv") == 1 and "48 examples" not in shown.err


def test_progress_says_that_its_numbers_are_of_training(mini, tmp_path, capsys):
    """The progress line names the loss of training, after the score on dev data, and fits beside a bar in 100 columns.
    For similarity, where a guess is not right or wrong, no share of right ones is recorded."""
    found = {"epoch": 10.0, "loss": 0.25, "right": 0.696}
    assert progress(found, 10) == "epoch 10.0/10, training loss 0.250"
    others = len("pretrained, seed 0 ") + len(" 0:00:00 0:00:00")
    assert others + len("dev accuracy 100.0%; " + progress(found, 10)) <= 90
    for kind in ("classify", "similarity"):
        out = tmp_path / kind
        finetuned_on(kind, **files(tmp_path, kind), model=str(mini), out=out, **QUICK | {"quiet": False})
        shown = capsys.readouterr()
        last = shown.err.splitlines()[-1]
        records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        assert all(("right" in one) == (kind == "classify") for one in records if one["kind"] == "train")
        score = [one for one in records if one["kind"] == "dev"][-1]  # the line has the score of its own epoch
        measured = f"accuracy {score['accuracy']:.1%}" if kind == "classify" else f"spearman {score['spearman']:.3f}"
        assert last.startswith(f"pretrained, seed 0: dev {measured}; epoch 2.0/2, training loss ")
        assert ("dev, %" in shown.out) == (kind == "classify") != ("dev, × 100" in shown.out)  # correlations
        assert ("%" in (out / "model/README.md").read_text()) == (kind == "classify")


def test_what_is_cut_is_counted_in_good_english(caplog):
    for cuts, told in ((1, "1 text cut to fit into 5 tokens"), (2, "2 texts cut to fit into 5 tokens")):
        warn_about_cuts([SimpleNamespace(truncated=number) for number in [1] * cuts + [0] * 3000], 5)
        assert told in caplog.messages[-1]
    warn_about_cuts([SimpleNamespace(truncated=0)], 5)  # as long as the limit, but not cut
    assert len(caplog.messages) == 2


def test_sst2_needs_no_file(mini):
    """`python finetune_sst2.py --epochs 1 --max_samples 50` in the package folder uses synthetic data, and says so."""
    package = Path(finetuned.__file__).parents[1]
    words = ["--epochs", "1", "--max_samples", "50", "--model", str(mini)]
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "finetune_sst2.py", *words], cwd=package, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "training: 50 examples, synthetic English" in result.stdout and "accuracy" in result.stdout


@pytest.mark.parametrize("kind", EXAMPLES)
def test_synthetic_data_is_there_for_every_task(kind, mini, capsys):
    (result,) = finetuned_on(kind, model=str(mini), max_samples=20, **QUICK | {"epochs": 1})
    assert (
        "20 examples, synthetic English (mini_bert/data/synthetic); dev: 50 examples, synthetic"
        in capsys.readouterr().out
    )
    assert result.outcome.stopped == "done"


def test_options_reach_the_library(monkeypatch):
    """Every option of the four commands is passed on under its name."""
    calls = []

    def note(kind, data, settings, model, out, seeds, from_scratch, max_length, show, **options):
        calls.append((kind, settings, (model, out, seeds, from_scratch, max_length), options))
        ended = SimpleNamespace(outcome=SimpleNamespace(stopped="interrupted"))
        return SimpleNamespace(results=[ended], summary={}, text="")

    reads = []
    monkeypatch.setattr("mini_bert.finetuning.finetune.finetune", note)
    monkeypatch.setattr(
        "mini_bert.finetuning.data.read_data", lambda *words, **columns: reads.append((words, columns)) or None
    )
    settings = {"epochs": 4, "batch_size": 5, "learning_rate": 0.1, "layer_decay": 0.5, "dropout": 0.2,
                "word_dropout": 0.3, "patience": 7, "seed": 2, "threads": 6}  # fmt: skip
    others = {"train": "a", "dev": "b", "out": "c", "model": "mini-bert", "seeds": 3, "max_length": 30,
              "max_samples": 9}  # fmt: skip
    common = ["--from-scratch", "--json", "--quiet"]
    for name, value in (settings | others).items():
        common += [f"--{name.replace('_', '-')}", str(value)]
    more = {"classify": ["--text", "x"], "tag": ["--stride", "8", "--column", "1"], "qa": ["--stride", "8"],
            "similarity": ["--vectors", "--loss", "contrastive", "--score", "y"]}  # fmt: skip
    expected = {"classify": {}, "tag": {"stride": 8}, "qa": {"stride": 8},
                "similarity": {"vectors": True, "loss": "contrastive"}}  # fmt: skip
    for kind, extra in more.items():
        assert CliRunner().invoke(app, ["finetune", kind, *common, *extra]).exit_code == 130  # as Ctrl-C ends a program
        assert calls[-1] == (kind, FineTuning(**settings), ("mini-bert", Path("c"), 3, True, 30), expected[kind])
        assert reads[-1][0] == (kind, "a", "b", 9, 2, False)
    assert reads[0][1]["text"] == "x" and reads[1][1] == {"column": 1} and reads[3][1]["score"] == "y"


def test_the_options_have_the_defaults_of_the_library(monkeypatch, mini):
    seen = []
    monkeypatch.setattr("mini_bert.finetuning.finetune.finetune", lambda *words, **_: seen.append(words[2]))
    for kind in ("classify", "sst2"):
        CliRunner().invoke(app, ["finetune", kind, "--threads", "1", "--max-samples", "5"])
    assert seen == [FineTuning(), FineTuning()]


def test_defaults_follow_model_and_data():
    def found(kind, model=MiniBERT(tiny.MINI), items=67_349, **given):  # noqa: B008
        settings = with_defaults(FineTuning(**given), kind, model, items)
        return settings.learning_rate, settings.word_dropout, settings.epochs

    wide = SimpleNamespace(width=768)
    assert found("tag") == (1e-3, 0, 3) and found("classify") == (5e-4, 0.1, 3)
    assert found("qa", wide) == found("similarity", wide) == found("tag", wide) == (6e-5, 0, 3)
    assert found("classify", wide)[0] == 3e-5
    few = {1000: 10, 500: 13, 36: 100}  # 36 examples are two steps in an epoch: 100 epochs are 200 steps
    assert {count: found("tag", items=count)[2] for count in (67_349, 20_000, 8_000, *few)} == {
        67_349: 3, 20_000: 3, 8_000: 8, **few,
    }  # fmt: skip
    assert found("tag", learning_rate=0.1, word_dropout=0.0, epochs=1) == (0.1, 0, 1)


@pytest.mark.parametrize(("width", "given", "slow"), [(48, 1e-3, 3e-4), (48, 5e-4, 3e-4), (48, 1e-4, 1e-4),
                                                      (768, 6e-5, 3e-4 / 16)])  # fmt: skip
def test_a_control_learns_slowly_and_all_layers_alike(width, given, slow):
    model = SimpleNamespace(width=width)
    settings = FineTuning(learning_rate=given)
    assert settings_for(PRETRAINED, settings, 4, model) == replace(settings, seed=4)
    control = settings_for(SCRATCH, settings, 4, model)
    assert control == replace(settings, seed=4, layer_decay=1.0, learning_rate=control.learning_rate)
    assert control.learning_rate == pytest.approx(slow)


@pytest.mark.parametrize(("kind", "given", "hidden"), [("classify", None, 0.1), ("tag", None, 0), ("classify", 0.0, 0)])
def test_words_are_hidden_where_a_text_is_judged_as_a_whole(kind, given, hidden, mini):
    settings = FineTuning(epochs=1, word_dropout=given, learning_rate=5e-3)
    found = finetune(kind, read_data(kind, None, None, 20), settings, str(mini)).summary
    assert found["settings"]["word_dropout"] == found["control"]["word_dropout"] == hidden
    assert found["control"]["layer_decay"] == 1 and found["control"]["learning_rate"] == 3e-4


def test_words_are_hidden_behind_the_mask_of_the_vocabulary(mini, monkeypatch):
    """Word dropout uses the vocabulary's mask id: 4 in ours, 103 in that of published BERT."""
    seen = set()
    monkeypatch.setattr("mini_bert.finetuning.loop.hide", lambda batch, share, mask_id, run: seen.add(mask_id) or batch)

    def elsewhere(name):
        model, tokenizer = load_pair(name)
        tokenizer.roles["mask"] = tokenizer.tokens[17]
        return model, tokenizer

    monkeypatch.setattr("mini_bert.finetuning.finetune.load", elsewhere)
    finetuned_on("classify", model=str(mini), max_samples=20, **QUICK | {"epochs": 1})
    assert seen == {17}


def test_a_run_that_stops_early_says_so(mini, monkeypatch, capsys):
    monkeypatch.setattr(loop, "APART", 1)
    given = QUICK | {"epochs": 8, "learning_rate": 1e-9, "patience": 1, "max_samples": 20}
    finetuned_on("classify", model=str(mini), **given)
    assert "Stopped early: the score did not improve for a while. A larger --patience" in capsys.readouterr().out
    finetuned_on("classify", model=str(mini), seeds=2, **given | {"patience": 20})
    assert "Stopped early" not in capsys.readouterr().out
    finetuned_on("classify", model=str(mini), seeds=2, **given)
    assert "Stopped early in 2 of 2 runs:" in capsys.readouterr().out


def test_windows_count_when_epochs_are_chosen(mini, monkeypatch):
    """A question on a long text is several sequences, and each is a step here; this gives three epochs instead of 100 /
    20."""
    monkeypatch.setattr("mini_bert.finetuning.finetune.STEPS", 100)
    settings = {name: value for name, value in QUICK.items() if name != "epochs"} | {"batch_size": 1, "max_samples": 20}
    (found,) = finetuned_on("qa", model=str(mini), max_length=24, **settings)
    assert found.outcome.steps == 3 * 78  # windows

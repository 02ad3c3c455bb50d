"""The memory that `mini-bert plan` predicts is what a run needs, and its choice fits."""

import json
import re
import sys
import tracemalloc
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from mini_bert.cli import main as cli
from mini_bert.inference.loading import load_model
from mini_bert.layers.base import Run
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.models.base import MASKED_WORDS
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.models.registry import model_class
from mini_bert.models.sizes import Kept, Shape
from mini_bert.training.optim import Adam
from mini_bert.training.plan import (
    FRAGMENTATION,
    SPARE,
    Choice,
    best_choice,
    caches,
    choices,
    default_choice,
    describe,
    memory_by_purpose,
    parse_memory,
    peak_activations,
    plan_report,
    predicted_peak,
    relative_time,
    shape_of,
    train_options,
)
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.setup import Wanted
from mini_bert.training.switches import apply

TINY = MiniBertConfig(31, 10, 3, 2, 13, 11)
LONG = MiniBertConfig(2000, 96, 3, 4, 384, 512, dropout=0.1)
DROPPING = replace(TINY, dropout=0.1)
MIDDLE = MiniBertConfig(6000, 96, 4, 4, 384, 64, dropout=0.1)  # Larger-BERT's proportions: V large, I = 4 H
TINY_BERT = BertConfig(31, 10, 3, 2, 13, max_position_embeddings=11)
SMALL_BERT = BertConfig(6000, 96, 4, 4, 384, max_position_embeddings=64)
LONG_BERT = replace(SMALL_BERT, max_position_embeddings=512)
LARGER = describe(LARGER_BERT_CONFIG)


@pytest.mark.parametrize(
    ("config", "exact"),
    [(MINI_BERT_CONFIG, 4_498_880), (LARGER_BERT_CONFIG, 49_137_488),
     (replace(LARGER_BERT_CONFIG, tie_head=True), 29_937_488)],
)  # fmt: skip
def test_parameters_are_counted(config, exact):
    assert describe(config).parameters == exact


@pytest.mark.parametrize("config", [TINY_BERT, replace(TINY_BERT, tie_word_embeddings=False)])
def test_parameters_of_published_bert_are_counted(config):
    assert describe(config).parameters == Bert(config).get_parameter_count()
    assert describe(config, tie_head=True).parameters == Bert(TINY_BERT).get_parameter_count()


def distinct(item, seen):
    """Floats and mask bytes of a cache, with views of one buffer counted once."""
    if isinstance(item, np.ndarray):
        while item.base is not None:
            item = item.base
        if id(item) in seen:
            return Kept()
        seen[id(item)] = item
        return Kept(item.size if item.dtype.kind == "f" else 0, item.size if item.dtype.kind == "b" else 0)
    if isinstance(item, tuple | list):
        parts = [distinct(part, seen) for part in item]
        return Kept(sum(part.floats for part in parts), sum(part.masks for part in parts))
    return Kept()


@pytest.mark.parametrize("checkpointing", [False, (1,), (0, 2), True])
@pytest.mark.parametrize("attention", ["auto", "lean"])
@pytest.mark.parametrize("config", [TINY, DROPPING], ids=["plain", "dropout"])
def test_activations_are_those_of_a_real_cache(config, attention, checkpointing):
    """The predicted floats and mask bytes match, layer by layer."""
    model, ids, rows = MiniBERT(config), np.arange(21).reshape(3, 7), np.array([1, 4, 9, 20])
    assert model.get_parameter_count() == describe(config).parameters
    apply(model, TrainingConfig(steps=1, checkpointing=checkpointing, attention=attention))
    _, cache = model.loss(ids, rows, ids.ravel()[rows], run=Run(train=True))
    predicted = caches(describe(config), Shape(3, 7, 4, 2), Choice(3, 1, checkpointing, attention))
    seen: dict = {}
    encoded = cache.encoded
    masks = distinct(encoded.embedding[-1], seen)
    found = [masks, *(distinct(block, seen) for block in encoded.blocks)]
    found += [distinct((encoded.final, cache.terms), seen)]
    assert found == predicted


@pytest.mark.parametrize("checkpointing", [False, (1,), True])
@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new"])
def test_activations_of_published_bert_are_those_of_a_real_cache(activation, checkpointing):
    config = replace(TINY_BERT, hidden_act=activation)
    model, ids, rows = Bert(config), np.arange(21).reshape(3, 7), np.array([1, 4, 9, 20])
    apply(model, TrainingConfig(steps=1, checkpointing=checkpointing))
    _, cache = model.loss(ids, rows, ids.ravel()[rows], run=Run(train=True))
    predicted = caches(describe(config), Shape(3, 7, 4, 2), Choice(3, 1, checkpointing))
    seen: dict = {}
    encoded = cache.encoded
    found = [distinct(encoded.embedding[2:], seen), *(distinct(block, seen) for block in encoded.blocks)]
    found += [distinct(cache.terms, seen)]
    assert found == predicted


@pytest.mark.parametrize(
    ("config", "batch", "switches"),
    [
        (replace(MINI_BERT_CONFIG, vocab_size=4000), 8, {}),
        (MIDDLE, 8, {}),
        (MIDDLE, 16, {"checkpointing": True}),
        (MIDDLE, 16, {"checkpointing": (0, 1, 2)}),
        (replace(MIDDLE, tie_head=True, dropout=0.0), 16, {"checkpointing": (1,)}),
        (MIDDLE, 16, {"activations": "bfloat16"}),
        (LONG, 2, {"attention": "lean"}),
        (LONG, 2, {"attention": "lean", "activations": "bfloat16"}),
        pytest.param(LONG, 2, {"attention": "lean", "checkpointing": True}, marks=pytest.mark.slow),
        pytest.param(
            replace(LONG, dropout=0.0), 2, {"attention": "lean", "checkpointing": True}, marks=pytest.mark.slow
        ),
        (replace(LONG, max_seq_length=128), 8, {"attention": "lean", "checkpointing": True}),
        pytest.param(replace(LONG, max_seq_length=1200), 1, {"checkpointing": True}, marks=pytest.mark.slow),
        (SMALL_BERT, 8, {}),
        pytest.param(SMALL_BERT, 16, {"checkpointing": True}, marks=pytest.mark.slow),
        pytest.param(SMALL_BERT, 16, {"activations": "bfloat16"}, marks=pytest.mark.slow),
        pytest.param(replace(SMALL_BERT, hidden_act="relu"), 16, {}, marks=pytest.mark.slow),
        pytest.param(LONG_BERT, 2, {}, marks=pytest.mark.slow),
        pytest.param(LONG_BERT, 2, {"attention": "lean"}, marks=pytest.mark.slow),
    ],
)
def test_the_peak_of_a_step_is_foreseen(config, batch, switches):
    """The peak allocation of a training step is predicted within 10 %, not counting the weights."""
    model = describe(config)
    shape = shape_of(model, batch)
    held, when = peak_activations(model, shape, Choice(batch, **switches))
    ranked = shape.N * model.vocab_size if when == "at the output head" else 0  # evaluation's share: there is none here
    assert peak_of_a_step(config, shape, switches) == pytest.approx(held - ranked + 4 * (1 << 18), rel=0.1), when


def peak_of_a_step(config, shape, switches, heads=(MASKED_WORDS,)):
    """Bytes allocated at the peak of a step; the memory of the logits is reused and freed, as in training."""
    ids = np.random.default_rng(0).integers(5, config.vocab_size, (shape.B, shape.T))
    rows = (np.arange(0, ids.size, shape.T)[:, None] + np.arange(shape.M)).ravel()[: shape.N]
    tracemalloc.start()
    try:
        model = model_class(config.to_dict())(config, heads)
        head = model.output_head(heads[0])
        apply(model, TrainingConfig(steps=1, **switches))
        optimiser = Adam(model.flat)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2):
            tracemalloc.reset_peak()
            run = Run(train=True, pool=model.run.pool)
            hidden, encoded = model.encode(ids, run=run, chosen=rows)
            logits, cache = head.forward(hidden, run)
            _, entropy = cross_entropy(logits, ids.ravel()[rows], out=logits)
            dlogits = cross_entropy_backward(1.0, entropy, out=entropy.exp)
            dhidden = head.backward(dlogits, cache, run)
            del hidden, logits, cache, entropy, dlogits
            model.encode_backward(dhidden, encoded, run)
            del dhidden, encoded
            optimiser.step()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_every_switch_saves_what_it_should():
    """Half of the moments, a third of the activations, one set of gradients."""
    plain = Choice(8, 2)
    needs = memory_by_purpose(LARGER, plain)
    P = LARGER.parameters
    assert (needs["parameters"], needs["gradients"], needs["Adam's two moments"]) == (4 * P, 8 * P, 8 * P)
    half = memory_by_purpose(LARGER, plain._replace(moments="bfloat16"))
    assert half["Adam's two moments"] == 4 * P and sum(needs.values()) - sum(half.values()) == 4 * P
    again = memory_by_purpose(LARGER, plain._replace(checkpointing=True))
    assert 0.2 < again["activations"] / needs["activations"] < 0.5
    for changes in ({"activations": "bfloat16"}, {"micro_batch": 4}, {"attention": "lean"}, {"checkpointing": (3,)}):
        less = memory_by_purpose(LARGER, plain._replace(**changes))
        assert less["activations"] < needs["activations"] and FRAGMENTATION >= 1
    assert memory_by_purpose(LARGER, plain._replace(threads=1))["gradients"] == 4 * P
    narrow = memory_by_purpose(LARGER, plain._replace(weights="bfloat16"))
    assert sum(needs.values()) - sum(narrow.values()) == 2 * P  # they are also saved as they are, not widened


@pytest.mark.parametrize(("batch", "memory"), [(8, 1e9), (32, 1.2e9), (32, 0.95e9), (1, 1e9)])
def test_the_pick_fits_and_no_faster_one_does(batch, memory):
    best = best_choice(LARGER, batch, 2, memory)
    assert best is not None and predicted_peak(LARGER, best) <= SPARE * memory
    assert batch % best.micro_batch == 0 and best.threads <= batch
    for other in choices(LARGER, batch, 2):
        if relative_time(LARGER, batch, other) < relative_time(LARGER, batch, best):
            assert predicted_peak(LARGER, other) > SPARE * memory


def test_a_thread_that_waits_is_no_help():
    """7 parts on two threads take 4 rounds, as do 8; 6 take 3."""
    seven, eight, six = (relative_time(LARGER, n, Choice(1, 2)) for n in (7, 8, 6))
    assert seven == eight > six


def test_plenty_of_memory_changes_nothing():
    assert best_choice(describe(MINI_BERT_CONFIG), 32, 2, 64e9) == default_choice(32, 2) == Choice(16, 2)
    text, fits = plan_report("mini", 32, "8GB", 2)
    assert fits and "The default settings fit:" in text


def test_what_the_command_prints():
    """Parameters, memory by purpose, the switches with reasons, and a command that `mini-bert train` accepts."""
    text, fits = plan_report("larger", 32, "1.2GB", 2)
    assert fits
    for expected in ("49,137,488 parameters", "gradients", "moments of Muon and Adam", "to fit", "It fits with"):
        assert expected in text
    typed = text.splitlines()[-1].split()
    assert typed[:2] == ["mini-bert", "train"] and "--micro-batch" in typed
    options = {f"--{name.replace('_', '-')}" for name in signature(cli.train).parameters}
    assert {word for word in typed if word.startswith("--")} <= options


def test_nothing_fits(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["plan", "--model", "larger", "--batch", "8", "--memory", "500MB", "--threads", "2"])
    said = capsys.readouterr().out
    assert stop.value.code == 1
    assert "Nothing fits: training needs at least" in said and "--tie-head" in said and "--checkpointing" in said


@pytest.mark.parametrize("named", ["config.json", "."])
def test_published_bert_is_planned(tmp_path, monkeypatch, named):
    """From its config.json or the folder that contains it."""
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps({"model_type": "bert", "num_hidden_layers": 4, "hidden_size": 252}))
    text, fits = plan_report(named, 32, "2GB", 2)
    assert fits and text.startswith("BERT, ") and "(tied head): batches of 32 × 512 tokens" in text


@pytest.mark.parametrize("words", [[], ["--length", "8"], ["--next-sentence"], ["--tie-head", "--tokenizer", "8k"]])
def test_plan_info_and_train_agree(tmp_path, monkeypatch, capsys, words):
    """The parameters that are planned and shown are those that are trained, whatever the vocabulary, the heads and the
    length; `plan` and `info` name the parts that they count."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    Path("config.json").write_text(json.dumps(TINY_BERT.to_dict() | {"tie_word_embeddings": False}))
    Path("text.txt").write_text("\n\n".join("Cats purr.\nDogs bark.\nBirds sing." for _ in range(99)))
    model = ["--model", "config.json", *words]
    with pytest.raises(SystemExit):
        cli.main(["plan", *model, "--batch", "4"])
    planned = capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["info", *model])
    shown = capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        cli.main(["train", *model, "--corpus", "text.txt", "--steps", "1", "--batch-size", "4", "--out", "run"])
    assert not end.value.code
    built = load_model("run")
    length = 8 if "--length" in words else built.max_length
    assert f"{built.get_parameter_count():,} parameters" in planned and f"batches of 4 × {length} tokens" in planned
    parts = "Counted: tokens, positions, types, norm, 3 blocks, "
    if "--next-sentence" in words:
        parts += "pooler, masked_words, next_sentence.\n"
    else:
        parts += "masked_words. Not used in this training, so not counted: pooler, next_sentence.\n"
    assert parts in planned and f"BERT: {built.get_parameter_count():,} parameters\n{parts}" in shown
    assert f"batches of 16 × {length} tokens" in shown
    assert "so the model's vocab_size is 8,192" in planned and "so the model's vocab_size is 8,192" in shown
    assert " ".join(words) in planned.splitlines()[-1] or "--tie-head" in words


def test_commands_name_what_differs():
    choice = Choice(4, 2, (0, 2), optimizer="muon")
    wanted = Wanted("larger", tie_head=True, mask_prob=0.2)
    assert " ".join(train_options(wanted, 8, choice)) == (
        "--model larger --mask-prob 0.2 --tie-head --batch-size 8 --micro-batch 4 --threads 2 --checkpointing 0,2"
    )
    plain = ["--model", "mini", "--batch-size", "8", "--micro-batch", "8", "--threads", "1"]
    assert train_options(Wanted("mini"), 8, Choice(8, optimizer="muon")) == plain
    assert train_options(Wanted("mini"), 8, Choice(8)) == [*plain, "--optimizer", "adam"]


def test_the_command_is_called_as_the_reader_called_us(monkeypatch):
    monkeypatch.setenv("MINI_BERT_CALLED_AS", "python run.py")
    assert "\n    python run.py train --model mini" in plan_report("mini", 32, "8GB", 2)[0]


@pytest.mark.parametrize(
    ("text", "expected"), [("1GB", 1e9), ("900 MB", 9e8), ("1.5GiB", 1.5 * 2**30), ("512mib", 2**29), ("1000000", 1e6)]
)
def test_amounts(text, expected):
    assert parse_memory(text) == expected


@pytest.mark.parametrize("text", ["", "much", "1TB", "-1GB", "0GB"])
def test_amounts_that_are_none(text):
    with pytest.raises(ValueError, match=r"--memory is .*, expected an amount such as 1GB"):
        parse_memory(text)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_real_runs_need_what_was_said():
    """For training in a separate process, with several settings, the measured peak is within 10 % of the prediction."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from plan import SETTINGS, compare  # type: ignore[import-not-found]

    for setting in [setting for setting in SETTINGS if setting[0].model in ("mini", "electra", "transformer-xl")]:
        predicted, measured = compare(*setting)
        assert abs(predicted / measured - 1) < 0.1, setting


def test_muon_and_averages_are_planned():
    """Muon has one number instead of two for a weight of a matrix; an average is another copy of the weights. The more
    sequences, the less Muon's time matters."""
    model = describe(MINI_BERT_CONFIG)._replace(matrices=1_327_104)
    adam, muon = (memory_by_purpose(model, Choice(16, 2, optimizer=name)) for name in ("adam", "muon"))
    saved = adam["Adam's two moments"] - muon["moments of Muon and Adam"]
    assert saved == 4 * 1_327_104 and sum(adam.values()) - sum(muon.values()) < saved
    averaged = Choice(16, 2, average="ema")
    assert memory_by_purpose(model, averaged)["averaged weights"] == 4 * 4_498_880
    times = [relative_time(model, batch, Choice(16, 2, optimizer="muon")) / relative_time(model, batch, Choice(16, 2))
             for batch in (32, 256)]  # fmt: skip
    assert 1.05 < times[0] < 1.3 and 1 < times[1] < 1.03


def test_what_is_planned_is_accepted():
    """Averages need weights in float32, so a plan with one keeps them."""
    found = list(choices(LARGER, 4, 2, average="ema"))
    assert {choice.weights for choice in found} == {"float32"} and {choice.moments for choice in found} > {"float32"}
    assert len(found) * 2 == len(list(choices(LARGER, 4, 2)))


def test_the_report_has_the_recipe():
    text, fits = plan_report("mini", 32, "1GB", 2, optimizer="muon", average="tail", mask_start=0.4)
    assert fits and "moments of Muon and Adam" in text and "averaged weights" in text
    assert "a step takes about" in text and "--average tail --mask-start 0.4" in text
    plain, _ = plan_report("mini", 32, "1GB", 2)
    heads = [float(re.search(r"activations +([0-9.]+)", one)[1]) for one in (plain, text)]
    assert heads[1] > 1.2 * heads[0]  # more words are predicted
    with pytest.raises(ValueError, match="optimizer is 'lion'"):
        plan_report("mini", 32, "1GB", 2, optimizer="lion")


def test_micro_batches_divide_the_smallest_batch():
    """As in `train`: a batch that grows from 12 to 48 has micro-batches of 6 on two threads; never of 16,
    and of 12 only with one thread: the other would wait while a batch has 12."""
    text, _ = plan_report("mini", 48, "1GB", 2, batch_start=12)
    assert "default: micro-batches of 6, 2 threads" in text and text.endswith("--batch-start 12")
    assert {choice.micro_batch for choice in choices(LARGER, 48, 2, 12)} == {1, 2, 3, 4, 6, 12}
    assert {choice.micro_batch for choice in choices(LARGER, 48, 2, 12) if choice.threads == 2} == {1, 2, 3, 4, 6}
    with pytest.raises(ValueError, match="batch_start is 60, expected 1 to 48, the size of the whole batch"):
        plan_report("mini", 48, "1GB", 2, batch_start=60)

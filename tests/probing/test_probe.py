"""Probes: what they predict, what their accuracy is compared with, reproducible numbers; the command and its errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mini_bert.cli.inside import layer_numbers
from mini_bert.cli.inside import probe as probe_command
from mini_bert.data.labelled.readers import LabelError, Parsed, Tagged
from mini_bert.data.synthetic.dataset import SYNTHETIC, parsed, tagged
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.plots import style as plots
from mini_bert.probing import probe as probing
from mini_bert.probing.data import labels, read
from mini_bert.probing.dependency_probe import ROOT, DependencyProbe
from mini_bert.probing.label_probe import Examples, LabelProbe, WordTypes, control_labels, most_frequent
from mini_bert.probing.probe import probe, probes_for
from mini_bert.probing.report import DataSize, Results, Scores, Setting, report, report_json
from mini_bert.probing.word_vectors import check_layers
from mini_bert.text.wordpiece import WordPieceTokenizer

PACKAGE = Path(probing.__file__).parents[1]
SHARED = PACKAGE.parents[1] / "shared" / "data"
SIZES = MiniBertConfig(
    vocab_size=8192, hidden_size=12, num_layers=2, num_heads=2, intermediate_size=7, max_seq_length=32
)
CAT = Parsed(["The", "cat", "sat"], ["DET", "NOUN", "VERB"], [2, 3, 0], ["det", "nsubj:pass", "root"], 1)
DOG = Parsed(["the", "dog"], ["DET", "NOUN"], [2, 0], ["det", "root"], 5)


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.load("8k")


@pytest.fixture(scope="module")
def model():
    return MiniBERT(SIZES, seed=3)


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    model.save_pretrained(path)
    tokenizer.save(path)
    return str(path)


# --- what is asked


def test_words_that_the_model_spells_alike_are_one(tokenizer):
    """Word types are numbered in order of appearance, the same for training and dev; case is ignored."""
    word_types = WordTypes(tokenizer)
    assert word_types([["The", "cat"], ["the", "zyzzyva", "CAT"]]).tolist() == [0, 1, 0, 2, 1]
    assert word_types([["dog", "Cat"]]).tolist() == [3, 1]


def test_parts_of_speech_are_asked_of_every_word(tokenizer):
    (found,) = probes_for("pos", tokenizer, [CAT, DOG], [DOG])
    assert found.classes == ["DET", "NOUN", "VERB"] and found.train.words.tolist() == [[0], [1], [2], [3], [4]]
    assert found.train.targets.tolist() == [0, 1, 2, 0, 1] and found.dev.targets.tolist() == [0, 1]
    assert found.train.types.tolist() == [0, 1, 2, 0, 3] and found.dev.types.tolist() == [0, 3]


def test_relations_are_asked_of_a_word_and_its_head(tokenizer):
    """The root is left out and subtypes are removed; the vectors of word and syntactic head are concatenated."""
    relations, heads = probes_for("dep", tokenizer, [CAT, DOG], [DOG], ["root", "nsubj", "det"])
    assert relations.train.words.tolist() == [[0, 1], [1, 2], [3, 4]]
    assert relations.train.targets.tolist() == [2, 1, 2]
    assert heads.train.parents.tolist() == [1, 2, ROOT, 1, ROOT] and heads.dev.lengths == [2]
    vectors = np.arange(10.0).reshape(5, 2) ** 2
    x, _, _ = relations.prepare(vectors, vectors[3:])
    wanted = np.hstack([vectors[[0, 1, 3]], vectors[[1, 2, 4]]])
    np.testing.assert_allclose(x, (wanted - wanted.mean(0)) / wanted.std(0))


def test_entities_are_scored_whole(tokenizer):
    """For F1, part of an entity does not count; for accuracy, every word does."""
    one = Tagged(["Anna", "Bell", "sang"], ["B-PER", "I-PER", "O"], 1)
    (found,) = probes_for("ner", tokenizer, [one], [one, one])
    numbers = {name: number for number, name in enumerate(found.classes)}
    said = np.array([numbers[tag] for tag in ["B-PER", "I-PER", "O", "B-PER", "O", "O"]])
    assert found.f1(said) == pytest.approx(0.5)
    assert probes_for("pos", tokenizer, [one], [one])[0].f1(said) is None


def test_the_penalty_reaches_both_probes_of_a_task(tokenizer):
    """A given penalty applies to both; without one, each has its own default, which is much larger for
    syntactic heads."""
    one = Parsed(["Anna", "sang"], ["PROPN", "VERB"], [2, 0], ["nsubj", "root"], 1)
    assert [probe.l2 for probe in probes_for("dep", tokenizer, [one], [one], l2=7.0)] == [7.0, 7.0]
    assert [probe.l2 for probe in probes_for("dep", tokenizer, [one], [one])] == [10.0, 10_000.0]
    with pytest.raises(ValueError, match="l2 is -1, expected more than 0"):
        DependencyProbe("syntactic head", None, None, l2=-1)


def test_control_labels_hang_on_the_word():
    """One label for each word type, the same in training and dev; the seed decides; as frequent as the real labels."""
    rng = np.random.default_rng(0)
    targets, types = rng.choice(3, 4000, p=[0.7, 0.2, 0.1]), rng.integers(0, 3000, 4000)
    train, dev = (
        Examples(np.zeros((2000, 1), int), targets[part], types[part], []) for part in np.split(np.arange(4000), 2)
    )
    found = LabelProbe("x", ["a", "b", "c"], train, dev)
    labelled: dict[int, int] = {}
    for part, given in zip((train, dev), found.targets(5), strict=True):
        for kind, label in zip(part.types.tolist(), given.tolist(), strict=True):
            assert labelled.setdefault(kind, label) == label
    np.testing.assert_array_equal(found.targets(5)[1], found.targets(5)[1])
    assert (found.targets(5)[1] != found.targets(6)[1]).any()
    share = np.bincount(control_labels(train, dev, 3, 5)) / 3000
    np.testing.assert_allclose(share, [0.7, 0.2, 0.1], atol=0.03)
    assert control_labels(train, dev, 3, 5)[:9].tolist() == control_labels(train, dev, 3, 5)[:9].tolist()


def test_baselines():
    """The most frequent label; each word's most frequent one, or the overall one for an unseen word; the first one if
    tied."""
    train = Examples(np.zeros((6, 1), int), np.array([1, 1, 0, 1, 0, 2]), np.array([0, 0, 0, 1, 2, 2]), [6])
    dev = Examples(np.zeros((4, 1), int), np.array([1, 0, 1, 2]), np.array([0, 2, 9, 1]), [4])
    assert most_frequent(train.types, train.targets) == (1, {0: 1, 1: 1, 2: 0})
    assert LabelProbe("x", ["a", "b", "c"], train, dev).baselines() == {
        "always b": 0.5,
        "each word's most frequent label": 0.75,
    }


# --- layer by layer


def test_the_network_with_random_weights(model):
    """It has the same sizes and depends only on the seed, not on the trained weights; also for published BERTs."""
    for one in (model, Bert(BertConfig(20, 10, 2, 2, 7, max_position_embeddings=11), seed=4)):
        first, again, other = one.untrained(1), one.untrained(1), one.untrained(2)
        assert type(first) is type(one) and first.config == one.config
        np.testing.assert_array_equal(first.flat.data, again.flat.data)
        assert (first.flat.data != other.flat.data).any()
    np.testing.assert_array_equal(model.untrained(3).flat.data, model.flat.data)


def test_a_model_that_knows_is_above_random_weights(tokenizer):
    """If the embeddings encode the part of speech, accuracy and selectivity are high in the model and low with random
    weights."""
    train, dev = parsed(150, 0, "train"), parsed(60, 0, "dev")
    knows = MiniBERT(SIZES, seed=0)
    names = sorted({tag for one in (*train, *dev) for tag in one.tags})
    rng = np.random.default_rng(0)
    code = rng.normal(size=(len(names), 12)) * 3
    for one in (*train, *dev):
        for word, tag in zip(one.words, one.tags, strict=True):
            for i in tokenizer.ids([word])[0]:
                knows.tokens.table.data[i] = code[names.index(tag)]
    (found,) = probe(knows, tokenizer, "pos", train, dev, names, layers=[0])
    trained, random = found.trained[0], found.random[0]
    assert trained.accuracy[0] > 0.9 > 0.75 > random.accuracy[0] > found.baselines[f"always {most(train)}"]
    assert trained.selectivity[0] > 0.3 and abs(random.selectivity[0]) < 0.2


def most(sentences):
    tags = [tag for one in sentences for tag in one.tags]
    return max(sorted(set(tags)), key=tags.count)


@pytest.mark.parametrize("task", ["pos", "dep", "ner"])
def test_the_same_numbers_every_time(task, model, tokenizer, monkeypatch):
    """The results do not depend on the number of threads or on how many layers are in memory at a time; seeds
    differ."""
    make = tagged if task == "ner" else parsed
    train, dev = make(15, 0, "train"), make(15, 0, "dev")
    known = read(task, limit=100).classes
    found = probe(model, tokenizer, task, train, dev, known, (0, 1), [0, 2])
    assert [one.title for one in found] == {
        "pos": ["part of speech"],
        "dep": ["relation to the syntactic head", "syntactic head"],
        "ner": ["entity tag"],
    }[task]
    monkeypatch.setattr(probing, "BYTES", 1)
    assert probe(model, tokenizer, task, train, dev, known, (0, 1), [0, 2], threads=3) == found
    for one in found:
        assert list(one.trained) == list(one.random) == [0, 2]
        assert len(one.trained[0].control) == 2 and len(set(one.trained[0].accuracy)) == 1
        assert task == "ner" or any(len(set(scores.accuracy)) == 2 for scores in one.random.values())
        assert bool(one.trained[0].f1) == (task == "ner")
    single = probe(model, tokenizer, task, train, dev, known, seeds=(1,), layers=[2])
    assert single[0].trained[2].control == found[0].trained[2].control[1:]
    assert single[0].random[2].accuracy == found[0].random[2].accuracy[1:]


def test_what_cannot_be_probed(model, tokenizer):
    one = Tagged(["a"], ["X"], 1)
    with pytest.raises(ValueError, match="there is no probe 'srl'; expected one of pos, dep, ner"):
        probe(model, tokenizer, "srl", [one], [one])
    with pytest.raises(TypeError, match="the probe dep needs sentences with dependency trees"):
        probe(model, tokenizer, "dep", [one], [one])
    with pytest.raises(LabelError, match="'Y' is not in the training data"):
        probe(model, tokenizer, "pos", [one], [Tagged(["a"], ["Y"], 1)])
    with pytest.raises(ValueError, match="the training sentences contain no words with a syntactic head"):
        probe(model, tokenizer, "dep", [Parsed(["Hm"], ["INTJ"], [0], ["root"], 1)], [DOG], ["root", "det"])
    with pytest.raises(ValueError, match="the training sentences contain no words"):
        probe(model, tokenizer, "pos", [], [one], ["X"])
    lost = model.untrained(0)
    lost.tokens.table.data[:] = np.nan
    with pytest.raises(ValueError, match=r"the model has vectors with NaN or infinite values \(embeddings\)"):
        probe(lost, tokenizer, "pos", [one], [one])
    with pytest.raises(ValueError, match="no seed is given"):
        probe(model, tokenizer, "pos", [one], [one], seeds=())


# --- data


def test_samples(tmp_path):
    """A random part of each file, the same every time; the order stays, and all labels of the file stay known."""
    path = write(tmp_path / "a.conll", "".join(f"{number}\t{'A' if number else 'B'}\n\n" for number in range(50)))
    some = read("pos", path, path, limit=10)
    words = [int(one.words[0]) for one in some.train]
    assert len(words) == len(some.dev) == 10 and words == sorted(words) != list(range(10))
    assert some.classes == ["A", "B"] and some == read("pos", path, path, limit=10)
    assert len(read("pos", path, path).train) == len(read("pos", path, path, limit=50).train) == 50
    assert read("ner", limit=5)[:2] == (tagged(5), tagged(5, split="dev"))
    assert labels("dep", [CAT])[0].tags == ["det", "nsubj", "root"]


CONLLU = """# text = The cat sat
1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\t_\t_\t3\tnsubj:pass\t_\t_
3\tsat\tsit\tVERB\t_\t_\t0\troot\t_\t_

"""


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8", newline="\n")
    return str(path)


@pytest.mark.parametrize(
    ("task", "train", "dev", "told"),
    [
        ("pos", CONLLU, CONLLU + CONLLU.replace("VERB", "VRB"), r"dev:7: .*word 3, 'sat', 'VRB' is .* mean 'VERB'\?"),
        ("pos", "The\tDET\ncat\n", CONLLU, r"train:2: 1 field, expected 2"),
        ("pos", "", CONLLU, r"train: the file has no examples"),
        ("dep", CONLLU.replace("\t3\tnsubj", "\t9\tnsubj"), CONLLU, r"train:3: the head of 'cat' is '9'"),
        ("dep", CONLLU, CONLLU.replace("nsubj", "subj"), r"dev:2: .*'subj' is not in the training data"),
        (
            "ner",
            "Anna\tB-PER\nsang\tO\n",
            "\nthe\tO\nBell\tPER\n",
            r"dev:2: the tag of 'Bell' is 'PER', expected O, or B-",
        ),
        ("ner", "Anna\tB-PER\nsang\tO\n", "Rome\tB-LOC\n", r"dev:1: .*'B-LOC' is not in the training data"),
    ],
    ids=["unknown label", "missing tag", "empty", "bad head", "unknown relation", "not BIO", "unknown entity"],
)
def test_bad_files_are_named_with_their_line(task, train, dev, told, tmp_path):
    """The error comes before a model is loaded, with file, line and content."""
    files = write(tmp_path / "train", train), write(tmp_path / "dev", dev)
    with pytest.raises(LabelError, match=told):
        probe_command(task, *files, model="nowhere")


def test_files_are_read(tmp_path):
    """CoNLL-U for all tasks; one word and tag per line for pos and ner; another column if given."""
    treebank = write(tmp_path / "a.conllu", CONLLU)
    assert read("pos", treebank, treebank).classes == ["DET", "NOUN", "VERB"]
    assert read("dep", treebank, treebank).classes == ["det", "nsubj", "root"]
    table = write(tmp_path / "b.conll", "Anna NNP B-PER\nsang VBD O\n")
    assert read("ner", table, table).classes == ["B-PER", "O"]
    assert read("pos", table, table, column=1).classes == ["NNP", "VBD"]
    with pytest.raises(LabelError, match=r"the tag of 'Anna' is 'NNP'.*--column"):
        read("ner", table, table, column=1)
    other = write(tmp_path / "c.conllu", CONLLU + CONLLU.replace("The\tthe", "A\ta"))
    assert read("dep", treebank, other).notes == [
        "1 of the 2 dev examples is also in the training data: scores are too high"
    ]
    assert read("dep", treebank, write(tmp_path / "d.conllu", CONLLU.replace("The\tthe", "A\ta"))).notes == []
    with pytest.raises(ValueError, match="--train is given, but not --dev"):
        read("pos", treebank, None)
    with pytest.raises(ValueError, match="--dev is given, but not --train"):
        read("pos", None, treebank)


# --- what is shown


def made_up(f1=(), seeds=2) -> Results:
    """Plausible numbers for four layers"""
    trained = {layer: Scores([0.8 + layer / 100] * seeds, [0.5, 0.6][:seeds], f1) for layer in range(3)}
    random = {layer: Scores([0.7, 0.71][:seeds], [0.65, 0.64][:seeds], f1) for layer in range(3)}
    return Results(
        "part of speech",
        17,
        DataSize(100, 1234),
        DataSize(20, 345),
        10.0,
        {"always X": 0.2, "own": 0.75},
        trained,
        random,
    )


SETTING = Setting("pos", "some/model", "a/train.conllu", "b/dev.conllu", False, 2, "mean")


def test_the_table():
    """Mean and standard deviation of each number; the best layer compared with the best one with random weights; where
    the data are from."""
    text = report(SETTING, [made_up()])
    assert "trained on train.conllu, measured on dev.conllu" in text and "1,234 words" in text and "17 classes" in text
    assert "82.0% ±0.0" in text and "55.0% ±7.1" in text and "70.5% ±0.7" in text and "27.0 ±7.1" in text
    assert "best: layer 1, accuracy 82.0%, 11.5 points above the best random layer (embeddings, 70.5%)" in text
    assert "selectivity 27.0 points" in text and max(map(len, text.splitlines())) <= 120
    text = report(SETTING, [made_up()._replace(train=DataSize(1, 1), classes=1)])
    assert "out of 1 class\ntrained on 1 sentence (1 word), measured on 20 (345)" in text
    text = report(SETTING._replace(train=SYNTHETIC, dev=SYNTHETIC, synthetic=True), [made_up()])
    assert SYNTHETIC in text
    text = report(SETTING._replace(seeds=1), [made_up(f1=[0.4], seeds=1)])
    assert "±" not in text and "F1 40.0%, 0.0 points" in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_same_for_programs():
    record = json.loads(report_json(SETTING, [made_up()]))
    (one,) = record["probes"]
    assert record["model"] == "some/model" and record["synthetic"] is False and one["best"]["layer"] == 2
    assert one["best"]["above_random"] == pytest.approx(0.115)
    assert one["layers"][1]["trained"]["control"] == {
        "mean": 0.55,
        "spread": pytest.approx(0.0707, abs=1e-4),
        "values": [0.5, 0.6],
    }
    assert "f1" not in one["layers"][0]["trained"]


def test_layers_as_people_write_them():
    assert layer_numbers("3, 1,1") == [2, 4]
    assert layer_numbers("embeddings,0") == [0, 1]
    for text, told in (("one", "expected numbers"), ("1-", "expected numbers"), ("3-1", "selects no layer")):
        with pytest.raises(ValueError, match=told):
            layer_numbers(text)


def test_the_picture(monkeypatch):
    """Every line is there with its numbers; nothing is outside the page; pyplot is not used."""
    agg = pytest.importorskip("matplotlib.backends.backend_agg")
    from mini_bert.probing.figures import probe_results

    monkeypatch.setattr(plots, "DPI", 50)
    figure = probe_results(SETTING._replace(model="_a $5 model"), [made_up([0.3, 0.5])])
    agg.FigureCanvasAgg(figure).draw()
    panels = figure.get_axes()
    assert len(panels) == 3 and "matplotlib.pyplot" not in sys.modules
    assert list(panels[0].containers[0].lines[0].get_ydata()) == pytest.approx([80, 81, 82])
    texts = [text.get_text() for text in panels[0].get_legend().get_texts()]
    assert {"the model", "the model, control", "random weights", "random weights, control", "always X", "own"} == set(
        texts
    )
    for axes in panels:
        for text in (
            axes.title,
            axes.xaxis.label,
            axes.yaxis.label,
            *axes.get_legend().get_texts(),
        ):
            box = text.get_window_extent()
            assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1, text
    with pytest.raises(ValueError, match="no results to draw"):
        probe_results(SETTING, [])


# --- the command


@pytest.mark.parametrize("task", ["pos", "dep", "ner"])
def test_the_command_on_synthetic_sentences(task, folder, capsys):
    """A table that names them, of the layers that are asked for."""
    probe_command(task, model=folder, max_sentences=12, seeds=2, layers="embeddings,1")
    captured = capsys.readouterr()
    assert SYNTHETIC in captured.out and "±" in captured.out
    assert captured.out.count("\nembeddings ") == captured.out.count("\n1 ") == 1 + (task == "dep")
    assert "\n0 " not in captured.out and captured.err == ""  # so little takes no time


def test_the_folder_of_results(folder, tmp_path, capsys, monkeypatch):
    """With --out: the same as --json prints, and a figure; the folder is created."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(plots, "DPI", 40)
    out = tmp_path / "new" / "folder"
    probe_command("pos", model=folder, max_sentences=12, out=out, seeds=2, layers="embeddings,1", as_json=True)
    written = (out / "probe_pos.json").read_text()
    captured = capsys.readouterr()
    assert captured.out == written and captured.err.split() == [
        str(out / f"probe_pos.{kind}") for kind in ("json", "png")
    ]
    record = json.loads(written)
    assert record["synthetic"] and record["train"] == SYNTHETIC and len(record["probes"]) == 1
    layers = record["probes"][0]["layers"]
    assert [(layer["layer"], layer["name"]) for layer in layers] == [(0, "embeddings"), (2, "layer 1")]
    assert len(record["probes"][0]["layers"][0]["trained"]["accuracy"]["values"]) == 2
    assert (out / "probe_pos.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_on_files(folder, tmp_path, capsys):
    """With all sentences of the files, whatever the seed does not affect is the same for all seeds; --json prints what
    --out writes."""
    text = (
        "".join(f"{word}\t{tag}\n" for one in parsed(40) for word, tag in zip(one.words, one.tags, strict=True)) + "\n"
    )
    path = write(tmp_path / "a.conll", text)
    probe_command("pos", path, path, folder, seeds=2, as_json=True)
    record = json.loads(capsys.readouterr().out)
    assert record["train"] == path and not record["synthetic"]
    assert len(record["notes"]) == 1 and "is both training and dev data" in record["notes"][0]
    assert f"\n  {record['notes'][0]}\n" in report(SETTING._replace(notes=record["notes"]), [made_up()])
    layer = record["probes"][0]["layers"][1]
    assert layer["trained"]["accuracy"]["spread"] == 0 < layer["random"]["accuracy"]["spread"]
    assert len(set(layer["trained"]["control"]["values"])) == 2


def test_without_matplotlib(folder, tmp_path, capsys, monkeypatch):
    """The table is printed and saved; a line says what to install for the figure."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    probe_command("pos", model=folder, max_sentences=5, out=tmp_path, layers="embeddings")
    assert "no picture: pictures are drawn by matplotlib (the extra `plots`)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["probe_pos.json"]


def test_wrong_arguments(folder):
    with pytest.raises(ValueError, match=r"--layers is '0-3', but there is no layer 3: .* has layers 0 to 1; choose"):
        probe_command("pos", model=folder, layers="0-3", max_sentences=5)
    with pytest.raises(ValueError, match="pooling is 'max'"):
        probe_command("pos", model=folder, pooling="max", max_sentences=5)
    with pytest.raises(ValueError, match=r"config.json is a file, expected a folder"):
        probe_command("pos", model="nowhere", out=Path(f"{folder}/config.json"))
    with pytest.raises(ValueError, match="l2 is 0"):
        probe_command("pos", model=folder, l2=0, max_sentences=5)


def test_layers_in_python_are_hidden_states(folder):
    with pytest.raises(ValueError, match="layers has 3, but this model has 2 layers: expected 0 for the embeddings"):
        check_layers(MiniBERT.from_pretrained(folder), [0, 3])


def test_the_script_in_its_folder(folder):
    """`python probe_pos.py --max_sentences 5` inside mini_bert/ is the command."""
    words = [sys.executable, "-X", "utf8", "probe_pos.py", "--max_sentences", "5", "--model", folder]
    done = subprocess.run([*words, "--layers", "1"], cwd=PACKAGE, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0 and SYNTHETIC in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "ud_ewt").is_dir(), reason="needs ../shared/data/ud_ewt")
def test_parts_of_speech_in_the_bundled_model(capsys):
    """On UD English EWT, the best layer has at least 88 %, 8 points above the best layer with random weights."""
    files = [str(SHARED / "ud_ewt" / f"en_ewt-ud-{part}.conllu.gz") for part in ("train", "dev")]
    probe_command("pos", *files, as_json=True)
    best = json.loads(capsys.readouterr().out)["probes"][0]["best"]
    print(best)
    assert best["score"] >= 0.88 and best["above_random"] >= 0.08

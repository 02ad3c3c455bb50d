"""Every objective through `pretrain`: records, held-out text, doctor, exact resumption; and models to start from."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.files.model_folder import read_tensors
from mini_bert.inference.loading import load_model
from mini_bert.models.albert import AlbertConfig
from mini_bert.models.base import REPLACED
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.deberta_v2 import DebertaV2, DebertaV2Config
from mini_bert.models.distilbert import DistilBert, DistilBertConfig
from mini_bert.models.electra import Electra, ElectraConfig
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.registry import PRESETS
from mini_bert.models.transformer_xl import TransformerXLConfig
from mini_bert.models.xlnet import XLNet, XLNetConfig
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.objectives.registry import OBJECTIVES
from mini_bert.objectives.replaced_tokens import ReplacedTokens
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import GPT2 as GPT2_RULES
from mini_bert.text.byte_level import BYTE_CHARACTERS
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.defaults import default_learning_rate
from mini_bert.training.doctor import diagnose, summary
from mini_bert.training.history import further_parts, read_run
from mini_bert.training.pretraining import pretrain, resume
from mini_bert.training.setup import Wanted, set_up
from tests.training.made_up import WORDS

V = len(WORDS)
BERT = BertConfig(V, 12, 2, 3, 16, max_position_embeddings=24)
ELECTRA = ElectraConfig(V, 12, 2, 3, 16, embedding_size=8, max_position_embeddings=24,
                        generator={"hidden_size": 6, "num_attention_heads": 1, "intermediate_size": 8})  # fmt: skip
QUICK = {"batch_size": 8, "micro_batch": 4, "quiet": True, "learning_rate": 0.01, "warmup": 0.1, "held_out": 0.1}
RUNS = {  # config, options, the parts of the loss after the first
    "masked words": (BERT, {}, []),
    "whole words": (BERT, {"masking": "whole-word", "mask_prob": 0.2}, []),
    "spans": (BERT, {"masking": "span"}, []),
    "next sentence": (BERT, {"objective": "masked-words-and-next-sentence"}, ["next_sentence"]),
    "sentence order": (
        AlbertConfig(V, 12, 2, 3, 16, embedding_size=5, max_position_embeddings=24), {}, ["sentence_order"],
    ),
    "electra": (ELECTRA, {}, ["replaced"]),
    "deberta v3": (
        DebertaV2Config(V, 12, 2, 3, 16, max_position_embeddings=24, relative_attention=True,
                        pos_att_type=["p2c", "c2p"], generator={"num_hidden_layers": 1}), {}, ["replaced"],
    ),
    "next word": (GPT2Config(V, 24, 12, 2, 3, 16), {}, []),
    "memory": (
        TransformerXLConfig(V, (7,), 12, 12, 3, 4, 16, 1, n_layer=2, mem_len=5, clamp_len=-1, same_length=False,
                            tgt_len=9), {}, [],
    ),
    "permutation": (XLNetConfig(V, 12, 2, 3, 16, mem_len=0, seq_len=20), {"masking": "span"}, []),
    "distillation": (
        DistilBertConfig(V, 24, n_layers=1, n_heads=3, dim=12, hidden_dim=16), {"teacher": "teacher"},
        ["soft_targets", "hidden_states"],
    ),
}  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A text of pairs of words, a vocabulary, and a teacher."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINI_BERT_HOME", str(tmp_path / "home"))
    rng = np.random.default_rng(0)
    documents = [
        "\n".join(" ".join(WORDS[5 + 2 * k : 7 + 2 * k]) + " ." for k in rng.integers(0, 4, 6)) for _ in range(80)
    ]
    Path("text.txt").write_text("\n\n".join(documents), encoding="utf-8")
    tokenizer = WordPieceTokenizer(WORDS)
    tokenizer.save("vocabulary")
    Bert(BERT, ("masked_words", "pooler"), seed=7).save_pretrained("teacher")
    tokenizer.save("teacher")
    return tmp_path


def train(out, config=None, steps=4, **options):
    given = {"tokenizer": "vocabulary", "corpus": ["text.txt"], "save_every": 2, "eval_every": 2, **QUICK} | options
    if config is not None:
        Path("config.json").write_text(json.dumps(config.to_dict()))
        given["model"] = "config.json"
    return pretrain(out=Path(out), steps=steps, **{name: value for name, value in given.items() if value is not None})


def tensors(run, step=4):
    """Everything in a checkpoint: weights, moments, memories."""
    folder = Path(run) / "checkpoints" / f"step-{step:08d}"
    return {f"{file}.{name}": array for file in ("model", "optimizer")
            for name, array in read_tensors(folder / f"{file}.safetensors").items()}  # fmt: skip


def assert_same(one, other):
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_cut_ends_with_the_same_bits(place, name):
    """Stopped after its first checkpoint and resumed, it ends with the same weights, moments and memory. Its parts are
    recorded in training and on held-out text, and the doctor reads them."""
    config, options, parts = RUNS[name]
    train("run", config, threads=2, **options)
    whole = tensors("run")
    history = read_run("run")
    for kind in ("train", "eval"):
        found = further_parts(history.last(kind))
        assert found == [part for part in parts if kind == "train" or part != "hidden_states"]
    assert history.unigram_loss is not None and 0.1 < history.predicted <= 1
    assert diagnose("run") and load_model("run").get_parameter_count() > 0
    shutil.rmtree("run/checkpoints/step-00000004")
    shutil.rmtree("run/model")
    assert resume(Path("run"), quiet=True).step == 4
    assert_same(tensors("run"), whole)


def test_the_memory_of_every_lane_is_in_the_checkpoint(place):
    """Eight lanes, five tokens, one array for each block."""
    train("run", RUNS["memory"][0], threads=1)
    found = {name: array for name, array in tensors("run").items() if "memory." in name}
    assert list(found) == ["optimizer.memory.0", "optimizer.memory.1"]
    for array in found.values():
        assert array.shape == (8, 5, 12) and np.abs(array).sum((1, 2)).all()


@pytest.mark.parametrize("name", ["electra", "distillation", "spans", "memory", "permutation"])
def test_the_number_of_threads_only_affects_rounding(place, name):
    config, options, _ = RUNS[name]
    found = []
    for threads in (1, 2):
        train(f"run-{threads}", config, steps=2, threads=threads, **options)
        found.append(read_run(f"run-{threads}").last("eval"))
    for key, value in found[0].items():
        if key.endswith("loss"):
            assert found[1][key] == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("name", [name for name in RUNS if name not in ("whole words", "spans")])
def test_the_switches_that_save_memory_resume_exactly(place, name):
    """Weights and moments in 16 bits, a layer that is recomputed, the others' activations in 16 bits."""
    config, options, _ = RUNS[name]
    saving = {"weights": "bfloat16", "moments": "bfloat16", "activations": "bfloat16", "checkpointing": (0,)}
    train("run", config, threads=2, **options, **saving)
    whole = read_tensors("run/checkpoints/step-00000004/model.safetensors")
    shutil.rmtree("run/checkpoints/step-00000004")
    shutil.rmtree("run/model")
    resume(Path("run"), quiet=True)
    assert_same(read_tensors("run/checkpoints/step-00000004/model.safetensors"), whole)


def test_options_are_part_of_the_run(place):
    """They are stored, and a run whose options were edited does not continue."""
    train("run", BERT, masking="span", mask_prob=0.25)
    config = json.loads(Path("run/config.json").read_text())
    assert config["objective_options"] == {"span": True, "mask_prob": 0.25}
    assert "of the 25 % of words that are chosen in runs of words" in Path("run/model/README.md").read_text()
    config["objective_options"]["mask_prob"] = 0.15
    Path("run/config.json").write_text(json.dumps(config))
    shutil.rmtree("run/checkpoints/step-00000004")
    with pytest.raises(ValueError, match=r"saved with mask_prob=0.25, but this generator has 0\.15"):
        resume(Path("run"), quiet=True)


@pytest.mark.parametrize("name", ["electra", "deberta v3"])
def test_a_pair_is_written_as_two_models(place, capsys, name):
    """A checkpoint holds both in one file. RUN/model is the discriminator, with its generator in a folder inside; each
    computes what it does in the pair, and the generator fills gaps."""
    config, options, _ = RUNS[name]
    train("run", config, learning_rate=0.1, **options)
    pair, ids = load_model(f"run/checkpoints/{best_of('run')}"), np.array([[2, 5, 4, 13, 3]])
    assert pair.config == config
    discriminator, generator = load_model("run"), load_model("run/model/generator")
    assert discriminator.generator is None and discriminator.output_heads == ("replaced",)
    np.testing.assert_allclose(discriminator.forward(ids)[0].replaced, pair.forward(ids)[0].replaced, atol=1e-6)
    wanted = pair.generator.forward(ids)[0].masked_words
    np.testing.assert_allclose(generator.forward(ids)[0].masked_words, wanted, atol=1e-6)
    again = type(pair)(config, ("replaced",), seed=9).load_checkpoint("run")
    np.testing.assert_allclose(again.flat.data, pair.flat.data, atol=1e-6)
    for folder in ("run", "run/model/generator"):  # of a pair, the generator fills gaps
        with pytest.raises(SystemExit) as ended:
            main(["fill-mask", "cats [MASK].", "--model", folder])
        shown = capsys.readouterr()
        assert not ended.value.code and "cats" in shown.out
        assert ("run finds replaced words; these are the guesses of its generator" in shown.err) == (folder == "run")


def best_of(run):
    """The name of the checkpoint that RUN/model is from"""
    return next(record["path"] for record in reversed(read_run(run).records) if record.get("best")).split("/")[-1]


@pytest.mark.peers
def test_transformers_opens_the_run_of_a_deberta_v3(place):
    """Both folders of RUN/model; no tensor is missing, and the vectors and scores are ours."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config, options, _ = RUNS["deberta v3"]
    train("run", config, learning_rate=0.1, **options)
    ids = np.array([[2, 5, 6, 4, 13, 3], [2, 9, 4, 13, 7, 3]])
    for folder, kind in (("run/model", "AutoModel"), ("run/model/generator", "AutoModelForMaskedLM")):
        peer, report = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
        assert not report["missing_keys"] and not report["mismatched_keys"]
        with torch.no_grad():
            wanted = peer.eval()(torch.tensor(ids))[0].numpy()
        output = load_model(folder).forward(ids)[0]
        np.testing.assert_allclose(output.hidden if kind == "AutoModel" else output.masked_words, wanted, atol=5e-5)
    pair = load_model(f"run/checkpoints/{best_of('run')}")
    assert pair.tokens.difference.data.any()
    np.testing.assert_allclose(pair.encode(ids)[0], load_model("run").encode(ids)[0], atol=1e-5)


@pytest.mark.parametrize("name", ["electra", "deberta v3"])
def test_a_run_of_a_pair_continues_as_that_pair(place, capsys, name):
    """--init RUN restores both models, and the config is the same."""
    config, options, _ = RUNS[name]
    train("run", config, **options)
    train("more", init="run", tokenizer=None, learning_rate=1e-9, quiet=False)
    assert "new, with random weights" not in capsys.readouterr().err
    before, after = (load_model(f"{run}/checkpoints/{best_of(run)}") for run in ("run", "more"))
    assert after.config == before.config == config
    np.testing.assert_allclose(after.flat.data, before.flat.data, atol=1e-6)


def test_a_discriminator_of_deberta_continues_with_its_own_objective(place, capsys):
    """It finds replaced words, although its config is that of a model for masked words. Without a generator in the
    folder, a new one of half the depth starts from the same token table, and the discriminator computes the same."""
    config, _, _ = RUNS["deberta v3"]
    pair = DebertaV2(config, ("replaced",), seed=3)
    pair.tokens.difference.data[...] = np.random.default_rng(0).normal(size=pair.tokens.difference.data.shape)
    pair.save_pretrained("published")
    WordPieceTokenizer(WORDS).save("published")
    shutil.rmtree("published/generator")
    assert set_up(Wanted(init="published")).objective.name == "replaced_tokens"
    train("run", init="published", tokenizer=None, learning_rate=1e-9, quiet=False)
    said = capsys.readouterr().err
    assert "published has no generator" in said and "with 1 block of width 12" in said
    assert "new, with random weights: generator" in said
    ids, after = np.array([[2, 5, 4, 13, 3]]), load_model("run")
    np.testing.assert_allclose(after.forward(ids)[0].replaced, pair.forward(ids)[0].replaced, atol=1e-5)
    np.testing.assert_allclose(load_model("run/model/generator").tokens.table.data, pair.tokens.sum(), atol=1e-6)


def test_a_deberta_for_masked_words_keeps_its_objective(place):
    config, _, _ = RUNS["deberta v3"]
    DebertaV2(config.alone(), ("masked_words",)).save_pretrained("published")
    WordPieceTokenizer(WORDS).save("published")
    assert set_up(Wanted(init="published")).objective.name == "masked_words"


# ---------------------------------------------------------------------- --init


def weights(folder):
    return {name: param.data.copy() for name, param in load_model(folder).named_params().items()}


def test_training_continues_from_a_folder(place, capsys):
    """Weights, config and tokenizer come from it, and the card says so. Heads are added or left out."""
    train("run", init="teacher", tokenizer=None, learning_rate=1e-9, quiet=False, model=None)
    before, after = weights("teacher"), weights("run")
    assert set(before) - set(after) == {"pooler.dense.w", "pooler.dense.b"}
    for name, array in after.items():
        np.testing.assert_allclose(array, before[name], atol=1e-6)
    said = capsys.readouterr().err
    assert "the weights start from teacher; not needed for this objective and left out: pooler" in said
    config = json.loads(Path("run/config.json").read_text())
    assert config["init"] == str(place / "teacher") and config["model"] == load_model("teacher").config.to_dict()
    card = Path("run/model/README.md").read_text()
    assert "| start | the weights of teacher |" in card and "Besides what it had learnt before, it learnt only" in card
    train("more", init="run", objective="masked_words_and_next_sentence", quiet=False, tokenizer=None)
    assert (
        "the weights start from run/model; new, with random weights: next_sentence, pooler" in capsys.readouterr().err
    )
    assert load_model("more").output_heads == ("masked_words", "pooler", "next_sentence")


def test_the_learning_rate_of_trained_weights_is_lower(place):
    train("run", init="teacher", tokenizer=None, learning_rate=None, steps=1)
    rate = json.loads(Path("run/config.json").read_text())["training"]["learning_rate"]
    assert rate == pytest.approx(default_learning_rate(BERT) / 10)


def test_a_continued_run_resumes_exactly(place):
    """Also if it was stopped before its first checkpoint: then it starts from the folder again. After that, the folder
    is not needed."""
    train("run", init="teacher", tokenizer=None, threads=2)
    whole = tensors("run")
    shutil.rmtree("run/checkpoints")
    shutil.rmtree("run/model")
    resume(Path("run"), quiet=True)
    assert_same(tensors("run"), whole)
    shutil.rmtree("run/checkpoints/step-00000004")
    shutil.rmtree("teacher")
    resume(Path("run"), quiet=True)
    assert_same(tensors("run"), whole)


@pytest.mark.parametrize("with_generator", [False, True])
def test_a_discriminator_continues_with_its_generator(place, capsys, with_generator):
    """With that of the folder, or else with a new one of a quarter of its width."""
    pair = Electra(ELECTRA, seed=3)
    pair.save_pretrained("published")
    WordPieceTokenizer(WORDS).save("published")
    if not with_generator:
        shutil.rmtree("published/generator")
    train("run", init="published", tokenizer=None, learning_rate=1e-9, quiet=False)
    said, before = capsys.readouterr().err, pair.named_params()
    after = weights(f"run/checkpoints/{best_of('run')}")
    assert ("new, with random weights: generator" in said) != with_generator
    for name in after:
        if with_generator or not name.startswith("generator."):
            np.testing.assert_allclose(after[name], before[name].data, atol=1e-6, err_msg=name)
    assert load_model("run/model/generator").width == (6 if with_generator else 3)


def test_each_loss_of_a_pair_says_whose_it_is(place, capsys):
    """In the display, at the end, in the model card and in the doctor's summary."""
    train("run", ELECTRA, quiet=False)
    said, card = capsys.readouterr().err, Path("run/model/README.md").read_text()
    assert "two models are trained: the generator predicts masked words, and the discriminator" in said
    for line in re.findall("^step .*: .*loss.*$", said, re.M):
        assert re.search(r"generator loss \d.*discriminator loss \d.*discriminator accuracy \d", line), line
    assert re.search(r"held-out generator loss \S+, .* the unigram baseline of \S+: the generator ", said)
    assert re.search(r"held-out discriminator loss \S+; knowing only that about \d+% of the tokens are replaced", said)
    (saved,) = re.findall(r"^\| discriminator: held-out loss \| (\S+) \|", card, re.M)  # of the same step as the model
    assert f"held-out discriminator loss {saved};" in said
    assert "and the generator's guesses" in said or "guesses" not in said
    for row in ("generator: held-out loss", "generator: perplexity", "discriminator: held-out accuracy"):
        assert re.search(rf"^\| {row} \| \d", card, re.M), card
    assert 'Always saying "original" would be right for at least 85 % of the tokens.' in card
    assert ", generator loss " in summary("run")


def test_a_teacher_that_is_gone_is_named(place):
    """With the folder, and where to write another one; with the same teacher there, the run ends with the same bits."""
    config, options, _ = RUNS["distillation"]
    train("run", config, **options)
    whole = tensors("run")
    shutil.rmtree("run/checkpoints/step-00000004")
    shutil.rmtree("run/model")
    Path("teacher").rename("moved")
    with pytest.raises(ValueError, match=r"the teacher of this run is no longer in \S+teacher; put it back") as error:
        resume(Path("run"), quiet=True)
    assert str(error.value).endswith(
        f'its new folder into {Path("run/config.json")}, as "teacher" in "objective_options"'
    )
    text = Path("run/config.json").read_text()
    Path("run/config.json").write_text(
        text.replace(json.dumps(str(place / "teacher")), json.dumps(str(place / "moved")))
    )
    resume(Path("run"), quiet=True)
    assert_same(tensors("run"), whole)


def test_a_student_starts_with_layers_of_its_teacher(place, capsys):
    config = DistilBertConfig(V, 24, n_layers=1, n_heads=3, dim=12, hidden_dim=16)
    train("run", config, teacher="teacher", init_from_teacher=True, learning_rate=1e-9, quiet=False)
    before, after = weights("teacher"), weights("run")
    assert isinstance(load_model("run"), DistilBert)
    for name, array in after.items():
        np.testing.assert_allclose(array, before[name], atol=1e-6)
    said = capsys.readouterr().err
    assert "the weights start from layers of the teacher, teacher\n" in said
    assert "teacher: teacher, with" in said and "the vectors of teacher and student are compared, too" in said
    assert "| start | layers of the teacher |" in Path("run/model/README.md").read_text()
    shutil.rmtree("run/checkpoints")
    shutil.rmtree("run/model")
    resume(Path("run"), quiet=True)
    for name, array in weights("run").items():
        np.testing.assert_array_equal(array, after[name])


# ---------------------------------------------------------------------- what does not fit


def fails(**options):
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        set_up(Wanted(**options))
    return str(error.value)


def test_contradictions_name_both_sides(place):
    Path("config.json").write_text(json.dumps(replace(BERT, num_hidden_layers=3).to_dict()))
    WordPieceTokenizer([*WORDS, "cows"]).save("other")
    said = fails(init="teacher", model="config.json")
    assert "--init teacher has a config of its own, which is not that of --model config.json" in said
    said = fails(init="teacher", tokenizer="other")
    assert "--init teacher has its own tokenizer, WordPieceTokenizer(14 tokens" in said
    assert f"{place / 'other'}, WordPieceTokenizer(15 tokens" in said and said.endswith("leave out --tokenizer")
    said = fails(model="config.json", teacher="teacher", tokenizer="other")
    assert "--teacher teacher has its own tokenizer" in said
    said = fails(teacher="teacher", next_sentence=True)
    assert "--next-sentence (masked_words_and_next_sentence) and --teacher (distillation) ask for different" in said
    said = fails(objective="distillation")
    assert "the objective distillation needs a teacher: add --teacher" in said
    assert "there is no model folder nowhere" in fails(init="nowhere")
    for name in ("tokenizer.json", "vocab.txt"):
        Path("teacher", name).unlink(missing_ok=True)
    for option in ("init", "teacher"):
        said = fails(**{option: "teacher"})
        assert f"--{option} teacher has no tokenizer (tokenizer.json, vocab.txt, vocab.json + merges.txt, " in said
        assert "no bundled tokenizer for a BERT has its 14 tokens; give the one" in said
        assert said.endswith("--tokenizer FOLDER")
    assert set_up(Wanted(init="teacher", tokenizer="vocabulary")).config == BERT


def test_a_model_with_clusters_of_words_gets_another_vocabulary(place):
    """Transformer-XL's preset has clusters beyond the 14 words of this vocabulary; they are left out."""
    setup = set_up(Wanted("transformer-xl", tokenizer="vocabulary"))
    assert setup.config.cutoffs == () and setup.config.vocab_size == V and len(setup.notes) == 1
    assert setup.build(seed=0).vocab_size == V


def test_what_does_not_fit_says_what_does(place):
    said = fails(model="mini", objective="next_word")
    assert said == (
        "Mini-BERT cannot be trained with the objective next_word: it has no head next_word. Its output heads are "
        "masked_words; with these, --objective can be masked_words, distillation. For next_word: --model gpt2 or "
        "transformer-xl"
    )
    said = fails(model="electra", objective="permutation")
    assert "ELECTRA cannot be trained with the objective permutation: it has no query stream" in said
    assert said.endswith("can be masked_words, replaced_tokens, distillation. For permutation: --model xlnet")
    assert "objective is 'guess', expected one of 'masked_words'" in fails(objective="guess")
    assert "--masking is 'letters', expected one of pieces, whole-word, span" in fails(masking="letters")
    assert "--temperature has no effect on the objective masked_words; leave it out" in fails(temperature=3.0)
    with pytest.raises(ValueError, match="--init-from-teacher needs --teacher"):
        pretrain(["text.txt"], "mini", out=Path("run"), init_from_teacher=True, steps=1)
    with pytest.raises(ValueError, match=r"mask_prob is 1\.5, expected more than 0"):
        train("run", BERT, mask_prob=1.5)
    assert not Path("run").exists()


def test_an_xlnet_is_not_trained_on_masked_texts(place):
    """Its query stream predicts words, and sees no [MASK]; what it learnt from one, nothing else here would ask for."""
    for words in ({"objective": "masked_words"}, {"teacher": "teacher"}):
        said = fails(model="xlnet", **words)
        assert "it has no word head that reads [MASK]: its query stream" in said
        assert "with these, --objective can be permutation. For " in said
    model = XLNet(XLNetConfig(V, 12, 2, 3, 16, mem_len=0, seq_len=20))
    with pytest.raises(ValueError, match=r"word head that reads \[MASK\]: .*train it with the objective permutation"):
        MaskedWords().check(model)


@pytest.mark.parametrize("kind", [Electra, DebertaV2])
def test_each_model_of_a_pair_continues_with_what_it_was_trained_on(place, kind):
    kind(RUNS["electra" if kind is Electra else "deberta v3"][0], (REPLACED,)).save_pretrained("pair")
    tokenizer = WordPieceTokenizer(WORDS)
    for folder, objective in (("pair", ReplacedTokens), ("pair/generator", MaskedWords)):
        tokenizer.save(folder)
        setup = set_up(Wanted(init=folder))
        assert setup.objective is objective, folder
        told = [note for note in setup.notes if "counts 50 times" in note]
        assert len(told) == (objective is ReplacedTokens and kind is Electra) and setup.options == {}


def test_a_transformer_xl_without_its_memory_is_told(place):
    notes = set_up(Wanted("transformer-xl", objective="next_word")).notes
    assert any("--objective next_word_with_memory trains it" in note for note in notes)
    assert not any("memory" in note for note in set_up(Wanted("transformer-xl")).notes)


def test_a_teacher_without_masked_words_is_named_before_its_tokenizer(place):
    folder = Path("writer")
    GPT2(GPT2Config(len(BYTE_CHARACTERS) + 1, 11, 6, 1, 2)).save_pretrained(folder)
    BpeTokenizer([*BYTE_CHARACTERS, "<|endoftext|>"], [], GPT2_RULES).save(folder)
    with pytest.raises(ValueError, match="writer cannot be a teacher: its GPT2 does not predict masked words"):
        set_up(Wanted("distilbert", teacher="writer")).make_objective()


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_an_objective_that_fits(preset):
    setup = set_up(Wanted(preset))
    model = setup.build(seed=None)
    assert not setup.objective.missing(model)
    sizes = setup.sizes(model)
    assert sizes.parameters == model.get_parameter_count() and 0 < sizes.predicted <= 1
    own = {"albert": {"ngram": True}, "electra": {"replaced_weight": 0.02}}
    assert setup.options == own.get(preset, {})
    assert preset == "larger" or setup.config.dropout == 0


def test_albert_masks_as_it_was_published_unless_told_otherwise():
    assert set_up(Wanted("albert")).make_objective().arguments["ngram"]
    assert set_up(Wanted("albert", masking="pieces")).options == {}
    assert set_up(Wanted("mini", masking="ngram")).options == {"ngram": True}


def test_help_names_all_presets_and_objectives():
    from mini_bert.cli.words import CONFIGS
    from mini_bert.cli.words import OBJECTIVES as NAMED

    *presets, rest = CONFIGS.split(", ")
    assert set(presets) == set(PRESETS) and rest == "or the path of a config.json"
    assert NAMED.split(", ") == list(OBJECTIVES)


def test_plan_knows_where_weights_come_from(place, capsys):
    for words in (["--init", "teacher"], ["--model", "config.json", "--teacher", "teacher"]):
        Path("config.json").write_text(json.dumps(BERT.to_dict()))
        with pytest.raises(SystemExit) as end:
            main(["plan", *words])
        assert not end.value.code
        assert f"train {' '.join(words)} --batch-size 32" in capsys.readouterr().out


def test_a_config_without_model_type_is_a_bert_and_says_so(place, caplog):
    """The first published configs have none. In one's own it may have been forgotten."""
    values = BERT.to_dict()
    values.pop("model_type", None)
    Path("config.json").write_text(json.dumps(values))
    assert set_up(Wanted("config.json", tokenizer="vocabulary")).config == BERT
    assert "config.json was read; it has no model_type, so it is taken for a BERT" in caplog.text
    Path("config.json").write_text(json.dumps({"hidden_size": 64}))
    assert "it has no model_type, so it is taken for a BERT: for another model, add model_type with one of" in fails(
        model="config.json"
    )
    caplog.clear()
    Path("config.json").write_text(json.dumps({**values, "architectures": ["BertForMaskedLM"]}))
    set_up(Wanted("config.json", tokenizer="vocabulary"))
    assert not caplog.text

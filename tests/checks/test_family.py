"""`mini-bert family`: what is said about each architecture is computed from its configs, and is true."""

import importlib.util
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mini_bert.checks.family import member_called, overview, portrait, published_configs, report, row
from mini_bert.checks.family_stories import STORIES, parameters, story
from mini_bert.cli.main import main
from mini_bert.evaluation.likelihood import WAYS
from mini_bert.files.model_folder import locate
from mini_bert.models.albert import Albert, AlbertConfig
from mini_bert.models.base import NEXT_WORD
from mini_bert.models.electra import Electra
from mini_bert.models.family import MEMBERS
from mini_bert.models.gpt2 import GPT2Config
from mini_bert.models.registry import MODELS, PRESETS, load_config, model_class, preset
from mini_bert.objectives.base import Rows
from mini_bert.objectives.distillation import Distillation
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.objectives.next_word import NextWord
from mini_bert.objectives.registry import OBJECTIVES
from mini_bert.training.setup import Wanted, default_objective, objective_for, options_for

ROOT = Path(__file__).parents[2]

# The number of parameters that papers and model cards report, in millions; ours include the pretraining heads.
REPORTED = {
    "bert-base": 110, "bert-large": 336, "roberta-base": 125, "roberta-large": 355, "albert-base-v2": 12,
    "albert-large-v2": 18, "albert-xlarge-v2": 60, "albert-xxlarge-v2": 223, "distilbert-base": 67,
    "electra-small": 13.5,
    "electra-base": 110, "electra-large": 335, "deberta-base": 140, "deberta-large": 405, "deberta-v3-small": 141,
    "deberta-v3-base": 184, "deberta-v3-large": 435, "deberta-v2-xlarge": 900, "transfo-xl-wt103": 285,
    "xlnet-base": 117, "xlnet-large": 361,
    "gpt2": 124, "gpt2-medium": 355, "gpt2-large": 774, "gpt2-xl": 1558, "ModernBERT-base": 150,
    "ModernBERT-large": 396,
}  # fmt: skip


def test_every_architecture_is_a_member():
    """Each model type has a member with a preset and a story."""
    types = {preset(member.preset).to_dict()["model_type"] for member in MEMBERS}
    assert types == set(MODELS) - {"mini_bert"}
    assert {member.preset for member in MEMBERS} == set(STORIES) <= set(PRESETS)


PUBLISHED = {name: config for one in PRESETS for name, config in published_configs(one).items()}


@pytest.mark.parametrize("name", REPORTED)
def test_published_sizes(name):
    """The configs build models of the size that their authors report."""
    found = parameters(PUBLISHED[name])
    assert found == pytest.approx(1e6 * REPORTED[name], rel=0.03)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.preset)
def test_presets_are_about_the_size_of_mini_bert(member):
    config = preset(member.preset)
    assert config.vocab_size == 8192 and config.max_length >= 64
    assert 1.5e6 < model_class(config.to_dict())(config, seed=None).get_parameter_count() < 6e6


def test_what_sharing_and_factorisation_save():
    """An ALBERT without either has as many parameters as the story says."""
    config = AlbertConfig(vocab_size=101, embedding_size=5, hidden_size=12, num_hidden_layers=4, num_attention_heads=3,
                          intermediate_size=17, max_position_embeddings=7)  # fmt: skip
    shared = Albert(config, seed=None).get_parameter_count(by_component=True)
    blocks = sum(count for name, count in shared.items() if name.startswith("encoder"))
    text = story("albert", config)
    assert f"saves {3 * blocks:,}" in text
    assert f"saves {101 * 12 - (101 * 5 + 5 * 12 + 12):,}" in text


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.preset)
def test_a_portrait_has_the_numbers_of_all_sizes(member):
    """The usual size has a story, as in the table of `family`; the others are a list."""
    text = portrait(member.preset)
    usual, *others = member.published
    configs = published_configs(member.preset)
    counts = {name: parameters(config, objective=member.objective) for name, config in configs.items()}
    assert f"{usual}: {counts[usual]:,} parameters\n  " in text
    for name in others:
        assert f"{name} {counts[name]:,}" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in STORIES])
def test_a_variant_names_its_member(name):
    """Every preset has a portrait: the member that it is a variant of, what is different, and its own numbers."""
    member, text = member_called(name), portrait(name)
    assert text.startswith(f"{member.name} ({member.paper})") and f"\nA variant of {member.name}: " in text
    assert f"our preset, `--model {name}`: {parameters(preset(name)):,} parameters\n" in text
    assert max(map(len, text.splitlines())) <= 110


def test_published_and_our_objective_are_told_apart():
    """What `train` does with a preset is what the family says, and so is how to get the published objective."""
    assert {member.objective for member in MEMBERS} <= set(OBJECTIVES)
    ours = {member.preset: default_objective(preset(member.preset)).name for member in MEMBERS}
    assert {member.preset for member in MEMBERS if ours[member.preset] != member.objective} == {"bert", "distilbert"}
    said = " ".join(portrait("bert").split())
    assert "masked_words_and_next_sentence; our preset: masked_words, or the published one with `--objective" in said
    said = " ".join(portrait("distilbert").split())
    assert "Objective: distillation; our preset: masked_words, or the published one with `--teacher FOLDER`" in said
    assert "Our preset starts from random weights" in said and "every second" not in said


def test_what_is_not_here_is_said():
    assert "enhanced mask decoder is not part of it" in " ".join(portrait("deberta").split())
    assert "Mini-BERT has no tokenizer for it" in " ".join(portrait("transformer-xl").split())


def test_deberta_v2_has_its_own_sizes_and_those_of_v3():
    said = " ".join(portrait("deberta-v2").split())
    for name in ("deberta-v2-xlarge", "deberta-v2-xxlarge", "deberta-v3-small", "deberta-v3-base", "deberta-v3-large"):
        assert name in said
    assert "Objective: masked_words." in said and "deberta-v2-xlarge: " in said
    assert published_configs("deberta-v2")["deberta-v2-xlarge"].conv_kernel_size == 3


def test_published_models_are_counted_with_the_heads_of_their_objective():
    """BERT's has two heads and the pooler between them; transformers counts 110,106,428."""
    assert parameters(PUBLISHED["bert-base"], objective=member_called("bert").objective) == 110_106_428
    assert "\nbert-base: 110,106,428 parameters" in portrait("bert")
    assert "\nbert-base: 110,106,428 parameters" in portrait("mini")


@pytest.mark.parametrize("config", [preset("gpt2"), *published_configs("gpt2").values()], ids=lambda it: it.n_layer)
def test_the_training_signals_of_gpt2_are_the_targets_of_its_objective(config):
    """The last token predicts the first one after the sequence, so there are as many targets as tokens."""
    T, objective = config.max_length, NextWord()
    batch = objective.batch(Rows(np.ones((1, T + 1), int)), np.zeros(1, np.uint64))
    size = objective.size(batch)
    assert size.tokens == T
    assert f"{size.targets[NEXT_WORD]:,} training signals in {T:,} tokens" in story("gpt2", config)


def test_an_unknown_architecture_is_named():
    with pytest.raises(ValueError, match=r"no architecture 'alberta'; expected one of mini, .*; did you mean albert\?"):
        member_called("alberta")
    with pytest.raises(ValueError, match=r"no architecture 'DeBERTa'; .*; did you mean deberta\?"):
        member_called("DeBERTa")


def test_the_table(capsys):
    """A row for each architecture, as text and as JSON."""
    rows = overview(timed=False)
    text = report(rows)
    for one in rows:
        assert one.member.preset in text and one.objective in text
    lines = [line.split() for line in text.splitlines()]
    assert ["bert", "WordPiece", "8k", "masked_words_and_next_sentence", "masked_words"] in lines
    assert ["transformer-xl", "words", "8k", "next_word_with_memory", "the", "same"] in lines
    assert "there is none of whole words" in text
    published = {line[0]: line[-3:] for line in lines if line[-3:-2] and line[-3] in PUBLISHED}
    assert published["bert"] == ["bert-base", "110.1M", "512"]  # with both heads of its objective
    assert published["electra"] == ["electra-base", "109.5M", "512"]
    assert published["deberta-v3"] == ["deberta-v3-base", "184.4M", "512"]  # with its own head, not that for words
    assert ["transfo-xl-wt103", "285.2M", "128", "+", "1,600"] in [line[-5:] for line in lines]
    assert "those of electra and deberta-v3 on the left also include the generator" in " ".join(text.split())
    with pytest.raises(SystemExit) as ended:
        main(["family", "--no-timing", "--json"])
    assert ended.value.code == 0
    content = json.loads(capsys.readouterr().out)
    assert [one["parameters"] for one in content] == [one.parameters for one in rows]


def test_a_step_is_timed(tmp_path):
    (tmp_path / "text.txt").write_text("The cat sat on the mat.\n" * 500)
    found = row(member_called("bert"), timed=True, threads=1, corpus=str(tmp_path / "text.txt"))
    assert found.seconds is not None and 0 < found.seconds < 600 and np.isfinite(found.seconds)


def test_the_largest_published_model_is_counted_without_its_memory():
    """GPT-2 XL has 1.6 billion parameters; counting them allocates next to nothing."""
    config = GPT2Config(n_embd=1600, n_layer=48, n_head=25)
    tracemalloc.start()
    assert parameters(config) == 1_557_611_200
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_counting_without_memory_finds_the_same_parameters():
    config = preset("electra")
    assert parameters(config) == Electra(config).get_parameter_count()


# ---------------------------------------------------------------------- the benchmark


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(ROOT / "benchmarks"))  # it imports equal_time.py
    spec = importlib.util.spec_from_file_location("family_benchmark", ROOT / "benchmarks" / "family.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_model_of_the_benchmark_has_a_question_and_a_score(benchmark):
    assert set(benchmark.SCORES) == set(WAYS)
    for name in benchmark.MODELS:
        wanted, config = Wanted(name, teacher=benchmark.TEACHERS.get(name)), preset(name)
        objective = objective_for(wanted, config)
        pieces = not {"whole_word", "ngram", "span"} & set(options_for(wanted, objective, config))
        same = benchmark.QUESTIONS[objective.name] == benchmark.QUESTIONS["masked_words"]
        assert same == (pieces and objective in (MaskedWords, Distillation))


@pytest.mark.parametrize("name", ["family", "bundled"])
def test_a_benchmark_without_results_says_so(name, tmp_path):
    """Instead of an empty table"""
    words = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--results", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and f"{tmp_path} has no results; give --data to" in done.stderr and not done.stdout


def test_the_table_of_the_benchmark_marks_what_can_be_compared(benchmark):
    """The same letter: the same question. Scores by "not replaced" have a number of their own. What is not measured
    yet is a dash."""

    def measured(loss, by):
        return {"held_out": {"score": loss, "steps": 7}, "pairs": {"score": 51.23, "scored_by": by, "pairs": 400}}

    found = {
        "mini": {"held_out": {"score": 3.8366, "steps": 14502}, "pos": {"score": 88.67}},
        "albert": measured(4.1, "masked_words"), "distilbert": measured(3.9, "masked_words"),
        "electra": measured(4.2, "replaced"), "gpt2": measured(4.3, "next_word"),
    }  # fmt: skip
    text = benchmark.table(found)
    cells = {row.split(" | ")[0].strip("| "): row.strip("| ").split(" | ") for row in text.splitlines()[2:7]}
    assert cells["mini"][3:] == ["14,502", "3.837 (a)", "88.7", "–", "–"]
    assert [cells[name][4][-3:] for name in found] == ["(a)", "(b)", "(a)", "(c)", "(d)"]
    assert [cells[name][-1] for name in list(found)[1:]] == ["51.2 (1)", "51.2 (1)", "51.2 (2)", "51.2 (3)"]
    assert "(a) masked words, 15 % of the pieces; (b) masked words in runs" in text
    assert "(2) the log-probability that a word was not replaced" in text
    assert "the same depth" in " ".join(benchmark.__doc__.split())
    assert preset("distilbert").depth == load_config(locate("mini-bert")).depth  # which the docstring says


def test_the_figure_of_the_benchmark_leaves_out_what_is_not_measured_yet(benchmark, tmp_path):
    pytest.importorskip("matplotlib")
    found = {
        "mini": {"held_out": {"score": 3.8, "steps": 7}, "pos": {"score": 88.7}},
        "electra": {
            "held_out": {"score": 4.2, "steps": 7},
            "pos": {"score": 81.2},
            "pairs": {"score": 51.2, "pairs": 400},
        },
    }
    benchmark.figure(found, tmp_path / "family.svg")
    assert (tmp_path / "family.svg").stat().st_size > 1000


def test_the_docs_have_the_table_that_the_benchmark_prints(benchmark):
    found = {name: benchmark.read(benchmark.RESULTS / "family" / f"{name}.json") for name in benchmark.MODELS}
    measured = {name: one for name, one in found.items() if one}
    assert len(measured) > 9
    assert benchmark.table(measured) in (ROOT / "docs" / "family.md").read_text(encoding="utf-8")


def test_the_page_on_recipes_has_the_tables_that_the_benchmark_prints():
    """For every length that has results, with the rows that have none."""
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    lengths = sorted(
        path.name.removesuffix("-minutes") for path in (ROOT / "benchmarks/results/recipes").glob("*-minutes")
    )
    assert len(lengths) > 1
    for minutes in lengths:
        words = [sys.executable, str(ROOT / "benchmarks" / "recipes.py"), "--table", "--minutes", minutes]
        printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert printed.strip() in page, f"python benchmarks/recipes.py --table --minutes {minutes} prints another table"

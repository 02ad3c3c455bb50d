"""Minimal pairs: the likelihood of a sentence is the sum over its tokens, and a score is a mean over paradigms."""

import gzip
import json

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.evaluation.likelihood import log_likelihoods
from mini_bert.evaluation.minimal_pairs import MinimalPair, are_minimal_pairs, minimal_pairs, read_pairs, report
from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
from mini_bert.inference.loading import load
from mini_bert.layers.linear import Linear
from mini_bert.models.base import NEXT_WORD, REPLACED
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

TEXTS = ["The cat sat down.", "The cats sits down.", "Rain."]
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *"abcdefghij"])
TINY = BertConfig(15, 12, 2, 3, 17, max_position_embeddings=11)


@pytest.fixture(scope="module")
def mini():
    return load("mini-bert")


def pair(good, bad, paradigm="p", **more):
    return json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": paradigm, **more})


@pytest.mark.parametrize("threads", [1, 2])
def test_a_likelihood_is_the_sum_over_single_tokens(mini, threads):
    """Sentences of different lengths in one call give what each gives alone, token by token."""
    found = log_likelihoods(*mini, TEXTS, threads)
    wanted = [-sum(token.surprise for token in pseudo_perplexity(*mini, text).tokens) for text in TEXTS]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


class NextWord(Bert):
    """A stand-in for a causal model: its head predicts the next word."""

    head_shapes = {NEXT_WORD: "(B,T,V)"}  # noqa: RUF012

    def __init__(self, config):
        super().__init__(config, output_heads=(), dtype=np.float64)
        self.next_word = Linear(12, 15)
        self._own_memory(0, np.float64)


class Replaced(NextWord):
    head_shapes = {REPLACED: "(B,T,1)"}  # noqa: RUF012

    def __init__(self, config):
        super().__init__(config)
        self.next_word = None
        self.replaced = Linear(12, 1)
        self._own_memory(0, np.float64)


def test_a_model_of_the_next_word_reads_from_the_left():
    """Token t is predicted by the row before it; the first by the separator of documents, as in training."""
    model = NextWord(TINY)
    ids = [TOKENIZER.sep_id, *TOKENIZER.ids(["a b j"])[0]]
    logits = model.forward([ids])[0].next_word[0]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = sum(log_p[t - 1, ids[t]] for t in (1, 2, 3))
    np.testing.assert_allclose(log_likelihoods(model, TOKENIZER, ["a b j"]), [wanted], rtol=1e-12)
    tokens = pseudo_perplexity(model, TOKENIZER, "a b j").tokens
    np.testing.assert_allclose(-sum(token.surprise for token in tokens), wanted, rtol=1e-12)


def test_an_unknown_word_does_not_make_a_text_more_likely():
    """[UNK] is part of the sum, as any other word; the table of surprises leaves it out and says so."""
    model = NextWord(TINY)
    ids = [TOKENIZER.sep_id, *TOKENIZER.ids(["a z j"])[0]]
    assert ids[2] == TOKENIZER.unk_id
    logits = model.forward([ids])[0].next_word[0]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    wanted = sum(log_p[t - 1, ids[t]] for t in (1, 2, 3))
    np.testing.assert_allclose(log_likelihoods(model, TOKENIZER, ["a z j"]), [wanted], rtol=1e-12)
    found = pseudo_perplexity(model, TOKENIZER, "a z j")
    assert [token.token for token in found.tokens] == ["a", "j"] and found.unknown == ["[UNK]"]
    bert = Bert(TINY, dtype=np.float64)
    shorter, longer, unknown = log_likelihoods(bert, TOKENIZER, ["a j", "a b j", "a z j"])
    assert unknown < shorter - 1 and abs(unknown - longer) < 1  # each word costs about ln 15 in an untrained model


def test_a_model_of_replaced_tokens_says_how_sure_it_is_that_none_was():
    """Σ log(1 − σ(z)) over the words"""
    model = Replaced(TINY)
    z = model.forward([TOKENIZER.encode("a b j")])[0].replaced[0, 1:4, 0]
    wanted = -np.log1p(np.exp(z)).sum()
    np.testing.assert_allclose(log_likelihoods(model, TOKENIZER, ["a b j"]), [wanted], rtol=1e-12)


def test_the_score_is_a_mean_over_paradigms(mini):
    """A paradigm with many pairs counts as much as one with few, and a tie counts half."""
    model, tokenizer = mini
    good, bad = "The cat sat on the floor.", "The floor on cat the sat."
    pairs = [MinimalPair(good, bad, "order", "syntax")] * 3 + [MinimalPair(bad, good, "wrong", "syntax")]
    pairs.append(MinimalPair(good, good, "tie", ""))
    result = minimal_pairs(model, tokenizer, pairs)
    assert [(one.name, one.pairs, one.accuracy) for one in result.paradigms] == [
        ("order", 3, 1.0), ("wrong", 1, 0.0), ("tie", 1, 0.5)
    ]  # fmt: skip
    assert result.accuracy == 0.5 and result.pairs == 5
    text = report("pairs", result)
    assert text.startswith("pairs: 50.0% of 5 minimal pairs right, as a mean over 3 paradigms")
    assert text.index("wrong") < text.index("tie") < text.index("order")


def test_files_and_folders_are_read(tmp_path):
    (tmp_path / "a.jsonl").write_text("\n".join(pair(f"good {n}", f"bad {n}", "one") for n in range(5)))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write('{"sentence_good": "x", "sentence_bad": "y"}\n')
    (tmp_path / "notes.txt").write_text("not read")
    assert are_minimal_pairs(str(tmp_path)) and are_minimal_pairs(str(tmp_path / "b.jsonl.gz"))
    assert not are_minimal_pairs(str(tmp_path / "notes.txt"))
    found = read_pairs(str(tmp_path), most=2)
    assert found == [
        MinimalPair("good 0", "bad 0", "one", ""),
        MinimalPair("good 1", "bad 1", "one", ""),
        MinimalPair("x", "y", "b", ""),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"sentence_good": "x"}', "line 1: sentence_bad is None, expected a sentence"),
        ('{"sentence_good": 3, "sentence_bad": "y"}', "line 1: sentence_good is 3, expected a sentence"),
        ('{"sentence_good": "x", "sentence_bad"', "line 1 is not JSON"),
    ],
)
def test_bad_files_are_named(line, message, tmp_path):
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(ValueError, match=message):
        read_pairs(str(tmp_path / "a.jsonl"))


def test_the_command_tells_both_kinds_of_pairs_apart(tmp_path, capsys):
    (tmp_path / "minimal.jsonl").write_text(pair("The cat sat on the floor.", "The floor on cat the sat."))
    (tmp_path / "scores.tsv").write_text("sentence1\tsentence2\tscore\nA cat.\tA dog.\t3\nRain.\tA dog.\t1\n")
    with pytest.raises(SystemExit) as ended:
        main(["eval", "mini-bert", "--pairs", str(tmp_path / "minimal.jsonl"), "--pairs", str(tmp_path / "scores.tsv")])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "100.0% of 1 minimal pair right" in out and "Spearman" in out

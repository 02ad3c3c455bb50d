"""Templates for models of running text: a text begins after a separator, as a document does, and nothing follows it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
import tiny_family as tiny

from mini_bert.data.labelled.readers import Question
from mini_bert.finetuning.tasks.answer import Answer
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.objectives.next_word import NextWord
from mini_bert.text.loading import load_tokenizer
from mini_bert.text.unigram import UnigramTokenizer

KINDS = ("WordPiece", "BPE", "Unigram")


@pytest.fixture(params=KINDS)
def tokenizer(request, tmp_path):
    if request.param != "Unigram":
        return tiny.tokenizer_for({"WordPiece": "bert", "BPE": "roberta"}[request.param])
    text = tmp_path / "text.txt"  # a trained one is a tokenizer.json; a spiece.model has no place for templates
    text.write_text("the cat sat on the mat . a dog ran .\n\n" * 20, encoding="utf-8")
    return UnigramTokenizer.train(str(text), vocab_size=40, progress=False)


def test_a_text_begins_after_a_separator(tokenizer, tmp_path):
    """The ids of the text stay the same, also in the files; the summary is the last token."""
    running = tokenizer.in_layout("running")
    first, second = (tokenizer.ids([text])[0] for text in ("the cat", "a dog"))
    sep = tokenizer.sep_id
    running.save(tmp_path)
    for one in (running, load_tokenizer(tmp_path)):
        assert type(one) is type(tokenizer) and one.tokens == tokenizer.tokens
        assert one.encode("the cat") == [sep, *first]
        assert one.encode("the cat", "a dog") == [sep, *first, sep, *second]
        assert one("the cat", "a dog")["token_type_ids"] == [0] * (2 + len(first) + len(second))
        whole = one.assemble(first)
        assert (whole.starts, whole.summary) == ([1], len(first))
        assert one.fingerprint == running.fingerprint != tokenizer.fingerprint


def test_a_tokenizer_without_cls_stays():
    """GPT-2's own puts nothing around a text, and its models know it so."""
    tokenizer = tiny.tokenizer_for("gpt2")
    assert tokenizer.in_layout("running") is tokenizer


def test_objectives_choose():
    tokenizer = tiny.tokenizer_for("bert")
    assert tokenizer.in_layout(NextWord.layout).template().cls is None
    assert MaskedWords.layout is None


def test_not_here_is_before_the_answer():
    """Without a cls in the template, it is the first token of the question, though the vocabulary has a [CLS]."""
    running = tiny.tokenizer_for("bert").in_layout("running")
    question = Question("1", "was it ?", "the cat sat", ["cat"], [4], 1)
    (item,) = Answer().items([question], running, 30, False)
    assert item.sequence.summary == item.asked[0] == 1 and item.target == (6, 6)
    batch = Answer().batch([item], running.padding)
    np.testing.assert_array_equal(np.flatnonzero(batch.asked), [1, 5, 6, 7])


@pytest.mark.peers
def test_other_libraries_read_the_same(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    running = tokenizer.in_layout("running")
    running.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("the cat")["input_ids"] == running.encode("the cat")
    assert theirs("the cat", "a dog")["input_ids"] == running.encode("the cat", "a dog")

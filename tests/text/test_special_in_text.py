"""One rule for special tokens typed by users: they are text, except that [MASK] is the mask token where words are
predicted."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "finetuning"))
import tiny_tasks as tiny

from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
from mini_bert.finetuning.model import with_task
from mini_bert.finetuning.tasks.answer import Answer
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.inference.embed import embed
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inside.attention_maps import attention_maps
from mini_bert.probing.word_vectors import word_pieces
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, "[", "]", "sep", "mask", "cls", "unk", "pad", *tiny.WORDS])
LENGTH = 24


@pytest.fixture(scope="module")
def model():
    return tiny.MiniBERT(tiny.MiniBertConfig(len(TOKENIZER), 24, 2, 3, 40, LENGTH), seed=3)


def pieces(ids) -> list[str]:
    return [TOKENIZER.tokens[i] for i in ids]


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_what_is_learnt_from_asked_and_embedded_is_text(token, model):
    """In every task, in words for probes and in sentence vectors, they are brackets and a word; only added tokens are
    special."""
    spelled = ["[", token[1:-1].lower(), "]"]
    text = f"the {token} cat"
    read = ["[CLS]", "the", *spelled, "cat", "[SEP]"]
    (item,) = Classify(["a", "b"]).items([tiny.Labelled(text, None, "a", 1)], TOKENIZER, LENGTH, True)
    assert pieces(item.ids) == read
    (item,) = Classify(["a", "b"], pairs=True).items([tiny.Labelled("a", text, "a", 1)], TOKENIZER, LENGTH, True)
    assert pieces(item.ids) == ["[CLS]", "a", "[SEP]", *read[1:]]
    for vectors in (False, True):
        (item,) = Similarity(0, 5, vectors).items([tiny.Scored(text, text, 1.0, 1)], TOKENIZER, LENGTH, True)
        assert pieces(item.ids) == (read if vectors else [*read, *read[1:]])
    (item,) = Tag(["O", "X"]).items([tiny.Tagged(text.split(), ["O"] * 3, 1)], TOKENIZER, LENGTH, True)
    assert pieces(item.ids) == read and len(item.asked) == 3
    (item,) = Answer().items([tiny.Question("1", text, text, ["cat"], [len(text) - 3], 1)], TOKENIZER, LENGTH, True)
    assert pieces(item.ids) == [*read, *read[1:]] and pieces(item.ids)[item.target[0]] == "cat"
    assert [text[first:last] for first, last in item.offsets] == ["the", "[", token[1:-1], "]", "cat"]
    assert [pieces(row) for row in word_pieces(TOKENIZER, [token])] == [spelled]
    same = embed(model, TOKENIZER, [text, text.replace(token, " ".join(spelled))])
    np.testing.assert_allclose(*same, atol=1e-5)


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_where_words_are_guessed_mask_is_a_gap(token, model):
    """In fill-mask, attention and pseudo-perplexity, [MASK] is the special token, and no other is."""
    text = f"the {token} cat [MASK]"
    read = [
        "[CLS]",
        "the",
        *([token] if token == "[MASK]" else ["[", token[1:-1].lower(), "]"]),
        "cat",
        "[MASK]",
        "[SEP]",
    ]
    assert attention_maps(model, TOKENIZER, text).tokens == read
    found = fill_mask(model, TOKENIZER, text, top=1)
    assert len(found.gaps) == read.count("[MASK]")
    asked = pseudo_perplexity(model, TOKENIZER, text, whole_words=True)
    assert [one.token for one in asked.tokens] == [one for one in read[1:-1] if one != "[MASK]"]
    assert set(asked.unknown) == {"[MASK]"}


def test_a_fine_tuned_model_is_looked_at_as_it_is_asked(model):
    """It predicts no words, so [MASK] is text in `attention`, as it is in `predict`."""
    task = Classify(["a", "b"])
    tuned, text = with_task(model, task), "the [MASK] cat"
    (item,) = task.items([tiny.Labelled(text, None, "a", 1)], TOKENIZER, LENGTH, False)
    assert (
        attention_maps(tuned, TOKENIZER, text).tokens
        == pieces(item.ids)
        == ["[CLS]", "the", "[", "mask", "]", "cat", "[SEP]"]
    )


def test_which_are_recognised_is_said_to_the_tokenizer():
    """All, none, or one; ids, offsets and words agree."""
    text = "[SEP] the [MASK]"
    for special, tokens in (
        (True, ["[SEP]", "the", "[MASK]"]),
        (False, ["[", "sep", "]", "the", "[", "mask", "]"]),
        ("[MASK]", ["[", "sep", "]", "the", "[MASK]"]),
    ):
        assert pieces(TOKENIZER.ids([text], special)[0]) == tokens
        assert pieces(TOKENIZER.encode(text, special=special)[1:-1]) == tokens
        (encoding,) = TOKENIZER.encode_batch([text], special=special)
        assert encoding.tokens[1:-1] == tokens
        assert [text[first:last].lower() for first, last in encoding.offsets[1:-1]] == [one.lower() for one in tokens]
        assert encoding.word_ids[1:-1] == list(range(len(tokens)))
        batch = TOKENIZER([text, text], special=special, padding=True)
        assert pieces(batch["input_ids"][1][1:-1]) == tokens

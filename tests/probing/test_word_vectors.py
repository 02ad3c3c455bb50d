"""Word vectors: every word has its own pieces, is used once, and gets the vectors that the model computes for it."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini import MiniBERT
from mini_bert.probing import word_vectors as module
from mini_bert.probing.word_vectors import pooled, word_pieces, word_vectors
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer

PIECES = [*SPECIAL_TOKENS, ".", "[", "]", "sep", "the", "cat", "un", "##aff", "##able", "##s", "cafe", "1", "new"]
MINI = MiniBertConfig(vocab_size=18, hidden_size=10, num_layers=2, num_heads=2, intermediate_size=7, max_seq_length=11)
BERT = BertConfig(18, 10, 2, 2, 7, max_position_embeddings=11)
MODELS = {"mini": MiniBERT(MINI, seed=5, dtype=np.float64), "bert": Bert(BERT, seed=5, dtype=np.float64)}
SENTENCES = [["The", "unaffables", "cats", "."], ["Cat"], ["\u200b", "the", "zebra", "[SEP]", "."], ["the", "café"]]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer(PIECES)


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("The", ["the"]),
        ("unaffables", ["un", "##aff", "##able", "##s"]),
        ("cats.", ["cat", "##s", "."]),  # punctuation inside of a word
        ("new 1", ["new", "1"]),  # a space inside of a word
        ("1\u00a01", ["1", "1"]),  # one that does not break
        ("café", ["cafe"]),  # an accent is dropped
        ("[SEP]", ["[", "sep", "]"]),  # text that speaks of a token is text
        ("zebra", ["[UNK]"]),
        ("\u200b", ["[UNK]"]),  # the tokenizer leaves nothing of these two
        ("\x00\ufffd", ["[UNK]"]),
        ("\u0301", ["[UNK]"]),  # an accent alone
    ],
)
def test_every_word_has_pieces(word, pieces, tokenizer):
    """Words are tokenized separately, so pieces and words always match; every word has at least one piece."""
    found = word_pieces(tokenizer, ["the", word, "cat"])
    assert [[tokenizer.tokens[i] for i in row] for row in found] == [["the"], pieces, ["cat"]]


def test_the_pieces_are_those_of_the_sentence(tokenizer):
    """For ordinary words, tokenizing one by one or as a text gives the same pieces."""
    words = ["The", "cats", ".", "unaffables", "café", "zebra"]
    assert list(chain.from_iterable(word_pieces(tokenizer, words))) == tokenizer.ids([" ".join(words)])[0]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["the", "cats", "unaffables"]), max_size=30), max_size=3), st.integers(11, 22))
def test_windows_take_every_word_once(sentences, limit):
    """In order, none left out, with the pieces it has there; no window is longer than there is room."""
    tokenizer = WordPieceTokenizer(PIECES)
    pieces = [row for words in sentences for row in word_pieces(tokenizer, words)]
    taken = []
    for row in module._rows(tokenizer, sentences, limit):
        ids = list(row.sequence.ids)
        assert len(ids) <= limit
        for word, start, size in zip(row.words, row.starts, row.sizes, strict=True):
            assert ids[start : start + size] == pieces[word][:size] != []
            assert size == len(pieces[word]) or start + size == len(ids) - 1
            taken.append(word)
    assert taken == list(range(len(pieces)))


def one_by_one(model, tokenizer, sentences, pooling):
    """The same, in its simplest form: one sentence at a time, one word at a time."""
    found = [[] for _ in range(3)]
    for words in sentences:
        pieces = word_pieces(tokenizer, words)
        ids = [[tokenizer.cls_id, *chain.from_iterable(pieces), tokenizer.sep_id]]
        start = 1
        for row in pieces:
            for layer, state in enumerate(model.encode(ids)[1].hidden_states()):
                tokens = state[0, start : start + len(row)]
                found[layer].append({"mean": tokens.mean(0), "first": tokens[0], "last": tokens[-1]}[pooling])
            start += len(row)
    return found


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_each_word_gets_its_own_vector(model, pooling, tokenizer, monkeypatch):
    """In every layer, for both kinds of model; batching and threads change nothing."""
    wanted = one_by_one(model, tokenizer, SENTENCES, pooling)
    for tokens, threads in ((2048, 1), (18, 1), (9, 3)):
        monkeypatch.setattr(module, "TOKENS", tokens)
        heard = []
        found = word_vectors(model, tokenizer, SENTENCES, pooling=pooling, threads=threads, after_each=heard.append)
        assert list(found) == [0, 1, 2] and heard[-1] == 12
        for layer, rows in found.items():
            np.testing.assert_allclose(rows, wanted[layer], atol=1e-12)
    some = word_vectors(model, tokenizer, SENTENCES, [2], pooling)
    assert list(some) == [2]
    np.testing.assert_allclose(some[2], wanted[2], atol=1e-12)


def test_long_sentences_are_read_in_windows(tokenizer):
    """A word of a long sentence has the vector that it has in its window."""
    model = MODELS["mini"]
    words = ["the", "cat", "new", ".", "cat", "the", "new", "1", "cat", ".", "the", "new", "cat"]  # a piece each
    vectors = word_vectors(model, tokenizer, [["cat"], words, ["new"]])
    for first, last, begin, end in ((0, 9, 0, 6), (4, 13, 6, 13)):
        window = word_vectors(model, tokenizer, [words[first:last]])
        for layer in range(3):
            np.testing.assert_allclose(
                vectors[layer][1 + begin : 1 + end], window[layer][begin - first : end - first], atol=1e-12
            )


def test_a_word_longer_than_the_model(tokenizer):
    """It is read as far as its first window goes; its neighbours have their vectors, too."""
    model = MODELS["mini"]
    vectors = word_vectors(model, tokenizer, [["the", "1 " * 30, "cat"]])[1]
    np.testing.assert_allclose(vectors[1], word_vectors(model, tokenizer, [["the", "1 " * 8]])[1][1], atol=1e-12)
    assert np.isfinite(vectors).all()


def test_no_sentences(tokenizer):
    assert word_vectors(MODELS["mini"], tokenizer, [])[0].shape == (0, 10)


def test_what_is_refused(tokenizer):
    with pytest.raises(
        ValueError, match=r"layers has 3, but this model has 2 layers: expected 0 for the embeddings, or 1 to 2"
    ):
        word_vectors(MODELS["mini"], tokenizer, SENTENCES, [0, 3])
    with pytest.raises(ValueError, match="pooling is 'max', expected one of mean, first, last"):
        word_vectors(MODELS["mini"], tokenizer, SENTENCES, pooling="max")


def test_pooled():
    """Tokens of several words, also if each has one."""
    tokens = np.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(pooled(tokens, np.array([1, 3]), np.array([2, 1])), [[3, 4], [6, 7]])
    np.testing.assert_array_equal(pooled(tokens, np.array([4, 0]), np.array([1, 1])), [[8, 9], [0, 1]])

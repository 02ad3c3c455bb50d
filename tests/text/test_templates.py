"""The templates of RoBERTa, XLNet and GPT-2 through every room that builds sequences, against ids written by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mini_bert.common.draws import address
from mini_bert.data.labelled.readers import Labelled, Parsed, Question, Tagged
from mini_bert.data.sequences import Documents, open_source
from mini_bert.data.shards import Shards
from mini_bert.evaluation import corpus
from mini_bert.evaluation.embedding_quality import neighbours
from mini_bert.evaluation.pseudo_perplexity import pseudo_perplexity
from mini_bert.finetuning.data import TaskData
from mini_bert.finetuning.finetune import Runs, with_defaults
from mini_bert.finetuning.loop import FineTuning, predict
from mini_bert.finetuning.model import FineTuned, with_task
from mini_bert.finetuning.tasks.answer import Answer, best_spans
from mini_bert.finetuning.tasks.classify import Classify, sentence_scores
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.inference.embed import embed
from mini_bert.inference.fill_mask import fill_mask
from mini_bert.inside import attention_relations
from mini_bert.inside.attention_maps import attention_maps
from mini_bert.inside.layer_statistics import layer_statistics, text_statistics
from mini_bert.inside.saliency import class_saliency, default_position, find_word
from mini_bert.layers.base import Run
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.objectives.masking import Masking
from mini_bert.probing.word_vectors import word_vectors
from tests.text.letters import GptLetters, MarkedLetters, NoCls, RobertaLetters, XlnetLetters

TOKENS = ["<pad>", "<unk>", "</s>", "<c>", *"abcdefgh"]
PAD, UNK, SEP, CLS = range(4)
A, B, C, D, E, F, G, H = range(4, 12)
ROBERTA, XLNET, GPT = (kind(TOKENS) for kind in (RobertaLetters, XlnetLetters, GptLetters))
BOTH = pytest.mark.parametrize("tokenizer", [ROBERTA, XLNET], ids=["roberta", "xlnet"])
CONFIG = BertConfig(
    vocab_size=len(TOKENS), hidden_size=14, num_hidden_layers=2, num_attention_heads=2, intermediate_size=19,
    max_position_embeddings=13, type_vocab_size=4, initializer_range=0.3,
)  # fmt: skip
MODEL = Bert(CONFIG, dtype=np.float64)


class Hand:
    """A text of two and one of three letters, and a pair, in one batch, written by hand for each tokenizer"""

    def __init__(self, ids, types, mask, words, summary):
        self.ids, self.types, self.mask = np.array(ids), np.array(types), np.array(mask, bool)
        self.words, self.summary = words, np.array(summary)  # words: the positions of each text's letters


SINGLES = {
    ROBERTA: Hand([[CLS, A, B, SEP, PAD], [CLS, C, D, E, SEP]], np.zeros((2, 5), int), [[1, 1, 1, 1, 0], [1] * 5],
                  [[1, 2], [1, 2, 3]], [0, 0]),
    XLNET: Hand([[PAD, A, B, SEP, CLS], [C, D, E, SEP, CLS]], [[3, 0, 0, 0, 2], [0, 0, 0, 0, 2]],
                [[0, 1, 1, 1, 1], [1] * 5], [[1, 2], [0, 1, 2]], [4, 4]),
}  # fmt: skip
PAIRS = {  # "ab" with "c", and "a" with "b"
    ROBERTA: Hand([[CLS, A, B, SEP, SEP, C, SEP], [CLS, A, SEP, SEP, B, SEP, PAD]], np.zeros((2, 7), int),
                  [[1] * 7, [1] * 6 + [0]], [[1, 2, 5], [1, 4]], [0, 0]),
    XLNET: Hand([[A, B, SEP, C, SEP, CLS], [PAD, A, SEP, B, SEP, CLS]], [[0, 0, 0, 1, 1, 2], [3, 0, 0, 1, 1, 2]],
                [[1] * 6, [0] + [1] * 5], [[0, 1, 3], [1, 3]], [5, 5]),
}  # fmt: skip


def hidden(hand):
    return MODEL.encode(hand.ids, hand.mask, hand.types, Run())


def test_assembled_by_hand():
    """ids, types, where the texts begin, and the summary token: cls, or without one the last token."""
    assert ROBERTA.assemble([A, B]) == ([CLS, A, B, SEP], [0] * 4, [1], 0)
    assert ROBERTA.assemble([A, B], [C]) == ([CLS, A, B, SEP, SEP, C, SEP], [0] * 7, [1, 5], 0)
    assert XLNET.assemble([A, B]) == ([A, B, SEP, CLS], [0, 0, 0, 2], [0], 3)
    assert XLNET.assemble([A, B], [C]) == ([A, B, SEP, C, SEP, CLS], [0, 0, 0, 1, 1, 2], [0, 3], 5)
    assert GPT.assemble([A, B]) == ([A, B], [0, 0], [0], 1)
    assert GPT.assemble([A, B], [C]) == ([A, B, C], [0, 0, 0], [0, 2], 2)
    assert [GPT.added_count(texts) for texts in (1, 2)] == [0, 0]
    assert [[kind.template(texts).type_count for texts in (1, 2)] for kind in (ROBERTA, XLNET)] == [[1, 1], [3, 3]]


@BOTH
def test_a_padded_batch_of_the_tokenizer(tokenizer):
    """Ids, types, mask and word ids go to the tokenizer's side."""
    for hand, texts in ((SINGLES[tokenizer], ["ab", "cde"]), (PAIRS[tokenizer], [("ab", "c"), ("a", "b")])):
        batch = tokenizer(texts, padding=True, return_tensors="np")
        np.testing.assert_array_equal(batch["input_ids"], hand.ids)
        np.testing.assert_array_equal(batch["token_type_ids"], hand.types)
        np.testing.assert_array_equal(batch["attention_mask"], hand.mask)
        for number, words in enumerate(hand.words):
            assert [place for place, word in enumerate(batch.word_ids(number)) if word is not None] == words


@BOTH
def test_word_pieces_of_a_sequence(tokenizer):
    """All letters continue a word, but not the first of a text, whatever it is."""
    assert tokenizer.continues[[A, B, C]].all()
    np.testing.assert_array_equal(
        tokenizer.continuing(np.array([[CLS, A, B, SEP, SEP, C, D], [A, B, SEP, C, SEP, CLS, A]])),
        [[False, False, True, False, False, False, True], [False, True, False, False, False, False, False]],
    )
    masking = Masking(12, UNK, tokenizer.special_ids, 0.4, continues=tokenizer.continuing, whole_word=True)
    ids = np.array([[CLS, A, B, C, D, SEP, SEP, E, F, G, H, SEP]] * 20)
    chosen = np.zeros(ids.shape, bool)
    chosen.flat[masking(ids, address(0, np.arange(20))).mask_positions] = True
    assert {tuple(row) for row in chosen[:, [1, 2, 3, 4]].tolist()} == {(True,) * 4, (False,) * 4}


# ---------------------------------------------------------------------- fine-tuning


@BOTH
@pytest.mark.parametrize("pooling", [["cls"], ["cls", "mean"]])
def test_classification(tokenizer, pooling):
    """Batches are as written by hand, the head reads the summary token, and loss and answers agree with that."""
    hand = PAIRS[tokenizer]
    examples = [Labelled("ab", "c", "yes", 1), Labelled("a", "b", "no", 2)]
    task = Classify(["no", "yes"], pooling, dense=True, pairs=True)
    items = task.items(examples, tokenizer, 13, True)
    assert [item.ids for item in items] == tokenizer([("ab", "c"), ("a", "b")])["input_ids"]
    batch = task.batch(items, tokenizer.padding)
    np.testing.assert_array_equal(batch.ids, hand.ids)
    np.testing.assert_array_equal(batch.types, hand.types)
    np.testing.assert_array_equal(batch.mask, hand.mask)
    np.testing.assert_array_equal(batch.summary, hand.summary)
    assert [np.flatnonzero(row).tolist() for row in batch.asked] == hand.words

    model = with_task(MODEL, task, 0.0)
    x, _ = hidden(hand)
    parts = [x[[0, 1], hand.summary]] + [
        np.stack([x[b, words].mean(0) for b, words in enumerate(hand.words)]) for _ in pooling[1:]
    ]
    head = model.task
    h = np.tanh(np.concatenate(parts, 1) @ head.dense.w.data + head.dense.b.data)
    expected = h @ head.linear.w.data + head.linear.b.data
    np.testing.assert_allclose(sentence_scores(model, batch, Run(), pooling)[0], expected, atol=1e-12)
    answers = predict(model, task, items, tokenizer.padding)
    np.testing.assert_allclose(np.log(answers[0] / answers[0][0]), expected[0] - expected[0][0], atol=1e-12)
    model.zero_grad()
    task.loss(model, batch, Run(train=True), 2)
    assert np.isfinite(model.flat.grad).all() and model.tokens.table.grad[A].any()
    first = class_saliency(FineTuned(model, task, tokenizer, 13), "ab", "c", "yes")[0]
    assert first.value == pytest.approx(np.log(answers[0][1])) and first.tokens == [TOKENS[i] for i in items[0].ids]


@BOTH
def test_the_two_texts_of_a_pair_are_told_apart_without_token_types(tokenizer):
    """A PairHead pools the letters of each text, also where all token types are 0."""
    hand = PAIRS[tokenizer]
    task = Classify(["no", "yes"], pairs=True)
    batch = task.batch(
        task.items([Labelled("ab", "c", "yes", 1), Labelled("a", "b", "no", 2)], tokenizer, 13, True), tokenizer.padding
    )
    model = with_task(MODEL, task, 0.0)
    x, _ = hidden(hand)
    u = np.stack([x[0, hand.words[0][:2]].mean(0), x[1, hand.words[1][0]]])
    v = np.stack([x[b, words[-1]] for b, words in enumerate(hand.words)])
    compared = np.concatenate([u, v, np.abs(u - v), u * v], 1)
    expected = compared @ model.task.linear.w.data + model.task.linear.b.data
    np.testing.assert_allclose(sentence_scores(model, batch, Run(), task.pooling)[0], expected, atol=1e-12)


@BOTH
def test_texts_that_are_compared_as_vectors(tokenizer):
    """Two sequences of an item, pooled at their summary tokens."""
    hand = SINGLES[tokenizer]
    task = Similarity(-1.0, 1.0, vectors=True, pooling=["cls"])
    items = task.items([SimpleNamespace(first="ab", second="cde", score=0.5)], tokenizer, 13, True)
    u, v = hidden(hand)[0][[0, 1], hand.summary]
    cosine = u @ v / np.linalg.norm(u) / np.linalg.norm(v)
    (score,) = predict(with_task(MODEL, task), task, items, tokenizer.padding)
    assert score == pytest.approx(2 * cosine - 1)


@BOTH
def test_tags_are_read_at_first_pieces(tokenizer):
    """Words "ab", "c" in one window; and in windows of at most 4 tokens."""
    task = Tag(["X", "Y"])
    short, long = Tagged(["f"], ["Y"], 1), Tagged(["ab", "c"], ["X", "Y"], 2)
    items = task.items([short, long], tokenizer, 13, True)
    batch = task.batch(items, tokenizer.padding)
    ids, asked = {
        ROBERTA: ([[CLS, F, SEP, PAD, PAD], [CLS, A, B, C, SEP]], [[1], [1, 3]]),
        XLNET: ([[PAD, PAD, F, SEP, CLS], [A, B, C, SEP, CLS]], [[2], [0, 2]]),
    }[tokenizer]
    np.testing.assert_array_equal(batch.ids, ids)
    assert [np.flatnonzero(row).tolist() for row in batch.asked] == asked and batch.targets.tolist() == [1, 0, 1]
    windows = task.items([long], tokenizer, 4, True)
    start = windows[0].sequence.starts[0]
    rows = [tokenizer.assemble([A, B]).ids, tokenizer.assemble([B, C]).ids]
    assert [item.ids for item in windows] == rows
    assert [item.asked for item in windows] == [[start], [start + 1]]


@BOTH
def test_answers_and_windows_without_one(tokenizer):
    """Targets are positions in the padded batch; "not here" is the summary token, wherever it is."""
    question = Question("1", "h", "abcd", ["b"], [1], 1)
    room = 2 + tokenizer.added_count(2) + 1
    task = Answer(stride=2)
    items = task.items([question, Question("2", "h", "a", ["a"], [0], 1)], tokenizer, room, True)
    expected = {
        ROBERTA: [([CLS, H, SEP, SEP, A, B, SEP], [0, 4, 5], (5, 5)),
                  ([CLS, H, SEP, SEP, C, D, SEP], [0, 4, 5], (0, 0)),
                  ([CLS, H, SEP, SEP, A, SEP], [0, 4], (4, 4))],
        XLNET: [([H, SEP, A, B, SEP, CLS], [5, 2, 3], (3, 3)), ([H, SEP, C, D, SEP, CLS], [5, 2, 3], (5, 5)),
                ([H, SEP, A, SEP, CLS], [4, 2], (2, 2))],
    }[tokenizer]  # fmt: skip
    assert [(item.ids, item.asked, item.target) for item in items] == expected
    batch = task.batch(items, tokenizer.padding)
    letter = [B, CLS, A]
    for row, target, right in zip(batch.ids, batch.targets, letter, strict=True):
        assert row[target].tolist() == [right] * 2
    model = with_task(MODEL, task)
    x, _ = MODEL.encode(batch.ids, batch.mask, batch.types, Run())
    y = x @ model.task.linear.w.data + model.task.linear.b.data  # (B,T,2)
    places = {ROBERTA: [0, 4, 5], XLNET: [5, 2, 3]}[tokenizer]
    found = predict(model, task, items, tokenizer.padding)[0]
    by_hand = best_spans(y[0, places, 0], y[0, places, 1], task.longest)
    np.testing.assert_allclose(found, by_hand, atol=1e-12)
    assert {span.text for span in task.join([question] * 2, items[:1], [found])[0]} == {"a", "b", "ab"}
    assert np.isfinite(task.loss(model, batch, Run(train=True), 3)[0])
    without = task.items([question], NoCls(TOKENS), 3, True)
    assert [(item.ids[0], item.asked[0], item.sequence.summary) for item in without] == [(H, 0, 0)] * len(without)
    assert (0, 0) in [item.target for item in without]  # the first token of the question


def test_a_tokenizer_without_a_mask_can_be_fine_tuned():
    """Then there is no word dropout by default; asking for it names the missing token."""
    examples = [Labelled("ab", None, "yes", 1), Labelled("cd", None, "no", 2)] * 4
    task = Classify(["no", "yes"])
    runs = Runs(MODEL, task, TaskData(examples, examples, "", ""), XLNET, 13)
    settings = with_defaults(FineTuning(epochs=1, threads=1), "classify", MODEL, 8, has_mask=False)
    assert settings.word_dropout == 0 and runs.run("pretrained", settings).outcome.steps == 1
    with pytest.raises(ValueError, match="has no mask token"):
        runs.run("pretrained", FineTuning(epochs=1, threads=1, word_dropout=0.1))


# ---------------------------------------------------------------------- looking inside


@BOTH
def test_word_vectors(tokenizer):
    """The rows of a probe: words "ab" and "c", "de" in one batch."""
    hand, (x, _) = SINGLES[tokenizer], hidden(SINGLES[tokenizer])
    (_, two), (c, d, e) = hand.words
    found = word_vectors(MODEL, tokenizer, [["ab"], ["c", "de"]])[2]
    expected = [x[0, [two - 1, two]].mean(0), x[1, c], x[1, [d, e]].mean(0)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@BOTH
def test_attention_between_words(tokenizer, monkeypatch):
    """The predicted parents come from the weights between the letters, wherever padding moves them."""
    seen = []
    monkeypatch.setattr(attention_relations, "count_correct", lambda sentence, predicted, into: seen.append(predicted))
    sentences = [Parsed(["a", "b"], [], [2, 0], ["x", "root"], 1), Parsed(["c", "de"], [], [2, 0], ["x", "root"], 2)]
    with pytest.raises(ValueError, match="none of the 2 sentences has a dependency"):  # nothing is counted
        attention_relations.relation_scores(MODEL, tokenizer, sentences)
    hand = SINGLES[tokenizer]
    weights = np.stack(hidden(hand)[1].attention_weights(), 1)
    for number, sizes in enumerate(([1, 1], [1, 2])):
        places = hand.words[number]
        between = weights[number][:, :, places][..., places]
        words = attention_relations.word_attention(between, sizes, 0)
        np.testing.assert_array_equal(seen[number], attention_relations.predicted_parents(words))
        shifted = attention_relations.word_attention(weights[number], sizes, places[0])
        np.testing.assert_array_equal(shifted, words)
    with pytest.raises(ValueError, match="fits into the model's 13 tokens"):
        attention_relations.relation_scores(MODEL, tokenizer, [Parsed(["a"] * 12, [], [0] * 12, ["x"] * 12, 1)])


@BOTH
def test_texts_as_vectors(tokenizer):
    """embed with each pooling, and texts cut to the model's limit."""
    hand, (x, _) = SINGLES[tokenizer], hidden(SINGLES[tokenizer])
    for pooling, expected in {
        "cls": [x[b, place] for b, place in enumerate(hand.summary)],
        "mean": [x[b, words].mean(0) for b, words in enumerate(hand.words)],
        "all": [x[b, hand.mask[b]].mean(0) for b in range(2)],
    }.items():
        np.testing.assert_allclose(embed(MODEL, tokenizer, ["ab", "cde"], pooling), expected, atol=1e-12)
    np.testing.assert_array_equal(embed(MODEL, tokenizer, ["a" * 20]), embed(MODEL, tokenizer, ["a" * 11]))
    with pytest.raises(ValueError, match="has no words"):
        embed(MODEL, tokenizer, [""])


def test_texts_without_special_tokens():
    """GPT-2's template adds nothing; the summary is the last token."""
    x, _ = MODEL.encode([[A, B, C]], None, None, Run())
    for pooling, expected in {"cls": x[0, 2], "mean": x[0].mean(0), "all": x[0].mean(0)}.items():
        np.testing.assert_allclose(embed(MODEL, GPT, ["abc"], pooling)[0], expected, atol=1e-12)
    assert attention_maps(MODEL, GPT, "a").tokens == ["a"]
    with pytest.raises(ValueError, match="has no words"):
        attention_maps(MODEL, GPT, "")
    assert [item.ids for item in Tag(["X", "Y"]).items([Tagged(["ab"], ["X"], 1)], GPT, 13, True)] == [[A, B]]


@BOTH
def test_maps_and_statistics(tokenizer):
    """Attention maps know roles and types; layer statistics are those of the batch written by hand."""
    maps = attention_maps(MODEL, tokenizer, "ab", "c")
    hand = PAIRS[tokenizer]
    np.testing.assert_array_equal(maps.ids, hand.ids[0])
    np.testing.assert_array_equal(maps.types, hand.types[0])
    assert [place for place, role in enumerate(maps.roles) if not role] == hand.words[0]
    with pytest.raises(ValueError, match="has no words"):
        attention_maps(MODEL, tokenizer, "", "c")
    assert default_position(tokenizer, hand.ids[0]) == hand.words[0][-1]
    assert find_word(tokenizer, hand.ids[0], "b") == hand.words[0][1]
    one = SINGLES[tokenizer]
    by_hand = layer_statistics(MODEL, [(one.ids, one.mask, one.types)])
    found, count = text_statistics(MODEL, tokenizer, ["cde", "ab"])
    assert count == 9 and [s.mean for s in found] == pytest.approx([s.mean for s in by_hand])


MARKED = MarkedLetters(["<pad>", "<unk>", "</s>", "<c>", "<mask>", "a", "b", "Ġa", "Ġb", "Ġ1", "1"])


def test_words_are_found_by_their_text():
    """A mark that is a letter does not make a number a word; a word is named without its mark."""
    ids = MARKED.encode("a b 1")
    assert ids == [5, 8, 9, 2, 3] and MARKED.continuing(np.array(ids)).tolist() == [False] * 5
    assert default_position(MARKED, ids) == 1 and default_position(MARKED, MARKED.encode("a <mask> b")) == 1
    assert [find_word(MARKED, ids, word) for word in ("a", "b", "Ġb", "0", "1")] == [0, 1, 1, 0, 2]
    with pytest.raises(ValueError, match="'x' is not a token"):
        find_word(MARKED, MARKED.encode("a ?"), "x")  # both are <unk>


def test_masks_without_a_token_at_the_ends():
    """fill-mask, pseudo-perplexity and neighbours with no special token before the text, and token types."""
    model = Bert(replace(CONFIG, vocab_size=MARKED.vocab_size), dtype=np.float64)
    run = Run()
    x, _ = model.encode([[5, 4, 2, 3]], None, [[0, 0, 0, 2]], run)
    scores = model.masked_words.forward(x[0, 1:2], run)[0][0]
    best = 5 + int(scores[5:].argmax())
    assert fill_mask(model, MARKED, "a <mask>", 1).gaps[0][0].id == best

    found = pseudo_perplexity(model, MARKED, "ab ?a", whole_words=True)
    assert [one.token for one in found.tokens] == ["a", "b", "a"] and found.unknown == ["<unk>"]
    x, _ = model.encode([[4, 4, 1, 5, 2, 3]], None, [[0, 0, 0, 0, 0, 2]], run)
    scores = model.masked_words.forward(x[0, :1], run)[0][0]
    assert found.tokens[0].surprise == pytest.approx(np.log(np.exp(scores).sum()) - scores[5])
    assert neighbours(model, MARKED, "ab").pieces == ["a", "b"]
    ends = pseudo_perplexity(model, MarkedGpt(MARKED.tokens), "ab", whole_words=True)  # nothing follows the last word
    assert len(ends.tokens) == 2


class MarkedGpt(MarkedLetters):
    single, pair = "A:0", "A:0 B:0"


# ---------------------------------------------------------------------- pretraining


def shards_of(documents):
    """Documents of sentences of ids, as data/shards.py stores them, with one separator before each and at the end"""
    tokens, sentences, starts = [], [], []
    for document in documents:
        tokens.append(SEP)
        starts.append(len(sentences))
        for sentence in document:
            sentences.append(len(tokens))
            tokens += sentence
    tokens.append(SEP)
    sentences, starts = [*sentences, len(tokens)], [*starts, len(sentences)]
    hashes = np.arange(len(documents), dtype=np.uint64)
    return Shards("", {}, np.array(tokens, np.uint16), np.array(sentences), np.array(starts), hashes)


def rows_of(tokenizer, documents, length, mode):
    source = open_source(shards_of(documents), tokenizer, length, mode)
    numbers = np.arange(source.count)
    return source.rows(numbers, address(3, 0, numbers)), source


TEXT = [[[A, B], [C]], [[D, E, F], [G]]]  # two documents; as one row: a b c </s> d e f g


def test_running_text_has_the_template_of_one_text():
    """No [CLS] where there is none, types where they are not 0."""
    for tokenizer, length, ids, types in (
        (ROBERTA, 6, [[CLS, A, B, C, SEP, SEP], [CLS, D, E, F, G, SEP]], None),
        (XLNET, 6, [[A, B, C, SEP, SEP, CLS], [D, E, F, G, SEP, CLS]], [[0, 0, 0, 0, 0, 2]] * 2),
        (GPT, 4, [[A, B, C, SEP], [D, E, F, G]], None),
    ):
        rows, source = rows_of(tokenizer, TEXT, length, "packed")
        assert rows.ids.tolist() == ids and rows.mask is None
        assert rows.types is None if types is None else rows.types.tolist() == types
        assert source.left_out.startswith("0 tokens")


def test_sentences_are_padded_on_the_tokenizers_side():
    for tokenizer, ids, types in (
        (ROBERTA, [[CLS, A, B, SEP, PAD], [CLS, C, SEP, PAD, PAD], [CLS, D, E, F, SEP], [CLS, G, SEP, PAD, PAD]], None),
        (XLNET, [[PAD, A, B, SEP, CLS], [PAD, PAD, C, SEP, CLS], [D, E, F, SEP, CLS], [PAD, PAD, G, SEP, CLS]],
         [[3, 0, 0, 0, 2], [3, 3, 0, 0, 2], [0, 0, 0, 0, 2], [3, 3, 0, 0, 2]]),
        (GPT, [[A, B, PAD], [C, PAD, PAD], [D, E, F], [G, PAD, PAD]], None),
    ):  # fmt: skip
        rows, source = rows_of(tokenizer, TEXT, 5, "sentences")
        assert rows.ids.tolist() == ids and rows.mask.tolist() == [[i != PAD for i in row] for row in ids]
        assert rows.types is None if types is None else rows.types.tolist() == types
        assert source.lengths(np.arange(4)).tolist() == rows.lengths.tolist() == rows.mask.sum(1).tolist()


@pytest.mark.parametrize("mode", ["next", "order"])
@pytest.mark.parametrize("tokenizer", [ROBERTA, XLNET, GPT], ids=["roberta", "xlnet", "gpt"])
def test_pairs_have_the_template_of_two_texts(tokenizer, mode):
    """Every row is what `assemble` makes of two of the sentences, padded; both labels occur."""
    documents = TEXT * 8
    rows, source = rows_of(tokenizer, documents, 6 + tokenizer.added_count(2), mode)
    sentences = [sentence for document in TEXT for sentence in document]
    possible = {}
    for first in sentences:
        for second in sentences:
            sequence = tokenizer.assemble(first, second)
            possible[tuple(sequence.ids)] = sequence.types
    types = np.zeros_like(rows.ids) if rows.types is None else rows.types
    mask = np.ones(rows.ids.shape, bool) if rows.mask is None else rows.mask
    for ids, own, used in zip(rows.ids, types, mask, strict=True):
        assert possible[tuple(ids[used].tolist())] == own[used].tolist()
        assert (ids[~used] == PAD).all() and (own[~used] == tokenizer.padding_type).all()
    assert not mask.all() and bool(mask[:, -1].all()) == (tokenizer.padding_side == "left")
    assert {0, 1} == set(rows.labels.tolist()) and source.room == 6


def test_the_shortest_sequences():
    """A sequence has room for a word, or two, beside the special tokens."""
    for tokenizer, mode, special in ((ROBERTA, "next", 4), (XLNET, "packed", 2), (GPT, "order", 0)):
        least = special + (1 if mode == "packed" else 2)
        with pytest.raises(ValueError, match=f"take up {special} of these: expected at least {least}"):
            open_source(shards_of(TEXT), tokenizer, least - 1, mode)
        open_source(shards_of(TEXT), tokenizer, least, mode)


def test_a_short_corpus_is_one_sequence():
    """Its 8 tokens and the template's special tokens."""
    for tokenizer, length in ((ROBERTA, 10), (GPT, 8)):
        assert corpus._length("x", shards_of(TEXT), 0.0, 64, tokenizer.added_count()) == length
    assert Documents(shards_of(TEXT)).tokens.size - 1 == 8

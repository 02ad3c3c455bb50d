"""The mask lab agrees with `fill_mask` and `pseudo_perplexity`, and hides what it says it hides."""

import numpy as np
import pytest

from mini_bert.inference.fill_mask import fill_mask
from mini_bert.lab.mask import gap_probabilities, guess, surprise
from tests.lab.test_family import preset_bench

TEXT = "She opened the door and looked into the room."


def test_a_hidden_word_is_guessed_as_by_fill_mask(bench):
    """Hiding token 4 is the same as writing [MASK] there."""
    gap = guess(bench, {"text": TEXT, "hidden": [4], "top": 7})["gaps"][0]
    filled = fill_mask(bench.model, bench.tokenizer, TEXT.replace("door", "[MASK]"), 7)
    assert [one["word"] for one in gap["guesses"]] == [one.word for one in filled.gaps[0]]
    np.testing.assert_allclose([one["p"] for one in gap["guesses"]], [one.probability for one in filled.gaps[0]], 1e-4)


def test_each_guess_comes_with_its_text(bench):
    """The page puts it into the sentence as it is, without the marks of the tokenizer."""
    (gap,) = guess(bench, {"text": TEXT, "hidden": [4], "top": 3})["gaps"]
    assert [one["text"] for one in gap["guesses"]] == [TEXT.replace("door", one["word"]) for one in gap["guesses"]]
    (gap,) = guess(preset_bench("roberta"), {"text": TEXT, "hidden": [4], "top": 20})["gaps"]
    begins = [one for one in gap["guesses"] if not one["joins"]]
    assert len(begins) > 3 and all(one["word"].startswith("▁") for one in begins)
    assert [one["text"] for one in begins] == [TEXT.replace("door", one["word"][1:]) for one in begins]


def test_a_sentence_without_a_word_surprises_nobody(bench):
    """While someone types [MASK] alone, there is nothing to colour, and no error."""
    assert surprise(bench, {"text": "[MASK]"}) == {"perplexity": None, "tokens": []}


def test_several_gaps_are_guessed_while_all_are_hidden(bench):
    text = "She [MASK] the [MASK] and looked into the room."
    answer = guess(bench, {"text": TEXT, "hidden": [4, 2], "top": 5})
    filled = fill_mask(bench.model, bench.tokenizer, text, 5)
    assert [gap["position"] for gap in answer["gaps"]] == [2, 4]
    for gap, expected in zip(answer["gaps"], filled.gaps, strict=True):
        assert [one["word"] for one in gap["guesses"]] == [one.word for one in expected]
    assert answer["filled"].lower() == filled.text.lower()


def test_masks_in_the_text_are_gaps_without_a_word_of_their_own(bench):
    (gap,) = guess(bench, {"text": "The [MASK] sat."})["gaps"]
    assert gap["own"] is None and gap["position"] == 2


def test_the_own_word_has_its_rank_and_surprise(bench):
    gap = guess(bench, {"text": TEXT, "hidden": [4]})["gaps"][0]
    row = gap_probabilities(bench, bench.read(TEXT), [4])[0]
    own = gap["own"]
    words = [p for i, p in enumerate(row) if i not in bench.tokenizer.special_ids]
    assert own["word"] == "door" and own["rank"] == 1 + sum(p > row[own["id"]] for p in words)
    assert own["surprise"] == pytest.approx(-np.log(row[own["id"]]), rel=1e-4)


@pytest.mark.parametrize(("context", "changed", "kept"), [("left", "chair", "he"), ("right", "he", "chair")])
def test_hidden_context_makes_no_difference(bench, context, changed, kept):
    """With the context on one side only, words on the other side can be exchanged without any effect."""
    first, last = "She", "room"
    other = {"he": TEXT.replace(first, "He"), "chair": TEXT.replace(last, "chair")}
    probs = gap_probabilities(bench, bench.read(TEXT), [4], context)
    np.testing.assert_array_equal(gap_probabilities(bench, bench.read(other[changed]), [4], context), probs)
    assert np.abs(gap_probabilities(bench, bench.read(other[kept]), [4], context) - probs).max() > 1e-4


def test_each_gap_has_its_own_side(bench):
    """With two gaps and the left context, each is guessed as if it were alone with what is left of it."""
    reading = bench.read(TEXT)
    both = gap_probabilities(bench, reading, [4, 9], "left")
    alone = gap_probabilities(bench, bench.read("She opened the [MASK]"), [4], "left")
    np.testing.assert_allclose(both[0].argmax(), gap_probabilities(bench, reading, [4], "left")[0].argmax())
    assert both.shape == (2, 8192) and alone.shape == (1, 8192)
    np.testing.assert_allclose(both[0], gap_probabilities(bench, reading, [4], "left")[0], atol=1e-6)


def test_surprise_is_that_of_one_hidden_token(bench):
    answer = surprise(bench, {"text": TEXT})
    assert [one["position"] for one in answer["tokens"]] == list(range(1, 11))
    gap = guess(bench, {"text": TEXT, "hidden": [6]})["gaps"][0]
    assert answer["tokens"][5]["surprise"] == pytest.approx(gap["own"]["surprise"], rel=1e-4)
    assert answer["tokens"][5]["guess"] == gap["guesses"][0]["word"]


def test_a_piece_in_place_of_another_is_written_with_the_right_spaces(bench):
    """A piece that begins a word gets a space after a piece; one that continues a word gets none."""
    from mini_bert.lab.mask import filled

    reading = bench.read("The zebras ran.")  # the ze ##br ##as ran .
    of, s = bench.tokenizer.vocab["of"], bench.tokenizer.vocab["##s"]
    assert filled(bench, reading, {4: of}) == "The zebr of ran."
    assert filled(bench, reading, {5: s}) == "The zebrass."


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "no 'text'"),
        ({"text": ""}, "no word"),
        ({"text": "   "}, "no word"),
        ({"text": 3}, "expected a text"),
        ({"text": None}, "no 'text'"),
        ({"text": "a " * 1001}, "2,002 characters"),
        ({"text": "a " * 100}, "102 tokens"),
        ({"text": "\ud800"}, "half of a character"),
        ({"text": TEXT, "hidden": [0]}, "[CLS]"),
        ({"text": TEXT, "hidden": [11]}, "[SEP]"),
        ({"text": TEXT, "hidden": [99]}, "from 0 to 11"),
        ({"text": TEXT, "hidden": [-1]}, "from 0 to 11"),
        ({"text": TEXT, "hidden": [True]}, "True"),
        ({"text": TEXT, "hidden": [1.0]}, "1.0"),
        ({"text": TEXT, "hidden": "4"}, "expected a list"),
        ({"text": TEXT, "hidden": [1] * 1000}, "at most 128"),
        ({"text": "a b c d e f g h i j k l m n o p q r s", "hidden": list(range(1, 19))}, "at most 16"),
        ({"text": TEXT, "context": "up"}, "both, left, right"),
        ({"text": TEXT, "top": 0}, "from 1 to 20"),
        ({"text": TEXT, "hiden": [4]}, "'hiden'"),
    ],
)
def test_a_wrong_request_gets_a_sentence(bench, request_, said):
    with pytest.raises(ValueError, match=said.replace("[", r"\[").replace("]", r"\]")):
        guess(bench, request_)

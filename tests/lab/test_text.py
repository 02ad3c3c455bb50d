"""The text room agrees with the tokenizers and with the functions that learn vocabularies."""

import itertools
import math

import pytest

from mini_bert.common.progress import showing
from mini_bert.lab.text import KINDS, pieces, spelling, tokenizer
from mini_bert.lab.vocabularies import LONGEST_TEXT, all_states, learn, word_table
from mini_bert.text.bpe_conventions import ROBERTA
from mini_bert.text.bpe_learning import choose as choose_merges
from mini_bert.text.unigram_lattice import Lattice
from mini_bert.text.vocabulary import Merges

TEXT = "The naïve zebras of Madagascar sat [MASK], 𝔘 unaffable."
PASTED = "the then them at that hat; the lower the slower, the low and slow rows at the show. " * 2


def test_the_pieces_are_those_of_the_tokenizers():
    for one in pieces(None, {"text": TEXT})["kinds"]:
        own = tokenizer(one["kind"])
        assert [piece["id"] for piece in one["pieces"]] == own.encode(TEXT, special=own.mask_token)
        words = [piece for piece in one["pieces"] if not piece["role"]]
        assert one["count"] == len(words)
        for piece in words:  # each span holds the letters of its piece, apart from case, accents and bytes
            if piece["text"].isascii() and piece["text"].isalpha() and "ï" not in TEXT[piece["start"] : piece["end"]]:
                assert TEXT[piece["start"] : piece["end"]].strip().lower() == piece["text"].lower()


@pytest.mark.parametrize("at", [0, 5, 12, 21, 45])
def test_a_word_is_explained_up_to_its_pieces(at):
    """The last step of every explanation is the spelling of the tokenizer itself."""
    found = {one["kind"]: one for one in spelling(None, {"text": TEXT, "at": at})["kinds"]}
    wordpiece, bpe, unigram = (found[kind] for kind in KINDS)
    assert [step["piece"] for step in wordpiece["steps"]] == wordpiece["pieces"]
    assert bpe["steps"][-1]["pieces"] == bpe["pieces"]
    assert [piece["text"] for piece in unigram["ways"][0]["pieces"]] == unigram["pieces"]
    for before, after in itertools.pairwise(bpe["steps"]):
        assert len(after["pieces"]) == len(before["pieces"]) - 1 and after["rank"] >= 1
    totals = [way["total"] for way in unigram["ways"]]
    assert totals == sorted(totals, reverse=True)
    for way in unigram["ways"]:
        assert way["total"] == pytest.approx(sum(piece["score"] for piece in way["pieces"]), abs=1e-3)


def test_longest_match_tries_every_longer_piece_in_vain():
    wordpiece = spelling(None, {"text": "zebras", "at": 2})["kinds"][0]
    assert wordpiece["steps"][0]["tried"] == ["zebras", "zebra", "zebr", "zeb"]
    own = tokenizer("wordpiece")
    assert all(tried not in own.vocab for step in wordpiece["steps"] for tried in step["tried"])


def test_an_unknown_word_says_where_it_failed():
    (wordpiece,) = [one for one in spelling(None, {"text": "a ab𝔘c", "at": 3})["kinds"] if one["kind"] == "wordpiece"]
    assert wordpiece["unknown"] and wordpiece["pieces"] == ["[UNK]"] and wordpiece["steps"][-1]["piece"] is None


def test_a_space_belongs_to_the_next_word():
    answer = spelling(None, {"text": "The zebras ran.", "at": 10})
    assert answer["word"].startswith("ran")
    assert all("".join(one["pieces"]).strip("▁").startswith("ran") for one in answer["kinds"])


def test_a_mask_and_a_very_long_word_are_not_explained():
    kinds = spelling(None, {"text": "The [MASK] sat.", "at": 5})["kinds"]
    assert "special token" in next(one["why"] for one in kinds if one["kind"] == "wordpiece")
    kinds = spelling(None, {"text": "x" * 70, "at": 5})["kinds"]
    assert all("70 characters" in one["why"] for one in kinds)


def test_the_best_segmentations_are_those_of_all_that_exist():
    """Compared with all 2^(n-1) ways to cut a word, one character unknown."""
    scores = {"a": -1.0, "b": -1.5, "ab": -2.0, "ba": -2.75, "aba": -3.1, "bab": -4.2, "bb": -3.3}
    lattice = Lattice({piece: (i, score) for i, (piece, score) in enumerate(scores.items())}, -14.0)
    word = "ababbxab"
    known = []
    for cuts in itertools.product((0, 1), repeat=len(word) - 1):
        places = [0, *(place for place, cut in enumerate(cuts, 1) if cut), len(word)]
        parts = [word[start:end] for start, end in itertools.pairwise(places)]
        if all(part in scores or part == "x" for part in parts):
            known.append(sum(scores.get(part, -14.0) for part in parts))
    found = lattice.several(word, 7)
    assert [sum(cut.scores) for cut in found] == pytest.approx(sorted(known, reverse=True)[:7])
    assert len({cut.lengths for cut in found}) == 7 and all(sum(cut.lengths) == len(word) for cut in found)
    assert found[0][:2] == lattice.best(word)[:2]


# ---------------------------------------------------------------------- learning


def test_merges_are_those_that_training_makes():
    """BPE: the same merges as bpe_learning.choose; the pieces of every word are one longer before each merge."""
    states = all_states("bpe", PASTED)
    with showing(False) as show:
        _, merges, _ = choose_merges(word_table("bpe", PASTED), 10_000, ROBERTA, 2, show)
    assert [(one["merged"]["left"], one["merged"]["right"]) for one in states[1:]] == [
        (left.replace("Ġ", "▁"), right.replace("Ġ", "▁")) for left, right in merges
    ]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_the_length_of_the_text_is_that_of_its_words(kind):
    """In every state, the number of tokens is the sum over all words; it never grows."""
    table = word_table(kind, PASTED)
    assert len(table) <= 40  # so all are shown
    states = all_states(kind, PASTED)
    for state in states:
        assert state["tokens"] == sum(word["count"] * len(word["pieces"]) for word in state["words"])
    assert all(after["tokens"] < before["tokens"] for before, after in itertools.pairwise(states))
    for before, after in itertools.pairwise(states):
        first = before["next"][0]
        assert (first["left"], first["right"]) == (after["merged"]["left"], after["merged"]["right"])


def test_equal_neighbours_are_counted_once():
    """In aaaa, merging a and a twice makes two pieces of four, not zero."""
    states = all_states("bpe", "aaaa aaaa")
    assert [state["tokens"] for state in states] == [
        sum(word["count"] * len(word["pieces"]) for word in state["words"]) for state in states
    ]


def test_wordpiece_learns_as_the_library_does():
    merging = Merges(word_table("wordpiece", PASTED))
    for state in all_states("wordpiece", PASTED)[1:9]:
        merging.merge(merging.best(2))
        assert state["merged"]["text"] == merging.pieces[-1] and state["pieces"] == len(merging.pieces)


def test_unigram_prunes_until_it_is_small_enough():
    text = " ".join(f"{a}{b}{c}" for a in ("re", "un", "over", "under") for b in ("do", "work", "play", "load", "think")
                    for c in ("", "ing", "able", "er", "ed")) * 2  # fmt: skip
    states = all_states("unigram", text)
    sizes = [state["pieces"] for state in states]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0]
    assert [state["doing"] for state in states[:3]] == ["first", "estimate", "prune"]
    characters = len(set().union(*word_table("unigram", text)))
    assert sizes[-1] <= characters + (sizes[0] - characters) // 10
    for state in states:
        assert math.isfinite(state["total"]) and state["tokens"] <= state["characters"]
    assert states[-1]["total"] > states[0]["total"]  # estimated probabilities fit better


def test_the_last_state_is_shown_beyond_the_end():
    answer = learn(None, {"text": PASTED, "kind": "wordpiece", "step": 9_999})
    assert answer["step"] == answer["steps"] and answer["next"] == []


@pytest.mark.parametrize(
    ("action", "request_", "said"),
    [
        (pieces, {"text": "🦓" * 1000}, "at most 1,000 are shown"),
        (pieces, {"text": "a" * 2001}, "2,001 characters"),
        (spelling, {"text": "", "at": 0}, "no word at this place"),
        (spelling, {"text": "a b", "at": 3}, "from 0 to 2"),
        (learn, {"text": " ", "kind": "bpe", "step": -1}, "from 0 to"),
        (learn, {"text": " ", "kind": "wordpiece", "step": 0}, "no word in the text"),
        (learn, {"text": "a" * (LONGEST_TEXT + 1), "kind": "bpe", "step": 0}, "at most 10,000"),
        (learn, {"text": "a", "kind": "letters", "step": 0}, "wordpiece, bpe, unigram"),
    ],
)
def test_a_wrong_request_gets_a_sentence(action, request_, said):
    with pytest.raises(ValueError, match=said):
        action(None, request_)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["\x00\x01", "́", "a" * 3000, "🦓🦓🦓", "[MASK] ##a ▁b Ġc"])
def test_strange_texts_are_learnt_from_or_refused(kind, text):
    try:
        learn(None, {"text": text, "kind": kind, "step": 3})
    except ValueError as error:
        assert "no word" in str(error)

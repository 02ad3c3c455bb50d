"""Sentence splitting: the rules by example, and no character is lost."""

import re
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_bert.data.sentences import split
from mini_bert.text.wordpiece import WordPieceTokenizer


@pytest.mark.parametrize(
    "text",
    [
        "It rained. | They stayed in! | Why? | Nobody knew.",
        "Dr. No met J. R. Smith at 5 p.m. on Sunday. | They spoke.",
        "It cost 3.5 million in the U.S. and 2.1 elsewhere. | In 1999 it rose (see Fig. 3). | Cf. Mr. Jones, No. 5.",
        'He said "Stop!" and left. | "Why?" she asked. | "I don\'t know." | He ran.',
        "Well... maybe so. | Well... | Maybe not… | (In brackets.) | [1] A note.",
        "e.g. this, i.e. that, cf. the other, vs. Them, ca. 1900.",
        "Wait?! | What!? | Yes.",
        "今天天气很好。 | 我们去公园！ | “你呢？” | 好。",
        "यह एक वाक्य है। | दूसरा वाक्य।",
        "ما هذا؟ | هذا كتاب.",
        "no capital follows. so this goes on. and on.",
        "So ging es aus. über das Weitere schweigt er.",
        'He paused. "and then?" she asked. (or so they say.)',
        "École fermée. | Été fini. | Über alles. | 1999 war es.",
        "Ends with a name like J. Smith. | One letter: it was I. Then more.",
    ],
)
def test_by_example(text):
    """The bar marks where a sentence should end."""
    assert split(text.replace(" | ", " ")) == text.split(" | ")
    assert split(text.replace(" | ", "\n")) == text.split(" | ")


def test_lines():
    """The end of a line ends a sentence, unless the next line continues in lower case; empty lines are ignored."""
    assert split("A heading\nA line that is\nwrapped here. And\non.\n\n  Last\n") == [
        "A heading",
        "A line that is\nwrapped here.",
        "And\non.",
        "Last",
    ]
    assert split("") == split(" \n \n") == []


def test_sentences_a_line_in_lower_case():
    """In lower-cased review files or chat logs, each line is a sentence, however it ends and begins."""
    for end in (" .", "", "!"):
        lines = [f"this film number {i} was a joy from start to end{end}" for i in range(500)]
        assert split("\n".join(lines)) == lines
    lines[3] = "But this one, in English, was not!"
    assert split("\n".join(lines)) == lines


def test_lines_of_a_list_are_not_wrapped():
    """A short line was not wrapped at the margin, and neither was one as long as a paragraph."""
    lines = [
        "Things to buy",
        "bread",
        "butter and jam",
        "The rest of what we need is in the other list, over there",
        "tea",
    ]
    assert split("\n".join(lines)) == [*lines[:3], "\n".join(lines[3:])]
    lines = ["A paragraph " + "of words " * 30, "and then", "another " * 30]
    assert split("\n".join(lines)) == [line.strip() for line in lines]


def test_wrapped_text():
    """Wrapped to any width, a text has the same sentences as on one line."""
    text = (
        "Many of the boats, e.g. those of the fleet, had left when the doctor (a young man) came to the harbour. "
        "There was no wind, and nobody knew why! He asked the men who mended nets there; they did not even look up. "
    ) * 6
    for width in (40, 55, 72, 100):
        for document in (text, text.replace("fleet, ", "fleet ")):
            lines = textwrap.wrap(document, width)
            assert [" ".join(sentence.split()) for sentence in split("\n".join(lines))] == split(document.strip())


@given(st.text(alphabet=st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(" \n.!?\"')A。a"))))
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost(text):
    """Every character except white space is in exactly one sentence, in order; no sentence is empty or has white space
    around it."""
    found = split(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in found)


WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##a ##b . ! ? \" ' ( ) … 。 - the cat ##s e ##e"
TOKENIZER = WordPieceTokenizer(WORDS.split())


@given(st.text(alphabet="ab AB.!?\"'()…。\n-é\u0301\u200d\u00a0", max_size=60))
@settings(max_examples=300, deadline=None)
def test_the_pieces_are_those_of_the_unsplit_text(text):
    """Splitting into sentences first changes no id."""
    assert [i for ids in TOKENIZER.ids(split(text)) for i in ids] == TOKENIZER.ids([text])[0]


@pytest.mark.parametrize("unit", [".", "!?", ". ", '."', "a.", "A. ", "\n", "。", "a\n", '"', ".\n"])
def test_odd_text_takes_no_age(unit):
    """Long runs of any character are split quickly (backtracking would take hours)."""
    text = unit * (200_000 // len(unit))
    assert len(re.sub(r"\s", "", "".join(split(text)))) == len(re.sub(r"\s", "", text))

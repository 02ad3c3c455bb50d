"""Labelled English with no download: sentences that a grammar of this project makes up, with all that is known of them.

    sentences(3)      words, parts of speech, dependency trees, entities, opinions
    labelled(3)       opinions on films and books: positive or negative
    tagged(3)         entities: people (PER), places (LOC), organisations (ORG), in BIO
    parsed(3)         parts of speech, heads and relations, as in Universal Dependencies
    scored(3)         two sentences, and from 0 to 5 how much of their meaning they share
    questions(3)      a text, a question, where its answer stands

It is English of a few hundred words and some dozens of constructions, so a score on it says that code works, that a
model can learn negation or word order at all; it says nothing about text that people wrote. Whatever shows such a
score names its source: SYNTHETIC.

The same seed gives the same sentences everywhere; more of them begin with the same ones. In the split "dev" half of the
names are ones that never occur in "train".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mini_bert.data.labelled.readers import Labelled, Parsed, Question, Scored, Tagged
from mini_bert.data.synthetic.clauses import report
from mini_bert.data.synthetic.grammar import SPLITS, Grammar, Phrase
from mini_bert.data.synthetic.lexicon import VOWEL_SOUND
from mini_bert.data.synthetic.pairs import changed, event, told
from mini_bert.data.synthetic.questions import text_and_questions
from mini_bert.data.synthetic.sentiment import opinion

SYNTHETIC = "synthetic English (mini_bert/data/synthetic)"
LABELS = ("negative", "positive")
NO_SPACE_BEFORE = {",", ".", "?", "!", "'s", "n't"}


class Annotated(NamedTuple):
    """A sentence and all that its grammar knows of it"""

    words: list[str]
    tags: list[str]  # universal parts of speech
    heads: list[int]  # 0 for the root, else the head's place, from 1
    relations: list[str]
    entities: list[str]  # BIO: PER, LOC, ORG
    sentiment: str | None  # positive, negative, or None: no opinion

    @property
    def text(self) -> str:
        """As people write it: She didn't see Anna's film."""
        return joined(self.words)


def joined(words: list[str]) -> str:
    """
    >>> joined(["She", "did", "n't", "see", "Anna", "'s", "film", "."])
    "She didn't see Anna's film."
    """
    return "".join(word if word in NO_SPACE_BEFORE else f" {word}" for word in words).lstrip()


def sentences(count: int, seed: int = 0, split: str = "train") -> list[Annotated]:
    """Sentences of all kinds; every third has an opinion"""
    g = _grammar("sentences", count, seed, split)
    return [_opinion(g) if g.chance(1 / 3) else _annotated(report(g), None) for _ in range(count)]


def labelled(count: int, seed: int = 0, split: str = "train") -> list[Labelled]:
    """Opinions, as many positive as negative but for chance"""
    g = _grammar("labelled", count, seed, split)
    found = (_opinion(g) for _ in range(count))
    return [Labelled(one.text, None, str(one.sentiment), line) for line, one in enumerate(found, 1)]


def tagged(count: int, seed: int = 0, split: str = "train") -> list[Tagged]:
    """The entities of `sentences`"""
    return [Tagged(one.words, one.entities, line) for line, one in enumerate(sentences(count, seed, split), 1)]


def parsed(count: int, seed: int = 0, split: str = "train") -> list[Parsed]:
    """The parts of speech and trees of `sentences`"""
    return [
        Parsed(one.words, one.tags, one.heads, one.relations, line)
        for line, one in enumerate(sentences(count, seed, split), 1)
    ]


def scored(count: int, seed: int = 0, split: str = "train") -> list[Scored]:
    """Pairs that share all of their meaning (5), some of it, or nothing (0): data/synthetic/pairs.py counts"""
    g = _grammar("scored", count, seed, split)
    found = []
    for line in range(1, count + 1):
        first = event(g)
        second, score = changed(g, first)
        found.append(Scored(told(g, first), told(g, second), score, line))
    return found


def questions(count: int, seed: int = 0, split: str = "train") -> list[Question]:
    """Questions on short texts, up to three on each"""
    g = _grammar("questions", count, seed, split)
    found: list[Question] = []
    while len(found) < count:
        context, asked = text_and_questions(g)
        for question, answers, starts in asked[: count - len(found)]:
            line = len(found) + 1
            found.append(Question(f"synthetic-{split}-{seed}-{line}", question, context, answers, starts, line))
    return found


def _grammar(kind: str, count: int, seed: int, split: str) -> Grammar:
    if count < 0:
        raise ValueError(f"count is {count}, expected 0 or more")
    return Grammar(f"{kind} {split} {seed}", split)


def _opinion(g: Grammar) -> Annotated:
    good = g.chance(0.5)
    return _annotated(opinion(g, good), LABELS[good])


def _annotated(sentence: Phrase, sentiment: str | None) -> Annotated:
    """Give the words their places, the first its capital, and a its n"""
    words = sentence.words
    places = {id(word): place for place, word in enumerate(words, 1)}
    places[id(None)] = 0
    shown = [word.form for word in words]
    for place, form in enumerate(shown[:-1]):
        if form == "a" and VOWEL_SOUND.match(shown[place + 1]):
            shown[place] = "an"
    shown[0] = shown[0][0].upper() + shown[0][1:]
    return Annotated(
        shown,
        [word.tag for word in words],
        [places[id(word.head)] for word in words],
        [word.relation for word in words],
        [word.entity for word in words],
        sentiment,
    )


# --- the command -------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[..., list[Any]]] = {
    **{"sentiment": labelled, "tags": tagged, "parsed": parsed, "similarity": scored, "questions": questions}
}


def labelled_command(kind: str = "sentiment", count: int = 5, seed: int = 0, split: str = "train") -> None:
    """Show synthetic examples of a kind"""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}, expected one of {', '.join(SPLITS)}")
    print(f"{SYNTHETIC}: {kind}, seed {seed}, split {split}")
    for example in KINDS[kind](count, seed, split):
        for line in shown(example):
            print(line)


def shown(example: Labelled | Tagged | Parsed | Scored | Question) -> Iterator[str]:
    """An example for people to read"""
    if isinstance(example, Labelled):
        yield f"{example.label:8}  {example.text}"
    elif isinstance(example, Scored):
        yield f"\n{example.score:.2f}  {example.first}\n      {example.second}"
    elif isinstance(example, Tagged):
        width = [max(len(word), len(tag)) for word, tag in zip(example.words, example.tags, strict=True)]
        yield "\n" + " ".join(f"{word:{wide}}" for word, wide in zip(example.words, width, strict=True)).rstrip()
        tags = (tag if tag != "O" else "" for tag in example.tags)
        if line := " ".join(f"{tag:{wide}}" for tag, wide in zip(tags, width, strict=True)).rstrip():
            yield line
    elif isinstance(example, Parsed):
        yield "\n" + joined(example.words)
        wide = max(map(len, example.words))
        for number, (word, tag, head, relation) in enumerate(zip(*example[:4], strict=True), 1):
            to = example.words[head - 1] if head else "root"
            yield f"{number:4}  {word:{wide}}  {tag:5}  {relation:10}  {to}"
    else:
        yield f"\n{example.context}\n  {example.question}\n  {example.answers[0]} (from character {example.starts[0]})"

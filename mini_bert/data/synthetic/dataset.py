"""Labelled English with no download: sentences from a grammar, with everything the grammar says about them.

    sentences(3)      words, parts of speech, dependency trees, entities, opinions
    labelled(3)       opinions on films and books: positive or negative
    tagged(3)         entities: people (PER), places (LOC), organisations (ORG), in BIO
    parsed(3)         parts of speech, heads and relations, as in Universal Dependencies
    scored(3)         two sentences, and how much of their meaning they share, from 0 to 5
    questions(3)      a text, a question, and where its answer starts

It is English of a few hundred words and some dozens of constructions. A score on it shows that the code works and that
a model can learn, say, negation; it says nothing about text that people wrote. Anything that shows such a score names
its source: SYNTHETIC.

The same seed gives the same examples everywhere, and a larger count begins with the same ones. In the split "dev", half
of the names never occur in "train".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from mini_bert.data.labelled.examples import Labelled, Parsed, Question, Scored, Tagged
from mini_bert.data.synthetic.grammar import Grammar, Word, spelled
from mini_bert.data.synthetic.lexicon import verb

SYNTHETIC = "synthetic English (mini_bert/data/synthetic)"
LABELS = ("negative", "positive")
NO_SPACE_BEFORE = {",", ".", "?", "!", "'s", "n't"}


class Annotated(NamedTuple):
    """A sentence with all of its labels"""

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
    """Sentences of all kinds; one third express an opinion"""
    g = _grammar("sentences", count, seed, split)
    return [_opinion(g) if g.chance(1 / 3) else _annotated(g.sentence("sentence"), None) for _ in range(count)]


def labelled(count: int, seed: int = 0, split: str = "train") -> list[Labelled]:
    """Opinions, about half of them positive. The label depends on how the words are put together:

        not dull, no boredom, neither dull nor slow       not touching, no charm
        slow but touching                                 touching but slow
        although it is slow, it is touching               it is slow, although it is touching
        after a dreadful day, the film is touching        (the day's quality does not matter)

    Words that praise and words that blame occur nearly as often under either label, so counting them is not enough.
    """
    g = _grammar("labelled", count, seed, split)
    opinions = (_opinion(g) for _ in range(count))
    return [Labelled(one.text, None, str(one.sentiment), line) for line, one in enumerate(opinions, 1)]


def tagged(count: int, seed: int = 0, split: str = "train") -> list[Tagged]:
    """The entities of `sentences`"""
    return [Tagged(one.words, one.entities, line) for line, one in enumerate(sentences(count, seed, split), 1)]


def parsed(count: int, seed: int = 0, split: str = "train") -> list[Parsed]:
    """The parts of speech and trees of `sentences`"""
    return [Parsed(*one[:4], line) for line, one in enumerate(sentences(count, seed, split), 1)]


def scored(count: int, seed: int = 0, split: str = "train") -> list[Scored]:
    """Pairs of sentences that share all of their meaning (5), some of it, or nothing (0)

    Each reports an event: somebody does something to a thing, somewhere, at some time. The second event is the first
    with some of its parts changed, and the score adds up the parts that stay the same (WORTH). Both are then worded
    independently: synonyms, active or passive, the time first or last.
    """
    g = _grammar("scored", count, seed, split)
    pairs = []
    for line in range(1, count + 1):
        first = {part: _value(g, part) for part in WORTH}
        rate = g.random() * 1.2  # the probability that a part changes
        second = {part: _value(g, part) if g.chance(rate) else value for part, value in first.items()}
        score = sum(worth for part, worth in WORTH.items() if first[part] == second[part])
        pairs.append(Scored(_wording(g, first), _wording(g, second), score, line))
    return pairs


def questions(count: int, seed: int = 0, split: str = "train") -> list[Question]:
    """Questions on short texts, up to three on each"""
    g = _grammar("questions", count, seed, split)
    examples: list[Question] = []
    while len(examples) < count:
        context, asked = _text_and_questions(g)
        for question, answer, start in asked[: count - len(examples)]:
            line = len(examples) + 1
            examples.append(Question(f"synthetic-{split}-{seed}-{line}", question, context, [answer], [start], line))
    return examples


KINDS: dict[str, Callable[..., list[Any]]] = {
    **{"sentiment": labelled, "tags": tagged, "parsed": parsed, "similarity": scored, "questions": questions}
}


def examples(kind: str, count: int = 5, seed: int = 0, split: str = "train") -> list[Any]:
    """Examples of one of KINDS"""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    return KINDS[kind](count, seed, split)


def shown(example: Labelled | Tagged | Parsed | Scored | Question) -> str:
    """An example as text for people to read"""
    if isinstance(example, Labelled):
        return f"{example.label:8}  {example.text}"
    if isinstance(example, Scored):
        return f"\n{example.score:.2f}  {example.first}\n      {example.second}"
    if isinstance(example, Question):
        return f"\n{example.context}\n  {example.question}\n  {example.answers[0]} (from character {example.starts[0]})"
    columns = [[f"{number:4}" for number in range(1, len(example.words) + 1)], example.words, example.tags]
    if isinstance(example, Parsed):
        columns += [example.relations, [example.words[head - 1] if head else "root" for head in example.heads]]
    widths = [max(map(len, column)) for column in columns]
    rows = (zip(row, widths, strict=True) for row in zip(*columns, strict=True))
    table = ("  ".join(f"{cell:{width}}" for cell, width in row).rstrip() for row in rows)
    return "\n".join(["", joined(example.words), *table])


def _grammar(kind: str, count: int, seed: int, split: str) -> Grammar:
    if count < 0:
        raise ValueError(f"count is {count}, expected 0 or more")
    return Grammar(f"{kind} {split} {seed}", split)


def _opinion(g: Grammar) -> Annotated:
    good = g.chance(0.5)
    return _annotated(g.sentence("opinion.good" if good else "opinion.bad"), LABELS[good])


def _annotated(words: list[Word], sentiment: str | None) -> Annotated:
    places = {id(word): place for place, word in enumerate(words, 1)}
    return Annotated(
        [word.form for word in words],
        [word.tag for word in words],
        [places.get(id(word.head), 0) for word in words],
        [word.relation for word in words],
        [word.entity for word in words],
        sentiment,
    )


# --- pairs of sentences ------------------------------------------------------------------------------------

WORTH = {"deed": 1.5, "who": 1.25, "what": 1.25, "where": 0.5, "when": 0.5}  # together 5


def _value(g: Grammar, part: str) -> str:
    """A part of an event, given as its synonyms: doctor|physician"""
    if part == "who":
        return g.text("PER") if g.chance(0.4) else g.word("same.people")
    if part == "where":
        return g.word("name.place") if g.chance(0.4) else g.word("same.buildings")
    return g.word({"deed": "same.deeds", "what": "same.things", "when": "day"}[part])


def _wording(g: Grammar, event: dict[str, str]) -> str:
    """An event as a sentence; each call chooses its own words"""
    deed, who, what, where, when = (g.pick(event[part].split("|")) for part in WORTH)
    who, where = (name if name[0].isupper() else f"the {name}" for name in (who, where))
    act = verb(deed)
    words = [f"the {what}", "was", act.participle, "by", who] if g.chance(0.35) else [who, act.past, f"the {what}"]
    words += ["in" if where[0].isupper() else "near", where]
    words = [f"on {when},", *words] if g.chance(0.4) else [*words, f"on {when}"]
    return " ".join(spelled(words)) + "."


# --- questions ---------------------------------------------------------------------------------------------
#
# A text states several facts of the same kind about different people, so the kind of the answer (a place, a year) does
# not give it away, and the question uses other words than the text where it can (employs: work for).

FACTS = """
{who} was born in {place} in {year}.
In {year}, {who} was born in {place}.
    place: What is the birthplace of {who}?
    year: When was {who} born?
    who: Who was born in {place}?

{who} works for {org} in {place}.
{org} employs {who} in {place}.
    org: Which organization does {who} work for?
    place: In which city does {who} work?
    who: Who works for {org}?

{who} met {other} in {place} on {day}.
On {day}, {who} saw {other} in {place}.
    place: Where did {who} meet {other}?
    other: Whom did {who} meet in {place}?
    day: On which day did {who} see {other}?

{who} moved to {place} in {year}.
{place} has been the home of {who} since {year}.
    place: Where does {who} live now?
    year: In which year did {who} move?
    who: Who moved to {place}?
"""
FACT_KINDS = [  # for each kind of fact: its wordings, and questions, each with the slot that answers it
    (re.findall(r"^(\S.*)", block, re.MULTILINE), re.findall(r"^ +(\w+): (.*)", block, re.MULTILINE))
    for block in FACTS.strip().split("\n\n")
]
SLOTS: dict[str, Callable[[Grammar], str]] = {
    "who": lambda g: f"{g.word('name.first')} {g.word('name.last')}",
    "other": lambda g: f"{g.word('name.first')} {g.word('name.last')}",
    "place": lambda g: g.word("name.place"),
    "org": lambda g: f"{g.word('name.company')} {g.word('company.kind')}",
    "year": lambda g: str(1900 + int(g.random() * 125)),
    "day": lambda g: g.word("day"),
}


def _text_and_questions(g: Grammar) -> tuple[str, list[tuple[str, str, int]]]:
    """A text of three to five facts, and questions on three of them: the question, its answer, where that starts

    No name is used twice in one text, so that a question has only one answer.
    """
    used: set[str] = set()
    kinds = [g.pick(FACT_KINDS) for _ in range(2)]  # few kinds, so there are several places, years, … to choose from
    text, asked = "", []
    for _ in range(g.pick((3, 4, 5))):
        wordings, facts_questions = g.pick(kinds)
        slots = {slot: _unused(g, slot, used) for slot in SLOTS}
        sentence = g.pick(wordings).format(**slots)
        slot, question = g.pick(facts_questions)
        asked.append((question.format(**slots), slots[slot], len(text) + sentence.index(slots[slot])))
        text += f"{sentence} "
    return text.rstrip(), sorted(asked, key=lambda question: g.random())[:3]


def _unused(g: Grammar, slot: str, used: set[str]) -> str:
    while True:
        value = SLOTS[slot](g)
        words = set(value.split())
        if slot == "org":
            words = {value}  # two companies may both be Airlines
        if not words & used:
            used |= words
            return value

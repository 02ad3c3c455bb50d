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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mini_bert.data.labelled.examples import Labelled, Parsed, Question, Scored, Tagged
from mini_bert.data.synthetic.grammar import Grammar, Word, spelled
from mini_bert.data.synthetic.lexicon import WORDS, verb

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

        not dull, no flaws, does not lack wit             not touching, lacks charm, fails to amuse
        slow but touching                                 touching but slow
        although it is slow, it is touching               it is slow, although it is touching
        after a dreadful day, the film is touching        (the day's quality does not matter)

    Words that praise and words that blame occur nearly as often under either label, so counting them is not enough.
    """
    g = _grammar("labelled", count, seed, split)
    made = (_opinion(g) for _ in range(count))
    return [Labelled(one.text, None, str(one.sentiment), line) for line, one in enumerate(made, 1)]


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
    """Pairs that share all of their meaning (5), some of it, or nothing (0)"""
    g = _grammar("scored", count, seed, split)
    pairs = []
    for line in range(1, count + 1):
        first = event(g)
        second, score = changed(g, first)
        pairs.append(Scored(wording(g, first), wording(g, second), score, line))
    return pairs


def questions(count: int, seed: int = 0, split: str = "train") -> list[Question]:
    """Questions on short texts, up to three on each"""
    g = _grammar("questions", count, seed, split)
    made: list[Question] = []
    while len(made) < count:
        context, asked = text_and_questions(g)
        for question, answers, starts in asked[: count - len(made)]:
            line = len(made) + 1
            made.append(Question(f"synthetic-{split}-{seed}-{line}", question, context, answers, starts, line))
    return made


KINDS: dict[str, Callable[..., list[Any]]] = {
    **{"sentiment": labelled, "tags": tagged, "parsed": parsed, "similarity": scored, "questions": questions}
}


def examples(kind: str, count: int = 5, seed: int = 0, split: str = "train") -> list[Any]:
    """Examples of one of KINDS"""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    return KINDS[kind](count, seed, split)


def shown(example: Labelled | Tagged | Parsed | Scored | Question) -> Iterator[str]:
    """An example as lines for people to read"""
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


# --- pairs of sentences, and how much of their meaning they share --------------------------------------------
#
# Each sentence reports an event: somebody does something, somewhere, at some time. The second event is the first with
# some of its parts changed. The score adds up the parts that were kept (WORTH, together 5); a part that only one of the
# two mentions counts half, and so do two people who change places. If one sentence denies what the other says, the
# score is halved. Both events are then worded independently: synonyms, active or passive, the time first or last.

WORTH = {"deed": 1.5, "who": 1.25, "what": 1.25, "where": 0.5, "when": 0.5}


class Event(NamedTuple):
    """Parts are given as their synonyms, doctor|physician"""

    kind: str  # people or things: what it is done to
    deed: str
    who: str
    what: str
    where: str | None
    when: str | None
    denied: bool


def event(g: Grammar) -> Event:
    kind = "people" if g.chance(0.5) else "things"
    who = _make(g, kind, "who")
    return Event(
        kind,
        _make(g, kind, "deed"),
        who,
        _make(g, kind, "what", who),
        _make(g, kind, "where") if g.chance(0.7) else None,
        _make(g, kind, "when") if g.chance(0.7) else None,
        g.chance(0.1),
    )


def changed(g: Grammar, first: Event) -> tuple[Event, float]:
    """Returns an event that shares some of its parts with the first, and the score of the two"""
    rate = g.random() * 1.15  # the probability that a part changes
    parts: dict[str, Any] = first._asdict()
    score = 0.0
    swapped = first.kind == "people" and g.chance(0.12)
    if swapped:
        parts["who"], parts["what"] = first.what, first.who
        score += WORTH["what"]
    for part, worth in WORTH.items():
        old = parts[part]
        if swapped and part in ("who", "what"):
            continue
        if g.random() < rate:
            left_out = old and part in ("where", "when") and g.chance(0.4)
            parts[part] = None if left_out else _make(g, first.kind, part, old, parts["who"], first.who, first.what)
        new = parts[part]
        score += worth if new == old else worth / 2 if old is None or new is None else 0.0
    if g.chance(0.1):
        parts["denied"], score = not first.denied, score / 2
    return Event(**parts), score


def wording(g: Grammar, event: Event) -> str:
    """Words an event; each call chooses its own words"""

    def worded(part: str) -> str:
        word = g.pick(part.split("|"))
        return word if word[0].isupper() and word != "TV" else f"the {word}"

    act = verb(g.pick(event.deed.split("|")))
    who = worded(event.who)
    what = worded(event.what)
    if event.kind == "things" and g.chance(0.5):
        what = what.replace("the ", "a ", 1)
    if g.chance(0.35):
        parts = [what, "was", "not" if event.denied else "", act.participle, "by", who]
    else:
        parts = [who, f"did not {act.base}" if event.denied else act.past, what]
    if event.where:
        preposition, _, place = event.where.partition(" ")
        parts += [preposition, worded(place)]
    if event.when:
        time = f"{'on' if event.when in WORDS['day.name'] else 'in'} {event.when}"
        parts = [f"{time},", *parts] if g.chance(0.4) else [*parts, time]
    return " ".join(spelled(" ".join(parts).split())) + "."


def _make(g: Grammar, kind: str, part: str, *others: str | None) -> str:
    """A value for a part of an event, unlike the others"""
    while True:
        if part == "deed":
            made = g.word(f"same.done_to_{kind}")
        elif part == "when":
            made = g.word("day.name" if g.chance(0.5) else "month.name")
        elif part == "where" and g.chance(0.4):
            made = f"in {g.word('name.place')}"
        elif part == "where":
            made = f"{g.pick(('behind', 'near', 'in'))} {g.word('same.buildings')}"
        elif part == "what" and kind == "things":
            made = g.word("same.things")
        else:
            made = g.text("PER") if g.chance(0.4) else g.word("same.people")
        if made not in others:
            return made


# --- questions ---------------------------------------------------------------------------------------------
#
# A text states several facts of the same kind about different people, so the kind of the answer (a place, a year) does
# not give it away, and the question uses other words than the text where it can (born: birthplace).

SLOT = re.compile(r"\{(\w+)\}")
ARTICLE = re.compile(r"(?i)(the|an?) ")
SHARED = {"of", "the", "&", "a", "an", "Bank", *WORDS["company.kind"], *WORDS["institute"]}
REMARKS = (  # that answer no question
    *("often walks in the park", "plays the violin", "likes long walks", "never answers letters", "has two brothers"),
    *("reads every evening", "speaks three languages", "keeps bees", "is a painter", "is tired of the rain"),
    *("hopes to retire soon", "cooks well", "collects old maps", "used to teach", "sings in a choir"),
)
FACTS = """
{who} was born in {place} in {year}.
In {year}, {who} was born in {place}.
{who}, born in {year}, comes from {place}.
    place: Where was {who} born?
    year: When was {who} born?
    year: What year was {who} born in?
    place: What is the birthplace of {who}?
    who: Who was born in {place}?

{who} works for {org} in {place}.
{org} employs {who} in {place}.
{who} has a job at {org} in {place}.
    org: Which organization does {who} work for?
    org: Who employs {who}?
    place: In which city does {who} work?
    who: Who works for {org}?

{who} bought {thing} in {year}.
In {year}, {thing} was bought by {who}.
{who} has owned {thing} since {year}.
    thing: What does {who} own?
    year: When did {who} buy {thing}?
    who: Who owns {thing}?

{who} met {other} in {place} on {day}.
On {day}, {who} saw {other} in {place}.
    place: Where did {who} meet {other}?
    other: Whom did {who} meet in {place}?
    day: On which day did {who} see {other}?

{who} moved to {place} in {month}.
In {month}, {who} left for {place}.
{place} has been the home of {who} since {month}.
    place: Where does {who} live now?
    month: In which month did {who} move?
    who: Who moved to {place}?
"""
FACT_KINDS = [  # for each kind of fact: its wordings, and questions, each with the slot that answers it
    (re.findall(r"^(\S.*)", block, re.MULTILINE), re.findall(r"^ +(\w+): (.*)", block, re.MULTILINE))
    for block in FACTS.strip().split("\n\n")
]


def text_and_questions(g: Grammar, most: int = 3) -> tuple[str, list[tuple[str, list[str], list[int]]]]:
    """A text of some facts, and questions on different ones of them: the question, its answers, where they start"""
    used: set[str] = set()
    kinds = [g.pick(FACT_KINDS) for _ in range(2)]  # few kinds, so there are several places, years, … to choose from
    text = ""
    facts = []
    for _ in range(g.pick((3, 4, 5))):
        wordings, asked = g.pick(kinds)
        slots = _slots(g, used)
        text += " " if text else ""
        sentence, starts = _filled(g.pick(wordings), slots)
        facts.append((asked, slots, {slot: len(text) + start for slot, start in starts.items()}))
        text += sentence
        if g.chance(0.4):
            text += f" {slots['who'].split()[-1]} {g.pick(REMARKS)}."
    questions = []
    for asked, slots, starts in sorted(facts, key=lambda fact: g.random())[:most]:
        slot, question = g.pick(asked)
        start = starts[slot]
        answer = text[start : start + len(slots[slot])]  # as it is written there: A boat, at the start of a sentence
        answers, places = [answer], [start]
        if article := ARTICLE.match(answer):  # right with and without the article
            answers, places = [answer[article.end() :], answer], [start + article.end(), start]
        known = {**slots, "thing": ARTICLE.sub("the ", slots["thing"])}
        questions.append((_filled(question, known)[0], answers, places))
    return text, questions


def _filled(template: str, slots: dict[str, str]) -> tuple[str, dict[str, int]]:
    """Returns the sentence, and where each slot starts in it"""
    text, starts = "", {}
    for number, piece in enumerate(SLOT.split(template)):  # text, slot, text, slot, ...
        if number % 2:
            starts[piece] = len(text)
        text += slots[piece] if number % 2 else piece
    return text[0].upper() + text[1:], starts


def _slots(g: Grammar, used: set[str]) -> dict[str, str]:
    """Values for a fact; no name is used twice in one text (June Weber, June), so a question has one answer"""
    makers: dict[str, Callable[[], str]] = {
        "who": lambda: f"{g.word('name.first')} {g.word('name.last')}",
        "other": lambda: f"{g.word('name.first')} {g.word('name.last')}",
        "place": lambda: g.word("name.place"),
        "org": lambda: g.text("org"),
        "thing": lambda: " ".join(spelled(["a", g.word("adj.things"), g.word("noun.things").one])).lower(),
        "year": lambda: str(1900 + int(g.random() * 125)),
        "month": lambda: g.word("month.name"),
        "day": lambda: g.word("day.name"),
    }
    slots = {}
    for slot, make in makers.items():
        while (words := set((value := make()).split()) - SHARED) & used:
            pass
        used |= words
        slots[slot] = value
    return slots

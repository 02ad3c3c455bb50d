"""Questions on synthetic texts: some facts about people, of which one is asked for.

A text tells several facts of the same kind about different people, so the kind of the answer (a place, a year) does not
give it away, and the question uses other words than the text where it can (born: birthplace; ORG employs X: works for).
A person is named in full, and once more by the surname alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from mini_bert.data.synthetic import lexicon
from mini_bert.data.synthetic.grammar import FIRST_NAMES, PLACES, SURNAMES, Grammar

SLOT = re.compile(r"\{(\w+)\}")
ARTICLE = re.compile(r"(?i)(the|an?) ")
SHARED = {"of", "the", "&", "a", "an", *lexicon.COMPANY_KINDS, *lexicon.INSTITUTES, *lexicon.OF_INSTITUTES}
REMARKS = (  # of no use to any question
    *("often walks in the park", "plays the violin", "likes long walks", "never answers letters", "has two brothers"),
    *("reads every evening", "speaks three languages", "keeps bees", "is a painter", "is tired of the rain"),
    *("hopes to retire soon", "cooks well", "collects old maps", "used to teach", "sings in a choir"),
)


class Kind(NamedTuple):
    """A kind of fact: how it is told, and what can be asked, with the slot that answers"""

    told: tuple[str, ...]
    asked: tuple[tuple[str, str], ...]


KINDS = (
    Kind(
        (
            "{who} was born in {place} in {year}.",
            "In {year}, {who} was born in {place}.",
            "{who}, born in {year}, comes from {place}.",
        ),
        (
            ("Where was {who} born?", "place"),
            ("When was {who} born?", "year"),
            ("What year was {who} born in?", "year"),
            ("What is the birthplace of {who}?", "place"),
            ("Who was born in {place}?", "who"),
        ),
    ),
    Kind(
        (
            "{who} works for {org} in {place}.",
            "{org} employs {who} in {place}.",
            "{who} has a job at {org} in {place}.",
        ),
        (
            ("Which organization does {who} work for?", "org"),
            ("Who employs {who}?", "org"),
            ("In which city does {who} work?", "place"),
            ("Who works for {org}?", "who"),
        ),
    ),
    Kind(
        (
            "{who} bought {thing} in {year}.",
            "In {year}, {thing} was bought by {who}.",
            "{who} has owned {thing} since {year}.",
        ),
        (
            ("What does {who} own?", "thing"),
            ("When did {who} buy {thing}?", "year"),
            ("Who owns {thing}?", "who"),
        ),
    ),
    Kind(
        (
            "{who} met {other} in {place} on {day}.",
            "On {day}, {who} saw {other} in {place}.",
        ),
        (
            ("Where did {who} meet {other}?", "place"),
            ("Whom did {who} meet in {place}?", "other"),
            ("On which day did {who} see {other}?", "day"),
        ),
    ),
    Kind(
        (
            "{who} moved to {place} in {month}.",
            "In {month}, {who} left for {place}.",
            "{place} has been the home of {who} since {month}.",
        ),
        (
            ("Where does {who} live now?", "place"),
            ("In which month did {who} move?", "month"),
            ("Who moved to {place}?", "who"),
        ),
    ),
)


class Found(NamedTuple):
    """A question, its answers, and where they start in the text"""

    question: str
    answers: list[str]
    starts: list[int]


def text_and_questions(g: Grammar, most: int = 3) -> tuple[str, list[Found]]:
    """A text of some facts, and questions about different ones of them"""
    used: set[str] = set()
    kinds = [g.pick(KINDS) for _ in range(2)]  # few kinds, several people: more than one place, year, … to choose from
    facts = [(g.pick(kinds), _slots(g, used)) for _ in range(g.pick((3, 4, 5)))]
    text = ""
    places: list[dict[str, int]] = []
    for kind, slots in facts:
        told = g.pick(kind.told)
        sentence, found = _filled(told, slots)
        text += " " if text else ""
        places.append({slot: len(text) + place for slot, place in found.items()})
        text += sentence
        if g.chance(0.4):
            text += f" {slots['who'].split()[-1]} {g.pick(REMARKS)}."
    order = sorted(range(len(facts)), key=lambda number: g.random())[:most]
    return text, [_asked(g, *facts[number], places[number], text) for number in order]


def _asked(g: Grammar, kind: Kind, slots: dict[str, str], places: dict[str, int], text: str) -> Found:
    question, slot = g.pick(kind.asked)
    known = {**slots, "thing": ARTICLE.sub("the ", slots["thing"])}
    start = places[slot]
    answer = text[start : start + len(slots[slot])]  # as it stands there: A boat, at the beginning of a sentence
    answers, starts = [answer], [start]
    if article := ARTICLE.match(answer):  # people would give it with the article, and without
        answers, starts = [answer[article.end() :], answer], [start + article.end(), start]
    return Found(_filled(question, known)[0], answers, starts)


def _filled(template: str, slots: dict[str, str]) -> tuple[str, dict[str, int]]:
    """-> the sentence, and where in it each slot starts"""
    text, places, last = "", {}, 0
    for match in SLOT.finditer(template):
        text += template[last : match.start()]
        places[match[1]] = len(text)
        text += slots[match[1]]
        last = match.end()
    text += template[last:]
    return text[0].upper() + text[1:], places


def _slots(g: Grammar, used: set[str]) -> dict[str, str]:
    """What a fact can speak of; no name twice in one text (June Weber, June), so a question has one answer"""

    def new(make: Callable[[], str]) -> str:
        while True:
            value = make()
            words = set(value.split()) - SHARED
            if not words & used:
                used.update(words)
                return value

    def full_name() -> str:
        return f"{g.name(FIRST_NAMES)} {g.name(SURNAMES)}"

    def thing() -> str:
        adjective = g.pick(lexicon.ADJECTIVES["things"])
        return f"{'an' if lexicon.VOWEL_SOUND.match(adjective) else 'a'} {adjective} {g.pick(lexicon.THINGS)[0]}"

    return {
        "who": new(full_name),
        "other": new(full_name),
        "place": new(lambda: g.name(PLACES)),
        "org": new(lambda: " ".join(word.form for word in g.organisation().words)),
        "thing": new(thing),
        "year": new(lambda: str(1900 + int(g.random() * 125))),
        "month": new(lambda: g.pick(lexicon.MONTHS)),
        "day": new(lambda: g.pick(lexicon.DAYS)),
    }

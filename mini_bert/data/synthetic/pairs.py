"""Pairs of synthetic sentences, with a score from 0 to 5 that says how much of their meaning they share.

Each sentence tells an event: somebody does something, somewhere, at some time. The second event is the first with some
of its parts changed, and the score counts what was kept:

    what is done 1.5 · who does it 1.25 · to whom or what 1.25 · where 0.5 · when 0.5        together 5
    a part that only one of the two mentions counts half; so do two people who change places
    if one sentence denies what the other says, half of the score is left

Then both are put into words, independently: by synonyms (the doctor mended the bike, the physician repaired the
bicycle), active or passive, the time first or last. So the same words may mean different things (Anna called the cook,
the cook called Anna), and different words the same.
"""

from __future__ import annotations

from typing import NamedTuple

from mini_bert.data.synthetic.grammar import BE, Grammar
from mini_bert.data.synthetic.lexicon import DAYS, MONTHS, VOWEL_SOUND, Forms, forms

DEEDS: dict[str, list[list[Forms]]] = {  # by what they are done to; in one list stand verbs for the same deed
    "people": [
        [forms(verb) for verb in group.split()]
        for group in (
            "call phone", "help assist", "teach/taught instruct", "meet/met", "thank", "follow", "watch observe",
            "photograph", "invite", "choose/chose/chosen select", "warn", "remember",
        )
    ],
    "things": [
        [forms(verb) for verb in group.split()]
        for group in (
            "buy/bought purchase", "repair mend fix", "find/found discover", "sell/sold", "paint",
            "hide/hid/hidden conceal", "break/broke/broken damage", "clean wash", "build/built construct",
            "lose/lost", "carry transport", "choose/chose/chosen select", "photograph", "borrow",
        )
    ],
}  # fmt: skip
PEOPLE = [
    group.split()
    for group in (
        "doctor physician", "teacher instructor", "writer author", "cook chef", "lawyer attorney", "child kid",
        "woman lady", "soldier", "farmer", "sailor", "painter", "nurse", "thief robber", "singer vocalist", "neighbor",
        "policeman cop", "tourist traveler", "student pupil", "judge", "gardener",
    )
]  # fmt: skip
THINGS = [
    group.split()
    for group in (
        "bicycle bike", "car automobile", "sofa couch", "picture photo", "boat", "house home", "lamp", "television TV",
        "coat jacket", "clock", "table", "gift present", "ladder", "airplane plane", "bag sack", "rug carpet", "piano",
        "store shop", "rock stone", "mug cup",
    )
]  # fmt: skip
BUILDINGS = [
    group.split()
    for group in (
        "school", "park", "cinema theater", "harbor port", "church", "station", "market", "factory plant",
        "woods forest",
    )
]  # fmt: skip
WHERE = "behind the", "near the", "in the"


class Event(NamedTuple):
    kind: str  # people or things: to whom or what it is done
    deed: int  # places in the lists above, or names
    who: str | int
    what: str | int
    where: tuple[str, int] | str | None
    when: str | None
    denied: bool


def event(g: Grammar) -> Event:
    kind = "people" if g.chance(0.5) else "things"
    who = _somebody(g, None)
    return Event(
        kind,
        _other(g, len(DEEDS[kind]), None),
        who,
        _somebody(g, who) if kind == "people" else _other(g, len(THINGS), None),
        _somewhere(g, None) if g.chance(0.7) else None,
        _sometime(g, None) if g.chance(0.7) else None,
        g.chance(0.1),
    )


def changed(g: Grammar, first: Event) -> tuple[Event, float]:
    """-> an event like the first in some of its parts, and how alike the two are"""
    rate = g.random() * 1.15  # how much is changed: from nothing to all
    kind, deed, who, what, where, when, denied = first
    score = 0.0
    swapped = kind == "people" and g.chance(0.12)
    if rate > 0.85 and g.chance(0.5) and not swapped:  # something done to others: people instead of things
        kind = "things" if kind == "people" else "people"
        deed = _unlike(g, first, kind)
        who = _somebody(g, who, what)
        what = _somebody(g, who, first.who) if kind == "people" else _other(g, len(THINGS), None)
    else:
        if g.random() < rate:
            deed = _other(g, len(DEEDS[kind]), deed)
        else:
            score += 1.5
        if swapped:
            who, what = what, who
            score += 1.25
        else:
            if g.random() < rate:
                who = _somebody(g, who, what)
            else:
                score += 1.25
            if g.random() < rate:
                what = _somebody(g, who, what, first.who) if kind == "people" else _other(g, len(THINGS), int(what))
            else:
                score += 1.25
    if g.random() < rate:
        where = None if where and g.chance(0.4) else _somewhere(g, where)
    if g.random() < rate:
        when = None if when and g.chance(0.4) else _sometime(g, when)
    for old, new in ((first.where, where), (first.when, when)):
        score += 0.5 if old == new else 0.25 if old is None or new is None else 0.0
    if g.chance(0.1):
        denied, score = not denied, score / 2
    return Event(kind, deed, who, what, where, when, denied), score


def told(g: Grammar, event: Event) -> str:
    """An event in words; each call chooses its own"""
    verb = g.pick(DEEDS[event.kind][event.deed])
    who = _person(g, event.who)
    what = (
        _person(g, event.what)
        if event.kind == "people"
        else f"{g.pick(('the', 'a'))} {g.pick(THINGS[int(event.what)])}"
    )
    if g.chance(0.35):
        parts = [what, BE[1]["he"], *(["not"] if event.denied else []), verb.participle, "by", who]
    else:
        parts = [who, *(["did not", verb.base] if event.denied else [verb.past]), what]
    if isinstance(event.where, tuple):
        parts += [event.where[0], g.pick(BUILDINGS[event.where[1]])]
    elif event.where is not None:
        parts += ["in", event.where]
    time = "" if event.when is None else f"{'on' if event.when in DAYS else 'in'} {event.when}"
    if time and g.chance(0.4):
        parts = [f"{time},", *parts]
    elif time:
        parts.append(time)
    words = " ".join(parts).split()
    words = [
        "an" if word == "a" and VOWEL_SOUND.match(after) else word
        for word, after in zip(words, [*words[1:], ""], strict=True)
    ]
    text = " ".join(words)
    return text[0].upper() + text[1:] + "."


def _person(g: Grammar, somebody: str | int) -> str:
    return somebody if isinstance(somebody, str) else f"the {g.pick(PEOPLE[somebody])}"


def _somebody(g: Grammar, *others: str | int | None) -> str | int:
    while True:
        found: str | int = (
            " ".join(word.form for word in g.person().words) if g.chance(0.4) else _other(g, len(PEOPLE), None)
        )
        if found not in others:
            return found


def _somewhere(g: Grammar, other: tuple[str, int] | str | None) -> tuple[str, int] | str:
    while True:
        if g.chance(0.4):
            found: tuple[str, int] | str = g.place().words[0].form
        else:
            found = (g.pick(WHERE), _other(g, len(BUILDINGS), other[1] if isinstance(other, tuple) else None))
        if found != other:
            return found


def _sometime(g: Grammar, other: str | None) -> str:
    while (found := g.pick(DAYS if g.chance(0.5) else MONTHS)) == other:
        pass
    return found


def _other(g: Grammar, many: int, than: int | None) -> int:
    while (found := int(g.random() * many)) == than:
        pass
    return found


def _unlike(g: Grammar, first: Event, kind: str) -> int:
    """A deed of the other kind that is not the same verb"""
    while True:
        deed = _other(g, len(DEEDS[kind]), None)
        if DEEDS[kind][deed][0] != DEEDS[first.kind][first.deed][0]:
            return deed

"""The phrases of the synthetic English: names, noun phrases, verbs with their auxiliaries, times and places.

A phrase is its words in order, and the one of them that heads it. To build a larger phrase, hang smaller ones under its
head, with the relation that Universal Dependencies gives the two (de Marneffe et al. 2021: words with content are
heads, and articles, prepositions, auxiliaries hang on them):

    verb = Word("wrote", "VERB")
    Phrase([*anna.under(verb, "nsubj"), verb, *letter.under(verb, "obj")], verb)

The words of a phrase stay together, so every tree is projective by construction.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

from mini_bert.data.synthetic import lexicon
from mini_bert.data.synthetic.lexicon import Forms

T = TypeVar("T")
SPLITS = ("train", "dev")


class Word:
    """A word in a sentence that is being built; `head` is None for the root"""

    __slots__ = ("entity", "form", "head", "relation", "tag")

    def __init__(self, form: str, tag: str, relation: str = "root", head: Word | None = None, entity: str = "O"):
        self.form, self.tag, self.relation, self.head, self.entity = form, tag, relation, head, entity


class Phrase(NamedTuple):
    words: list[Word]
    head: Word
    who: str = "he"  # how a verb agrees with it: I am, he is, they are

    def under(self, head: Word, relation: str) -> list[Word]:
        """Hang this phrase on a word"""
        self.head.head, self.head.relation = head, relation
        return self.words


class Grammar:
    """Random phrases. The same key always gives the same ones, in every release of Python"""

    def __init__(self, key: str, split: str = "train"):
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}, expected one of {', '.join(SPLITS)}")
        self.random = random.Random(key).random  # the one method whose numbers Python promises never to change
        self.unseen = 0.5 if split == "dev" else 0.0

    def chance(self, share: float) -> bool:
        return self.random() < share

    def pick(self, things: Sequence[T]) -> T:
        return things[int(self.random() * len(things))]

    def name(self, names: tuple[str, ...]) -> str:
        """In the split dev, half of the names are ones that never occur in train"""
        return self.pick(_names(names, self.unseen > 0 and self.chance(self.unseen)))

    # --- names ---------------------------------------------------------------------------------------------

    def person(self) -> Phrase:
        kind = self.random()
        if kind < 0.5:
            return _flat([self.name(FIRST_NAMES), self.name(SURNAMES)], "PER")
        return _flat([self.name(FIRST_NAMES if kind < 0.85 else SURNAMES)], "PER")

    def place(self) -> Phrase:
        return _flat([self.name(PLACES)], "LOC")

    def organisation(self) -> Phrase:
        """Apex Motors, Marlow & Finch, the Bank of Norwick, Norwick University, the Ellery Museum, Hadley Press"""
        kind = int(self.random() * 6)
        if kind == 0:
            first, second = Word(self.name(SURNAMES), "PROPN"), Word(self.name(SURNAMES), "PROPN", "conj")
            second.head = first
            return _entity([first, Word("&", "CCONJ", "cc", second), second], first, "ORG")
        if kind == 1:
            head = Word(self.pick(lexicon.OF_INSTITUTES), "PROPN")
            place = Word(self.name(PLACES), "PROPN", "nmod", head)
            named = _entity([head, Word("of", "ADP", "case", place), place], head, "ORG")
            return Phrase([Word("the", "DET", "det", head), *named.words], head)
        if kind == 2:
            head = Word(self.pick(lexicon.INSTITUTES), "PROPN")
            named = _entity([Word(self.name(PLACES), "PROPN", "compound", head), head], head, "ORG")
            if head.form in ("University", "College"):
                return named
            return Phrase([Word("the", "DET", "det", head), *named.words], head)
        head = Word(self.pick(lexicon.COMPANY_KINDS), "PROPN")
        stem = self.name(SURNAMES if kind == 3 else COMPANY_STEMS)
        return _entity([Word(stem, "PROPN", "compound", head), head], head, "ORG")

    # --- noun phrases --------------------------------------------------------------------------------------

    def pronoun(self) -> Phrase:
        form, who = self.pick(
            (("I", "I"), ("we", "they"), ("you", "they"), ("he", "he"), ("she", "he"), ("they", "they"))
        )
        word = Word(form, "PRON")
        return Phrase([word], word, who)

    def object_pronoun(self) -> Phrase:
        word = Word(self.pick(("me", "us", "you", "him", "her", "them")), "PRON")
        return Phrase([word], word)

    def subject(self, depth: int = 1) -> Phrase:
        """Somebody who can do something"""
        kind = self.random()
        if kind < 0.22:
            return self.pronoun()
        if kind < 0.47:
            return self.person()
        if kind < 0.54:
            first, second = self.person(), self.person() if self.chance(0.6) else self.noun_phrase("people", 0)
            cc = Word("and", "CCONJ", "cc", second.head)
            return Phrase([*first.words, cc, *second.under(first.head, "conj")], first.head, "they")
        return self.noun_phrase("people", depth)

    def anybody(self, depth: int = 1) -> Phrase:
        """Somebody to whom something is done"""
        kind = self.random()
        if kind < 0.2:
            return self.object_pronoun()
        return self.person() if kind < 0.5 else self.noun_phrase("people", depth)

    def noun_phrase(self, kind: str, depth: int = 1, indefinite: bool | None = None) -> Phrase:
        """the old bridge near the harbor, three letters, Anna's dog, a cook who never smiled"""
        singular, plural = self.pick(lexicon.OBJECTS[kind])
        many = self.chance(0.25) and singular != plural
        noun = Word(plural if many else singular, "NOUN")
        words = self.determiner(noun, many, indefinite)
        words += self.adjectives(noun, kind)
        words.append(noun)
        if depth > 0 and self.chance(0.3):
            words += self.modifier(noun, kind, many)
        return Phrase(words, noun, "they" if many else "he")

    def adjectives(self, noun: Word, kind: str) -> list[Word]:
        known = lexicon.ADJECTIVES[kind]
        places = {
            int(self.random() * len(known)) for _ in range((0, 0, 0, 0, 1, 1, 1, 1, 1, 2)[int(self.random() * 10)])
        }
        words = [Word(known[place], "ADJ", "amod", noun) for place in sorted(places)]
        if words and words[0].form not in lexicon.NOT_GRADED and self.chance(0.12):
            return [Word(self.pick(lexicon.DEGREES[:3]), "ADV", "advmod", words[0]), *words]
        return words

    def determiner(self, noun: Word, many: bool, indefinite: bool | None) -> list[Word]:
        if indefinite:
            if many:
                return [Word(self.pick(lexicon.NUMBERS), "NUM", "nummod", noun)] if self.chance(0.6) else []
            return [Word("a", "DET", "det", noun)]
        kind = self.random()
        if kind < 0.4:
            return [Word("the", "DET", "det", noun)]
        if kind < 0.55:
            return [Word(self.pick(("my", "your", "his", "her", "our", "their")), "PRON", "nmod:poss", noun)]
        if kind < 0.65:
            owner = self.person()
            return [*owner.under(noun, "nmod:poss"), Word("'s", "PART", "case", owner.head)]
        if many and kind < 0.85:
            number = Word(self.pick(lexicon.NUMBERS), "NUM", "nummod", noun)
            return [Word("the", "DET", "det", noun), number] if self.chance(0.3) else [number]
        if many:
            return [Word(self.pick(("these", "those", "some", "all")), "DET", "det", noun)]
        return [Word("a" if kind < 0.87 else self.pick(("this", "that", "every", "another")), "DET", "det", noun)]

    def modifier(self, noun: Word, kind: str, many: bool) -> list[Word]:
        """What stands behind a noun: a phrase with a preposition, or a relative clause"""
        if self.chance(0.35):
            return self.relative_clause(noun, kind, many)
        if kind == "people":
            home = self.place() if self.chance(0.6) else self.organisation()
            return self.with_preposition("from", home).under(noun, "nmod")
        if kind in ("things", "buildings", "animals"):
            return self.where().under(noun, "nmod")
        if kind in ("reading", "abstract"):
            about = self.noun_phrase(self.pick(("people", "things", "events", "buildings")), 0)
            return self.with_preposition("about", about).under(noun, "nmod")
        return self.with_preposition("in" if kind == "events" else "from", self.place()).under(noun, "nmod")

    def relative_clause(self, noun: Word, kind: str, many: bool) -> list[Word]:
        """the cook who repaired the clock; the letter that Anna wrote"""
        if kind == "people":
            what = self.pick(("things", "reading", "animals", "events"))
            auxiliaries, verb = self.verb(self.pick(lexicon.TRANSITIVE[what]), "they" if many else "he")
            pronoun = Word(self.pick(("who", "that")), "PRON", "nsubj", verb)
            thing = self.noun_phrase(what, 0)
            return Phrase([pronoun, *auxiliaries, verb, *thing.under(verb, "obj")], verb).under(noun, "acl:relcl")
        who = self.subject(0)
        auxiliaries, verb = self.verb(
            self.pick(lexicon.TRANSITIVE[kind]), who.who, ("past", "past", "present", "perfect")
        )
        pronoun = Word("which" if who.words[0].form == "that" else self.pick(("that", "which")), "PRON", "obj", verb)
        return Phrase([pronoun, *who.under(verb, "nsubj"), *auxiliaries, verb], verb).under(noun, "acl:relcl")

    # --- when, where, how ----------------------------------------------------------------------------------

    def with_preposition(self, preposition: str, phrase: Phrase) -> Phrase:
        return Phrase([Word(preposition, "ADP", "case", phrase.head), *phrase.words], phrase.head)

    def where(self) -> Phrase:
        kind = self.random()
        if kind < 0.4:
            return self.with_preposition(self.pick(("in", "in", "near")), self.place())
        if kind < 0.5:
            return self.with_preposition("at", self.organisation())
        return self.with_preposition(self.pick(lexicon.PLACE_PREPOSITIONS), self.noun_phrase("buildings", 0))

    def when(self) -> Phrase:
        kind = self.random()
        if kind < 0.3:
            name, preposition = Word(self.pick(lexicon.DAYS), "PROPN"), "on"
        elif kind < 0.5:
            name, preposition = Word(self.pick(lexicon.MONTHS), "PROPN"), "in"
        elif kind < 0.7:
            name, preposition = (
                Word(str(1900 + int(self.random() * 125)), "NUM"),
                self.pick(("in", "in", "before", "after")),
            )
        else:
            return self.with_preposition(self.pick(("before", "after", "during")), self.noun_phrase("events", 0))
        return self.with_preposition(preposition, Phrase([name], name))

    def adjunct(self, verb: Word, motion: bool = False) -> list[Word]:
        """One more thing about what is done: how, where, when, with whom"""
        kind = self.random()
        if kind < 0.25:
            return [Word(self.pick(lexicon.MANNER), "ADV", "advmod", verb)]
        if kind < 0.35 and not motion:
            return self.with_preposition("with", self.anybody(0)).under(verb, "obl")
        if kind < 0.45 and motion:
            vehicle = Word(self.pick(lexicon.VEHICLES), "NOUN")
            return self.with_preposition("by", Phrase([vehicle], vehicle)).under(verb, "obl")
        if kind < 0.52:
            weather = Word(self.pick(lexicon.WEATHER), "NOUN")
            phrase = Phrase([Word("the", "DET", "det", weather), weather], weather)
            return self.with_preposition(self.pick(("in", "despite")), phrase).under(verb, "obl")
        if kind < 0.65:
            return [Word(self.pick(lexicon.TIMES), "NOUN", "obl:unmarked", verb)]
        return (self.where() if kind < 0.82 and not motion else self.when()).under(verb, "obl")

    # --- verbs ---------------------------------------------------------------------------------------------

    def verb(
        self,
        forms: Forms,
        who: str,
        styles: Sequence[str] = ("past", "past", "past", "present", "present", "modal", "perfect", "progressive"),
        negative: bool | None = None,
    ) -> tuple[list[Word], Word]:
        """A verb in some tense -> what stands before it (auxiliaries, not, an adverb), and the verb itself"""
        style = self.pick(styles)
        if negative is None:
            negative = self.chance(0.12)
        verb = Word("", "VERB")
        if style == "modal":
            first, verb.form = self.pick(lexicon.MODALS), forms.base
        elif style == "perfect":
            first, verb.form = HAVE[who], forms.participle
        elif style == "progressive":
            first, verb.form = self.pick(BE)[who], forms.gerund
        elif negative:
            first, verb.form = "did" if style == "past" else DO[who], forms.base
        else:
            first, verb.form = "", forms.past if style == "past" else forms.third if who == "he" else forms.base
        words = self.auxiliary(first, negative, verb, "aux") if first else []
        if not negative and self.chance(0.1):
            words.append(Word(self.pick(lexicon.FREQUENCY), "ADV", "advmod", verb))
        return words, verb

    def auxiliary(self, form: str, negative: bool, head: Word, relation: str) -> list[Word]:
        """is; is not; isn't, which is two words, as can't is (ca, n't)"""
        if not negative:
            return [Word(form, "AUX", relation, head)]
        if form in ("am", "may", "might") or self.chance(0.4):
            return [Word(form, "AUX", relation, head), Word("not", "PART", "advmod", head)]
        shortened = {"can": "ca", "will": "wo"}.get(form, form)
        return [Word(shortened, "AUX", relation, head), Word("n't", "PART", "advmod", head)]

    def copula(self, head: Word, who: str, negative: bool = False, past: bool | None = None) -> list[Word]:
        """The forms of be, in front of what somebody is: is, was not, will be, has never been"""
        kind = self.random() if past is None else 0.0
        if kind < 0.8:
            times = BE if past is None else BE[past : past + 1]
            return self.auxiliary(self.pick(times)[who], negative, head, "cop")
        first = self.pick(lexicon.MODALS) if kind < 0.9 else HAVE[who]
        be = Word("be" if kind < 0.9 else "been", "AUX", "cop", head)
        return [*self.auxiliary(first, negative, head, "aux"), be]


BE = ({"I": "am", "he": "is", "they": "are"}, {"I": "was", "he": "was", "they": "were"})
HAVE = {"I": "have", "he": "has", "they": "have"}
DO = {"I": "do", "he": "does", "they": "do"}
FIRST_NAMES, SURNAMES = tuple(lexicon.FIRST_NAMES), tuple(lexicon.SURNAMES)
PLACES, COMPANY_STEMS = tuple(lexicon.PLACES), tuple(lexicon.COMPANY_STEMS)


@lru_cache
def _names(names: tuple[str, ...], unseen: bool) -> list[str]:
    """A third of all names is kept for the split dev, the same in every list"""
    return [name for name in names if held_out(name) == unseen]


def held_out(name: str) -> bool:
    return zlib.crc32(name.encode()) % 3 == 0


def _flat(names: list[str], kind: str) -> Phrase:
    head = Word(names[0], "PROPN")
    return _entity([head, *(Word(name, "PROPN", "flat", head) for name in names[1:])], head, kind)


def _entity(words: list[Word], head: Word, kind: str) -> Phrase:
    words[0].entity = f"B-{kind}"
    for word in words[1:]:
        word.entity = f"I-{kind}"
    return Phrase(words, head)

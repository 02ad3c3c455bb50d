r"""A grammar that makes up English sentences with their dependency trees, and the engine that runs it.

A rule is a name and its alternatives, each with a weight:

    giving
        1   subject:nsubj does.giving anybody:iobj some.things:obj
        1   subject:nsubj does.giving some.things:obj ( to/ADP:case anybody ):obl

A rule with one alternative is written `name = parts`. An alternative lists its parts in order. Parts with a relation
hang under the one part without a relation, the head, as in Universal Dependencies (de Marneffe et al. 2021): words with
content are heads; articles, prepositions and auxiliaries hang under them. If no part is the head, all of them hang
under the head of the phrase that uses the rule.

    the/DET  was|were/AUX    a word and its part of speech; one of several words
    noun.things  verb.food/past  noun.people/many      a word from a list of lexicon.py, in one of its forms
    BE WAS DO HAVE           an auxiliary that agrees with its subject; BE/VERB: a full verb
    ( ... ):obl              a phrase in place, hanging under the head by that relation
    np.food                  another rule, with `food` for every $ in it; a second argument replaces every %;
                             ~ is the opposite of $ (good, bad); np.* takes one of KINDS
    :amod?40                 present with a probability of 40 %
    PER LOC ORG              rules whose words are a named entity

The words of a phrase stay together, so every tree is projective.
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

from mini_bert.data.synthetic.lexicon import TAGS, VOWEL_SOUND, WORDS

T = TypeVar("T")
SPLITS = ("train", "dev")
KINDS = ("food", "reading", "things", "animals", "buildings", "events", "abstract")
AGREEING = {  # with I, he, they
    "BE": ("am", "is", "are"),
    "WAS": ("was", "was", "were"),
    "DO": ("do", "does", "do"),
    "HAVE": ("have", "has", "have"),
}
NUMBER = {"I": 0, "we": 2, "you": 2, "they": 2}  # which of the three; 1 for all other words in the singular
ENTITIES = ("PER", "LOC", "ORG")

RULES = """
sentence
    58  clause .
    4   ( conjunction:mark short ):advcl , clause .
    6   clause ( conjunction:mark short ):advcl .
    10  clause ( , and|and|but|so|or/CCONJ:cc clause ):conj .
    3   adv.opener:advmod , main .
    5   when|when|where:obl , main .
    9   question ?
    3   order.things|order.food|order.reading|order.buildings .
    2   order.things|order.food !
conjunction = because|when|while|if|before|after|until|since/SCONJ
main = giving|wanting|having|particle
clause
    7   meeting|act.*|act.*|act.*|act.*|intransitive|motion
    9   intransitive|giving|wanting|wanting|being|being|being|having|particle
    2   subject|ORG.company:nsubj simple.saying ( that/SCONJ:mark?75 short ):ccomp
    1   there/PRON:expl BE|WAS/VERB some.people|some.things|some.animals|some.food:nsubj where:obl
    3   passive.*|passive.*|happening
    2   PER|PER|PER|plain.people:nsubj does.work ( for/ADP:case org ):obl ( in/ADP:case LOC ):obl?50
    1   org:nsubj simple.trade org:obj when|inplace:obl
    1   org:nsubj simple.build some.buildings:obj when|inplace:obl
short = meeting|act.*|act.*|intransitive|motion|being|happening
meeting = subject:nsubj does.people anybody:obj adjunct?50
act = subject:nsubj does.$ np.$:obj adjunct?50
intransitive
    1   subject:nsubj does.intransitive ( like/ADP:case some.people ):obl
    8   subject:nsubj does.intransitive adjunct?75
motion = subject:nsubj does.motion ( to|to|from|through|into/ADP:case LOC|plain.buildings ):obl travel?60
travel
    1   adv.manner:advmod
    1   ( by/ADP:case noun.vehicles ):obl
    2   when:obl
giving
    1   subject:nsubj does.giving anybody:iobj some.reading|some.things|some.food:obj
    1   subject:nsubj does.giving some.reading|some.things|some.food:obj ( to/ADP:case anybody ):obl
wanting = subject:nsubj simple.wanting infinitive:xcomp
infinitive
    3   to/PART:mark verb.motion/base ( to/ADP:case LOC ):obl
    1   to/PART:mark verb.people/base anybody:obj
    6   purpose.*
purpose = to/PART:mark verb.$/base plain.$:obj
being
    8   subject:nsubj copula adv.degree:advmod?30 adj.state
    3   PER:nsubj copula a/DET:det adj.people:amod?40 noun.people
    1   we|you|they/PRON:nsubj copula adj.people:amod?40 noun.people/many
    4   subject:nsubj copula where
    5   quality.things|quality.buildings
quality = np.$:nsubj copula adj.$
copula
    7   BE|WAS:cop
    1   BE|WAS:cop not:advmod
    1   modal:aux not:advmod?12 be/AUX:cop
    1   HAVE:aux not:advmod?12 been/AUX:cop
having = subject:nsubj HAVE|had/VERB some.things|some.animals|some.abstract:obj
passive = np.$:nsubj:pass BE|WAS:aux:pass not:advmod?10 verb.$/participle by?60 when:obl?40
by = ( by/ADP:case PER|PER|org|plain.people ):obl:agent
happening
    1   np.events:nsubj does.happening early|late|suddenly|slowly/ADV:advmod
    1   np.events:nsubj does.happening when:obl
particle
    3   subject:nsubj does.away away/ADP:compound:prt plain.things:obj
    2   subject:nsubj does.up plain.things:obj up/ADP:compound:prt
    1   subject:nsubj does.off off/ADP:compound:prt plain.events:obj
question
    3   ask.*
    1   did|can|could|will|would/AUX:aux subject:nsubj verb.people/base anybody:obj
ask
    1   did|can|could|will|would/AUX:aux subject:nsubj verb.$/base plain.$:obj
    1   DO:aux subject:nsubj verb.$/base plain.$:obj
    1   who/PRON:nsubj verb.$/past plain.$:obj
    2   where|when|why|how/ADV:advmod did|will/AUX:aux subject:nsubj verb.$/base plain.$:obj
order
    4   please/INTJ:discourse verb.$/base plain.$:obj
    2   oh|well|yes|no/INTJ:discourse , verb.$/base plain.$:obj
    1   do/AUX:aux n't/PART:advmod verb.$/base plain.$:obj
    1   verb.$/base plain.$:obj

PER
    5   name.first name.last:flat
    4   name.first
    1   name.last
LOC = name.place
org
    2   the/DET:det ORG.of
    1   the/DET:det ORG.in
    6   ORG.company
ORG = $
of = University|Bank|Museum/PROPN ( of/ADP:case name.place ):nmod
in = name.place:compound institute
company
    1   name.last ( &/CCONJ:cc name.last ):conj
    1   name.last:compound company.kind
    3   name.company:compound company.kind
subject
    20  I|we|you|he|she|they/PRON
    25  PER
    4   PER ( and/CCONJ:cc PER ):conj
    3   PER ( and/CCONJ:cc plain.people ):conj
    44  np.people
anybody
    2   me|us|you|him|her|them/PRON
    3   PER
    5   np.people
np
    7   plain.$
    1   one.$ behind.$
plain
    3   one.$
    1   many.$
some
    3   a/DET:det adj.$:amod?55 noun.$
    1   num.count:nummod?60 adj.$:amod?55 noun.$/many
one
    6   the/DET:det adj.$:amod?55 noun.$
    5   owner adj.$:amod?55 noun.$
    1   a/DET:det adj.$:amod?55 noun.$
    2   this|that|every|another/DET:det adj.$:amod?55 noun.$
many
    4   the/DET:det num.count:nummod?20 adj.$:amod?55 noun.$/many
    2   owner adj.$:amod?55 noun.$/many
    2   num.count:nummod adj.$:amod?55 noun.$/many
    2   these|those|some|all/DET:det adj.$:amod?55 noun.$/many
owner
    3   my|your|his|her|our|their/PRON:nmod:poss
    2   ( PER 's/PART:case ):nmod:poss
behind
    2   relative.$
    3   ( from/ADP:case LOC|LOC|org ):nmod
    3   where:nmod
    1   ( about/ADP:case plain.people|plain.things|plain.events ):nmod
relative
    1   ( that|which/PRON:obj pronoun|PER|plain.people:nsubj simple.$ ):acl:relcl
    1   ( that|which/PRON:obj PER|plain.people:nsubj HAVE:aux verb.$/participle ):acl:relcl
pronoun = I|we|you|he|she|they/PRON
where
    4   in|in|near/ADP:case LOC
    1   at/ADP:case org
    5   prep.place:case plain.buildings
inplace = in/ADP:case LOC
when
    3   on/ADP:case day.name
    2   in/ADP:case month.name
    2   in|in|before|after/ADP:case YEAR
    3   before|after|during/ADP:case plain.events
adjunct
    5   adv.manner:advmod
    2   ( with/ADP:case anybody ):obl
    2   ( in|despite/ADP:case the/DET:det noun.weather ):obl
    3   noun.times:obl:unmarked
    4   where:obl
    4   when:obl
does
    30  verb.$/past
    20  verb.$/present
    8   adv.frequency:advmod verb.$/past
    4   adv.frequency:advmod verb.$/present
    10  modal:aux verb.$/base
    10  HAVE:aux verb.$/participle
    10  BE|WAS:aux verb.$/gerund
    7   did/AUX:aux not:advmod verb.$/base
    4   DO|modal:aux not:advmod verb.$/base
    1   HAVE:aux not:advmod verb.$/participle
simple
    6   verb.$/past
    4   verb.$/present
not = n't|not/PART

opinion
    66  verdict.$.work end
    8   verdict.~.work ( , but/CCONJ:cc verdict.$.again ):conj end
    5   work:nsubj be strong.~ ( ,?30 but/CCONJ:cc strong.$ ):conj end
    3   ( although|though/SCONJ:mark verdict.~.work ):advcl , verdict.$.again end
    3   verdict.$.work ( ,?50 although|though/SCONJ:mark verdict.~.again ):advcl end
    2   despite.~ , verdict.$.work end
    2   verdict.$.work despite.~ end
    4   ( after/ADP:case a/DET:det strong.good|strong.bad:amod noun.days ):obl , verdict.$.work end
    7   verdict.$.work ( ,?50 and/CCONJ:cc verdict.$.again ):conj end
end
    9   .
    1   !
despite = ( despite/ADP:case its/PRON:nmod:poss strong.$:amod noun.parts ):obl
verdict
    22  %:nsubj be strong.$
    3   %:nsubj be no strong.~
    5   %:nsubj be adj.$ ( and/CCONJ:cc strong.$ ):conj
    3   %:nsubj be not/PART:advmod only/ADV:advmod adj.$ ( but/CCONJ:cc also/ADV:advmod adj.$ ):conj
    2   %:nsubj be neither/CCONJ:cc:preconj adj.~ ( nor/CCONJ:cc adj.~ ):conj
    1   %:nsubj could/AUX:aux not:advmod have/AUX:aux been/AUX:cop more/ADV:advmod adj.$
    12  voice:nsubj simple.like_$ %:obj
    2   voice:nsubj denied.like_~ %:obj
    8   voice:nsubj simple.find %:obj strong.$:xcomp
    1   voice:nsubj denied.find %:obj strong.~:xcomp
    8   %:nsubj simple.please_$ audience:obj
    1   %:nsubj denied.please_~ audience:obj
    1   %:nsubj denied.fail ( to/PART:mark verb.please_$/base audience:obj ):xcomp
    3   %:nsubj be full/ADJ ( of/ADP:case noun.quality_$ ):obl
    4   %:nsubj HAVE|had/VERB ( real/ADJ:amod?40 noun.quality_$ ):obj
    2   %:nsubj HAVE|had/VERB ( no/DET:det noun.quality_~ ):obj
    1   %:nsubj be without/ADP:case noun.quality_~
    8   %:nsubj be a/DET:det real|complete|true|great/ADJ:amod?30 noun.thing_$
    1   %:nsubj be no a/DET:det noun.thing_~
    1   %:nsubj be no/DET:det real|complete|true|great/ADJ:amod?30 noun.thing_~
verdict.good
    2   %:nsubj denied.lack noun.quality_good:obj
verdict.bad
    1   %:nsubj simple.lack noun.quality_good:obj
    2   %:nsubj simple.fail ( to/PART:mark verb.please_good/base audience:obj ):xcomp
    1   %:nsubj could/AUX:aux have/AUX:aux been/AUX:cop more/ADV:advmod adj.good
    3   %:nsubj be too/ADV:advmod adj.bad
strong
    7   adj.$
    3   adv.intensifier:advmod adj.$
be = BE|WAS:cop
no
    3   not:advmod
    2   never|hardly/ADV:advmod
denied
    2   never/ADV:advmod simple.$
    2   did/AUX:aux not:advmod verb.$/base
    1   DO:aux not:advmod verb.$/base
again
    3   it/PRON
    1   the/DET:det noun.parts
    1   the/DET:det noun.several_parts/many
work
    3   it/PRON
    4   the/DET:det noun.parts
    2   the/DET:det noun.several_parts/many
    3   the/DET:det noun.parts ( of/ADP:case the|this|that/DET:det noun.works ):nmod
    6   the|the|this|that/DET:det adj.neutral:amod?25 noun.works
    3   ( PER 's/PART:case ):nmod:poss adj.neutral:amod?25 noun.works
    2   the/DET:det noun.works ( by/ADP:case PER ):nmod
    2   the/DET:det noun.works ( from/ADP:case LOC|org ):nmod
    1   the/DET:det noun.works ( that/PRON:obj I|we/PRON:nsubj saw/VERB when|where:obl ):acl:relcl
voice
    7   I|we/PRON
    5   PER
    4   noun.critics/many
    4   plain.people
audience
    4   us|me|them|everyone/PRON
    2   PER
    2   the/DET:det noun.critics/many
    2   the/DET:det noun.audience
"""


class Word:
    """A word of a sentence; `head` is None for the root"""

    __slots__ = ("entity", "form", "forms", "head", "number", "relation", "tag")

    def __init__(self, form: str, tag: str, forms: Sequence[str] = (), number: int = 1):
        self.form, self.tag, self.forms, self.number = form, tag, forms, number
        self.relation, self.entity = "root", "O"
        self.head: Word | None = None


class Part(NamedTuple):
    options: Sequence[Any]  # names, words, or one list of parts
    form: str  # the text after the slash
    relation: str
    chance: float


class Grammar:
    """Random sentences. The same key always gives the same ones, in every release of Python"""

    def __init__(self, key: str, split: str = "train"):
        if split not in SPLITS:
            raise ValueError(f"split is {split!r}, expected one of {', '.join(SPLITS)}")
        self.random = random.Random(key).random  # the one method whose numbers Python promises never to change
        self.unseen = 0.5 if split == "dev" else 0.0

    def chance(self, share: float) -> bool:
        return self.random() < share

    def pick(self, things: Sequence[T]) -> T:
        return things[int(self.random() * len(things))]

    def sentence(self, rule: str) -> list[Word]:
        """The words of a sentence, agreeing and spelled as they should be; no word twice in a row"""
        while True:
            words, _ = self.expand(rule)
            _agree(words)
            forms = spelled([word.form for word in words])
            if all(a.lower() != b.lower() for a, b in pairwise(forms)):
                break
        for word, form in zip(words, forms, strict=True):
            word.form = form
        return words

    def text(self, rule: str) -> str:
        """A name or a phrase as text, such as `PER` or `org`"""
        return " ".join(word.form for word in self.expand(rule)[0])

    def word(self, name: str) -> Any:
        """An entry of a list. In the split dev, half of the names are ones that never occur in train"""
        if name.startswith("name."):
            return self.pick(_names(name, self.unseen > 0 and self.chance(self.unseen)))
        return self.pick(WORDS[name])

    def expand(self, rule: str) -> tuple[list[Word], list[Word]]:
        """Returns the words of a phrase, and those among them that hang under a word outside it"""
        ends, alternatives = _alternatives(rule)
        words, tops = self.phrase(alternatives[bisect(ends, self.random() * ends[-1])])
        if rule[:3] in ENTITIES:
            for number, word in enumerate(words):
                word.entity = f"{'I' if number else 'B'}-{rule[:3]}"
        return words, tops

    def phrase(self, parts: Sequence[Part]) -> tuple[list[Word], list[Word]]:
        words: list[Word] = []
        tops: list[Word] = []
        head = None
        for part in parts:
            if part.chance < 1 and self.random() >= part.chance:
                continue
            inner, heads = self.part(part)
            words += inner
            if part.relation:
                for word in heads:
                    word.relation = part.relation
            elif len(heads) == 1 and heads[0].relation == "root":
                head = heads[0]
            tops += heads
        if head is None:
            return words, tops
        for word in tops:
            if word is not head:
                word.head = head
        return words, [head]

    def part(self, part: Part) -> tuple[list[Word], list[Word]]:
        option = part.options[0] if len(part.options) == 1 else self.pick(part.options)
        if isinstance(option, list):
            return self.phrase(option)
        if option in AGREEING:
            word = Word("", part.form or "AUX", AGREEING[option])
        elif option == "YEAR":
            word = Word(str(1900 + int(self.random() * 125)), "NUM")
        elif part.form.isupper():
            word = Word(option, part.form, number=NUMBER.get(option, 1))
        elif option in WORDS:
            word = self._inflected(option, part.form)
        else:
            return self.expand(option[:-1] + self.pick(KINDS) if option.endswith("*") else option)
        return [word], [word]

    def _inflected(self, name: str, form: str) -> Word:
        entry = self.word(name)
        kind = name.partition(".")[0]
        tag = TAGS.get(kind, "PROPN")
        if kind == "noun":
            return Word(entry.many, tag, number=2) if form == "many" else Word(entry.one, tag)
        if form == "present":
            return Word("", tag, (entry.base, entry.third, entry.base))
        return Word(getattr(entry, form) if form else entry, tag)


def _agree(words: Sequence[Word]) -> None:
    """Give each finite verb the form that its subject needs: am, is, are"""
    for verb in words:
        if verb.forms:
            predicate = verb if verb.tag == "VERB" else verb.head
            subject = next(word for word in words if word.head is predicate and word.relation.startswith("nsubj"))
            several = any(word.head is subject and word.relation == "conj" and word.entity[0] != "I" for word in words)
            verb.form = verb.forms[2 if several else subject.number]


def spelled(forms: Sequence[str]) -> list[str]:
    """
    >>> spelled(["a", "old", "man", "can", "n't", "swim", "."])
    ['An', 'old', 'man', 'ca', "n't", 'swim', '.']
    """
    words = list(forms)
    for place, (form, after) in enumerate(pairwise(forms)):
        if form == "a" and VOWEL_SOUND.match(after):
            words[place] = "an"
        elif after == "n't" and form in ("am", "may", "might"):
            words[place + 1] = "not"
        elif after == "n't":
            words[place] = {"can": "ca", "will": "wo"}.get(form, form)
    words[0] = words[0][0].upper() + words[0][1:]
    return words


@cache
def _names(name: str, unseen: bool) -> list[str]:
    return [word for word in WORDS[name] if held_out(word) == unseen]


def held_out(name: str) -> bool:
    """A third of all names is kept for the split dev, the same in every list"""
    return zlib.crc32(name.encode()) % 3 == 0


# --- reading the rules -------------------------------------------------------------------------------------


def _read(text: str) -> dict[str, list[tuple[int, str]]]:
    rules: dict[str, list[tuple[int, str]]] = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, parts = line.partition(" = ")
        if line[0] != " ":
            rules[name] = [(1, parts)] if parts else []
        else:
            weight, parts = line.split(maxsplit=1)
            rules[[*rules][-1]].append((int(weight), parts))
    return rules


ALTERNATIVES = _read(RULES)


@cache
def _alternatives(name: str) -> tuple[list[int], list[list[Part]]]:
    """The summed weights and the parts of a rule's alternatives, its arguments put in"""
    rule, *arguments = name.split(".")
    first, second = [*arguments, "", ""][:2]
    opposite = {"good": "bad", "bad": "good"}.get(first, "")
    lines = ALTERNATIVES[rule] + ALTERNATIVES.get(f"{rule}.{first}", [])
    parts = [_parts(text.replace("$", first).replace("~", opposite).replace("%", second).split()) for _, text in lines]
    return list(accumulate(weight for weight, _ in lines)), parts


def _parts(tokens: list[str]) -> list[Part]:
    """Reads the tokens up to a closing bracket, and removes them"""
    parts = []
    while tokens and not tokens[0].startswith(")"):
        token = tokens.pop(0)
        inner = None
        if token == "(":
            inner = _parts(tokens)
            token = tokens.pop(0)
        token, _, chance = token.partition("?") if token != "?" else ("?", "", "")
        what, _, relation = token.partition(":")
        body, _, form = what.partition("/")
        if body in tuple(",.!?"):
            form, relation = "PUNCT", "punct"
        options = body.split("|") if inner is None else [inner]
        parts.append(Part(options, form, relation, float(chance or 100) / 100))
    return parts

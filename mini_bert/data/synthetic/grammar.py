r"""A grammar that makes up English sentences with their dependency trees, and the engine that runs it.

A rule is a name and its alternatives, each with a weight:

    giving
        1   subject:nsubj does.giving somebody:iobj np.things:obj
        1   subject:nsubj does.giving np.things:obj ( to/ADP:case somebody ):obl

A rule with one alternative is written `name = parts`. An alternative lists its parts in order. Parts with a relation
hang under the one part without a relation, the head, as in Universal Dependencies (de Marneffe et al. 2021): words with
content are heads; articles, prepositions and auxiliaries hang under them. If no part is the head, all of them hang
under the head of the phrase that uses the rule.

    the/DET  is|was/AUX      a word and its part of speech; one of several words
    noun.things  verb.food/past  noun.people/many      a word from a list of lexicon.py, in one of its forms
    ( ... ):obl              a phrase in place, hanging under the head by that relation
    np.food                  another rule, with `food` for every $ in it; ~ is the opposite of $ (good, bad);
                             np.* takes one of KINDS
    :amod?40                 present with a probability of 40 %
    PER LOC ORG              rules whose words are a named entity

The words of a phrase stay together, so every tree is projective. Every subject is in the third person singular, so no
verb has to look for its subject.
"""

from __future__ import annotations

import random
import re
import zlib
from bisect import bisect
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

from mini_bert.data.synthetic.lexicon import TAGS, WORDS

T = TypeVar("T")
SPLITS = ("train", "dev")
KINDS = ("food", "reading", "things", "animals", "buildings", "events")
ENTITIES = ("PER", "LOC", "ORG")

RULES = """
sentence
    60  clause .
    5   ( conjunction:mark act.* ):advcl , clause .
    6   clause ( conjunction:mark act.* ):advcl .
    10  clause ( and|but|so|or/CCONJ:cc clause ):conj .
    5   when|where:obl , act.* .
    9   question.* ?
    5   please/INTJ:discourse order.* .
conjunction = because|when|while|if|before|after|until|since/SCONJ
clause
    30  act.*
    6   subject:nsubj does.people somebody:obj adjunct?50
    9   subject:nsubj does.intransitive adjunct?75
    7   subject:nsubj does.motion ( to|to|from|through/ADP:case LOC|one.buildings ):obl when:obl?40
    6   giving
    7   subject:nsubj verb.wanting/past|verb.wanting/third ( to/PART:mark order.* ):xcomp
    9   subject:nsubj be very|quite|so/ADV:advmod?30 adj.state
    4   PER:nsubj be a/DET:det adj.people:amod?40 noun.people
    4   subject:nsubj be where
    5   one.things|one.buildings:nsubj be adj.things
    4   subject:nsubj has|had/VERB np.things|np.animals:obj
    4   subject|ORG.company:nsubj verb.saying/past|verb.saying/third ( that/SCONJ:mark?75 act.* ):ccomp
    2   there/PRON:expl is|was/VERB a/DET:det adj.people:amod?40 noun.people:nsubj where:obl
    8   passive.*
    3   PER|one.people:nsubj works|worked/VERB ( for/ADP:case org ):obl ( in/ADP:case LOC ):obl?50
    3   org:nsubj bought|praised|joined/VERB org|one.buildings:obj when|where:obl?60
act = subject:nsubj does.$ np.$:obj adjunct?40
giving
    1   subject:nsubj does.giving somebody:iobj np.reading|np.things|np.food:obj
    1   subject:nsubj does.giving np.reading|np.things|np.food:obj ( to/ADP:case somebody ):obl
passive = one.$:nsubj:pass is|was/AUX:aux:pass verb.$/participle ( by/ADP:case PER|org|one.people ):obl:agent?60
question
    2   did|can|could|will|would/AUX:aux subject:nsubj verb.$/base np.$:obj
    1   who/PRON:nsubj verb.$/past np.$:obj
    2   where|when|why|how/ADV:advmod did|will/AUX:aux subject:nsubj verb.$/base np.$:obj
order = verb.$/base np.$:obj
does
    30  verb.$/past
    20  verb.$/third
    8   adv.frequency:advmod verb.$/past
    10  can|could|will|would|may|might|should|must/AUX:aux verb.$/base
    10  has|had/AUX:aux verb.$/participle
    10  is|was/AUX:aux verb.$/gerund
    12  did|could|does/AUX:aux n't|not/PART:advmod verb.$/base
be
    7   is|was/AUX:cop
    1   is|was/AUX:cop n't|not/PART:advmod
    1   has|had/AUX:aux been/AUX:cop

PER
    5   name.first name.last:flat
    4   name.first
    1   name.last
LOC = name.place
org
    3   the/DET:det ORG.of
    6   ORG.company
ORG = $
of = University|Bank|Museum/PROPN ( of/ADP:case name.place ):nmod
company
    1   name.last ( &/CCONJ:cc name.last ):conj
    3   name.company|name.company|name.last:compound company.kind
subject
    2   he|she/PRON
    4   PER
    5   one.people
somebody
    2   me|us|you|him|her|them/PRON
    3   PER
    5   np.people
np
    5   one.$
    1   one.$ behind.$
    2   the|these|those|some|all/DET:det adj.$:amod?50 noun.$/many
    1   num.count:nummod adj.$:amod?50 noun.$/many
one
    7   the|the|this|that|every|another/DET:det adj.$:amod?50 noun.$
    3   my|your|his|her|our|their/PRON:nmod:poss adj.$:amod?50 noun.$
    2   ( PER 's/PART:case ):nmod:poss adj.$:amod?50 noun.$
    3   a/DET:det adj.$:amod?50 noun.$
behind
    2   ( that|which/PRON:obj subject:nsubj does.$ ):acl:relcl
    3   ( from/ADP:case LOC|org ):nmod
    2   where:nmod
where
    4   in|near/ADP:case LOC
    1   at/ADP:case org
    4   in|near|behind|outside|inside|beside/ADP:case one.buildings
when
    3   on/ADP:case day
    2   in/ADP:case month
    2   in|before|after/ADP:case YEAR
    3   before|after|during/ADP:case one.events
adjunct
    5   adv.manner:advmod
    2   ( with|like/ADP:case somebody ):obl
    2   ( in|despite/ADP:case the/DET:det noun.weather ):obl
    3   yesterday|today|tonight/NOUN:obl:unmarked
    8   when|where:obl

opinion
    60  verdict.$ end
    10  verdict.~ ( ,?50 but/CCONJ:cc again.$ ):conj end
    6   work:nsubj is|was/AUX:cop strong.~ ( ,?30 but/CCONJ:cc strong.$ ):conj end
    4   ( although|though/SCONJ:mark verdict.~ ):advcl , again.$ end
    4   verdict.$ ( ,?50 although|though/SCONJ:mark again.~ ):advcl end
    3   ( despite/ADP:case its/PRON:nmod:poss strong.~:amod noun.parts ):obl , verdict.$ end
    4   ( after/ADP:case a/DET:det strong.good|strong.bad:amod noun.days ):obl , verdict.$ end
    6   verdict.$ ( ,?50 and/CCONJ:cc again.$ ):conj end
end
    9   .
    1   !
verdict
    20  work:nsubj is|was/AUX:cop strong.$
    5   work:nsubj is|was/AUX:cop not strong.~
    5   work:nsubj is|was/AUX:cop adj.$ ( and/CCONJ:cc strong.$ ):conj
    3   work:nsubj is|was/AUX:cop not/PART:advmod only/ADV:advmod adj.$ ( but/CCONJ:cc also/ADV:advmod adj.$ ):conj
    3   work:nsubj is|was/AUX:cop neither/CCONJ:cc:preconj adj.~ ( nor/CCONJ:cc adj.~ ):conj
    12  voice:nsubj verb.like_$/past|verb.like_$/third work:obj
    4   voice:nsubj did/AUX:aux n't|not/PART:advmod verb.like_~/base work:obj
    6   voice:nsubj found|finds/VERB work:obj strong.$:xcomp
    8   work:nsubj verb.please_$/past|verb.please_$/third audience:obj
    3   work:nsubj did/AUX:aux n't|not/PART:advmod verb.please_~/base audience:obj
    6   work:nsubj is|was/AUX:cop full/ADJ ( of/ADP:case noun.quality_$ ):obl
    6   work:nsubj has|had/VERB ( no/DET:det noun.quality_~ ):obj
    2   work:nsubj is|was/AUX:cop without/ADP:case noun.quality_~
    7   work:nsubj is|was/AUX:cop a/DET:det noun.thing_$
    3   work:nsubj is|was/AUX:cop no/DET:det noun.thing_~
again = it/PRON:nsubj is|was/AUX:cop strong.$
strong
    7   adj.$
    3   adv.intensifier:advmod adj.$
not
    3   n't|not/PART:advmod
    2   never|hardly/ADV:advmod
work
    3   it/PRON
    4   the/DET:det noun.parts
    3   the/DET:det noun.parts ( of/ADP:case the|this|that/DET:det noun.works ):nmod
    6   the|this|that/DET:det new|latest|first|long/ADJ:amod?25 noun.works
    3   ( PER 's/PART:case ):nmod:poss noun.works
    2   the/DET:det noun.works ( by/ADP:case PER ):nmod
    2   the/DET:det noun.works ( from/ADP:case LOC|org ):nmod
voice = he|she|everyone/PRON|PER|one.people
audience
    4   us|me|them|everyone/PRON
    4   PER|one.people
"""


class Word:
    """A word of a sentence; `head` is None for the root"""

    __slots__ = ("entity", "form", "head", "relation", "tag")

    def __init__(self, form: str, tag: str):
        self.form, self.tag = form, tag
        self.relation, self.entity = "root", "O"
        self.head: Word | None = None


class Part(NamedTuple):
    options: Sequence[Any]  # (what, form) with the text before and after the slash, or one list of parts
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
        """The words of a sentence, spelled as they should be; no word twice in a row"""
        while True:
            words, _ = self.expand(rule)
            forms = spelled([word.form for word in words])
            if all(a.lower() != b.lower() for a, b in pairwise(forms)):
                break
        for word, form in zip(words, forms, strict=True):
            word.form = form
        return words

    def text(self, rule: str) -> str:
        """A name as text, such as `PER` or `ORG.company`"""
        return " ".join(word.form for word in self.expand(rule)[0])

    def word(self, name: str) -> Any:
        """An entry of a list. In the split dev, half of the names are ones that never occur in train"""
        if name.startswith("name."):
            return self.pick(_names(name, self.chance(self.unseen)))
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
        option = self.pick(part.options)
        if isinstance(option, list):
            return self.phrase(option)
        what, form = option
        if what == "YEAR":
            word = Word(str(1900 + int(self.random() * 125)), "NUM")
        elif form.isupper():
            word = Word(what, form)
        elif what in WORDS:
            entry, kind = self.word(what), what.partition(".")[0]
            form = form or ("one" if kind == "noun" else "")
            word = Word(getattr(entry, form) if form else entry, TAGS.get(kind, "PROPN"))
        else:
            return self.expand(what[:-1] + self.pick(KINDS) if what.endswith("*") else what)
        return [word], [word]


def spelled(words: Sequence[str]) -> list[str]:
    """
    >>> spelled(["a", "old", "man", "swims", "."])
    ['An', 'old', 'man', 'swims', '.']
    """
    forms = [
        "an" if form == "a" and re.match("[aeiou]", after) else form
        for form, after in zip(words, [*words[1:], ""], strict=True)
    ]
    return [forms[0][0].upper() + forms[0][1:], *forms[1:]]


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
    """The summed weights and the parts of a rule's alternatives, its argument put in"""
    rule, _, argument = name.partition(".")
    opposite = {"good": "bad", "bad": "good"}.get(argument, "")
    lines = ALTERNATIVES[rule]
    parts = [_parts(text.replace("$", argument).replace("~", opposite).split()) for _, text in lines]
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
        body, _, relation = token.partition(":")
        if body in tuple(",.!?"):
            body, relation = f"{body}/PUNCT", "punct"
        parts.append(Part(_options(body) if inner is None else [inner], relation, float(chance or 100) / 100))
    return parts


def _options(body: str) -> list[tuple[str, str]]:
    """`he|she/PRON|PER` is three options: a part of speech is that of the words before it, too"""
    options: list[tuple[str, str]] = []
    form = ""
    for option in reversed(body.split("|")):
        what, _, own = option.partition("/")
        form = own or form
        options.append((what, form))
    return options[::-1]

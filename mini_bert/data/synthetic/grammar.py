r"""A grammar that makes up English sentences with their dependency trees, and the engine that runs it.

A rule is a name and its alternatives, each with a weight:

    giving
        1   subject:nsubj does.giving somebody:iobj np.things:obj
        1   subject:nsubj does.giving np.things:obj ( to/ADP:case somebody ):obl

A rule with one alternative is written `name = parts`. Parts with a relation hang under the one part of their phrase
that has none, the head, as in Universal Dependencies (de Marneffe et al. 2021): words with content are heads; articles,
prepositions and auxiliaries hang under them.

    the/DET  is|was/AUX      a word and its part of speech; one of several words
    noun.things  verb.food/past  noun.people/many      a word from a list of lexicon.py, in one of its forms
    ( ... ):obl              a phrase
    np.food                  another rule, with `food` for every $ in it; ~ is the opposite of $ (good, bad);
                             np.* takes one of KINDS. Without a relation, its parts are parts of this phrase
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
from dataclasses import dataclass
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
    5   ( because|when|while|if|before|after/SCONJ:mark act.* ):advcl , clause .
    6   clause ( because|when|while|if|until|since/SCONJ:mark clause ):advcl .
    10  clause ( and|but|so|or/CCONJ:cc clause ):conj .
    5   when|where:obl , act.* .
    9   question.* ?
    5   please/INTJ:discourse order.* .
clause
    35  act.*
    6   subject:nsubj does.people somebody:obj adjunct?50
    9   subject:nsubj does.intransitive adjunct?75
    7   subject:nsubj does.motion ( to|from|through/ADP:case LOC|one.buildings ):obl when:obl?40
    3   subject:nsubj does.giving somebody:iobj np.reading|np.things|np.food:obj
    3   subject:nsubj does.giving np.reading|np.things|np.food:obj ( to/ADP:case somebody ):obl
    7   subject:nsubj verb.wanting/past|verb.wanting/third ( to/PART:mark order.* ):xcomp
    9   subject:nsubj be very|quite|so/ADV:advmod?30 adj.state
    4   PER:nsubj be a/DET:det adj.people:amod?40 noun.people
    4   subject:nsubj be where
    4   subject:nsubj has|had/VERB np.things|np.animals:obj
    5   subject|org:nsubj verb.saying/past|verb.saying/third ( that/SCONJ:mark?75 act.* ):ccomp
    2   there/PRON:expl is|was/VERB ( a/DET:det noun.people ):nsubj where:obl
    8   one.food|one.buildings:nsubj:pass is|was/AUX:aux:pass sold|described|forgotten/VERB agent?60
    5   PER|org:nsubj bought|praised|joined/VERB org:obj when|where:obl?60
act = subject:nsubj does.$ np.$:obj adjunct?40
agent = ( by/ADP:case PER|org|one.people ):obl:agent
question
    2   did|can|could|will|would/AUX:aux subject:nsubj order.$
    1   who/PRON:nsubj verb.$/past np.$:obj
    2   where|when|why|how/ADV:advmod did|will/AUX:aux subject:nsubj order.$
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
    5   name.first
LOC = name.place
org
    3   the/DET:det ORG.of
    6   ORG.company
ORG = $
of = University|Bank|Museum/PROPN ( of/ADP:case name.place ):nmod
company
    1   name.last ( &/CCONJ:cc name.last ):conj
    3   name.company|name.last:compound company.kind
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
    1   two|three|four|ten|twelve/NUM:nummod adj.$:amod?50 noun.$/many
one
    7   the|this|that|every|another/DET:det adj.$:amod?50 noun.$
    3   my|your|his|her|our|their/PRON:nmod:poss adj.$:amod?50 noun.$
    2   ( PER 's/PART:case ):nmod:poss adj.$:amod?50 noun.$
    3   a/DET:det adj.$:amod?50 noun.$
behind
    2   ( that|which/PRON:obj subject:nsubj does.$ ):acl:relcl
    4   ( from/ADP:case LOC|org ):nmod
where
    4   in|near/ADP:case LOC
    5   in|near|behind|outside|inside|beside/ADP:case one.buildings
when
    3   on/ADP:case day
    2   in/ADP:case month
    3   before|after|during/ADP:case one.events
adjunct
    5   adv.manner:advmod
    3   ( with|like/ADP:case somebody ):obl
    2   ( in|despite/ADP:case the/DET:det rain|snow|cold|dark|heat/NOUN ):obl
    3   yesterday|today|tonight/NOUN:obl:unmarked
    8   when|where:obl

opinion
    60  verdict.$ end
    10  verdict.~ ( ,?50 but/CCONJ:cc again.$ ):conj end
    6   work:nsubj is|was/AUX:cop strong.~ ( ,?30 but/CCONJ:cc strong.$ ):conj end
    4   ( although|though/SCONJ:mark verdict.~ ):advcl , again.$ end
    4   verdict.$ ( ,?50 although|though/SCONJ:mark again.~ ):advcl end
    3   ( despite/ADP:case its/PRON:nmod:poss adj.~:amod noun.parts ):obl , verdict.$ end
    4   ( after/ADP:case a/DET:det adj.good|adj.bad:amod noun.days ):obl , verdict.$ end
    6   verdict.$ ( ,?50 and/CCONJ:cc again.$ ):conj end
end
    9   .
    1   !
verdict
    20  work:nsubj is|was/AUX:cop strong.$
    5   work:nsubj is|was/AUX:cop no strong.~
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
strong = very|really|truly|quite|extremely/ADV:advmod?30 adj.$
no
    3   n't|not/PART:advmod
    2   never|hardly/ADV:advmod
work
    3   it/PRON
    4   the/DET:det noun.parts
    3   the/DET:det noun.parts ( of/ADP:case the|this|that/DET:det noun.works ):nmod
    6   the|this|that/DET:det new|latest|first|long/ADJ:amod?25 noun.works
    3   ( PER 's/PART:case ):nmod:poss noun.works
    4   the/DET:det noun.works ( from/ADP:case LOC|org ):nmod
voice = he|she|everyone/PRON|PER|one.people
audience = us|me|them|everyone/PRON|PER|one.people
"""


@dataclass(eq=False, slots=True)
class Word:
    """A word of a sentence; `head` is None for the root"""

    form: str
    tag: str
    relation: str
    entity: str = "O"
    head: Word | None = None


class Part(NamedTuple):
    options: list[tuple[str, str]]  # the text before and after the slash; a bracket has no options
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

    def word(self, name: str) -> Any:
        """An entry of a list. In the split dev, half of the names are ones that never occur in train"""
        if name.startswith("name."):
            return self.pick(_names(name, self.chance(self.unseen)))
        return self.pick(WORDS[name])

    def text(self, rule: str) -> str:
        """A name as text, such as `PER`"""
        return " ".join(part.form for part in self.expand(rule) if isinstance(part, Word))

    def sentence(self, rule: str) -> list[Word]:
        """The words of a sentence with their tree, spelled as they should be; no word twice in a row"""
        while True:
            parts = self.expand(rule)
            words = [part for part in parts if isinstance(part, Word)]
            forms = spelled([word.form for word in words])
            if all(a.lower() != b.lower() for a, b in pairwise(forms)):
                break
        for word, form in zip(words, forms, strict=True):
            word.form = form
        _connect(parts)
        return words

    def expand(self, rule: str, relation: str = "") -> list[Word | str]:
        """Words, and brackets around the phrases: "(" before one, its relation after it"""
        ends, alternatives = _alternatives(rule)
        parts: list[Word | str] = ["("] if relation else []
        for part in alternatives[bisect(ends, self.random() * ends[-1])]:
            if part.chance == 1 or self.chance(part.chance):
                parts += self._part(part)
        if rule[:3] in ENTITIES:
            for number, word in enumerate(part for part in parts if isinstance(part, Word)):
                word.entity = f"{'I' if number else 'B'}-{rule[:3]}"
        return [*parts, relation] if relation else parts

    def _part(self, part: Part) -> list[Word | str]:
        if not part.options:
            return [part.relation]  # of a bracket
        name, form = self.pick(part.options)
        if form.isupper():
            return [Word(name, form, part.relation)]
        if name in WORDS:
            entry, kind = self.word(name), name.partition(".")[0]
            form = form or ("one" if kind == "noun" else "")
            return [Word(getattr(entry, form) if form else entry, TAGS.get(kind, "PROPN"), part.relation)]
        return self.expand(name[:-1] + self.pick(KINDS) if name.endswith("*") else name, part.relation)


def _connect(parts: list[Word | str]) -> None:
    """Gives every word its head: the word of its phrase that has no relation"""
    phrases: list[list[Word]] = [[]]
    for part in (*parts, "root"):
        if isinstance(part, Word):
            phrases[-1].append(part)
        elif part == "(":
            phrases.append([])
        else:
            phrase = phrases.pop()
            (head,) = (word for word in phrase if not word.relation)
            for word in phrase:
                word.head = None if word is head else head
            head.relation = part
            if phrases:
                phrases[-1].append(head)


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
    lines = [(weight, text.replace("$", argument).replace("~", opposite)) for weight, text in ALTERNATIVES[rule]]
    return list(accumulate(weight for weight, _ in lines)), [[*map(_parsed, text.split())] for _, text in lines]


def _parsed(token: str) -> Part:
    """`he|she/PRON|PER:nsubj?40` has three options: a part of speech is that of the words before it, too"""
    if token == "(":
        return Part([], "(", 1)
    token, _, chance = token.partition("?") if token != "?" else (token, "", "")
    body, _, relation = token.partition(":")
    if body == ")":
        return Part([], relation, 1)
    if body in tuple(",.!?"):
        body, relation = f"{body}/PUNCT", "punct"
    options: list[tuple[str, str]] = []
    form = ""
    for option in reversed(body.split("|")):
        name, _, own = option.partition("/")
        form = own or form
        options.insert(0, (name, form))
    return Part(options, relation, float(chance or 100) / 100)

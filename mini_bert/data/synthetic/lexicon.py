"""The words of the synthetic English, in lists by the place they can take in a sentence, and how they are inflected.

Irregular plurals are written child/children, irregular verbs write/wrote/written; the lists `same` join synonyms by a
bar. Many words are in two lists, so only the sentence shows what they are: `visit` and `cook` are nouns and verbs,
`cold` and `light` adjectives and nouns, `Florence` and `Jordan` people and places.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Noun(NamedTuple):
    one: str
    many: str


class Verb(NamedTuple):
    """to write, he writes, he wrote, he has written, he is writing"""

    base: str
    third: str
    past: str
    participle: str
    gerund: str


def noun(text: str) -> Noun:
    """
    >>> [noun(text).many for text in ("letter", "city", "box", "child/children")]
    ['letters', 'cities', 'boxes', 'children']
    """
    one, _, many = text.partition("/")
    return Noun(one, many or _with_s(one))


def verb(text: str) -> Verb:
    """
    >>> verb("carry")
    Verb(base='carry', third='carries', past='carried', participle='carried', gerund='carrying')
    >>> verb("write/wrote/written").gerund
    'writing'
    """
    base, *irregular = text.split("/")
    gerund = re.sub(r"(?<!e)e$", "", base) + "ing"
    regular = re.sub(r"(?<![aeiou])y$", "i", base).removesuffix("e") + "ed"
    past, participle = (irregular[0], irregular[-1]) if irregular else (regular, regular)
    return Verb(base, _with_s(base), past, participle, gerund)


def _with_s(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "o")) else "s")


LISTS = """
noun.people: teacher doctor farmer baker painter writer student lawyer nurse driver engineer singer pilot judge tailor
    gardener neighbor friend cousin sister brother child/children woman/women man/men guest visitor tourist cook guide
    guard patient native host coach
noun.food: soup cake dinner lunch pie orange apple sandwich salad meal omelette steak drink
noun.reading: letter report novel poem article essay diary message note story answer plan study script
noun.things: table chair lamp clock watch bicycle boat piano camera ladder box basket key coat ring map bottle umbrella
    toy tool plant light sign present
noun.animals: dog cat horse bird goat sheep/sheep cow rabbit duck
noun.buildings: garden park museum library school station market hotel church bridge village castle theater factory
    hospital farm
noun.events: meeting concert wedding play dance show visit walk lesson match race party trip
verb.people: meet/met call thank visit help teach/taught see/saw/seen hear/heard guide coach guard host watch judge
    nurse
verb.food: cook eat/ate/eaten buy/bought order taste share serve prepare sell/sold burn bring/brought
verb.reading: read/read/read write/wrote/written borrow publish translate finish study copy edit print discuss sign
    note notice answer
verb.things: repair carry sell/sold clean find/found lose/lost paint hide/hid/hidden break/broke/broken move store
    design plant present box light/lit
verb.animals: feed/fed wash follow watch train chase find/found guard guide
verb.buildings: visit leave/left describe photograph paint open close own guard
verb.events: attend watch host organize miss leave/left
verb.intransitive: sleep/slept laugh wait work sing/sang/sung dance smile rest talk play cook study walk
verb.motion: walk drive/drove/driven travel return go/went/gone ride/rode/ridden hurry
verb.giving: give/gave/given send/sent show/showed/shown lend/lent offer hand
verb.saying: say/said think/thought believe know/knew/known hope report explain answer promise
verb.wanting: want try decide refuse hope promise learn need like
adj.people: tall shy kind quiet busy tired hungry happy patient famous old young local foreign native
adj.food: small large hot cold fresh simple sweet salty dry light orange
adj.reading: long short open recent early old new final secret public
adj.things: small large heavy light cheap expensive clean dry empty broken old new round red
adj.animals: small large fast thin quiet hungry tired old young black white brown
adj.buildings: small large quiet cold clean dark empty open famous old new local public
adj.events: long short quiet early late last next final annual public secret
adj.state: tired ready hungry late happy busy afraid cold ill alone famous early
adv.manner: slowly quickly carefully quietly fast hard early late alone happily well
adv.frequency: often always sometimes usually rarely seldom still also never
day: Monday Tuesday Wednesday Thursday Friday Saturday Sunday
month: January February March April May June July August September October November December
name.first: Anna Ben Clara David Elena Frank Grace Henry Irene James Karen Leo Maria Nora Oscar Paula Rose Samuel
    Teresa Victor Mark Hope Will May April June Jordan Paris Chelsea Georgia Florence Victoria Austin Sydney Lincoln
    Bill Faith Olga Pedro Aisha Kenji Mei Omar Ingrid
name.last: Keller Marlow Finch Hadley Baker Cook Fisher Young Brown Rivers Stone Wood Field Marsh West Winter Long
    Price Moreno Okafor Tanaka Novak Petrov Singh Larsen Rossi Dubois Weber Costa Haddad Nakamura Kowalski Silva
    Ibrahim Park Bishop King Page Carpenter Mason Lane Banks Washington Lincoln
name.place: Paris London Florence Georgia Jordan Sydney Austin Lincoln Chelsea Victoria Rome Berlin Madrid Cairo Lima
    Oslo Kyoto Boston Toronto Vienna Washington Prague Dublin Lisbon Athens Delhi Nairobi Havana Quito Warsaw Norwick
    Ellery Tarling Brackwater Hollin Quarrow Selby Windlow Marrick Thornbury Calder Cork Bath Nice
name.company: Northern Global Apex Summit Pacific Silver Golden Central Atlantic Vertex Orion Meridian Beacon
company.kind: Airlines Motors Media Foods Press Energy Systems Pictures Insurance Railways Records
noun.works: film movie novel play comedy drama show book musical documentary thriller story
noun.parts: plot ending dialogue cast performance soundtrack opening acting music writing pace
noun.days: day week journey evening lesson meeting
adj.good: touching moving funny clever charming brilliant delightful wonderful gripping warm witty elegant fresh
    beautiful graceful lovely superb thrilling tender vivid original memorable
adj.bad: dull boring slow clumsy tedious awful dreadful terrible shallow predictable bland noisy lifeless pointless
    stale messy tiresome flat weak sloppy pretentious silly
noun.quality_good: charm wit warmth energy depth grace humor imagination style heart tension passion
noun.quality_bad: nonsense boredom vanity confusion clutter sloppiness emptiness carelessness dullness pretension
noun.thing_good: delight joy triumph pleasure treat gem masterpiece success wonder marvel
noun.thing_bad: mess failure bore disaster disappointment chore embarrassment nuisance letdown flop
verb.like_good: love enjoy admire like praise recommend adore treasure
verb.like_bad: hate dislike resent criticize detest mock loathe despise
verb.please_good: charm delight move amuse impress enchant thrill captivate
verb.please_bad: bore disappoint annoy tire confuse irritate offend exhaust
same.people: doctor|physician teacher|instructor writer|author cook|chef lawyer|attorney child|kid woman|lady soldier
    farmer sailor painter nurse thief|robber singer|vocalist neighbor
same.things: bicycle|bike car|automobile sofa|couch picture|photo boat lamp television|TV coat|jacket clock table
    gift|present ladder airplane|plane bag|sack rug|carpet
same.buildings: school park cinema|theater harbor|port church station market factory|plant woods|forest
same.deeds: buy/bought|purchase repair|mend|fix find/found|discover sell/sold paint hide/hid/hidden|conceal
    break/broke/broken|damage clean|wash build/built|construct lose/lost carry|transport photograph borrow
"""

TAGS = {"noun": "NOUN", "verb": "VERB", "adj": "ADJ", "adv": "ADV"}  # other lists hold proper nouns


def _read(lists: str) -> dict[str, list[Any]]:
    entries: dict[str, list[Any]] = {}
    for name, words in re.findall(r"^([\w.]+): (.*(?:\n +.*)*)", lists, re.MULTILINE):
        make = {"noun": noun, "verb": verb}.get(name.partition(".")[0], str)
        entries[name] = [make(word) for word in words.split()]
    return entries


WORDS = _read(LISTS)  # for example WORDS["noun.people"], WORDS["adj.good"]

"""The words of the synthetic English, grouped by the place they can take in a sentence, and how they are inflected.

Nouns with an irregular plural are written child/children; irregular verbs write/wrote/written; a * doubles the last
letter (plan*, planned); the lists `same` join synonyms by a bar. Many words are in two lists, so only the sentence
shows what they are: `visit`, `train` and `cook` are nouns and verbs, `cold` and `light` adjectives and nouns,
`Florence` and `Jordan` people and places.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

VOWEL_SOUND = re.compile(r"(?i)(?!uni|use|usual|one|eu)[aeiou]|hour|honest")  # an hour, a useful hour


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
    >>> verb("write/wrote/written").gerund, verb("plan*").past
    ('writing', 'planned')
    """
    base, *irregular = text.split("/")
    stem = base[:-1] + base[-2] if base.endswith("*") else base
    base = base.rstrip("*")
    if base.endswith("e") and not base.endswith("ee"):
        gerund, past = base[:-1] + "ing", base + "d"
    elif re.search(r"[^aeiou]y$", base):
        gerund, past = base + "ing", base[:-1] + "ied"
    else:
        gerund, past = stem + "ing", stem + "ed"
    past, participle = (irregular[0], irregular[-1]) if irregular else (past, past)
    return Verb(base, base + "es" if base.endswith("o") else _with_s(base), past, participle, gerund)


def _with_s(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "z")) else "s")


LISTS = """
noun.people: teacher doctor farmer baker painter writer student lawyer nurse driver engineer singer pilot judge tailor
    gardener librarian neighbor friend cousin sister brother mother father uncle aunt child/children woman/women
    man/men guest visitor tourist worker owner manager editor poet soldier sailor stranger customer cook guide guard
    patient native official professional host coach
noun.food: soup cake dinner lunch pie orange apple sandwich salad meal dish omelette steak drink stew pancake
    breakfast
noun.reading: letter report novel poem article essay diary message note story answer plan study script speech notice
    book
noun.things: table chair lamp clock watch bicycle boat piano camera ladder box basket key door window fence roof
    engine radio coat ring map bottle umbrella toy tool plant stone light sign present shirt violin knife/knives
    picture
noun.animals: dog cat horse bird goat sheep/sheep cow rabbit duck
noun.buildings: garden park museum library school station market hotel church bridge harbor village castle theater
    factory hospital farm store office kitchen airport cinema bakery workshop
noun.events: meeting concert wedding play dance show visit walk lesson match race party trip exam sale
noun.abstract: idea problem question decision secret rule promise price change result
noun.weather: rain snow fog cold dark noise wind heat storm
noun.vehicles: train bus car taxi ship plane ferry tram truck
noun.times: yesterday today tonight
verb.people: meet/met call thank visit help teach/taught follow remember invite see/saw/seen hear/heard guide coach
    guard host watch question train
verb.food: cook eat/ate/eaten buy/bought order taste share serve prepare sell/sold burn bring/brought
verb.reading: read/read/read write/wrote/written borrow publish translate finish study copy file edit print discuss
    sign
verb.things: repair carry sell/sold clean find/found lose/lost paint hide/hid/hidden break/broke/broken buy/bought
    move store ship* design
verb.animals: feed/fed wash follow watch train chase find/found sell/sold
verb.buildings: visit leave/left describe photograph paint open close own clean guard
verb.events: plan* attend watch host organize miss leave/left
verb.abstract: discuss explain keep/kept forget/forgot/forgotten understand/understood mention notice change
verb.intransitive: sleep/slept laugh wait work sing/sang/sung dance smile rest talk play cook study walk
    swim*/swam/swum travel write/wrote/written read/read/read paint drink/drank/drunk
verb.motion: walk drive/drove/driven travel return run*/ran/run go/went/gone ride/rode/ridden come/came/come hurry
verb.giving: give/gave/given send/sent show/showed/shown lend/lent offer bring/brought sell/sold hand
verb.saying: say/said think/thought believe know/knew/known hope report explain answer promise write/wrote/written
verb.wanting: want try decide plan* begin*/began/begun refuse hope promise learn need like
verb.happening: begin*/began/begun end start stop* continue
verb.work: work write/wrote/written cook
verb.trade: buy/bought praise advise pay/paid help join trust
verb.build: open close buy/bought build/built sell/sold own
verb.away: put*/put/put throw/threw/thrown
verb.up: pick look
verb.off: call
adj.people: tall shy kind quiet busy tired hungry happy patient famous old young local foreign native
adj.food: small large hot cold fresh simple sweet salty dry light orange
adj.reading: long short open recent early old new final secret public
adj.things: small large heavy light cheap expensive clean dry empty broken old new round red green blue black white
    wooden
adj.animals: small large fast thin quiet hungry tired old young black white brown
adj.buildings: small large quiet cold clean dark empty open famous old new local public
adj.events: long short quiet early late last next final annual public secret
adj.abstract: simple difficult strange important early old new main final secret
adj.state: tired ready hungry late happy busy afraid cold open empty full ill alone famous early
adv.manner: slowly quickly carefully quietly fast hard early late alone happily well
adv.frequency: often always sometimes usually rarely seldom still also never
adv.opener: then later suddenly finally meanwhile again
adv.degree: very quite rather really so
num.count: two three four five six seven eight nine ten twelve twenty
day.name: Monday Tuesday Wednesday Thursday Friday Saturday Sunday
month.name: January February March April May June July August September October November December
modal: can could will would may might should must
prep.place: in near behind outside inside beside
name.first: Anna Ben Clara David Elena Frank Grace Henry Irene James Karen Leo Maria Nora Oscar Paula Rose Samuel
    Teresa Victor Mark Hope Will May April June Jordan Paris Chelsea Georgia Florence Victoria Austin Sydney Lincoln
    Bill Faith Jack Olga Pedro Aisha Kenji Mei Omar Priya Luis Ingrid Tomas Yuki Fatima Ravi Sofia Hugo Amara Dmitri
    Leila Nadia Felix Stella Martin Julia Peter Helen Simon Alice Daniel Emma Robert
name.last: Keller Marlow Finch Hadley Baker Cook Fisher Young Brown Rivers Stone Wood Field Marsh West Winter Long
    Price Moreno Okafor Tanaka Novak Petrov Singh Larsen Rossi Dubois Weber Costa Haddad Nakamura Andersson Kowalski
    Silva Ibrahim Park Bishop King Page Carpenter Mason Lane Banks Walsh Hale Doyle Ferris Quill Thorne Ashby Barlow
    Crane Dalton Ellis Farrow Grant Holt Ivers Jarvis Kemp Washington Lincoln
name.place: Paris London Florence Georgia Jordan Sydney Austin Lincoln Chelsea Victoria Rome Berlin Madrid Cairo Lima
    Oslo Kyoto Boston Toronto Vienna Washington Prague Dublin Lisbon Athens Delhi Nairobi Havana Quito Warsaw Norwick
    Ellery Ostrava Tarling Brackwater Hollin Quarrow Selby Windlow Marrick Thornbury Calder Ashford Pellham Dunmore
    Wexley Aldburn Corvale Hartsea Linmouth Ravenna Tromso Bergen Cork Bath Reading Derby Nice
name.company: Northern Global Apex Summit Pacific Silver Golden Central Atlantic Vertex Orion Meridian Beacon Pioneer
    Delta Falcon Cedar Granite Horizon Nova
company.kind: Airlines Motors Media Foods Press Energy Systems Pictures Insurance Railways Records Brothers
institute: University Museum Hospital College Library Institute Theater Orchestra
noun.works: film movie novel play comedy drama series/series show book musical documentary thriller story script
    sequel production
noun.parts: plot ending dialogue cast performance soundtrack opening acting music humor writing pace
noun.several_parts: scene character joke song costume performance actor dialogue
noun.days: day week journey evening lesson meeting
noun.critics: critic viewer reader
noun.audience: audience crowd jury
adj.good: touching moving funny clever charming brilliant delightful wonderful gripping warm witty elegant fresh
    beautiful honest graceful lovely superb thrilling tender vivid original memorable sharp playful splendid excellent
    fascinating refreshing rewarding heartfelt polished stunning satisfying enjoyable subtle intelligent lively
    convincing remarkable
adj.bad: dull boring slow clumsy tedious awful dreadful terrible shallow predictable bland noisy lifeless pointless
    stale messy tiresome flat weak sloppy pretentious silly forgettable disappointing ugly hollow ridiculous wooden
    annoying painful monotonous dreary lazy crude poor mediocre careless stiff confusing shabby
noun.quality_good: charm wit warmth energy depth grace humor imagination style heart tension rhythm passion skill
noun.quality_bad: flaws cliches mistakes weaknesses gaps errors faults contradictions blunders platitudes
noun.thing_good: delight joy triumph pleasure treat gem masterpiece success wonder marvel
noun.thing_bad: mess failure bore disaster disappointment chore embarrassment nuisance letdown flop
verb.like_good: love enjoy admire like praise recommend adore treasure
verb.like_bad: hate dislike regret criticize detest resent mock loathe
verb.please_good: charm delight move amuse impress enchant thrill captivate
verb.please_bad: bore disappoint annoy tire confuse irritate offend exhaust
verb.lack: lack
verb.fail: fail
verb.find: find/found
adj.neutral: new latest first second long short little whole
adv.intensifier: very really truly deeply remarkably quite extremely
same.people: doctor|physician teacher|instructor writer|author cook|chef lawyer|attorney child|kid woman|lady soldier
    farmer sailor painter nurse thief|robber singer|vocalist neighbor policeman|cop tourist|traveler student|pupil judge
    gardener
same.things: bicycle|bike car|automobile sofa|couch picture|photo boat house|home lamp television|TV coat|jacket clock
    table gift|present ladder airplane|plane bag|sack rug|carpet piano store|shop rock|stone mug|cup
same.buildings: school park cinema|theater harbor|port church station market factory|plant woods|forest
same.done_to_people: call|phone help|assist teach/taught|instruct meet/met thank follow watch|observe photograph invite
    choose/chose/chosen|select warn remember
same.done_to_things: buy/bought|purchase repair|mend|fix find/found|discover sell/sold paint hide/hid/hidden|conceal
    break/broke/broken|damage clean|wash build/built|construct lose/lost carry|transport choose/chose/chosen|select
    photograph borrow
"""

TAGS = {"noun": "NOUN", "verb": "VERB", "adj": "ADJ", "adv": "ADV", "num": "NUM", "prep": "ADP", "modal": "AUX"}
# every other list holds proper nouns


def _read(lists: str) -> dict[str, list[Any]]:
    entries: dict[str, list[Any]] = {}
    for name, words in re.findall(r"^([\w.]+): (.*(?:\n +.*)*)", lists, re.MULTILINE):
        make = {"noun": noun, "verb": verb}.get(name.partition(".")[0], str)
        entries[name] = [make(word) for word in words.split()]
    return entries


WORDS = _read(LISTS)  # for example WORDS["noun.people"], WORDS["adj.good"]

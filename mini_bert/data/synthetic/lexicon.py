"""The words of the synthetic English: several hundred, sorted by what can stand where.

A noun is written with its plural where that is not regular (child/children); a verb with its past and participle where
these are not (write/wrote/written). `plural` and `forms` make the rest. Many words stand in two lists, so that only the
sentence tells what they are: `visit`, `train` and `cook` are nouns and verbs, `cold` and `light` are adjectives and
nouns, `fast` is an adjective and an adverb, `Florence` and `Jordan` are people and places.
"""

from __future__ import annotations

import re
from typing import NamedTuple

VOWEL_SOUND = re.compile(r"(?i)(?!uni|use|usual|one|eu)[aeiou]|hour|honest")  # an honest man, a useful hour, an hour


class Forms(NamedTuple):
    """The five forms of a verb: to write, he writes, he wrote, he has written, he is writing"""

    base: str
    third: str
    past: str
    participle: str
    gerund: str


def plural(noun: str) -> str:
    """
    >>> plural("letter"), plural("city"), plural("box"), plural("child/children")
    ('letters', 'cities', 'boxes', 'children')
    """
    singular, _, own = noun.partition("/")
    return own or _with_s(singular)


def _with_s(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh", "z")) else "s")


def forms(verb: str) -> Forms:
    """A * doubles the last letter: plan*, planned, planning.

    >>> forms("carry")
    Forms(base='carry', third='carries', past='carried', participle='carried', gerund='carrying')
    >>> forms("write/wrote/written").gerund, forms("plan*").past
    ('writing', 'planned')
    """
    base, *own = verb.split("/")
    double = base.endswith("*")
    base = base.rstrip("*")
    stem = base + base[-1] if double else base
    if base.endswith("e") and not base.endswith("ee"):
        gerund, past = base[:-1] + "ing", base + "d"
    elif re.search(r"[^aeiou]y$", base):
        gerund, past = base + "ing", base[:-1] + "ied"
    else:
        gerund, past = stem + "ing", stem + "ed"
    past, participle = (own[0], own[-1]) if own else (past, past)
    return Forms(base, base + "es" if base.endswith("o") else _with_s(base), past, participle, gerund)


def _nouns(text: str) -> list[tuple[str, str]]:
    return [(noun.partition("/")[0], plural(noun)) for noun in text.split()]


def _words(text: str) -> list[str]:
    return text.split()


def _verbs(text: str) -> list[Forms]:
    return [forms(verb) for verb in text.split()]


# --- people, things, places --------------------------------------------------------------------------------

PEOPLE = _nouns("""
    teacher doctor farmer baker painter writer student lawyer nurse driver engineer singer pilot judge tailor gardener
    librarian neighbor friend cousin sister brother mother father uncle aunt child/children woman/women man/men guest
    visitor tourist worker owner manager editor poet soldier sailor stranger customer cook guide guard patient native
    official professional host coach
""")
FOOD = _nouns("""
    soup cake dinner lunch pie orange apple sandwich salad meal dish omelette steak drink stew pancake breakfast
""")
READING = _nouns("""
    letter report novel poem article essay diary message note story answer plan study script speech notice book
""")
THINGS = _nouns("""
    table chair lamp clock watch bicycle boat piano camera ladder box basket key door window fence roof engine radio
    coat ring map bottle umbrella toy tool plant stone light sign present shirt violin knife/knives picture
""")
ANIMALS = _nouns("dog cat horse bird goat sheep/sheep cow rabbit duck")
BUILDINGS = _nouns("""
    garden park museum library school station market hotel church bridge harbor village castle theater factory hospital
    farm store office kitchen airport cinema bakery workshop
""")
EVENTS = _nouns("meeting concert wedding play dance show visit walk lesson match race party trip exam sale")
ABSTRACT = _nouns("idea problem question decision secret rule promise price change result")
WEATHER = _words("rain snow fog cold dark noise wind heat storm")
VEHICLES = _words("train bus car taxi ship plane ferry tram truck")

# --- verbs, by what they need ------------------------------------------------------------------------------

TRANSITIVE = {  # by what their object is; the subject is a person
    "people": _verbs("""
        meet/met call thank visit help teach/taught follow remember invite see/saw/seen hear/heard guide coach guard
        host watch question train
    """),
    "food": _verbs("cook eat/ate/eaten buy/bought order taste share serve prepare sell/sold burn bring/brought"),
    "reading": _verbs("""
        read/read/read write/wrote/written borrow publish translate finish study copy file edit print discuss sign
    """),
    "things": _verbs("""
        repair carry sell/sold clean find/found lose/lost paint hide/hid/hidden break/broke/broken buy/bought move store
        ship* design
    """),
    "animals": _verbs("feed/fed wash follow watch train chase find/found sell/sold"),
    "buildings": _verbs("visit leave/left describe photograph paint open close own clean guard"),
    "events": _verbs("plan* attend watch host organize miss leave/left"),
    "abstract": _verbs("discuss explain keep/kept forget/forgot/forgotten understand/understood mention notice change"),
}
OBJECTS = {
    **{"people": PEOPLE, "food": FOOD, "reading": READING, "things": THINGS, "animals": ANIMALS},
    **{"buildings": BUILDINGS, "events": EVENTS, "abstract": ABSTRACT},
}
INTRANSITIVE = _verbs("""
    sleep/slept laugh wait work sing/sang/sung dance smile rest talk play cook study walk swim*/swam/swum travel
    write/wrote/written read/read/read paint drink/drank/drunk
""")
MOTION = _verbs("walk drive/drove/driven travel return run*/ran/run go/went/gone ride/rode/ridden come/came/come hurry")
GIVING = _verbs("give/gave/given send/sent show/showed/shown lend/lent offer bring/brought sell/sold hand")
SAYING = _verbs("say/said think/thought believe know/knew/known hope report explain answer promise write/wrote/written")
WANTING = _verbs("want try decide plan* begin*/began/begun refuse hope promise learn need like")
HAPPENING = _verbs("begin*/began/begun end start stop* continue")  # what events do
PARTICLE_VERBS = [  # and what is picked up, put away, …
    (forms("pick"), "up", "things"),
    (forms("put*/put/put"), "away", "things"),
    (forms("throw/threw/thrown"), "away", "things"),
    (forms("take/took/taken"), "down", "things"),
    (forms("look"), "up", "abstract"),
    (forms("write/wrote/written"), "down", "abstract"),
    (forms("carry"), "out", "abstract"),
    (forms("call"), "off", "events"),
]

# --- what describes them -----------------------------------------------------------------------------------

ADJECTIVES = {  # two of them stand in this order: size, quality, age, color, kind
    "people": _words("""
        tall shy kind quiet busy tired hungry happy patient famous old young local foreign native
    """),
    "food": _words("small large hot cold fresh simple sweet salty dry light orange"),
    "reading": _words("long short open recent early old new final secret public"),
    "things": _words("""
        small large heavy light cheap expensive clean dry empty broken old new round red green blue black white wooden
    """),
    "animals": _words("small large fast thin quiet hungry tired old young black white brown"),
    "buildings": _words("small large quiet cold clean dark empty open famous old new local public"),
    "events": _words("long short quiet early late last next final annual public secret"),
    "abstract": _words("simple difficult strange important early old new main final secret"),
}
NOT_GRADED = {  # nothing is very final
    *_words("local foreign native orange open final secret public empty broken round wooden last next annual main"),
    *_words("red green blue black white brown"),
}
MANNER = _words("slowly quickly carefully quietly fast hard early late alone happily well")
FREQUENCY = _words("often always sometimes usually rarely seldom still also never")  # before the verb
OPENERS = _words("then later suddenly finally meanwhile again")
TIMES = _words("yesterday today tonight")  # nouns, in Universal Dependencies
DEGREES = _words("very quite rather really so")
COMPLEMENTS = _words("tired ready hungry late happy busy afraid cold open empty full ill alone famous early")
NUMBERS = _words("two three four five six seven eight nine ten twelve twenty")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _words("January February March April May June July August September October November December")
MODALS = _words("can could will would may might should must")
PLACE_PREPOSITIONS = _words("in near behind outside inside beside")

# --- names -------------------------------------------------------------------------------------------------

FIRST_NAMES = _words("""
    Anna Ben Clara David Elena Frank Grace Henry Irene James Karen Leo Maria Nora Oscar Paula Rose Samuel Teresa Victor
    Mark Hope Will May April June Jordan Paris Chelsea Georgia Florence Victoria Austin Sydney Lincoln Bill Faith Jack
    Olga Pedro Aisha Kenji Mei Omar Priya Luis Ingrid Tomas Yuki Fatima Ravi Sofia Hugo Amara Dmitri Leila Nadia Felix
    Stella Martin Julia Peter Helen Simon Alice Daniel Emma Robert
""")
SURNAMES = _words("""
    Keller Marlow Finch Hadley Baker Cook Fisher Young Brown Rivers Stone Wood Field Marsh West Winter Long Price Moreno
    Okafor Tanaka Novak Petrov Singh Larsen Rossi Dubois Weber Costa Haddad Nakamura Andersson Kowalski Silva Ibrahim
    Park Bishop King Page Carpenter Mason Lane Banks Walsh Hale Doyle Ferris Quill Thorne Ashby Barlow Crane Dalton
    Ellis Farrow Grant Holt Ivers Jarvis Kemp Washington Lincoln
""")
PLACES = _words("""
    Paris London Florence Georgia Jordan Sydney Austin Lincoln Chelsea Victoria Rome Berlin Madrid Cairo Lima Oslo Kyoto
    Boston Toronto Vienna Washington Prague Dublin Lisbon Athens Delhi Nairobi Havana Quito Warsaw Norwick Ellery
    Ostrava Tarling Brackwater Hollin Quarrow Selby Windlow Marrick Thornbury Calder Ashford Pellham Dunmore Wexley
    Aldburn Corvale Hartsea Linmouth Ravenna Tromso Bergen Cork Bath Reading Derby Nice
""")
COMPANY_STEMS = _words("""
    Northern Global Apex Summit Pacific Silver Golden Central Atlantic Vertex Orion Meridian Beacon Pioneer Delta Falcon
    Cedar Granite Horizon Nova
""")
COMPANY_KINDS = _words("Airlines Motors Media Foods Press Energy Systems Pictures Insurance Railways Records Brothers")
INSTITUTES = _words("University Museum Hospital College Library Institute Theater Orchestra")
OF_INSTITUTES = _words("University Bank Museum")

# --- opinions ----------------------------------------------------------------------------------------------

WORKS = _nouns("""
    film movie novel play comedy drama series/series show book musical documentary thriller story script sequel
    production
""")
PARTS = _words("plot ending dialogue cast performance soundtrack opening acting music humor writing pace")
SEVERAL_PARTS = _words("scenes characters jokes songs costumes performances actors dialogues")
GOOD = _words("""
    touching moving funny clever charming brilliant delightful wonderful gripping warm witty elegant fresh beautiful
    honest graceful lovely superb thrilling tender vivid original memorable sharp playful splendid excellent fascinating
    refreshing rewarding heartfelt polished stunning satisfying enjoyable subtle intelligent lively convincing
    remarkable
""")
BAD = _words("""
    dull boring slow clumsy tedious awful dreadful terrible shallow predictable bland noisy lifeless pointless stale
    messy tiresome flat weak sloppy pretentious silly forgettable disappointing ugly hollow ridiculous wooden annoying
    painful monotonous dreary lazy crude poor mediocre careless stiff confusing shabby
""")
GOOD_QUALITIES = _words(
    "charm wit warmth energy depth grace humor imagination style heart tension rhythm passion skill"
)
BAD_QUALITIES = _words("flaws cliches mistakes weaknesses gaps errors faults contradictions blunders platitudes")
GOOD_THINGS = _words("delight joy triumph pleasure treat gem masterpiece success wonder marvel")
BAD_THINGS = _words("mess failure bore disaster disappointment chore embarrassment nuisance letdown flop")
LIKING = _verbs("love enjoy admire like praise recommend adore treasure")
DISLIKING = _verbs("hate dislike regret criticize detest resent mock loathe")
PLEASING = _verbs("charm delight move amuse impress enchant thrill captivate")
DISPLEASING = _verbs("bore disappoint annoy tire confuse irritate offend exhaust")
NEUTRAL = _words("new latest first second long short little whole")  # what a work may be without praise or blame
INTENSIFIERS = _words("so very really truly deeply remarkably quite extremely")  # the first only behind a verb

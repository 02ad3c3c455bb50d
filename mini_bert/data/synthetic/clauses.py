"""Sentences of the synthetic English that report and ask, without an opinion: who does what, where, when and why."""

from __future__ import annotations

from collections.abc import Callable

from mini_bert.data.synthetic import lexicon
from mini_bert.data.synthetic.grammar import BE, DO, Grammar, Phrase, Word

SIMPLE = ("past", "past", "present")
KINDS = ("people", "food", "reading", "things", "animals", "buildings", "events", "abstract")


def report(g: Grammar) -> Phrase:
    """A sentence without its full stop: a clause or two, or a question; the mark at its end belongs to its kind"""
    kind = g.random()
    if kind < 0.58:
        return _ended(clause(g), ".")
    if kind < 0.68:
        return _ended(subordinated(g), ".")
    if kind < 0.78:
        return _ended(joined(g, "and" if g.chance(0.6) else g.pick(("but", "so", "or"))), ".")
    if kind < 0.86:
        return _ended(opened(g), ".")
    if kind < 0.95:
        return _ended(yes_no_question(g) if g.chance(0.5) else question(g), "?")
    return _ended(request(g), g.pick(".!"))


def clause(g: Grammar) -> Phrase:
    return g.pick(CLAUSES)(g)


def _ended(phrase: Phrase, mark: str) -> Phrase:
    return Phrase([*phrase.words, Word(mark, "PUNCT", "punct", phrase.head)], phrase.head)


# --- one clause --------------------------------------------------------------------------------------------


def transitive(g: Grammar, more: float = 0.5) -> Phrase:
    """Anna often repaired the old clock in the kitchen"""
    who = g.subject()
    kind = g.pick(KINDS)
    before, verb = g.verb(g.pick(lexicon.TRANSITIVE[kind]), who.who)
    what = g.anybody() if kind == "people" else g.noun_phrase(kind)
    after = g.adjunct(verb) if g.chance(more) else []
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *what.under(verb, "obj"), *after], verb)


def intransitive(g: Grammar) -> Phrase:
    """The neighbors were dancing in the rain on Monday"""
    who = g.subject()
    before, verb = g.verb(g.pick(lexicon.INTRANSITIVE), who.who)
    kind = g.random()
    if kind < 0.12:  # they danced like children
        after = g.with_preposition("like", g.noun_phrase("people", 0, indefinite=True)).under(verb, "obl")
    else:
        after = g.adjunct(verb) if kind < 0.8 else []
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *after], verb)


def motion(g: Grammar) -> Phrase:
    """She traveled to Norwick by train"""
    who = g.subject()
    before, verb = g.verb(g.pick(lexicon.MOTION), who.who)
    where = g.place() if g.chance(0.5) else g.noun_phrase("buildings", 0)
    way = g.with_preposition(g.pick(("to", "to", "from", "through", "into")), where).under(verb, "obl")
    after = g.adjunct(verb, motion=True) if g.chance(0.6) else []
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *way, *after], verb)


def giving(g: Grammar) -> Phrase:
    """Ben sent his sister a letter; Ben sent a letter to his sister"""
    who, whom = g.subject(), g.anybody(0)
    before, verb = g.verb(g.pick(lexicon.GIVING), who.who)
    what = g.noun_phrase(g.pick(("reading", "things", "food")), 0, indefinite=g.chance(0.6))
    if g.chance(0.5):
        gift = [*whom.under(verb, "iobj"), *what.under(verb, "obj")]
    else:
        gift = [*what.under(verb, "obj"), *g.with_preposition("to", whom).under(verb, "obl")]
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *gift], verb)


def saying(g: Grammar) -> Phrase:
    """The guard said that the ferry had left"""
    who = g.subject(0) if g.chance(0.85) else g.organisation()
    before, verb = g.verb(g.pick(lexicon.SAYING), who.who, SIMPLE)
    said = g.pick((transitive, intransitive, motion, being, happening))(g)
    mark = [Word("that", "SCONJ", "mark", said.head)] if g.chance(0.75) and said.words[0].form != "that" else []
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *mark, *said.under(verb, "ccomp")], verb)


def wanting(g: Grammar) -> Phrase:
    """We plan to visit Norwick"""
    who = g.subject()
    before, verb = g.verb(g.pick(lexicon.WANTING), who.who, SIMPLE)
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *infinitive(g).under(verb, "xcomp")], verb)


def infinitive(g: Grammar) -> Phrase:
    """to read a novel, to travel to Norwick"""
    if g.chance(0.3):
        verb = Word(g.pick(lexicon.MOTION).base, "VERB")
        rest = g.with_preposition("to", g.place()).under(verb, "obl")
    else:
        kind = g.pick(KINDS)
        verb = Word(g.pick(lexicon.TRANSITIVE[kind]).base, "VERB")
        rest = (g.anybody(0) if kind == "people" else g.noun_phrase(kind, 0)).under(verb, "obj")
    return Phrase([Word("to", "PART", "mark", verb), verb, *rest], verb)


def being(g: Grammar) -> Phrase:
    """Anna is a painter; the kitchen was very cold; my uncle is in Norwick"""
    kind = g.random()
    if kind < 0.4:
        who = g.subject()
        what = Word(g.pick(lexicon.COMPLEMENTS), "ADJ")
        degree = [Word(g.pick(lexicon.DEGREES), "ADV", "advmod", what)] if g.chance(0.3) else []
        complement = Phrase([*degree, what], what)
    elif kind < 0.65:
        who = g.person() if g.chance(0.7) else g.pronoun()
        what = Word(g.pick(lexicon.PEOPLE)[who.who == "they"], "NOUN")
        article = [] if who.who == "they" else [Word("a", "DET", "det", what)]
        adjective = g.pick(lexicon.ADJECTIVES["people"])
        described = [Word(adjective, "ADJ", "amod", what)] if g.chance(0.4) else []
        complement = Phrase([*article, *described, what], what)
    elif kind < 0.85:
        who = g.subject()
        complement = g.where()
    else:
        who = g.noun_phrase(g.pick(("things", "buildings", "food")))
        domain = "buildings" if (who.head.form, who.head.form + "s") in lexicon.BUILDINGS else "things"
        what = Word(g.pick(lexicon.ADJECTIVES[domain]), "ADJ")
        complement = Phrase([what], what)
    head = complement.head
    copula = g.copula(head, who.who, negative=g.chance(0.12))
    return Phrase([*who.under(head, "nsubj"), *copula, *complement.words], head)


def existing(g: Grammar) -> Phrase:
    """There were three boats near the bridge"""
    what = g.noun_phrase(g.pick(("people", "things", "animals", "food")), 0, indefinite=True)
    verb = Word(g.pick(BE)[what.who], "VERB")
    there = Word("there", "PRON", "expl", verb)
    return Phrase([there, verb, *what.under(verb, "nsubj"), *g.where().under(verb, "obl")], verb)


def having(g: Grammar) -> Phrase:
    """Paula has two dogs"""
    who = g.subject()
    verb = Word("had" if g.chance(0.4) else "has" if who.who == "he" else "have", "VERB")
    what = g.noun_phrase(g.pick(("things", "animals", "abstract")), indefinite=True)
    return Phrase([*who.under(verb, "nsubj"), verb, *what.under(verb, "obj")], verb)


def passive(g: Grammar) -> Phrase:
    """The letter was written by Anna in May"""
    kind = g.pick(KINDS[1:])
    what = g.noun_phrase(kind)
    verb = Word(g.pick(lexicon.TRANSITIVE[kind]).participle, "VERB")
    auxiliary = g.auxiliary(g.pick(BE)[what.who], g.chance(0.1), verb, "aux:pass")
    agent = g.person() if g.chance(0.5) else g.organisation() if g.chance(0.3) else g.noun_phrase("people", 0)
    by = g.with_preposition("by", agent).under(verb, "obl:agent") if g.chance(0.6) else []
    after = g.when().under(verb, "obl") if g.chance(0.4) else []
    return Phrase([*what.under(verb, "nsubj:pass"), *auxiliary, verb, *by, *after], verb)


def happening(g: Grammar) -> Phrase:
    """The concert in Norwick began late"""
    what = g.noun_phrase("events")
    before, verb = g.verb(g.pick(lexicon.HAPPENING), what.who)
    adverb = Word(g.pick(("early", "late", "suddenly", "slowly")), "ADV", "advmod", verb)
    after = [adverb] if g.chance(0.5) else g.when().under(verb, "obl")
    return Phrase([*what.under(verb, "nsubj"), *before, verb, *after], verb)


def with_particle(g: Grammar) -> Phrase:
    """He picked the basket up; he picked up the basket"""
    who = g.subject()
    forms, particle, kind = g.pick(lexicon.PARTICLE_VERBS)
    before, verb = g.verb(forms, who.who)
    up = Word(particle, "ADP", "compound:prt", verb)
    what = g.noun_phrase(kind, 0).under(verb, "obj")
    after = [up, *what] if g.chance(0.6) else [*what, up]
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *after], verb)


def working(g: Grammar) -> Phrase:
    """Clara Finch works for Apex Motors in Norwick"""
    who = g.person() if g.chance(0.8) else g.noun_phrase("people", 0)
    forms = g.pick((lexicon.forms("work"), lexicon.forms("write/wrote/written"), lexicon.forms("cook")))
    before, verb = g.verb(forms, who.who)
    employer = g.with_preposition("for", g.organisation()).under(verb, "obl")
    where = g.with_preposition("in", g.place()).under(verb, "obl") if g.chance(0.5) else []
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *employer, *where], verb)


def trading(g: Grammar) -> Phrase:
    """Apex Motors bought the Bank of Norwick in 1987; Marlow & Finch opened an office in Oslo"""
    who = g.organisation()
    if g.chance(0.4):
        before, verb = g.verb(g.pick(TRADE), who.who, SIMPLE)
        what = g.organisation()
    else:
        before, verb = g.verb(g.pick(OPENING), who.who, SIMPLE)
        what = g.noun_phrase("buildings", 0, indefinite=True)
    after = (g.when() if g.chance(0.5) else g.with_preposition("in", g.place())).under(verb, "obl")
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *what.under(verb, "obj"), *after], verb)


TRADE = [lexicon.forms(verb) for verb in ("buy/bought", "praise", "advise", "pay/paid", "help", "join", "trust")]
OPENING = [lexicon.forms(verb) for verb in ("open", "close", "buy/bought", "build/built", "sell/sold", "own")]
CLAUSES: tuple[Callable[[Grammar], Phrase], ...] = (
    *(transitive, transitive, transitive, transitive, intransitive, intransitive, motion, giving, saying, saying),
    *(wanting, wanting, being, being, being, existing, having, passive, passive, happening, with_particle, working),
    *(working, trading, trading),
)
UNDATED = (giving, wanting, having, with_particle, lambda g: transitive(g, 0.0))  # a time may stand before these

# --- clauses in company ------------------------------------------------------------------------------------


def subordinated(g: Grammar) -> Phrase:
    """When the rain stopped, we walked home; we waited until the rain stopped"""
    main = clause(g)
    minor = g.pick((transitive, intransitive, motion, being, happening))(g)
    mark = g.pick(("because", "when", "while", "if", "before", "after", "until", "since"))
    words = [Word(mark, "SCONJ", "mark", minor.head), *minor.under(main.head, "advcl")]
    if g.chance(0.4):
        return Phrase([*words, Word(",", "PUNCT", "punct", main.head), *main.words], main.head)
    return Phrase([*main.words, *words], main.head)


def joined(g: Grammar, conjunction: str) -> Phrase:
    """Anna cooked dinner, and Ben read a novel"""
    first, second = clause(g), clause(g)
    comma = Word(",", "PUNCT", "punct", second.head)
    cc = Word(conjunction, "CCONJ", "cc", second.head)
    return Phrase([*first.words, comma, cc, *second.under(first.head, "conj")], first.head)


def opened(g: Grammar) -> Phrase:
    """In 1987, Anna bought a boat; suddenly, he gave her a key"""
    main = g.pick(UNDATED)(g)
    head = main.head
    if g.chance(0.4):
        opener = [Word(g.pick(lexicon.OPENERS), "ADV", "advmod", head)]
    else:
        opener = (g.when() if g.chance(0.7) else g.where()).under(head, "obl")
    return Phrase([*opener, Word(",", "PUNCT", "punct", head), *main.words], head)


def yes_no_question(g: Grammar) -> Phrase:
    """Did Anna visit Norwick? Can you repair this clock?"""
    who = g.subject(0)
    kind = g.pick(KINDS)
    verb = Word(g.pick(lexicon.TRANSITIVE[kind]).base, "VERB")
    first = Word(g.pick(("did", DO[who.who], *lexicon.MODALS[:4])), "AUX", "aux", verb)
    what = g.anybody(0) if kind == "people" else g.noun_phrase(kind, 0)
    return Phrase([first, *who.under(verb, "nsubj"), verb, *what.under(verb, "obj")], verb)


def question(g: Grammar) -> Phrase:
    """Where did Anna find the key? Who wrote this letter?"""
    kind = g.pick(KINDS[1:])
    forms = g.pick(lexicon.TRANSITIVE[kind])
    what = g.noun_phrase(kind, 0)
    if g.chance(0.3):
        verb = Word(forms.past, "VERB")
        return Phrase([Word("who", "PRON", "nsubj", verb), verb, *what.under(verb, "obj")], verb)
    who = g.subject(0)
    verb = Word(forms.base, "VERB")
    asked = Word(g.pick(("where", "when", "why", "how")), "ADV", "advmod", verb)
    auxiliary = Word(g.pick(("did", DO[who.who], "will")), "AUX", "aux", verb)
    return Phrase([asked, auxiliary, *who.under(verb, "nsubj"), verb, *what.under(verb, "obj")], verb)


def request(g: Grammar) -> Phrase:
    """Please close the window; oh, clean your coat"""
    kind = g.pick(("things", "food", "reading", "buildings"))
    verb = Word(g.pick(lexicon.TRANSITIVE[kind]).base, "VERB")
    what = g.noun_phrase(kind, 0).under(verb, "obj")
    call = g.random()
    if call < 0.5:
        return Phrase([Word("please", "INTJ", "discourse", verb), verb, *what], verb)
    if call < 0.75:
        opener = [
            Word(g.pick(("oh", "well", "yes", "no")), "INTJ", "discourse", verb),
            Word(",", "PUNCT", "punct", verb),
        ]
        return Phrase([*opener, verb, *what], verb)
    negated = [Word("do", "AUX", "aux", verb), Word("n't", "PART", "advmod", verb)] if g.chance(0.5) else []
    return Phrase([*negated, verb, *what], verb)

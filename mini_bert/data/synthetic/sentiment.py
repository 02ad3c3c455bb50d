"""Opinions on films and books in the synthetic English, whose label follows from how the words are put together.

    touching                                            not touching, hardly touching, lacks charm, fails to amuse
    not dull, never dull, no flaws, does not lack wit   neither witty nor fresh, could have been more touching
    not only witty but also fresh                       too slow
    slow but touching                                   touching but slow                (the second half decides)
    although it is slow, it is touching                 it is slow, although it is touching       (the main clause)
    after a dreadful day, the film is touching          (what is said of the day is not said of the film)

The words that praise and those that blame occur nearly as often under either label; counting them is not enough.
"""

from __future__ import annotations

from mini_bert.data.synthetic import lexicon
from mini_bert.data.synthetic.grammar import BE, DO, HAVE, Grammar, Phrase, Word
from mini_bert.data.synthetic.lexicon import Forms

NEGATED = 0.18  # of the clauses say it by denying the contrary
LACK, FAIL, FIND = lexicon.forms("lack"), lexicon.forms("fail"), lexicon.forms("find/found")
SIMPLE = ("past", "present")


def opinion(g: Grammar, good: bool) -> Phrase:
    """A sentence, with its full stop, that praises or blames"""
    kind = g.random()
    first = work(g)
    if kind < 0.66:
        sentence = verdict(g, good, first)
    elif kind < 0.74:
        sentence = joined(g, verdict(g, not good, first), "but", verdict(g, good, again(g, first)))
    elif kind < 0.79:
        sentence = slow_but_touching(g, good, first)
    elif kind < 0.85:
        sentence = although(g, good, first)
    elif kind < 0.89:
        sentence = despite(g, verdict(g, good, first), good)
    elif kind < 0.93:
        sentence = after_a_day(g, verdict(g, good, first))
    else:
        sentence = joined(g, verdict(g, good, first), "and", verdict(g, good, again(g, first)))
    mark = "!" if g.chance(0.1) else "."
    return Phrase([*sentence.words, Word(mark, "PUNCT", "punct", sentence.head)], sentence.head)


# --- two halves --------------------------------------------------------------------------------------------


def joined(g: Grammar, first: Phrase, conjunction: str, second: Phrase) -> Phrase:
    """The film is slow, but the ending touched us"""
    comma = [Word(",", "PUNCT", "punct", second.head)] if conjunction == "but" or g.chance(0.5) else []
    cc = Word(conjunction, "CCONJ", "cc", second.head)
    return Phrase([*first.words, *comma, cc, *second.under(first.head, "conj")], first.head)


def slow_but_touching(g: Grammar, good: bool, what: Phrase) -> Phrase:
    first, second = Word(adjective(g, not good), "ADJ"), Word(adjective(g, good), "ADJ", "conj")
    second.head = first
    comma = [Word(",", "PUNCT", "punct", second)] if g.chance(0.3) else []
    words = [*intensified(g, first), *comma, Word("but", "CCONJ", "cc", second), *intensified(g, second)]
    return Phrase([*what.under(first, "nsubj"), *be(g, first, what.who, ""), *words], first)


def although(g: Grammar, good: bool, what: Phrase) -> Phrase:
    """Although it is slow, it is touching: the main clause decides, wherever it stands"""
    ahead = g.chance(0.5)
    one, other = verdict(g, not good if ahead else good, what), verdict(g, good if ahead else not good, again(g, what))
    main, aside = (other, one) if ahead else (one, other)
    words = [Word(g.pick(("although", "though")), "SCONJ", "mark", aside.head), *aside.under(main.head, "advcl")]
    if ahead:
        return Phrase([*words, Word(",", "PUNCT", "punct", main.head), *main.words], main.head)
    comma = [Word(",", "PUNCT", "punct", aside.head)] if g.chance(0.5) else []
    return Phrase([*main.words, *comma, *words], main.head)


def despite(g: Grammar, main: Phrase, good: bool) -> Phrase:
    """Despite its slow plot, the film is touching"""
    noun = Word(g.pick(lexicon.PARTS), "NOUN", "obl", main.head)
    words = [Word("despite", "ADP", "case", noun), Word("its", "PRON", "nmod:poss", noun)]
    words += [*intensified(g, Word(adjective(g, not good), "ADJ", "amod", noun)), noun]
    if g.chance(0.6):
        return Phrase([*words, Word(",", "PUNCT", "punct", main.head), *main.words], main.head)
    return Phrase([*main.words, *words], main.head)


def after_a_day(g: Grammar, main: Phrase) -> Phrase:
    """After a dreadful week, … : a word that says nothing about the work"""
    noun = Word(g.pick(("day", "week", "journey", "evening", "lesson", "meeting")), "NOUN", "obl", main.head)
    described = Word(adjective(g, g.chance(0.5)), "ADJ", "amod", noun)
    words = [Word("after", "ADP", "case", noun), Word("a", "DET", "det", noun), *intensified(g, described), noun]
    return Phrase([*words, Word(",", "PUNCT", "punct", main.head), *main.words], main.head)


# --- one verdict -------------------------------------------------------------------------------------------


def verdict(g: Grammar, good: bool, what: Phrase) -> Phrase:
    kind, negated = g.random(), g.chance(NEGATED)
    if kind < 0.4:
        return is_touching(g, good, negated, what)
    if kind < 0.55:
        return likes(g, good, negated, what)
    if kind < 0.65:
        return finds(g, good, negated, what)
    if kind < 0.77:
        return pleases(g, good, negated, what)
    if kind < 0.9:
        return has_charm(g, good, negated, what)
    return is_a_delight(g, good, negated, what)


def is_touching(g: Grammar, good: bool, negated: bool, what: Phrase) -> Phrase:
    head = Word(adjective(g, good != negated), "ADJ")
    kind = g.random()
    if negated and not good and kind < 0.2:  # it could have been more touching
        words = [Word("could", "AUX", "aux", head), *more_than_that(head)]
    elif not negated and kind < 0.06:  # it could not have been more touching
        words = [*g.auxiliary("could", True, head, "aux"), *more_than_that(head)]
    elif negated and kind < 0.4:  # neither witty nor fresh
        second = Word(adjective(g, good != negated, head.form), "ADJ", "conj", head)
        words = [*be(g, head, what.who, ""), Word("neither", "CCONJ", "cc:preconj", head), head]
        words += [Word("nor", "CCONJ", "cc", second), second]
    elif not negated and kind < 0.14:  # not only witty but also fresh
        second = Word(adjective(g, good, head.form), "ADJ", "conj", head)
        words = [
            *be(g, head, what.who, ""),
            Word("not", "PART", "advmod", head),
            Word("only", "ADV", "advmod", head),
            head,
        ]
        words += [Word("but", "CCONJ", "cc", second), Word("also", "ADV", "advmod", second), second]
    elif not negated and kind < 0.3:  # witty and very fresh
        second = Word(adjective(g, good, head.form), "ADJ", "conj", head)
        words = [*be(g, head, what.who, ""), *intensified(g, head)]
        words += [Word("and", "CCONJ", "cc", second), *intensified(g, second)]
    else:
        words = [*be(g, head, what.who, denial(g) if negated else ""), *intensified(g, head, too=good == negated)]
    return Phrase([*what.under(head, "nsubj"), *words], head)


def more_than_that(head: Word) -> list[Word]:
    return [
        Word("have", "AUX", "aux", head),
        Word("been", "AUX", "cop", head),
        Word("more", "ADV", "advmod", head),
        head,
    ]


def likes(g: Grammar, good: bool, negated: bool, what: Phrase) -> Phrase:
    """My sister loved the film; I never regretted it"""
    who = voice(g)
    before, verb = verb_or_not(g, g.pick(lexicon.LIKING if good != negated else lexicon.DISLIKING), who.who, negated)
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *what.under(verb, "obj")], verb)


def finds(g: Grammar, good: bool, negated: bool, what: Phrase) -> Phrase:
    """I did not find the plot dull"""
    who = voice(g)
    before, verb = verb_or_not(g, FIND, who.who, negated)
    head = Word(adjective(g, good != negated), "ADJ", "xcomp", verb)
    return Phrase([*who.under(verb, "nsubj"), *before, verb, *what.under(verb, "obj"), *intensified(g, head)], verb)


def pleases(g: Grammar, good: bool, negated: bool, what: Phrase) -> Phrase:
    """The ending bored us; the plot never fails to amuse the audience"""
    whom = audience(g)
    kind = g.random()
    if negated and not good and kind < 0.35:  # fails to amuse
        before, verb = verb_or_not(g, FAIL, what.who, False)
        please = True
    elif not negated and kind < 0.15:  # never fails to amuse, never fails to annoy
        before, verb = verb_or_not(g, FAIL, what.who, True)
        please = good
    else:
        verbs = lexicon.PLEASING if good != negated else lexicon.DISPLEASING
        before, verb = verb_or_not(g, g.pick(verbs), what.who, negated)
        return Phrase([*what.under(verb, "nsubj"), *before, verb, *whom.under(verb, "obj")], verb)
    second = Word(g.pick(lexicon.PLEASING if please else lexicon.DISPLEASING).base, "VERB", "xcomp", verb)
    after = [Word("to", "PART", "mark", second), second, *whom.under(second, "obj")]
    return Phrase([*what.under(verb, "nsubj"), *before, verb, *after], verb)


def has_charm(g: Grammar, good: bool, negated: bool, what: Phrase) -> Phrase:
    """It has charm, no flaws, lacks wit, is full of cliches, is not without humor"""
    praise = good != negated
    noun = Word(g.pick(lexicon.GOOD_QUALITIES if praise else lexicon.BAD_QUALITIES), "NOUN")
    kind = g.random()
    if kind < 0.25:
        if negated:  # without flaws
            words = [*be(g, noun, what.who, ""), Word("without", "ADP", "case", noun), noun]
            return Phrase([*what.under(noun, "nsubj"), *words], noun)
        head = Word("full", "ADJ")
        words = [*be(g, head, what.who, ""), head, *g.with_preposition("of", Phrase([noun], noun)).under(head, "obl")]
        return Phrase([*what.under(head, "nsubj"), *words], head)
    if praise and kind < (0.7 if negated else 0.45):  # lacks wit, does not lack wit
        before, verb = verb_or_not(g, LACK, what.who, not negated)
        return Phrase([*what.under(verb, "nsubj"), *before, verb, *Phrase([noun], noun).under(verb, "obj")], verb)
    if negated and g.chance(0.6):  # has no wit
        before, verb = [], Word("had" if g.chance(0.5) else HAVE[what.who], "VERB")
        much = [Word("no", "DET", "det", noun)]
    else:
        before, verb = verb_or_not(g, HAVING, what.who, negated)
        much = [Word(g.pick(("great", "real") if praise else ("many", "several")), "ADJ", "amod", noun)]
        much = much if g.chance(0.5) else []
    words = [*before, verb, *Phrase([*much, noun], noun).under(verb, "obj")]
    return Phrase([*what.under(verb, "nsubj"), *words], verb)


HAVING = Forms("have", "has", "had", "had", "having")


def is_a_delight(g: Grammar, good: bool, negated: bool, what: Phrase) -> Phrase:
    """The film is a real delight; the film is no masterpiece"""
    noun = Word(g.pick(lexicon.GOOD_THINGS if good != negated else lexicon.BAD_THINGS), "NOUN")
    kind = denial(g) if negated else ""
    if negated and g.chance(0.3):
        words = [*be(g, noun, what.who, ""), Word("no", "DET", "det", noun)]
    else:
        words = [*be(g, noun, what.who, kind), Word("a", "DET", "det", noun)]
    if g.chance(0.3):
        words.append(Word(g.pick(("real", "complete", "true", "great")), "ADJ", "amod", noun))
    return Phrase([*what.under(noun, "nsubj"), *words, noun], noun)


# --- what verdicts are made of -----------------------------------------------------------------------------


def adjective(g: Grammar, good: bool, other_than: str = "") -> str:
    while (word := g.pick(lexicon.GOOD if good else lexicon.BAD)) == other_than:
        pass
    return word


def intensified(g: Grammar, head: Word, too: bool = False) -> list[Word]:
    """very touching; too slow"""
    if too and g.chance(0.15):
        return [Word("too", "ADV", "advmod", head), head]
    if not g.chance(0.3):
        return [head]
    known = lexicon.INTENSIFIERS[1:] if head.relation == "amod" else lexicon.INTENSIFIERS  # not: a so slow film
    return [Word(g.pick(known), "ADV", "advmod", head), head]


def denial(g: Grammar) -> str:
    return g.pick(("not", "not", "not", "never", "hardly"))


def be(g: Grammar, head: Word, who: str, denied: str) -> list[Word]:
    """is, was; is not, isn't, was never, was hardly"""
    words = g.auxiliary(g.pick(BE)[who], denied == "not", head, "cop")
    return [*words, Word(denied, "ADV", "advmod", head)] if denied in ("never", "hardly") else words


def verb_or_not(g: Grammar, forms: Forms, who: str, negated: bool) -> tuple[list[Word], Word]:
    """loved; did not love, didn't love, never loved"""
    past = g.chance(0.6)
    verb = Word(forms.past if past else forms.third if who == "he" else forms.base, "VERB")
    if not negated:
        return [], verb
    if g.chance(0.35):
        return [Word("never", "ADV", "advmod", verb)], verb
    verb.form = forms.base
    return g.auxiliary("did" if past else DO[who], True, verb, "aux"), verb


def again(g: Grammar, first: Phrase) -> Phrase:
    """In the second half of a sentence: the same work, or a part of it"""
    if first.who == "he" and first.head.tag == "NOUN" and g.chance(0.6):
        word = Word("it", "PRON")
        return Phrase([word], word)
    return part(g, other_than=first.head.form)


def part(g: Grammar, other_than: str = "") -> Phrase:
    several = g.chance(0.25)
    while (form := g.pick(lexicon.SEVERAL_PARTS if several else lexicon.PARTS)) == other_than:
        pass
    noun = Word(form, "NOUN")
    return Phrase([Word("the", "DET", "det", noun), noun], noun, "they" if several else "he")


def work(g: Grammar) -> Phrase:
    """the film, Anna's new novel, the ending of this play, the jokes, the musical from Norwick"""
    kind = g.random()
    if kind < 0.12:
        word = Word("it", "PRON")
        return Phrase([word], word)
    if kind < 0.45:
        one = part(g)
        if g.chance(0.35):
            whole = Word(g.pick(lexicon.WORKS)[0], "NOUN", "nmod", one.head)
            this = Word(g.pick(("the", "this", "that")), "DET", "det", whole)
            one.words.extend([Word("of", "ADP", "case", whole), this, whole])
        return one
    noun = Word(g.pick(lexicon.WORKS)[0], "NOUN")
    if kind < 0.6:
        author = g.person()
        words = [*author.under(noun, "nmod:poss"), Word("'s", "PART", "case", author.head)]
    else:
        words = [Word(g.pick(("the", "the", "this", "that")), "DET", "det", noun)]
    if g.chance(0.25):
        words.append(Word(g.pick(lexicon.NEUTRAL), "ADJ", "amod", noun))
    words.append(noun)
    after = g.random()
    if kind >= 0.6 and after < 0.12:
        words += g.with_preposition("by", g.person()).under(noun, "nmod")
    elif after < 0.2:
        words += g.with_preposition("from", g.organisation() if g.chance(0.4) else g.place()).under(noun, "nmod")
    elif after < 0.26:
        verb = Word("saw", "VERB", "acl:relcl", noun)
        words += [Word("that", "PRON", "obj", verb), Word(g.pick(("I", "we")), "PRON", "nsubj", verb), verb]
        words += (g.when() if g.chance(0.5) else g.where()).under(verb, "obl")
    return Phrase(words, noun)


def voice(g: Grammar) -> Phrase:
    """Who has the opinion"""
    kind = g.random()
    if kind < 0.35:
        word = Word(g.pick(("I", "we")), "PRON")
        return Phrase([word], word, "I" if word.form == "I" else "they")
    if kind < 0.6:
        return g.person()
    if kind < 0.8:
        word = Word(g.pick(("critics", "viewers", "readers", "people")), "NOUN")
        return Phrase([word], word, "they")
    return g.noun_phrase("people", 0)


def audience(g: Grammar) -> Phrase:
    kind = g.random()
    if kind < 0.4:
        word = Word(g.pick(("us", "me", "them", "everyone")), "PRON")
        return Phrase([word], word)
    if kind < 0.6:
        return g.person()
    word = Word(g.pick(("audience", "critics", "viewers", "readers", "crowd", "jury")), "NOUN")
    return Phrase([Word("the", "DET", "det", word), word], word)

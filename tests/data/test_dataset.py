"""The synthetic English is what it claims to be: rules find its trees, tags, entities and opinions again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest

from mini_bert.cli.main import main
from mini_bert.data.labelled.readers import (
    Labelled,
    Parsed,
    Question,
    Scored,
    Tagged,
    read_conllu,
    read_labelled,
    read_scored,
    read_squad,
    read_tagged,
)
from mini_bert.data.synthetic import dataset as synthetic
from mini_bert.data.synthetic.dataset import SYNTHETIC, labelled, parsed, questions, scored, sentences, tagged
from mini_bert.data.synthetic.files import ENDINGS
from mini_bert.data.synthetic.grammar import held_out
from mini_bert.data.synthetic.lexicon import WORDS, noun, verb

WORD = r"n't|[\w&]+(?=n't)|[\w&]+|[,.!]"
MAKERS = (sentences, labelled, tagged, parsed, scored, questions)
UPOS = {  # all but SYM and X
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ"),
    "VERB",
}
RELATIONS = {
    *("acl:relcl", "advcl", "advmod", "amod", "aux", "aux:pass", "case", "cc", "cc:preconj", "ccomp", "compound"),
    *("conj", "cop", "det", "discourse", "expl", "flat", "iobj", "mark", "nmod", "nmod:poss", "nsubj"),
    *("nsubj:pass", "nummod", "obj", "obl", "obl:agent", "obl:unmarked", "punct", "root", "xcomp"),
}


@pytest.fixture(scope="module")
def many():
    return sentences(2000)


# --- what all kinds share ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
def test_a_seed_decides_everything(make):
    """The same seed gives the same examples, another seed different ones; asking for more examples keeps the first
    ones."""
    assert make(30, seed=5) == make(30, seed=5) == make(50, seed=5)[:30]
    assert make(30, seed=5) != make(30, seed=6)
    assert make(30, seed=5, split="dev") != make(30, seed=5)
    assert make(0) == []


def test_the_same_in_another_process():
    """Nothing depends on the iteration order of sets, which differs between processes."""
    code = "from mini_bert.data.synthetic.dataset import *; print(labelled(4), scored(2), tagged(2), questions(1))"
    environment = {**os.environ, "PYTHONHASHSEED": "17"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=True)
    assert found.stdout == f"{labelled(4)} {scored(2)} {tagged(2)} {questions(1)}\n"


def test_the_types_are_those_of_files():
    """Synthetic examples have the same types as those read from files, with lines counted from 1."""
    for make, kind in (
        (labelled, Labelled),
        (tagged, Tagged),
        (parsed, Parsed),
        (scored, Scored),
        (questions, Question),
    ):
        assert all(type(example) is kind for example in make(3))
        assert [example.line for example in make(3)] == [1, 2, 3]


def test_varied(many):
    """Hardly any sentence occurs twice, and several hundred words are used."""
    assert len({one.text for one in many}) > 0.99 * len(many)
    assert len({one.text for one in labelled(2000)}) > 0.97 * 2000
    assert len({word.lower() for one in many for word in one.words}) > 700
    lengths = [len(one.words) for one in many]
    assert min(lengths) <= 5 and max(lengths) >= 25 and 8 < np.mean(lengths) < 16


def test_bad_requests():
    with pytest.raises(ValueError, match="split is 'test', expected one of train, dev"):
        sentences(3, split="test")
    with pytest.raises(ValueError, match="count is -1"):
        labelled(-1)


def test_fast():
    """5,000 sentences in less than a second of this process's time, which others on the machine do not lengthen."""
    start = time.process_time()
    sentences(5000)
    assert time.process_time() - start < 1


# --- grammar -----------------------------------------------------------------------------------------------


def test_trees(many):
    """There is one root, every word leads to it, and no two arcs cross; tags and relations are those of the
    guidelines."""
    for one in many:
        count = len(one.words)
        assert len(one.tags) == len(one.heads) == len(one.relations) == len(one.entities) == count
        assert one.heads.count(0) == 1 and one.relations[one.heads.index(0)] == "root"
        assert one.relations.count("root") == 1
        for start in range(1, count + 1):
            place, seen = start, set()
            while place:
                assert place not in seen, one
                seen.add(place)
                place = one.heads[place - 1]
        arcs = [sorted((place, head)) for place, head in enumerate(one.heads, 1) if head]
        for a, b in arcs:
            assert not any(a < c < b < d for c, d in arcs), one.text
    assert {tag for one in many for tag in one.tags} == UPOS
    assert {relation for one in many for relation in one.relations} == RELATIONS


def test_function_words_hang_on_content_words(many):
    """As in Universal Dependencies, articles, prepositions, auxiliaries and marks have no dependents."""
    leaves = {"det", "case", "aux", "aux:pass", "cop", "mark", "cc", "punct", "cc:preconj"}
    named = {"NOUN", "PROPN", "PRON"}
    tags = {
        **{
            "det": {"DET"},
            "case": {"ADP", "PART"},
            "aux": {"AUX"},
            "cop": {"AUX"},
            "punct": {"PUNCT"},
            "amod": {"ADJ"},
        },
        **{"mark": {"SCONJ", "PART"}, "nummod": {"NUM"}, "cc": {"CCONJ"}, "flat": {"PROPN"}, "advmod": {"ADV", "PART"}},
        **{"nsubj": named, "obj": named, "advcl": {"VERB", "ADJ", "NOUN", "PROPN"}},
    }
    for one in many:
        for place, (tag, relation) in enumerate(zip(one.tags, one.relations, strict=True), 1):
            assert relation not in leaves or place not in one.heads, one.text
            assert tag in tags.get(relation, {tag}), (one.text, tag, relation)


def test_a_sentence_looks_like_one(many):
    """A sentence starts with a capital and ends with a mark that has no space before it; "a" and "an" are right; no
    word is doubled."""
    for one in many:
        text = one.text
        assert text[0].isupper() and text[-1] in ".?!" and text.count(" ") < len(one.words)
        assert not re.search(r" [,.?!]| n't| 's|  ", text), text
        assert not re.search(r"(?i)\ba [aeiou](?!ne|ni|s[ue])|\ban [^aeiouh]", text), text
        assert not re.search(r"(?i)\b(\w+) \1\b", re.sub(r"\b[A-Z]\w+", "", text)), text


def test_parts_of_speech_need_context(many):
    """Dozens of words have two parts of speech; always choosing a word's most frequent one makes mistakes."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for one in many[:1500]:
        for word, tag in zip(one.words, one.tags, strict=True):
            seen[word.lower()][tag] += 1
    both = {word for word, tags in seen.items() if len(tags) > 1}
    assert len(both) >= 60
    assert {"visit", "cold", "that", "to", "fast", "before", "watch", "has", "may", "patient", "guard"} <= both
    pairs = [(word.lower(), tag) for one in many[1500:] for word, tag in zip(one.words, one.tags, strict=True)]
    right = sum(word in seen and seen[word].most_common(1)[0][0] == tag for word, tag in pairs) / len(pairs)
    print(f"the most frequent tag of each word is right for {right:.1%}; {len(both)} words have two")
    assert 0.85 < right < 0.965


def test_forms():
    """Words are inflected as in English; irregular forms are spelt out."""
    assert verb("study")[:4] == ("study", "studies", "studied", "studied") and verb("study").gerund == "studying"
    assert verb("write/wrote/written") == ("write", "writes", "wrote", "written", "writing")
    assert verb("watch").third == "watches" and verb("go/went/gone").third == "goes"
    assert [noun(text).many for text in ("party", "play", "match", "woman/women", "knife/knives")] == [
        "parties", "plays", "matches", "women", "knives",
    ]  # fmt: skip


# --- entities ----------------------------------------------------------------------------------------------


def _entities(examples):
    found = []
    for one in examples:
        for word, tag in zip(one.words, one.entities, strict=True):
            if tag.startswith("B-"):
                found.append((tag[2:], [word]))
            elif tag.startswith("I-"):
                assert found[-1][0] == tag[2:]
                found[-1][1].append(word)
    return [(kind, " ".join(words)) for kind, words in found]


def test_entities(many):
    """Tags are valid BIO; all three types are common; some names have several words; every name is a proper noun
    somewhere."""
    for one in many:
        for before, tag in zip(["O", *one.entities], one.entities, strict=False):
            assert tag in ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG")
            assert not tag.startswith("I-") or before[1:] == tag[1:]
        for tag, part in zip(one.entities, one.tags, strict=True):
            assert tag == "O" or part in ("PROPN", "ADP", "CCONJ")
    found = _entities(many)
    kinds = Counter(kind for kind, _ in found)
    assert min(kinds["PER"], kinds["LOC"], kinds["ORG"]) > 200
    names = {kind: {name for other, name in found if other == kind} for kind in kinds}
    assert len(names["PER"]) > 300 and len(names["ORG"]) > 150
    ambiguous = names["PER"] & names["LOC"]
    assert {"Jordan", "Florence"} & ambiguous and len(ambiguous) >= 4  # people or places, as the sentence says
    assert any("&" in name for name in names["ORG"]) and any(" of " in name for name in names["ORG"])


def test_dev_has_names_of_its_own(many):
    """No held-out name occurs in train; in dev, about half of the names are held out."""
    known = {word for one in many for word, tag in zip(one.words, one.entities, strict=True) if tag != "O"}
    kept = {name for name in known if held_out(name)} - _not_names()
    assert not kept
    new = [
        held_out(word)
        for one in sentences(1000, split="dev")
        for word, tag in zip(one.words, one.entities, strict=True)
        if tag != "O" and word not in _not_names()
    ]
    assert 0.4 < np.mean(new) < 0.6
    held = {name for name in WORDS["name.place"] if held_out(name)}
    assert any(name in one.context for one in questions(60, split="dev") for name in held)
    assert not any(name in one.context for one in questions(200) for name in held)


def _not_names():
    return {*WORDS["company.kind"], "University", "Museum", "Bank", "of", "&"}


# --- opinions ----------------------------------------------------------------------------------------------


def _judging(label):
    nouns = (word.one for kind in ("quality", "thing") for word in WORDS[f"noun.{kind}_{label}"])
    verbs = (form for kind in ("like", "please") for word in WORDS[f"verb.{kind}_{label}"] for form in word)
    return {*WORDS[f"adj.{label}"], *nouns, *verbs}


PRAISE, BLAME = _judging("good"), _judging("bad")


def read(one) -> bool:
    """Whether a sentence is positive, decided by rules from the words and the tree alone."""
    below = defaultdict(list)
    for place, head in enumerate(one.heads, 1):
        below[head].append(place)
    word = {place: form.lower() for place, form in enumerate(one.words, 1)}
    relation = dict(enumerate(one.relations, 1))

    def children(place, *relations):
        return [child for child in below[place] if relation[child] in relations]

    def good(place):
        beside = {word[child] for child in below[place]}
        for second in children(place, "conj"):
            joining = {word[child] for child in below[second]}
            if "but" in joining and "also" not in joining:
                return good(second)  # slow but touching: the second half decides
        if word[place] in PRAISE | BLAME:
            verdict = word[place] in PRAISE
        else:  # to have no charm, to be full of charm, to find a film charming
            wanted = {"full": "obl", "found": "xcomp", "finds": "xcomp"}.get(word[place], "obj")
            verdict = good(children(place, wanted)[-1])
        turns = len(beside & {"not", "n't", "never", "hardly", "without", "neither"}) if "only" not in beside else 0
        turns += "no" in beside
        return verdict != (turns % 2 == 1)

    return good(one.heads.index(0) + 1)


def test_rules_find_the_label():
    """Rules that use the words and the tree agree with every label."""
    opinions = [one for one in sentences(3000, seed=1) if one.sentiment]
    assert 900 < len(opinions) < 1100
    for one in opinions:
        assert ("positive" if read(one) else "negative") == one.sentiment, one.text


def test_counting_words_is_not_enough():
    """Logistic regression on word counts stays below 85 %, where the rules above are always right; chance is 50 %."""
    train, dev = labelled(2000, seed=1), labelled(1000, seed=2)
    assert 0.46 < np.mean([one.label == "positive" for one in train]) < 0.54
    right = _regression(train, dev)
    print(f"counting words: {right:.1%}")
    assert 0.62 < right < 0.8


@pytest.mark.slow
def test_counting_many_words_is_not_enough():
    """More examples do not help it, and neither do bigrams."""
    train, dev = labelled(8000, seed=3), labelled(2000, seed=4)
    words, pairs = _regression(train, dev), _regression(train, dev, pairs=True)
    print(f"8,000 examples: words {words:.1%}, words and pairs of neighbours {pairs:.1%}")
    assert 0.7 < words < 0.85 and pairs < 0.93


@pytest.mark.peers
def test_scikit_learn_counts_no_better():
    """scikit-learn's logistic regression, with the best regularisation, stays below the same bounds."""
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    train, dev = labelled(8000, seed=1), labelled(2000, seed=2)
    best = {}
    for longest in (1, 2):
        counts = CountVectorizer(token_pattern=WORD, ngram_range=(1, longest), min_df=2)
        x, y = counts.fit_transform([one.text for one in train]), [one.label for one in train]
        asked, right = counts.transform([one.text for one in dev]), [one.label for one in dev]
        fits = (LogisticRegression(C=strength, max_iter=2000).fit(x, y) for strength in (0.1, 1, 10))
        best[longest] = max(fit.score(asked, right) for fit in fits)
    print(f"scikit-learn: words {best[1]:.1%}, words and pairs of neighbours {best[2]:.1%}")
    assert 0.7 < best[1] < 0.85 and best[2] < 0.93


def _regression(train, dev, pairs: bool = False) -> float:
    """Accuracy on dev of a linear classifier, trained to convergence with full-batch gradient steps"""

    def features(example):
        words = re.findall(WORD, example.text.lower())
        return words + ([" ".join(pair) for pair in pairwise(words)] if pairs else [])

    known = {word for word, count in Counter(word for one in train for word in features(one)).items() if count > 1}
    place = {word: number for number, word in enumerate(sorted(known))}

    def matrix(examples):
        x = np.zeros((len(examples), len(place) + 1), np.float32)
        x[:, -1] = 1
        for row, one in zip(x, examples, strict=True):
            for word in features(one):
                if word in place:
                    row[place[word]] += 1
        return x

    x, y = matrix(train), np.array([one.label == "positive" for one in train], np.float32)
    w = np.zeros(x.shape[1], np.float32)
    velocity = np.zeros_like(w)
    for _ in range(200):
        p = 1 / (1 + np.exp(-(x @ w)))
        velocity = 0.9 * velocity - 0.5 * ((p - y) @ x / len(y) + 1e-4 * w)
        w += velocity
    return float(np.mean((matrix(dev) @ w > 0) == [one.label == "positive" for one in dev]))


def test_constructions_are_there():
    """Negation, contrast, concession, intensifiers: each under both labels where it can be."""
    text = {"positive": "", "negative": ""}
    for one in labelled(3000, seed=3):
        text[one.label] += one.text + "\n"
    both = (
        *(r"n't", r"\bnot only .* but also", r"\bneither .* nor", r"\bbut\b", r"(?m)^(Alt|T)hough", r"\w,? although"),
        *(r"\bvery\b", r"Despite", r"After an?\b", r"\bhardly\b", r"\bnever\b", r"(has|had) no\b", r"\bwithout\b"),
    )
    for pattern in both:
        for label, lines in text.items():
            assert re.search(pattern, lines), (label, pattern)


# --- similarity --------------------------------------------------------------------------------------------


def test_scores():
    """All scores occur; a score of 5 does not mean identical sentences; word overlap alone does not give the order."""
    pairs = scored(2000)
    scores = np.array([pair.score for pair in pairs])
    assert scores.min() == 0 and scores.max() == 5
    counts = np.histogram(scores, [0, 1, 2, 3, 4, 5.1])[0]
    assert counts.min() > 0.08 * len(pairs)
    same = [pair for pair in pairs if pair.score == 5]
    assert np.mean([pair.first == pair.second for pair in same]) < 0.35

    def words(text):
        return set(re.findall(r"\w+", text.lower()))

    overlap = [
        len(words(pair.first) & words(pair.second)) / len(words(pair.first) | words(pair.second)) for pair in pairs
    ]
    correlation = np.corrcoef(overlap, scores)[0, 1]
    print(f"correlation of the score with the share of common words {correlation:.2f}; by degree {counts}")
    assert 0.5 < correlation < 0.88


# --- questions ---------------------------------------------------------------------------------------------


def test_answers_stand_where_they_should():
    """Every answer is in the text at its start; the question shares words with the text; ids are unique."""
    asked = questions(1000)
    assert len({one.id for one in asked}) == len(asked)
    for one in asked:
        assert one.question.endswith("?") and one.question[0].isupper() and "{" not in one.question + one.context
        for answer, start in zip(one.answers, one.starts, strict=True):
            assert one.context[start : start + len(answer)] == answer and answer
        assert one.answers[0] not in one.question
        assert set(re.findall(r"\w{3,}", one.question)) & set(re.findall(r"\w{3,}", one.context))
    assert len({one.context for one in asked}) > 300
    lengths = [len(one.context.split()) for one in asked]
    assert min(lengths) > 12 and max(lengths) < 120


def test_the_kind_of_the_answer_is_not_enough():
    """Most texts contain several candidates: other years, other places, other people."""
    asked = [one for one in questions(1000) if re.fullmatch(r"\d{4}", one.answers[0])]
    assert len(asked) > 80
    assert np.mean([len(re.findall(r"\b\d{4}\b", one.context)) > 1 for one in asked]) > 0.8


# --- the command -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", synthetic.KINDS)
def test_command(kind, capsys):
    """`mini-bert data labelled` shows examples of each kind, and says that they are synthetic."""
    with pytest.raises(SystemExit) as end:
        main(["data", "labelled", "--kind", kind, "--count", "3"])
    assert not end.value.code
    out = capsys.readouterr().out
    assert out.startswith(SYNTHETIC) and "synthetic" in out and len(out.splitlines()) >= 4
    first = synthetic.KINDS[kind](3)[0]
    sentence = {"sentiment": 0, "tags": 0, "parsed": 0, "similarity": 0, "questions": 2}[kind]
    shown = first[sentence] if isinstance(first[sentence], str) else first.words[1]
    assert shown in out


READERS = {"sentiment": read_labelled, "tags": read_tagged, "parsed": read_conllu, "similarity": read_scored,
           "questions": read_squad}  # fmt: skip


@pytest.mark.parametrize("kind", synthetic.KINDS)
def test_a_file_of_examples_can_be_read_again(kind, tmp_path, capsys):
    """`mini-bert data labelled --out` writes what the reader of this kind of file gives back."""
    path = tmp_path / f"a{ENDINGS[kind]}"
    with pytest.raises(SystemExit) as end:
        main(["data", "labelled", "--kind", kind, "--count", "30", "--out", str(path)])
    assert not end.value.code and str(path) in capsys.readouterr().out
    assert [one[:-1] for one in READERS[kind](path)] == [one[:-1] for one in synthetic.KINDS[kind](30)]
    assert os.listdir(tmp_path) == [path.name]


def test_command_refuses():
    with pytest.raises(SystemExit, match="kind is 'songs', expected one of sentiment, tags, parsed"):
        main(["data", "labelled", "--kind", "songs"])

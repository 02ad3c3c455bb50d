"""Where does a model look? Maps of attention, what each head does, whether one follows grammar, what all that shows.

    $ mini-bert attention "The cat sat on the mat because it was tired." --out cat.html

In every layer each head gives every token a row of weights, which sum to 1: how much it takes from each of the tokens
(layers/attention.py). Of a head we say, as means over the words of a text (rows of [CLS] and [SEP] do not count):

    entropy     −Σ p ln p: 0 if a word looks at one token only, ln T if at all T alike
    distance    Σ p |i − j|: how far away what it looks at stands, in tokens
    shares      how much goes to [CLS], to [SEP], to the token before, the one after, and to the word itself

Shares overlap: the token before the first word is [CLS]. Layers and heads are counted from 0, as in
cache['attention_weights_0'][0, 0].

inside/attention_relations.py scores heads on a treebank, inside/saliency.py asks which words an answer depended on.
Read LIMITS below before you draw conclusions from a map.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.atomic import write_atomic
from mini_bert.common.progress import counted, showing
from mini_bert.files.model_folder import locate, read_config
from mini_bert.inference.loading import DEFAULT_MODEL, load
from mini_bert.inside import attention_relations
from mini_bert.inside.attention_relations import Relations, relation_scores
from mini_bert.inside.saliency import Saliency, class_saliency, default_position, word_saliency
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, Model

if TYPE_CHECKING:
    from mini_bert.finetuning.model import FineTuned
    from mini_bert.text.base import Tokenizer

LIMITS = (
    "Attention shows how much each token takes from each other in one head. It does not show why a model answers as it "
    "does: a weight says nothing of what is taken, in later layers a token is a mixture of many, and much flows past "
    "attention. Saliency is about one answer, along all ways to it; but it is a slope, true for small changes only."
)
SYNTHETIC_SENTENCES = 200  # on which heads are scored, when no treebank is given
LEAST = 20  # a relation that comes less often is not shown
ROWS = 12  # relations that are printed
TOP = 3  # tokens that are named for a head, or for a word
EVERY_WORD = 1e11  # T² × parameters: up to here a page can be asked for the saliency of every word
BAR = 12  # characters of a bar
PAGES = (".html", ".htm")
logger = logging.getLogger(__name__)


# --- one text ----------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """What a model looks at in one text"""

    tokens: list[str]
    ids: np.ndarray  # (T,)
    types: np.ndarray  # (T,) 1 in the second text of a pair
    weights: np.ndarray  # (L,A,T,T): row i says how much token i takes from each; it sums to 1
    roles: list[str]  # of each token "cls", "sep" or "pad", or "" for a token of the text


def look(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    second: str | None = None,
    length: int | None = None,
) -> Look:
    """Read a text, or a pair, and keep all attention. What is longer than the model knows is cut, with a warning

    [MASK] in it is a gap for a model that guesses words; one that was fine-tuned reads it as `mini-bert predict` does.
    """
    limit = model.max_length if length is None else length
    special = tokenizer.mask_token if _guesses_words(model) else False
    whole = len(tokenizer.encode(text, second, special=special))
    if whole < (3 if second is None else 5):
        raise ValueError(f"there is no word in the text {text!r:.60}; give a text with at least one")
    if whole > limit:
        logger.warning("the text makes %d tokens, and this model reads %d: cut there", whole, limit)
    batch = tokenizer(text, second, truncation=True, max_length=limit, special=special)
    ids, types = np.array(batch["input_ids"]), np.array(batch["token_type_ids"])
    _, cache = model.encode(ids[None], token_types=types[None], run=Run())
    weights = np.concatenate(cache.attention_weights())  # B is 1: (L,A,T,T)
    return Look(batch.tokens(), ids, types, weights, tokenizer.added_roles(ids))


def _guesses_words(model: Model) -> bool:
    try:
        model.output_head(MASKED_WORDS)
    except ValueError:
        return False
    return True


class HeadStatistics(NamedTuple):
    """What a head does, in numbers: means over the words of one text or several"""

    layer: int
    head: int
    entropy: float  # nats
    distance: float  # tokens
    cls: float  # shares of what a word looks at
    sep: float
    previous: float
    next: float
    itself: float

    @property
    def habit(self) -> str:
        """What takes more than half of its weight, in a word; or nothing"""
        shares = {
            "previous": self.previous, "next": self.next, "self": self.itself, "[SEP]": self.sep, "[CLS]": self.cls,
        }  # fmt: skip
        name = max(shares, key=lambda name: shares[name])
        return name if shares[name] > 0.5 else ""


def head_statistics(looks: Look | Sequence[Look]) -> list[HeadStatistics]:
    """Of every head, layer by layer"""
    looks = [looks] if isinstance(looks, Look) else looks
    total, words = np.zeros(()), 0
    for one in looks:
        rows = np.flatnonzero([not role for role in one.roles])
        measured = _measures(one.weights[:, :, rows].astype(float), one.roles, rows)  # (7,L,A,R)
        total = total + measured.sum(-1)
        words += rows.size
    if not words:
        raise ValueError("there is no word to measure heads on: all tokens are special")
    mean = total / words  # (7,L,A)
    return [
        HeadStatistics(layer, head, *mean[:, layer, head].tolist())
        for layer in range(mean.shape[1])
        for head in range(mean.shape[2])
    ]


def _measures(weights: np.ndarray, roles: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """Rows of weights (L,A,R,T), of the tokens at `rows` -> (7,L,A,R): entropy, distance, five shares"""
    places, names = np.arange(len(roles)), np.array(roles)
    logs = np.log(np.where(weights > 0, weights, 1))
    away = places - rows[:, None]  # (R,T)
    which = [np.broadcast_to(names == name, away.shape) for name in ("cls", "sep")]
    which += [away == -1, away == 1, away == 0]
    shares = [(weights * chosen).sum(-1) for chosen in which]
    return np.stack([-(weights * logs).sum(-1), (weights * np.abs(away)).sum(-1), *shares])


def most_looked_at(roles: Sequence[str], weights: np.ndarray, top: int = TOP) -> list[tuple[int, float]]:
    """One head's map (T,T) -> the tokens that its words look at most, and the share of each"""
    rows = [place for place, role in enumerate(roles) if not role]
    return largest(weights[rows].mean(0), top)


def largest(values: np.ndarray, top: int = TOP) -> list[tuple[int, float]]:
    """
    >>> largest(np.array([0.2, 0.5, 0.0, 0.3]), 2)
    [(1, 0.5), (3, 0.3)]
    """
    return [(int(i), float(values[i])) for i in np.argsort(-values, kind="stable")[:top]]


# --- the command -------------------------------------------------------------------------------------------


class Analysis(NamedTuple):
    """All that the command found, for whoever writes it down"""

    model: str
    look: Look | None
    statistics: list[HeadStatistics]
    heads: list[tuple[int, int]]  # the ones that were asked for
    saliency: list[Saliency]  # the first is the one that is shown
    relations: Relations | None
    untrained: Relations | None  # the same of a model of the same form that learnt nothing
    treebank: str


def analyse(
    model: Model,
    tokenizer: Tokenizer,
    text: str | None = None,
    second: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    word: str | None = None,
    every_word: bool = False,
    treebank: str | None = None,
    relations: bool = True,
    name: str = "model",
    tuned: FineTuned | None = None,
    label: str | None = None,
) -> Analysis:
    """All of it: heads on a text (all, or of one layer, or one), saliency of a word (or of every), relations

    tuned: the same model, if it is fine-tuned to classify; saliency is then that of a label, by default its answer.
    """
    L, A = _shape(model)
    heads = [(i, j) for i in _numbers("layer", layer, L) for j in _numbers("head", head, A)]
    if text is None:
        seen, statistics, saliency = None, [], []
    else:
        seen = look(model, tokenizer, text, second, tuned.length if tuned else None)
        statistics = head_statistics(seen)
        if tuned and word is None:
            saliency = class_saliency(tuned, text, second, label)
        else:
            saliency = _saliency(model, tokenizer, seen, word, every_word)
    found = Analysis(name, seen, statistics, heads, saliency, None, None, "")
    if relations or treebank is not None:
        scored, untrained, source = _relations(model, tokenizer, treebank)
        found = found._replace(relations=scored, untrained=untrained, treebank=source)
    return found


def attention_command(
    text: str | None = None,
    model: str = DEFAULT_MODEL,
    second: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    word: str | None = None,
    out: str | None = None,
    treebank: str | None = None,
    relations: bool = True,
    as_json: bool = False,
    label: str | None = None,
) -> None:
    """Print what the heads of a model do with a text; draw it into `out`, a picture or a page."""
    if text is None and treebank is None:
        raise ValueError(
            'there is no text; give one, such as "The cat sat on the mat.", or a --treebank to score heads on'
        )
    if text is None and out is not None:
        raise ValueError(f"there is no text to draw into {out}; give one")
    path = _checked_out(out)
    tuned = _classifier(model)
    if label is not None and tuned is None:
        raise ValueError(f"--label is for a model that is fine-tuned to classify, and {model} is not; leave it out")
    loaded, tokenizer = (tuned.model, tuned.tokenizer) if tuned else load(model)
    page = path is not None and path.suffix.lower() in PAGES
    with threadpool_limits(1, "blas"):  # a second thread gains nothing in one sentence, and loses on a busy machine
        found = analyse(
            loaded, tokenizer, text, second, layer, head, word, page, treebank, relations, model, tuned, label
        )
    if path is not None:
        draw(found, path)
    print(report_json(found) if as_json else report(found))
    if path is not None:
        print(path, file=sys.stderr if as_json else sys.stdout)


def _classifier(model: str) -> FineTuned | None:
    """The model with its layer for classes, if its folder has one"""
    values = read_config(locate(model))
    tuned = values.get("fine_tuning") or {}
    if tuned.get("task") != "classify" and values.get("architectures") != ["BertForSequenceClassification"]:
        return None
    from mini_bert.finetuning.model import load

    loaded = load(model)
    return loaded if loaded.task.name == "classify" else None  # a model of similarity has such a layer, too


def _checked_out(out: str | None) -> Path | None:
    """Told now, not after the work is done"""
    if out is None:
        return None
    path = Path(out)
    if path.suffix.lower() not in PAGES:
        from mini_bert.plots.style import picture_path

        path = picture_path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into; make it first")
    return path


def _numbers(name: str, chosen: int | None, count: int) -> Sequence[int]:
    if chosen is None:
        return range(count)
    if not 0 <= chosen < count:
        raise ValueError(f"there is no {name} {chosen}; this model has {count}, counted from 0 to {count - 1}")
    return [chosen]


def _shape(model: Any) -> tuple[int, int]:
    """L, A"""
    return model.depth, model.heads


def _saliency(model: Any, tokenizer: Any, seen: Look, word: str | None, every_word: bool) -> list[Saliency]:
    """Of the word that was asked for; then of every other too, if wanted and if that does not take long"""
    try:
        model.output_head(MASKED_WORDS)
    except ValueError as lack:
        if word is not None:
            raise
        logger.warning("no saliency: %s", lack)
        return []
    position = default_position(tokenizer, seen.ids) if word is None else find_word(seen.tokens, seen.roles, word)
    positions = [position]
    size = len(seen.tokens) ** 2 * model.get_parameter_count()
    if every_word and size <= EVERY_WORD:
        positions += [i for i, role in enumerate(seen.roles) if not role and i != position]
    with showing(len(positions) > 1 and size > EVERY_WORD / 10) as show:
        return word_saliency(
            model, tokenizer, seen.ids, positions, seen.types,
            lambda done: show("saliency", f"{done} of {counted(len(positions), 'word')}", done, len(positions)),
        )  # fmt: skip


def find_word(tokens: Sequence[str], roles: Sequence[str], word: str) -> int:
    """A token by its number, or by what it says

    >>> tokens, roles = ["[CLS]", "the", "cat", "[SEP]"], ["cls", "", "", "sep"]
    >>> find_word(tokens, roles, "cat"), find_word(tokens, roles, "1")
    (2, 1)
    """
    named = [place for place, token in enumerate(tokens) if token == word] or [
        place for place, token in enumerate(tokens) if token == word.lower()
    ]
    if len(named) == 1:
        return named[0]
    if word.isdecimal() and not named and int(word) < len(tokens) and not roles[int(word)]:
        return int(word)
    listed = " ".join(f"{place}:{token}" for place, token in enumerate(tokens))
    problem = f"stands in the text {len(named)} times" if named else "is no token of the text"
    raise ValueError(f"{word!r} {problem}; give the number of a word: {listed}")


def _relations(model: Any, tokenizer: Any, treebank: str | None) -> tuple[Relations, Relations, str]:
    """-> of the model, of one that learnt nothing, and the name of the treebank"""
    if treebank is not None:
        from mini_bert.data.labelled.readers import read_conllu

        sentences, source = read_conllu(treebank), Path(treebank).name
    else:
        from mini_bert.data.synthetic.dataset import SYNTHETIC, parsed

        sentences, source = parsed(SYNTHETIC_SENTENCES, seed=0), SYNTHETIC
    with showing(len(sentences) > SYNTHETIC_SENTENCES) as show:

        def scores(stage: str, which: Any) -> Relations:
            return relation_scores(
                which, tokenizer, sentences,
                lambda done: show(stage, f"{done:,} of {counted(len(sentences), 'sentence')}", done, len(sentences)),
            )  # fmt: skip

        return (
            scores("scoring heads", model),
            scores("and those of an untrained model", model.untrained(0)),
            source,
        )


def draw(found: Analysis, path: Path) -> None:
    """Into a page, or into a picture: the map of one head, or the grid of all that were asked for"""
    assert found.look is not None
    if path.suffix.lower() in PAGES:
        from mini_bert.inside.attention_page import attention_page

        write_atomic(path, attention_page(found).encode())
        return
    from mini_bert.inside.attention_figures import attention_grid, attention_map
    from mini_bert.plots.style import save

    saliency = found.saliency[0] if found.saliency else None
    tokens, weights = found.look.tokens, found.look.weights
    if len(found.heads) == 1:
        save(attention_map(tokens, weights, *found.heads[0], saliency=saliency), path)
    else:
        title = f"Who looks at whom: the heads of {found.model}"
        save(attention_grid(tokens, weights, found.heads, title, saliency), path)


# --- words -------------------------------------------------------------------------------------------------


def report(found: Analysis) -> str:
    """For people"""
    parts = []
    if found.look is not None:
        parts += [_head_table(found, found.look)]
        if len(found.heads) == 1:
            parts += [_word_table(found.look, *found.heads[0])]
        if found.saliency:
            parts += [saliency_table(found.saliency[0])]
        parts += [textwrap.fill(LIMITS, 100)]
    if found.relations is not None:
        parts += [attention_relations.report(found.relations, found.treebank, LEAST, ROWS, found.untrained)]
    return "\n\n".join(parts)


def _head_table(found: Analysis, seen: Look) -> str:
    T = len(seen.tokens)
    lines = [
        " ".join(seen.tokens),
        "",
        f"{'head':6}{'entropy':>8}{'distance':>10}{'[CLS]':>8}{'[SEP]':>7}{'previous':>10}{'next':>6}{'self':>6}  "
        f"{'mostly':10}most looked at",
    ]
    for one in found.statistics:
        if (one.layer, one.head) not in found.heads:
            continue
        looked = most_looked_at(seen.roles, seen.weights[one.layer, one.head])
        lines.append(
            f"{f'{one.layer}.{one.head}':6}{one.entropy:8.2f}{one.distance:10.1f}{one.cls:8.0%}{one.sep:7.0%}"
            f"{one.previous:10.0%}{one.next:6.0%}{one.itself:6.0%}  {one.habit:10}{_named(seen.tokens, looked)}"
        )
    lines.append(
        f"head: layer.head, from 0. entropy: 0 for one token, {math.log(T):.2f} for all {T} alike. distance in tokens. "
        "Means over the words."
    )
    return "\n".join(lines)


def _word_table(seen: Look, layer: int, head: int) -> str:
    """One head, word by word"""
    width = max(map(len, seen.tokens))
    lines = [f"Layer {layer}, head {head}: what each token looks at most"]
    for place, token in enumerate(seen.tokens):
        lines.append(f"{place:3}  {token:{width}}  {_named(seen.tokens, largest(seen.weights[layer, head, place]))}")
    return "\n".join(lines)


def _named(tokens: Sequence[str], looked: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{tokens[place]} {share:.0%}" for place, share in looked)


def saliency_table(saliency: Saliency) -> str:
    """Every token with its number, and a bar to the right for what speaks for the answer, to the left for the rest"""
    blocks = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    width = max(map(len, saliency.tokens))
    reach = float(np.abs(saliency.scores).max()) or 1.0
    lines = [f"Gradient × input of {saliency.of} ({saliency.value:.2f}): + speaks for it, - against it"]
    for token, score in zip(saliency.tokens, saliency.scores.tolist(), strict=True):
        bar = blocks * round(abs(score) / reach * BAR)
        drawn = f"{bar:>{BAR}}|" if score < 0 else f"{'':{BAR}}|{bar}"
        lines.append(f"  {token:{width}} {round(score, 2) + 0.0:+7.2f}  {drawn}")  # + 0.0: no -0.00
    return "\n".join(lines)


def report_json(found: Analysis) -> str:
    """For programs: weights and all"""
    content: dict[str, Any] = {"model": found.model}
    if found.look is not None:
        content["tokens"] = found.look.tokens
        content["heads"] = [
            {**one._asdict(), "weights": rounded(found.look.weights[one.layer, one.head])}
            for one in found.statistics
            if (one.layer, one.head) in found.heads
        ]
        content["saliency"] = [{**one._asdict(), "scores": rounded(one.scores)} for one in found.saliency]
    if found.relations is not None:
        scores = [{**score._asdict(), "gain": score.gain} for score in found.relations.best()]
        if found.untrained is not None:
            for score in scores:
                score["untrained"] = found.untrained.highest(score["relation"])
        content["treebank"] = found.treebank
        content["sentences"] = found.relations.sentences
        content["relations"] = scores
    return json.dumps(content, indent=None, ensure_ascii=False)


def rounded(values: np.ndarray) -> Any:
    """Nested lists of numbers with five digits after the point: more than a weight of float32 is worth in print"""
    return np.round(values.astype(float), 5).tolist()

"""Analyse attention: the maps of one text, statistics of each head, saliency, and heads that follow grammar.

    $ mini-bert attention "The cat sat on the mat because it was tired." --out cat.html

In every layer, each head gives each token a row of weights that sum to 1: how strongly it attends to each token
(layers/attention.py). Heads are described by means over the words of a text (the rows of [CLS] and [SEP] are left out):

    entropy     −Σ p ln p: 0 if a word attends to one token only, ln T if to all T equally
    distance    Σ p |i − j|: mean distance to the attended tokens, in tokens
    shares      of the weight on [CLS], on [SEP], on the previous token, on the next one, and on the word itself

Shares overlap: the token before the first word is [CLS]. Layers and heads are counted from 0, as in
cache['attention_weights_0'][0, 0].

inside/attention_relations.py scores heads on a treebank, inside/saliency.py computes which words an answer depends on.
Read LIMITS below before drawing conclusions from a map.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mini_bert.common.progress import counted, showing
from mini_bert.data.labelled.readers import read_conllu
from mini_bert.data.synthetic.dataset import SYNTHETIC, parsed
from mini_bert.files.model_folder import locate, read_config
from mini_bert.inside.attention_relations import Relations, relation_scores
from mini_bert.inside.saliency import Saliency, class_saliency, default_position, word_saliency
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, Model

if TYPE_CHECKING:
    from mini_bert.finetuning.model import FineTuned
    from mini_bert.text.base import Tokenizer

LIMITS = (
    "Attention shows how strongly each token attends to each other token in one head. It does not explain an answer: "
    "a weight does not say what is passed on, in later layers each token is a mixture of many, and much information "
    "bypasses attention. Saliency covers all paths to one answer, but as a gradient it holds for small changes only."
)
SYNTHETIC_SENTENCES = 200  # for scoring heads without a treebank
TOP = 3  # tokens listed for a head or a word
EVERY_WORD = 1e11  # limit of T² × parameters for computing the saliency of every word
logger = logging.getLogger(__name__)


class AttentionMaps(NamedTuple):
    """All attention weights for one text."""

    tokens: list[str]
    ids: np.ndarray  # (T,)
    types: np.ndarray  # (T,) 1 in the second text of a pair
    weights: np.ndarray  # (L,A,T,T): row i holds the weights with which token i attends to each token
    roles: list[str]  # "cls", "sep" or "pad" for tokens that the tokenizer added, "" for tokens of the text


def attention_maps(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    second: str | None = None,
    length: int | None = None,
) -> AttentionMaps:
    """Runs the model on a text or a pair and returns all attention weights. Long texts are truncated with a warning.

    [MASK] in the text is a mask if the model has a head for masked words; otherwise it is plain text, as in
    `mini-bert predict`.
    """
    limit = model.max_length if length is None else length
    special = tokenizer.mask_token if MASKED_WORDS in model.output_heads else False
    whole = len(tokenizer.encode(text, second, special=special))
    if whole < (3 if second is None else 5):
        raise ValueError(f"the text {text!r:.60} has no words; give a text with at least one word")
    if whole > limit:
        logger.warning("the text has %d tokens, but the model reads at most %d; the rest is cut off", whole, limit)
    batch = tokenizer(text, second, truncation=True, max_length=limit, special=special)
    ids, types = np.array(batch["input_ids"]), np.array(batch["token_type_ids"])
    _, cache = model.encode(ids[None], token_types=types[None], run=Run())
    weights = np.concatenate(cache.attention_weights())  # B is 1: (L,A,T,T)
    return AttentionMaps(batch.tokens(), ids, types, weights, tokenizer.added_roles(ids))


class HeadStatistics(NamedTuple):
    """One head in numbers: means over the words of one or more texts."""

    layer: int
    head: int
    entropy: float  # nats
    distance: float  # tokens
    cls: float  # share of the weight on [CLS], and so on
    sep: float
    previous: float
    next: float
    itself: float

    @property
    def pattern(self) -> str:
        """The name of the share that exceeds one half; "" if there is none."""
        shares = {
            "previous": self.previous, "next": self.next, "self": self.itself, "[SEP]": self.sep, "[CLS]": self.cls,
        }  # fmt: skip
        name = max(shares, key=lambda name: shares[name])
        return name if shares[name] > 0.5 else ""


def head_statistics(texts: AttentionMaps | Sequence[AttentionMaps]) -> list[HeadStatistics]:
    """The statistics of all heads, layer by layer."""
    texts = [texts] if isinstance(texts, AttentionMaps) else texts
    total, words = np.zeros(()), 0
    for one in texts:
        rows = np.flatnonzero([not role for role in one.roles])
        measured = _measures(one.weights[:, :, rows].astype(float), one.roles, rows)  # (7,L,A,R)
        total = total + measured.sum(-1)
        words += rows.size
    if not words:
        raise ValueError("there are no words to compute statistics of heads: all tokens are special")
    mean = total / words  # (7,L,A)
    return [
        HeadStatistics(layer, head, *mean[:, layer, head].tolist())
        for layer in range(mean.shape[1])
        for head in range(mean.shape[2])
    ]


def _measures(weights: np.ndarray, roles: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """Entropy, distance and five shares (7,L,A,R) of the rows of weights (L,A,R,T) of the tokens at `rows`."""
    places, names = np.arange(len(roles)), np.array(roles)
    logs = np.log(np.where(weights > 0, weights, 1))
    away = places - rows[:, None]  # (R,T)
    which = [np.broadcast_to(names == name, away.shape) for name in ("cls", "sep")]
    which += [away == -1, away == 1, away == 0]
    shares = [(weights * chosen).sum(-1) for chosen in which]
    return np.stack([-(weights * logs).sum(-1), (weights * np.abs(away)).sum(-1), *shares])


def most_attended(roles: Sequence[str], weights: np.ndarray, top: int = TOP) -> list[tuple[int, float]]:
    """The tokens that get the most weight from the words, with their shares.        weights (T,T): one head"""
    rows = [place for place, role in enumerate(roles) if not role]
    return largest(weights[rows].mean(0), top)


def largest(values: np.ndarray, top: int = TOP) -> list[tuple[int, float]]:
    """Positions and values of the `top` largest.

    >>> largest(np.array([0.2, 0.5, 0.0, 0.3]), 2)
    [(1, 0.5), (3, 0.3)]
    """
    return [(int(i), float(values[i])) for i in np.argsort(-values, kind="stable")[:top]]


class Analysis(NamedTuple):
    """All results of `analyse`."""

    model: str
    maps: AttentionMaps | None
    statistics: list[HeadStatistics]
    heads: list[tuple[int, int]]  # the chosen ones: (layer, head)
    saliency: list[Saliency]  # the first one is printed
    relations: Relations | None
    untrained: Relations | None  # the same for an untrained model of this architecture
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
    """Analyses heads on a text, the saliency of one word (or of every word), and heads on a treebank.

    layer, head: restrict the heads. name: of the model, for titles. tuned: pass a model that is fine-tuned to classify
    here, too; saliency then explains `label`, by default the predicted one.
    """
    chosen = [(i, j) for i in _chosen("layer", layer, model.depth) for j in _chosen("head", head, model.heads)]
    analysis = Analysis(name, None, [], chosen, [], None, None, "")
    if text is not None:
        maps = attention_maps(model, tokenizer, text, second, tuned.length if tuned else None)
        if tuned and word is None:
            saliency = class_saliency(tuned, text, second, label)
        else:
            saliency = _saliency(model, tokenizer, maps, word, every_word)
        analysis = analysis._replace(maps=maps, statistics=head_statistics(maps), saliency=saliency)
    if relations or treebank is not None:
        scores, untrained, source = _relations(model, tokenizer, treebank)
        analysis = analysis._replace(relations=scores, untrained=untrained, treebank=source)
    return analysis


def load_classifier(folder: str) -> FineTuned | None:
    """The model in a folder if it is fine-tuned to classify, else None."""
    values = read_config(locate(folder))
    task = (values.get("fine_tuning") or {}).get("task")
    published = any(name.endswith("ForSequenceClassification") for name in values.get("architectures") or ())
    if task != "classify" and (task is not None or not published):
        return None
    from mini_bert.finetuning.model import load

    tuned = load(folder)
    return tuned if tuned.task.name == "classify" else None  # published models for similarity use the same class


def _chosen(name: str, chosen: int | None, count: int) -> Sequence[int]:
    if chosen is None:
        return range(count)
    if not 0 <= chosen < count:
        raise ValueError(f"there is no {name} {chosen}; this model has {count}, numbered from 0 to {count - 1}")
    return [chosen]


def _saliency(
    model: Model, tokenizer: Tokenizer, maps: AttentionMaps, word: str | None, every_word: bool
) -> list[Saliency]:
    """The saliency of one word, and then of every other word if requested and fast enough."""
    try:
        model.output_head(MASKED_WORDS)
    except ValueError as error:
        if word is not None:
            raise
        logger.warning("no saliency: %s", error)
        return []
    position = default_position(tokenizer, maps.ids) if word is None else find_word(maps.tokens, maps.roles, word)
    positions = [position]
    size = len(maps.tokens) ** 2 * model.get_parameter_count()
    if every_word and size <= EVERY_WORD:
        positions += [i for i, role in enumerate(maps.roles) if not role and i != position]
    with showing(len(positions) > 1 and size > EVERY_WORD / 10) as show:
        return word_saliency(
            model, tokenizer, maps.ids, positions, maps.types,
            lambda done: show("saliency", f"{done} of {counted(len(positions), 'word')}", done, len(positions)),
        )  # fmt: skip


def find_word(tokens: Sequence[str], roles: Sequence[str], word: str) -> int:
    """The position of a token, given as text or as a number.

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
    problem = f"occurs {len(named)} times in the text" if named else "is not a token of the text"
    raise ValueError(f"{word!r} {problem}; give the number of a token: {listed}")


def _relations(model: Model, tokenizer: Tokenizer, treebank: str | None) -> tuple[Relations, Relations, str]:
    """The scores of the model's heads and of an untrained model's, and the name of the treebank."""
    if treebank is not None:
        sentences, source = read_conllu(treebank), Path(treebank).name
    else:
        sentences, source = parsed(SYNTHETIC_SENTENCES, seed=0), SYNTHETIC
    with showing(len(sentences) > SYNTHETIC_SENTENCES) as show:

        def scores(stage: str, which: Model) -> Relations:
            return relation_scores(
                which, tokenizer, sentences,
                lambda done: show(stage, f"{done:,} of {counted(len(sentences), 'sentence')}", done, len(sentences)),
            )  # fmt: skip

        return scores("scoring heads", model), scores("scoring untrained heads", model.untrained(0)), source

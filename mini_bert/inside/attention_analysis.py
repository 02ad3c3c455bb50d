"""Analyse attention: all heads on one text, the saliency of a prediction, and heads that follow grammar.

    $ mini-bert attention "The cat sat on the mat because it was tired." --out cat.html

`analyse` combines attention_maps.py (weights, statistics of heads), saliency.py (which words a prediction depends on)
and attention_relations.py (heads scored on a treebank); report.py prints and draws the result. Read LIMITS below before
drawing conclusions from a map.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mini_bert.common.progress import counted, showing
from mini_bert.data.labelled.readers import read_conllu
from mini_bert.data.synthetic.dataset import SYNTHETIC, parsed
from mini_bert.files.model_folder import locate, read_config
from mini_bert.inside.attention_maps import AttentionMaps, HeadStatistics, attention_maps, head_statistics
from mini_bert.inside.attention_notes import attention_notes
from mini_bert.inside.attention_relations import Relations, relation_scores
from mini_bert.inside.saliency import (
    Saliency,
    class_saliency,
    default_position,
    find_word,
    first_position,
    word_saliency,
)
from mini_bert.models.base import CONTENT, Model

if TYPE_CHECKING:
    from mini_bert.finetuning.model import FineTuned
    from mini_bert.text.base import Tokenizer

LIMITS = (
    "Attention shows how strongly each token attends to each other token in one head. It does not explain an answer: "
    "a weight does not say what is passed on, in later layers each token is a mixture of many, and much information "
    "bypasses attention. Saliency covers all paths to one answer, but as a gradient it holds for small changes only."
)
SYNTHETIC_SENTENCES = 200  # for scoring heads without a treebank
EVERY_WORD = 1e11  # limit of T² × parameters for computing the saliency of every word
logger = logging.getLogger(__name__)


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
    notes: list[str]  # what a reader should know about this model (attention_notes.py)


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
    stream: str = CONTENT,
) -> Analysis:
    """Analyses heads on a text, the saliency of one word (or of every word), and heads on a treebank.

    layer, head: restrict the heads. name: of the model, for titles. tuned: pass a model that is fine-tuned to classify
    here, too; saliency then explains `label`, by default the predicted one. stream: "query" for the other maps of an
    XLNet.
    """
    chosen = [(i, j) for i in _chosen("layer", layer, model.depth) for j in _chosen("head", head, model.heads)]
    analysis = Analysis(name, None, [], chosen, [], None, None, "", attention_notes(model))
    if text is not None:
        maps = attention_maps(model, tokenizer, text, second, tuned.length if tuned else None, stream)
        analysis = analysis._replace(notes=attention_notes(model, maps))
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
        first = first_position(model)
        position = default_position(tokenizer, maps.ids) if word is None else find_word(tokenizer, maps.ids, word)
        if word is None and position < first:
            raise ValueError("the text has one word, and the model predicts it from those before it; give a longer one")
    except ValueError as error:
        if word is not None:
            raise
        logger.warning("no saliency: %s", error)
        return []
    positions = [position]
    size = len(maps.tokens) ** 2 * model.get_parameter_count()
    if every_word and size <= EVERY_WORD:
        positions += [i for i, role in enumerate(maps.roles) if not role and i != position and i >= first]
    with showing(len(positions) > 1 and size > EVERY_WORD / 10) as show:
        return word_saliency(
            model, tokenizer, maps.ids, positions, maps.types,
            lambda done: show("saliency", f"{done} of {counted(len(positions), 'word')}", done, len(positions)),
        )  # fmt: skip


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

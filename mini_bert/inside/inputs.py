"""Texts for `mini-bert plot-model` (given, read from a file, or synthetic), and the special tokens around a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mini_bert.corpora.formats import format_of
from mini_bert.data.labelled.readers import ColumnError, read_labelled
from mini_bert.data.synthetic.dataset import SYNTHETIC, labelled, sentences
from mini_bert.inference.embed import read_lines
from mini_bert.models.base import NEXT_WORD, Model
from mini_bert.text.base import Tokenizer
from mini_bert.text.templates import Assembled

SYNTHETIC_SENTENCES = 200  # for activations and words
SYNTHETIC_POINTS = 60  # sentences in a figure of embeddings


def texts_of(file: str | None) -> tuple[list[str], str]:
    """Texts, one per line of the file, and where they come from."""
    if file is not None:
        return read_lines(file), "standard input" if file == "-" else Path(file).name
    return [" ".join(one.words) for one in sentences(SYNTHETIC_SENTENCES, seed=0)], SYNTHETIC


def words_of(texts: Sequence[str] | None, file: str | None) -> tuple[list[str], list[str], str]:
    """Distinct words, the group of each ("" for none), and where they come from. Synthetic: by part of speech."""
    if texts or file is not None:
        given, source = (texts, "as given") if texts else texts_of(file)
        words = list(dict.fromkeys(word for text in given for word in text.split()))
        return words, [""] * len(words), source
    tags: dict[str, str] = {}
    for one in sentences(SYNTHETIC_SENTENCES, seed=0):
        for word, tag in zip(one.words, one.tags, strict=True):
            if tag != "PUNCT":
                tags.setdefault(word.lower(), tag)
    return list(tags), list(tags.values()), SYNTHETIC


def sentences_of(texts: Sequence[str] | None, file: str | None) -> tuple[list[str], list[str], str]:
    """Sentences, the label of each ("" for none), and where they come from. Synthetic: by sentiment."""
    if texts:
        return list(texts), [""] * len(texts), "as given"
    if file is None:
        examples, source = labelled(SYNTHETIC_POINTS, seed=0), SYNTHETIC
    elif format_of(file) in ("tsv", "csv", "jsonl"):
        try:
            examples, source = read_labelled(file), Path(file).name
        except ColumnError as error:
            raise error.with_remedy("Name the columns of the file text and label") from None
    else:
        lines, source = texts_of(file)
        return lines, [""] * len(lines), source
    return [one.text for one in examples], [one.label for one in examples], source


def runs_on(model: Model, tokenizer: Tokenizer) -> bool:
    """Whether a model of the next word has a tokenizer that adds special tokens, which it did not see in training."""
    return NEXT_WORD in model.output_heads and "sep" in tokenizer.roles and tokenizer.added_count() > 0


def as_trained(model: Model, tokenizer: Tokenizer, *rows: Sequence[int]) -> Assembled:
    """One text or two, given as ids, with the special tokens that the model saw in training.

    A model of the next word was trained on running text, where a separator comes before each document and no other
    special tokens occur (as in evaluation/likelihood.py). A tokenizer that adds nothing, as GPT-2's, is left alone.
    """
    if not runs_on(model, tokenizer):
        return tokenizer.assemble(*rows)
    ids: list[int] = []
    starts = []
    for row in rows:
        starts.append(len(ids) + 1)
        ids += [tokenizer.sep_id, *row]
    return Assembled(ids, [0] * len(ids), starts, len(ids) - 1)

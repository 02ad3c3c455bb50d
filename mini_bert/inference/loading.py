"""A model with its tokenizer, from whatever names them: what every command that uses a model begins with.

    model, tokenizer = load_model("mini-bert")            the one in the package
    model, tokenizer = load_model("runs/first")           a run of yours: its best model
    model, tokenizer = load_model("all-MiniLM-L6-v2/")    a folder of a published BERT

`model_type` in config.json says which class reads the folder.
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from mini_bert.files.model_folder import locate, read_config
from mini_bert.layers.base import Layer
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.text.tokenizer_files import BUNDLED, JSON, VOCAB
from mini_bert.text.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from mini_bert.models.bert import Bert

DEFAULT_MODEL = "mini-bert"
logger = logging.getLogger(__name__)


def load_model(name_or_folder: str | os.PathLike[str] = DEFAULT_MODEL) -> tuple[MiniBERT | Bert, WordPieceTokenizer]:
    """-> model, tokenizer        by a bundled name, or the folder of a run, checkpoint, Mini-BERT or published BERT"""
    folder = locate(name_or_folder)
    kind = read_config(folder).get("model_type", "bert")  # the first published configs did not say
    model: MiniBERT | Bert
    with warnings.catch_warnings(record=True) as notes:  # in a command, a line says more than a warning and its place
        warnings.simplefilter("always", UserWarning)
        if kind == "mini_bert":
            model = MiniBERT.from_pretrained(folder)
        elif kind == "bert":
            from mini_bert.models.bert import Bert

            model = Bert.from_pretrained(folder)
        else:
            raise ValueError(f"{folder} holds a model of type {kind!r}; expected 'mini_bert' or 'bert'")
    for note in notes:
        logger.warning("%s", note.message)
    return model, tokenizer_of(folder, model.config.vocab_size)


def max_length(model: MiniBERT | Bert) -> int:
    """T: the number of tokens that the model has positions for"""
    if isinstance(model, MiniBERT):
        return model.config.max_seq_length
    return model.config.max_position_embeddings


def word_head(model: MiniBERT | Bert) -> Layer:
    """The layer that turns a token's vector into a score for every word; not every published BERT has one"""
    head = model.head if isinstance(model, MiniBERT) else model.masked_words
    if head is None:
        raise ValueError(
            "this model has no head for masked words: it was published without one, for sentence vectors or other "
            "tasks; try `mini-bert embed` with it, or a model of the masked-language kind"
        )
    return head


def tokenizer_of(folder: Path, vocab_size: int) -> WordPieceTokenizer:
    """The one in the folder; else the bundled one that has as many tokens as the model has ids"""
    if any((folder / name).is_file() for name in (JSON, VOCAB)):
        tokenizer = WordPieceTokenizer.load(folder)
        if tokenizer.vocab_size > vocab_size:
            raise ValueError(
                f"{folder}: its tokenizer has {tokenizer.vocab_size:,} tokens, but its model knows {vocab_size:,} ids; "
                "they do not belong together: put the tokenizer there that the model was trained with"
            )
        return tokenizer
    for path in sorted(BUNDLED.iterdir()):
        if (path / VOCAB).is_file() and (path / VOCAB).read_bytes().count(b"\n") == vocab_size:
            logger.warning(
                "%s has neither %s nor %s; taking the bundled tokenizer %r, which has as many tokens as the model "
                "has ids: %s. If the model was trained with another, its answers will make no sense",
                folder, JSON, VOCAB, path.name, f"{vocab_size:,}",
            )  # fmt: skip
            return WordPieceTokenizer.load(path)
    raise FileNotFoundError(
        f"{folder} has neither {JSON} nor {VOCAB}, and no bundled tokenizer has {vocab_size:,} tokens; "
        "copy the tokenizer that the model was trained with into the folder"
    )

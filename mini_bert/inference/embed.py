"""Sentences as vectors: texts with similar meanings get similar directions.

    $ mini-bert embed "The cat sat on the mat." "A kitten lay on the rug." "Interest rates rose."

A text's vector is the mean of its tokens' vectors, without special tokens and padding (pooling "mean"). Published
sentence encoders include the special tokens (pooling "all") or use the vector of [CLS] (pooling "cls"); in a model that
reads forward, such as GPT-2, that is the last token, which alone has seen the whole text.
Two texts are compared by the cosine of the angle between their vectors: 1 is the same direction, 0 a right angle.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.atomic import write_atomic
from mini_bert.common.inputs import check_finite
from mini_bert.common.json_values import read_object
from mini_bert.common.progress import counted
from mini_bert.common.values import check_positive
from mini_bert.files.model_folder import read_config
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.text.templates import pad

if TYPE_CHECKING:
    from mini_bert.text.base import Tokenizer

POOLING = ("mean", "cls", "all")
FOLDER_POOLING = "sentence_pooling"  # in config.json: the pooling of a model that `export` wrote
VECTOR_FILES = (".npy", ".jsonl")
logger = logging.getLogger(__name__)


def embed(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pooling: str = "mean",
    batch_size: int = 32,
    threads: int = 1,
    after_each: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Returns (N,H), one vector per text, in order.

    Texts that are too long for the model are cut, with a warning. Texts of similar length share a batch, so there is
    little padding; `threads` batches run at a time, each with one BLAS thread. After each batch,
    `after_each(texts done)` is called.
    """
    if isinstance(texts, str):
        raise TypeError("embed takes a list of texts, got one str; write embed(model, tokenizer, [text])")
    if pooling not in POOLING:
        raise ValueError(f"pooling is {pooling!r}, expected one of {', '.join(POOLING)}")
    check_positive("batch_size", batch_size)
    check_positive("threads", threads)
    rows = tokenizer.ids(texts, special=False)
    empty = next((number for number, row in enumerate(rows, 1) if not row), None)
    if empty is not None:
        raise ValueError(f"text {empty} of {len(rows)}, {texts[empty - 1]!r:.40}, has no words; leave it out")
    limit = model.max_length
    room = limit - tokenizer.added_count()
    if room < 1:
        raise ValueError(
            f"this {type(model).__name__} reads at most {counted(limit, 'token')} at once, and the special tokens "
            f"around a text are {tokenizer.added_count()}, so no word fits; use a model with more positions"
        )
    cut = sum(len(row) > room for row in rows)
    if cut:
        logger.warning("cut %d of %s to the model's limit of %d tokens", cut, counted(len(rows), "text"), limit)
        rows = [row[:room] for row in rows]

    vectors = np.empty((len(rows), model.width), model.dtype)
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    batch_size = min(batch_size, -(-len(rows) // threads) or 1)  # a batch for every thread
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

    def work(batch: list[int]) -> int:
        vectors[batch] = vectors_of(model, tokenizer, [rows[number] for number in batch], pooling)
        return len(batch)

    def report(sizes: Iterator[int]) -> None:
        for done in accumulate(sizes):
            if after_each is not None:
                after_each(done)

    if threads == 1 or len(batches) < 2:
        report(map(work, batches))
    else:
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
            report(pool.map(work, batches))
    check_finite(vectors, "the vectors of these texts")
    return vectors


def vectors_of(model: Model, tokenizer: Tokenizer, rows: Sequence[Sequence[int]], pooling: str) -> np.ndarray:
    """The vectors of one batch of texts, (B,H). rows: their ids, without special tokens, none empty or too long"""
    batch = _Batch(model, tokenizer, rows)
    if pooling == "cls":
        places = [len(one.ids) - 1 if model.reads_forward else one.summary for one in batch.sequences]
        chosen = np.arange(len(rows)) * batch.ids.shape[1] + batch.shifts + places
        return model.encode(batch.ids, batch.mask, batch.types, Run(), chosen)[0]
    hidden = batch.hidden()  # (B,T,H)
    which = rows if pooling == "mean" else [one.ids for one in batch.sequences]
    lengths = np.array([len(row) for row in which])
    starts = batch.shifts + [one.starts[0] if pooling == "mean" else 0 for one in batch.sequences]
    places = np.arange(hidden.shape[1]) - starts[:, None]
    weights = ((places >= 0) & (places < lengths[:, None])).astype(hidden.dtype)  # (B,T)
    weights /= weights.sum(1, keepdims=True)
    return (weights[:, None] @ hidden)[:, 0]  # (B,1,T) (B,T,H) -> (B,H)


def pooling_in(folder: Path) -> str | None:
    """How the texts of a pretrained model are pooled: as its config.json says, or the file of sentence-transformers.

    Their mean includes special tokens, and they have no pooling that leaves these out. So a folder that we export says
    in config.json which of both it means.
    """
    own = read_config(folder).get(FOLDER_POOLING)
    if own is not None and own not in POOLING:
        raise ValueError(
            f"{folder}: {FOLDER_POOLING} in config.json is {own!r:.40}, expected one of {', '.join(POOLING)}"
        )
    path = folder / "1_Pooling" / "config.json"
    if own is not None or not path.is_file():
        return own
    settings = read_object(path)
    names = {"pooling_mode_mean_tokens": "all", "pooling_mode_cls_token": "cls"}
    return next((ours for theirs, ours in names.items() if settings.get(theirs) is True), None)


def token_vectors(model: Model, tokenizer: Tokenizer, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """For each text of a batch a vector for each token, (T,H), special tokens included."""
    batch = _Batch(model, tokenizer, rows)
    return [
        line[shift : shift + len(one.ids)].copy()  # or it would keep the whole batch in memory
        for line, shift, one in zip(batch.hidden(), batch.shifts.tolist(), batch.sequences, strict=True)
    ]


def sparse_vectors(model: Model, tokenizer: Tokenizer, rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """For each text max_t log(1 + relu(score of each word at token t)), (V,): the words that it is about.

    The scores are those of the head for masked words. (SPLADE, Formal et al. 2021.)
    """
    head = model.output_head(MASKED_WORDS)
    return [
        np.log1p(np.maximum(head.forward(one, Run())[0].max(0), 0)) for one in token_vectors(model, tokenizer, rows)
    ]


class _Batch:
    """Texts, given as ids, with special tokens around them, padded to one length."""

    def __init__(self, model: Model, tokenizer: Tokenizer, rows: Sequence[Sequence[int]]):
        self.model = model
        self.sequences = [tokenizer.assemble(row) for row in rows]
        self.ids, self.mask, self.types, self.shifts = pad(self.sequences, tokenizer.padding)

    def hidden(self) -> np.ndarray:
        """(B,T,H)"""
        return self.model.encode(self.ids, self.mask, self.types, Run())[0]


def cosines(vectors: np.ndarray) -> np.ndarray:
    """(N,H) -> (N,N): the cosine of every pair, from −1 to 1; 0 for vectors of length 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    return unit @ unit.T


def read_lines(source: str) -> list[str]:
    """The texts in a file, or on standard input (-), one per line; blank lines are skipped."""
    from mini_bert.corpora.decoding import decoded, unpacked

    def note(what: str, file: str, place: str, times: int) -> None:
        logger.warning("%s: %s", ", ".join(filter(None, (name, place))), what)

    name = "standard input" if source == "-" else source
    with nullcontext(sys.stdin.buffer) if source == "-" else open(source, "rb") as stream:
        content = "".join(decoded(unpacked(stream, name), name, note))
    lines = content.removesuffix("\n").split("\n")
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ValueError(f"{name} contains no text; give one text per line")
    if len(texts) < len(lines):
        logger.warning("%s: skipped %s", name, counted(len(lines) - len(texts), "blank line"))
    return texts


def check_vector_file(path: str) -> None:
    """Raise the error that `save_vectors` would raise, before the vectors are computed."""
    if Path(path).suffix not in VECTOR_FILES:
        raise ValueError(f"{path}: expected a name that ends in .npy or .jsonl, or - for standard output")
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"there is no folder {Path(path).parent} to write {path} into; create it first")


def save_vectors(path: str, texts: Sequence[str], vectors: np.ndarray) -> None:
    """Write a .npy file (one array), or a .jsonl file (one text and its vector per line)."""
    check_vector_file(path)
    content = io.BytesIO()
    if Path(path).suffix == ".npy":
        np.save(content, vectors)
    else:
        content.writelines(f"{line}\n".encode() for line in json_lines(texts, vectors))
    write_atomic(Path(path), content.getvalue())


def json_lines(texts: Sequence[str], vectors: np.ndarray) -> Iterator[str]:
    """One line of JSON per text: the text and its vector."""
    for text, vector in zip(texts, vectors, strict=True):
        numbers = [float(f"{number:.7g}") for number in vector.tolist()]
        yield json.dumps({"text": text, "vector": numbers}, ensure_ascii=False)


def first_numbers(text: str, vector: np.ndarray, count: int = 8) -> str:
    """The beginning of a single vector, for a terminal."""
    some = " ".join(f"{number:+.2f}" for number in vector[:count].tolist())
    advice = (
        f"The vector has {vector.size} numbers and length {np.linalg.norm(vector):.1f}. To get all of them, add "
        "--out - (JSON) or --out FILE.npy. Give a second text to compare the two."
    )
    return f"{shown(text)}\n\n  {some} …\n\n{textwrap.fill(advice, 100)}"


def shown(text: str) -> str:
    """A text, shortened to one line."""
    return text if len(text) <= 72 else text[:70] + " …"


def similarity_table(texts: Sequence[str], vectors: np.ndarray) -> str:
    """The cosines of a few texts, and the closest pair."""
    alike = cosines(vectors)
    lines = [f"{number:2}  {shown(text)}" for number, text in enumerate(texts, 1)]
    lines += ["", "    " + "".join(f"{number:7}" for number in range(1, len(texts) + 1))]
    lines += [f"{number:2}  " + "".join(f"{value:7.2f}" for value in row) for number, row in enumerate(alike, 1)]
    others = np.where(np.tri(len(texts), dtype=bool), -np.inf, alike)
    first, second = np.unravel_index(int(others.argmax()), others.shape)
    return "\n".join([*lines, "", f"closest: {first + 1} and {second + 1}, {others[first, second]:.2f}"])

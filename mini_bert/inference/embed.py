"""Sentences as vectors: texts that mean similar things lie in similar directions.

    $ mini-bert embed "The cat sat on the mat." "A kitten lay on the rug." "Interest rates rose."

A model gives every token a vector. The vector of a text is their mean, without the special tokens and the padding;
or, with pooling "cls", the vector of the first token, which is made for that in models fine-tuned so. Published
sentence encoders average all tokens, special ones too: pooling "all".

How alike two texts are is the cosine of the angle between their vectors: 1 for the same direction, 0 for a right angle.
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
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from mini_bert.common.atomic import write_atomic
from mini_bert.common.memory import keep_freed_memory
from mini_bert.common.progress import counted, showing
from mini_bert.common.values import check_positive
from mini_bert.inference.loading import DEFAULT_MODEL, load_model, max_length
from mini_bert.layers.base import Run

if TYPE_CHECKING:
    from mini_bert.models.bert import Bert
    from mini_bert.models.mini_bert import MiniBERT
    from mini_bert.text.wordpiece import WordPieceTokenizer

POOLING = ("mean", "cls", "all")
FEW = 8  # numbers of a vector that are shown
COMPARED = 10  # texts that are compared in a table; more would not fit on a screen
logger = logging.getLogger(__name__)


def embed(
    model: MiniBERT | Bert,
    tokenizer: WordPieceTokenizer,
    texts: Sequence[str],
    pooling: str = "mean",
    batch_size: int = 32,
    threads: int = 1,
    after_each: Callable[[int], None] | None = None,
) -> np.ndarray:
    """-> (N,H), a vector for each text, in their order

    A text longer than the model's positions is cut, and a warning says how many were. Texts of like length are computed
    together, so little is padded; `threads` batches at a time, each with one BLAS thread. `after_each` is told how many
    texts are done.
    """
    if isinstance(texts, str):
        raise TypeError("embed takes a list of texts, got one str; write embed(model, tokenizer, [text])")
    if pooling not in POOLING:
        raise ValueError(f"pooling is {pooling!r}, expected one of {', '.join(POOLING)}")
    check_positive("batch_size", batch_size)
    check_positive("threads", threads)
    rows = [tokenizer.encode(text, special=False) for text in texts]
    empty = next((number for number, row in enumerate(rows, 1) if len(row) < 3), None)
    if empty is not None:
        raise ValueError(f"text {empty} of {len(rows)}, {texts[empty - 1]!r:.40}, has no word; leave it out")
    limit = max_length(model)
    cut = sum(len(row) > limit for row in rows)
    if cut:
        logger.warning("%s of %d longer than the model's %d tokens: cut there", counted(cut, "text"), len(rows), limit)
        rows = [row if len(row) <= limit else [*row[: limit - 1], row[-1]] for row in rows]

    vectors = np.empty((len(rows), model.config.hidden_size), model.dtype)
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    batch_size = min(batch_size, -(-len(rows) // threads) or 1)  # something to do for every thread
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

    def work(batch: list[int]) -> int:
        vectors[batch] = _vectors(model, tokenizer, [rows[number] for number in batch], pooling)
        return len(batch)

    def report(sizes: Iterator[int]) -> None:
        done = 0
        for size in sizes:
            done += size
            if after_each is not None:
                after_each(done)

    if threads == 1 or len(batches) < 2:
        report(map(work, batches))
    else:
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
            report(pool.map(work, batches))
    return vectors


def _vectors(model: MiniBERT | Bert, tokenizer: WordPieceTokenizer, rows: list[list[int]], pooling: str) -> np.ndarray:
    """Ids of texts with [CLS] and [SEP] -> (B,H)"""
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), lengths.max()), tokenizer.pad_id)
    for line, row in zip(ids, rows, strict=True):
        line[: len(row)] = row
    if pooling == "cls":
        return model.encode(ids, _mask(lengths), run=Run(), chosen=np.arange(len(rows)) * ids.shape[1])[0]
    hidden, _ = model.encode(ids, _mask(lengths), run=Run())  # (B,T,H)
    ends = 1 if pooling == "mean" else 0  # [CLS] before and [SEP] behind the words
    places = np.arange(ids.shape[1])
    weights = ((places >= ends) & (places < lengths[:, None] - ends)).astype(hidden.dtype)  # (B,T)
    weights /= weights.sum(1, keepdims=True)
    return (weights[:, None] @ hidden)[:, 0]  # (B,1,T) (B,T,H) -> (B,H)


def _mask(lengths: np.ndarray) -> np.ndarray | None:
    """(B,T) False where padded; None where nothing is"""
    return None if lengths.min() == lengths.max() else np.arange(lengths.max()) < lengths[:, None]


def cosines(vectors: np.ndarray) -> np.ndarray:
    """(N,H) -> (N,N): how alike the directions of each two are, from −1 to 1"""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    return unit @ unit.T


def embed_command(
    texts: list[str] | None = None,
    model: str = DEFAULT_MODEL,
    file: str | None = None,
    out: str | None = None,
    pooling: str = "mean",
    batch: int = 32,
    threads: int = 2,
) -> None:
    """Vectors of texts: the arguments, the lines of a file, or of standard input.

    out: a .npy (an array) or .jsonl (a text and its vector a line), or - for such lines on standard output. Without it,
    up to ten texts are compared in a table, and more go to standard output. One alone goes there, too, unless that is a
    terminal: a person gets its first numbers, and is told how to have them all.
    """
    if out not in (None, "-") and Path(str(out)).suffix not in (".npy", ".jsonl"):
        raise ValueError(f"{out}: expected a name that ends in .npy or .jsonl, or - for standard output")
    if out is not None and not Path(out).parent.is_dir():  # told now, not after the work is done
        raise FileNotFoundError(f"there is no folder {Path(out).parent} to write {out} into; make it first")
    if texts and file is not None:
        raise ValueError("give texts or a file of them, not both")
    if not texts:
        if file is None and sys.stdin.isatty():
            raise ValueError('there is no text; give some, such as "The cat sat." "A cat sat.", or a file, or a pipe')
        texts = read_lines("-" if file is None else file)
    keep_freed_memory()
    loaded, tokenizer = load_model(model)
    # One BLAS thread, for one sentence too: a second gains little, and on a busy machine each waits for the other.
    with threadpool_limits(1, "blas"), showing(len(texts) > 20 * batch) as show:
        vectors = embed(
            loaded, tokenizer, texts, pooling, batch, threads,
            lambda done: show("embedding", f"{done:,} of {counted(len(texts), 'text')}", done, len(texts)),
        )  # fmt: skip
    if out is None and 2 <= len(texts) <= COMPARED:
        print(similarity_table(texts, vectors))
    elif out is None and len(texts) == 1 and sys.stdout.isatty():
        print(first_numbers(texts[0], vectors[0]))
    elif out in (None, "-"):
        for line in _json_lines(texts, vectors):
            print(line)
    else:
        path = Path(str(out))
        if path.suffix == ".npy":
            content = io.BytesIO()
            np.save(content, vectors)
            write_atomic(path, content.getvalue())
        else:
            write_atomic(path, "".join(f"{line}\n" for line in _json_lines(texts, vectors)).encode())
        print(f"{path}: {counted(len(texts), 'vector')} of {vectors.shape[1]} numbers", file=sys.stderr)


def read_lines(source: str) -> list[str]:
    """The texts of a file, or of standard input (-), one a line; blank lines are left out"""
    from mini_bert.corpora.decoding import decoded, unpacked

    def note(what: str, file: str, place: str, times: int) -> None:
        logger.warning("%s, %s: %s", name, place, what)

    name = "standard input" if source == "-" else source
    with nullcontext(sys.stdin.buffer) if source == "-" else open(source, "rb") as stream:
        content = "".join(decoded(unpacked(stream, name), name, note))
    lines = content.removesuffix("\n").split("\n")
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ValueError(f"{name} holds no text; give one text a line")
    if len(texts) < len(lines):
        logger.warning("%s: %s left out", name, counted(len(lines) - len(texts), "blank line"))
    return texts


def _json_lines(texts: Sequence[str], vectors: np.ndarray) -> Iterator[str]:
    for text, vector in zip(texts, vectors, strict=True):
        numbers = [float(f"{number:.7g}") for number in vector.tolist()]
        yield json.dumps({"text": text, "vector": numbers}, ensure_ascii=False)


def first_numbers(text: str, vector: np.ndarray) -> str:
    """One vector for a person to look at"""
    some = " ".join(f"{number:+.2f}" for number in vector[:FEW].tolist())
    words = (
        f"{vector.size} numbers; their vector is {np.linalg.norm(vector):.1f} long. All of them: add --out - (JSON) or "
        f"--out FILE.npy. Give a second text to see how alike the two are."
    )
    return f"{shown(text)}\n\n  {some} …\n\n{textwrap.fill(words, 100)}"


def shown(text: str) -> str:
    """A text on one line"""
    return text if len(text) <= 72 else text[:70] + " …"


def similarity_table(texts: Sequence[str], vectors: np.ndarray) -> str:
    """Which of a few texts are alike: their cosines, and the pair that is closest"""
    alike = cosines(vectors)
    lines = [f"{number:2}  {shown(text)}" for number, text in enumerate(texts, 1)]
    lines += ["", "    " + "".join(f"{number:7}" for number in range(1, len(texts) + 1))]
    lines += [f"{number:2}  " + "".join(f"{value:7.2f}" for value in row) for number, row in enumerate(alike, 1)]
    others = np.where(np.tri(len(texts), dtype=bool), -np.inf, alike)
    first, second = np.unravel_index(int(others.argmax()), others.shape)
    return "\n".join([*lines, "", f"closest: {first + 1} and {second + 1}, {others[first, second]:.2f}"])

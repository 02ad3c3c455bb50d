"""Tokenization speed compared with the `tokenizers` library, on the same lines and cores.

    python benchmarks/tokenization.py                      20 MB, 5 rounds; needs tokenizers (run.py test --peers)
    python benchmarks/tokenization.py --kind wordpiece --tokenizer 50k --megabytes 5 --rounds 3

Every kind of tokenizer has its table. Every round builds both tokenizers again, so caches are cold, and times them
alternately; the table shows medians. The library uses all cores it is given (two by default), we use one. On a busy
machine, that favours the library, because two threads get more of its time than one; the last column is the ratio of
processor times, in which the seconds of both cores count. The lines are
half from the Wikipedia and half from the book text in ../shared/data/pretrain, or else from the built-in corpus. The
vocabularies are the published ones of BERT, GPT-2 and ALBERT if available, or else the bundled ones. Before timing, the
ids of all lines are compared. ALBERT's spiece.model is compared with the `sentencepiece` library, too.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import lzma
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from mini_bert.corpora.reading import read
from mini_bert.text.base import Tokenizer
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import GPT2
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.unigram_learning import rules_for
from mini_bert.text.wordpiece import WordPieceTokenizer

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
SHORT = 60  # characters of a short line


def wordpiece(name: str | None) -> tuple[str, Tokenizer]:
    published = DATA / "vocab" / "bert-base-uncased-vocab.txt.gz"
    if name is None and published.is_file():
        tokens = gzip.decompress(published.read_bytes()).decode().removesuffix("\n").split("\n")
        return "BERT's published vocabulary", WordPieceTokenizer(tokens)
    return name or "8k", WordPieceTokenizer.load(name or "8k")


def bpe(name: str | None) -> tuple[str, Tokenizer]:
    folder = DATA / "vocab"
    if name is None and (folder / "gpt2-vocab.json.gz").is_file():
        vocab = json.loads(gzip.decompress((folder / "gpt2-vocab.json.gz").read_bytes()))
        merges = gzip.decompress((folder / "gpt2-merges.txt.gz").read_bytes()).decode().split("\n")[1:]
        return "GPT-2's published vocabulary", BpeTokenizer(list(vocab), [m.split(" ") for m in merges if m], GPT2)
    return name or "bpe-8k", BpeTokenizer.load(name or "bpe-8k")


def unigram(name: str | None) -> tuple[str, Tokenizer]:
    if name is None and ALBERT.is_file():
        model = UnigramTokenizer.load(ALBERT)
        rules = rules_for(lowercase=True)  # of ALBERT's tokenizer.json, and its character map
        rules["normalizer"]["normalizers"].append(
            {"type": "Precompiled", "precompiled_charsmap": model.rules["character_map"]}
        )
        settings = model.settings | {"rules": rules, "symbols": ()}
        return "ALBERT's published vocabulary", UnigramTokenizer(model.tokens, **settings)
    return name or "unigram-8k", UnigramTokenizer.load(name or "unigram-8k")


ALBERT = DATA / "vocab" / "albert-spiece.model"
KINDS: dict[str, Callable[[str | None], tuple[str, Tokenizer]]] = {
    "wordpiece": wordpiece,
    "bpe": bpe,
    "unigram": unigram,
}


def lines(megabytes: float) -> tuple[str, list[str]]:
    paths = sorted((DATA / "pretrain").glob("*.txt.xz"))
    if not paths:
        texts = (line for passage in read("builtin") for line in passage.text.splitlines())
        return "the built-in corpus", take(texts, megabytes)
    found = []
    for path in paths:
        with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
            found.append(take((line.removesuffix("\n") for line in file), megabytes / len(paths)))
    return "Wikipedia and books", list(chain.from_iterable(found))


def take(texts: Any, megabytes: float) -> list[str]:
    found, size = [], 0
    for text in texts:
        found.append(text)
        size += len(text.encode()) + 1
        if size > megabytes * 1e6:
            break
    return found


class Seconds(NamedTuple):
    elapsed: float
    processor: float  # of all cores together


def seconds(work: Callable[[], Any]) -> Seconds:
    gc.collect()
    start = time.perf_counter(), time.process_time()
    kept = work()
    elapsed = Seconds(time.perf_counter() - start[0], time.process_time() - start[1])
    del kept  # do not time freeing the memory
    return elapsed


def report(title: str, times: list[tuple[Seconds, Seconds]], speed: Callable[[float], str]) -> None:
    """Prints a row: our speed, theirs, and the medians of the ratios; times: ours and theirs, for each round."""
    we, they = (statistics.median(one.elapsed for one in column) for column in zip(*times, strict=True))
    ratios = sorted(other.elapsed / mine.elapsed for mine, other in times)
    processor = statistics.median(other.processor / mine.processor for mine, other in times)
    print(
        f"{title:38}{speed(we):>12}{speed(they):>14}{statistics.median(ratios):>7.2f}×   "
        f"{ratios[0]:>7.2f} to {ratios[-1]:.2f}{processor:>15.2f}×"
    )


def heading(other: str) -> None:
    ratios = f"{'ratio':>8}   {'range over rounds':>17}{'processor time':>16}"
    print(f"{'':38}{'Mini-BERT':>12}{other:>14}{ratios}")


def compare(kind: str, name: str | None, texts: list[str], rounds: int) -> None:
    """Prints a table of speeds, ours and theirs, for one kind of tokenizer."""
    vocabulary, ours = KINDS[kind](name)
    size = sum(len(text.encode()) + 1 for text in texts) / 1e6
    short = [text[:SHORT].rpartition(" ")[0] or text[:SHORT] for text in texts if text][:20_000]
    print(f"\n{kind}: {vocabulary}, {len(ours):,} pieces")
    with tempfile.TemporaryDirectory() as folder:
        ours.save(folder)
        blueprint = (Path(folder) / "tokenizer.json").read_text(encoding="utf-8")

    def theirs() -> Any:
        return tokenizers.Tokenizer.from_str(blueprint)

    def fresh() -> Tokenizer:
        return type(ours)(ours.tokens, **ours.settings)

    reference = theirs().encode_batch(texts, add_special_tokens=False)
    differ = sum(row != other.ids for row, other in zip(fresh().ids(texts), reference, strict=True))
    print(f"lines whose ids differ: {differ}")
    if differ:
        raise SystemExit("the two tokenizers do not agree, so their speeds are not compared")
    del reference

    def one_by_one(encode: Callable[[str], Any]) -> None:
        for text in short:
            encode(text)

    def everything(tokenizer: Any) -> None:
        for encoding in tokenizer.encode_batch(texts):
            _ = encoding.ids, encoding.offsets, encoding.word_ids

    # Each row: a title, our work, their work. Each side gets a new tokenizer.
    bare = {"add_special_tokens": False}
    ids = lambda tokenizer: tokenizer.ids(texts)  # noqa: E731
    rows: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
        ("many lines: ids; encode_batch", ids, lambda t: t.encode_batch(texts, **bare)),
        ("many lines, and ids as lists", ids, lambda t: [e.ids for e in t.encode_batch(texts, **bare)]),
        ("many lines; encode_batch_fast", ids, lambda t: t.encode_batch_fast(texts, **bare)),
        ("encode_batch", lambda t: t.encode_batch(texts), lambda t: t.encode_batch(texts)),
        ("encode_batch: ids, offsets, word ids", everything, everything),
        (f"one line of ≤ {SHORT} characters", lambda t: one_by_one(t.encode), lambda t: one_by_one(t.encode)),
    ]
    if not hasattr(tokenizers.Tokenizer, "encode_batch_fast"):
        del rows[2]
    times: dict[str, list[tuple[Seconds, Seconds]]] = {title: [] for title, _, _ in rows}
    for number in range(rounds):
        for title, our_work, their_work in rows:
            mine, other = fresh(), theirs()
            pair = [(our_work, mine), (their_work, other)]
            found = [seconds(lambda work=work, t=t: work(t)) for work, t in (pair if number % 2 else reversed(pair))]
            times[title].append((found[0], found[1]) if number % 2 else (found[1], found[0]))

    heading("tokenizers")
    for title, rounds_of_it in times.items():
        each = (lambda t: f"{1e6 * t / len(short):.1f} µs") if title.startswith("one") else megabytes(size)
        report(title, rounds_of_it, each)


def megabytes(size: float) -> Callable[[float], str]:
    return lambda elapsed: f"{size / elapsed:.1f} MB/s"


def compare_sentencepiece(texts: list[str], rounds: int) -> None:
    """Prints a table of speeds with a spiece.model, ours and those of the `sentencepiece` library."""
    import sentencepiece

    size = sum(len(text.encode()) + 1 for text in texts) / 1e6
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(ALBERT))
    blueprint = UnigramTokenizer.load(ALBERT)
    print("\nALBERT's spiece.model, with the rules of sentencepiece (lower-cased lines: its pieces are lower-case)")
    heading("sentencepiece")
    for title, lines in (("lines as they are", texts), ("lines in lower case", [text.lower() for text in texts])):
        assert blueprint.ids(lines, special=False) == theirs.encode(lines), "the two tokenizers do not agree"
        for threads in (1, 2):
            times = []
            for _ in range(rounds):
                mine = UnigramTokenizer(blueprint.tokens, **blueprint.settings)
                we = seconds(lambda mine=mine, lines=lines: mine.ids(lines, special=False))
                they = seconds(lambda lines=lines, threads=threads: theirs.encode(lines, num_threads=threads))
                times.append((we, they))
            report(f"{title}; threads: {threads}", times, megabytes(size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", choices=KINDS, help="only this kind; default: all")
    parser.add_argument("--tokenizer", help="with --kind: 8k, 50k, bpe-8k, unigram-8k or a path")
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    if options.tokenizer and not options.kind:
        parser.error("--tokenizer needs --kind")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    source, texts = lines(options.megabytes)
    size = sum(len(text.encode()) + 1 for text in texts) / 1e6
    print(f"{len(texts):,} lines, {size:.1f} MB of {source}; {options.rounds} rounds, medians")
    for kind in [options.kind] if options.kind else KINDS:
        compare(kind, options.tokenizer, texts, options.rounds)
        if kind == "unigram" and not options.tokenizer and ALBERT.is_file():
            compare_sentencepiece(texts, options.rounds)
    busy = f"; load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"\n{os.cpu_count()} cores, {options.cores} used{busy}; tokenizers {tokenizers.__version__}")


if __name__ == "__main__":
    main()

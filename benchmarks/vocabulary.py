"""Training a vocabulary, compared with the trainer of the `tokenizers` library: time, memory, tokens per word.

    python benchmarks/vocabulary.py                         8,192 pieces from all the text, three rounds
    python benchmarks/vocabulary.py --vocab-size 50000
    python benchmarks/vocabulary.py --kind bpe              byte-level BPE instead of WordPiece
    python benchmarks/vocabulary.py --kind unigram          compared with the trainer of `sentencepiece`, too
    python benchmarks/vocabulary.py --rules                 also compare rules for choosing pieces, and alphabet
                                                            sizes; takes several more minutes

The text is that in ../shared/data/pretrain, or `--text FILE ...`. It is decompressed first: both sides read the same
plain .txt files. The time is from the first byte read to the finished vocabulary; each run is a new process. Memory is
the sum over all processes of a side, sampled from /proc (Linux only).

Tokens per word are measured on one document in twenty, held out from both sides: for this, both train again on the
other nineteen. Words are weighted by frequency; our tokenizer applies both vocabularies. The settings are the same on
both sides: pairs that occur at least twice; for WordPiece lower case, and at most 1,000 different characters; for BPE
RoBERTa's special tokens, and all 256 bytes; for Unigram lower case, and about 300 different characters, except that
`tokenizers` always keeps all.
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mini_bert.corpora.reading import read
from mini_bert.text import bpe_learning, byte_level, unigram_learning
from mini_bert.text.bpe import BpeTokenizer
from mini_bert.text.bpe_conventions import ROBERTA
from mini_bert.text.byte_level import BYTE_CHARACTERS
from mini_bert.text.sentencepiece_model import SentencePieceModel
from mini_bert.text.unigram import UnigramTokenizer
from mini_bert.text.unigram_conventions import ALBERT
from mini_bert.text.vocabulary import Merges, choose, count_words, frequent_alphabet, learn, texts_of, tokens_per_word
from mini_bert.text.wordpiece import SPECIAL_TOKENS, WordPieceTokenizer
from mini_bert.text.wordsplit import WordSplitter

PRETRAIN = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "pretrain"
SIDES = ("mini-bert", "tokenizers", "sentencepiece")
HELD_OUT = 20  # every 20th document is held out
ALPHABET, MIN_FREQUENCY = 1000, 2


# --- one side, in its own process ---------------------------------------------------------------------


def ours(files: list[str], vocab_size: int) -> list[str]:
    return learn(files, vocab_size, min_frequency=MIN_FREQUENCY, limit_alphabet=ALPHABET, progress=False)


def peer(files: list[str], vocab_size: int) -> list[str]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        limit_alphabet=ALPHABET,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer.train(files, trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=lambda piece: ids[piece])


def our_merges(files: list[str], vocab_size: int) -> list[str]:
    return [" ".join(pair) for pair in bpe_learning.learn(files, vocab_size, progress=False)[1]]


def peer_merges(files: list[str], vocab_size: int) -> list[str]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=list(ROBERTA.roles.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train(files, trainer)
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def our_scores(files: list[str], vocab_size: int) -> list[str]:
    found = unigram_learning.learn(files, vocab_size, limit_alphabet=300, progress=False)
    return [f"{piece} {score}" for piece, score in zip(found["vocab"], found["scores"], strict=True)]


def peer_scores(files: list[str], vocab_size: int) -> list[str]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    special = list(ALBERT.roles.values())
    tokenizer.train(
        files,
        trainers.UnigramTrainer(vocab_size=vocab_size, special_tokens=special, unk_token="<unk>", show_progress=False),
    )
    return [f"{piece} {score}" for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]


def sentencepiece_scores(files: list[str], vocab_size: int) -> list[str]:
    import sentencepiece

    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(
            input=",".join(files), model_prefix=f"{folder}/model", vocab_size=vocab_size, model_type="unigram",
            normalization_rule_name="nmt_nfkc_cf", character_coverage=0.99997, num_threads=os.cpu_count(),
            max_sentence_length=1_000_000, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1,
            control_symbols=["[CLS]", "[SEP]", "[MASK]"], minloglevel=2,
        )  # fmt: skip
        pieces = SentencePieceModel.read(Path(folder) / "model.model").pieces
    return [f"{piece.text} {piece.score}" for piece in pieces]


LEARNERS = {
    "wordpiece": {"mini-bert": ours, "tokenizers": peer},
    "bpe": {"mini-bert": our_merges, "tokenizers": peer_merges},
    "unigram": {"mini-bert": our_scores, "tokenizers": peer_scores, "sentencepiece": sentencepiece_scores},
}


def learn_once(kind: str, side: str, vocab_size: int, out: str, files: list[str]) -> None:
    """Train, write the pieces, or the merges of BPE, print the seconds."""
    if side != "mini-bert":
        importlib.import_module(side)  # this is not timed
    began = time.perf_counter()
    lines = LEARNERS[kind][side](files, vocab_size)
    print(time.perf_counter() - began)
    Path(out).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def result_of(kind: str, path: Path, held_out: Counter[str]) -> tuple[str, float]:
    """What was learnt, for people, and its tokens per word."""
    if kind == "wordpiece":
        tokenizer = WordPieceTokenizer.load(path)
        tokens, unknown = tokens_per_word(tokenizer, held_out)
        return f"{tokenizer.vocab_size:7,} pieces, {tokens:.4f} tokens per word, {unknown:.4%} [UNK]", tokens
    if kind == "unigram":
        entries = [line.rsplit(" ", 1) for line in path.read_text(encoding="utf-8").split("\n") if line]
        rules = unigram_learning.rules_for(lowercase=True)
        scores = {piece: float(score) for piece, score in entries}
        unigram = UnigramTokenizer(list(scores), list(scores.values()), ALBERT.roles, rules)
        rows = unigram.ids(held_out, special=False)
        total = sum(len(row) * count for row, count in zip(rows, held_out.values(), strict=True))
        letters = sum(len(piece) == 1 for piece in scores)
        tokens = total / held_out.total()
        return f"{len(scores):7,} pieces, {letters:,} of one character, {tokens:.4f} tokens per word", tokens
    merges = [line.split(" ") for line in path.read_text(encoding="utf-8").splitlines()]
    pieces = dict.fromkeys((*BYTE_CHARACTERS, *(left + right for left, right in merges), *ROBERTA.roles.values()))
    rows = BpeTokenizer(list(pieces), merges).ids(held_out, special=False)
    total = sum(len(row) * count for row, count in zip(rows, held_out.values(), strict=True))
    tokens = total / held_out.total()
    return f"{len(pieces):7,} pieces, {tokens:.4f} tokens per word", tokens


# --- both sides, measured -----------------------------------------------------------------------------------


def watched(side: str, vocab_size: int, out: Path, files: list[Path], kind: str = "wordpiece") -> tuple[float, float]:
    """Returns the seconds and the peak resident memory of all processes in MB (NaN without /proc)."""
    command = [sys.executable, __file__, "--kind", kind, "--learner", side, "--vocab-size", str(vocab_size)]
    command += ["--out", str(out)]
    peak = 0.0
    with subprocess.Popen([*command, "--text", *map(str, files)], stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            peak = max(peak, sum(map(resident, family(process.pid))))
            time.sleep(0.02)
        assert process.stdout is not None
        answer = process.stdout.read()
    if process.returncode:
        sys.exit(f"training with {side} failed; is it installed? `python run.py test --peers` installs it")
    return float(answer), peak or math.nan


def family(pid: int) -> Iterator[int]:
    yield pid
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from family(int(child))
    except OSError:  # the process has ended, or there is no /proc
        return


def resident(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, IndexError):
        return 0.0


# --- which rule? -------------------------------------------------------------------------------------------


def merged(words: dict[str, int], room: int, score: Callable[[int, int, int, int], float]) -> list[str]:
    """Merge pairs by any score of the counts of (the pair, its left part, its right part, all pieces).

    A score can change even if the count of its pair does not, so at first all scores are recomputed after every merge.
    Later, when a merge changes little, they are recomputed less often.
    """
    merges = Merges(words)
    characters = len(merges.pieces)
    while len(merges.pieces) < characters + room:
        uses, total = merges.uses, sum(merges.uses)
        pairs = [pair for pair, count in merges.pairs.items() if count >= MIN_FREQUENCY]
        scored = [(score(merges.pairs[p], uses[ord(p[0])], uses[ord(p[1])], total), p) for p in pairs]
        learnt = len(merges.pieces) - characters
        best = heapq.nlargest(min(1 + learnt // 50, room - learnt), scored)
        if not best:
            break
        for _, pair in best:
            if merges.pairs.get(pair, 0) >= MIN_FREQUENCY:
                merges.merge(pair)
    return [*SPECIAL_TOKENS, *merges.pieces]


def compare_rules(train: list[Path], held_out: Counter[str], vocab_size: int) -> None:
    words = count_words(texts_of(train), WordSplitter(), 100, None, nothing)
    spellable = frequent_alphabet(words, ALPHABET)
    merges = Merges(spellable)
    room = vocab_size - len(SPECIAL_TOKENS) - len(merges.pieces)
    while len(merges.pieces) + len(SPECIAL_TOKENS) < vocab_size and (pair := merges.best(MIN_FREQUENCY)):
        merges.merge(pair)
    plain = [*SPECIAL_TOKENS, *merges.pieces]
    rules: dict[str, Callable[[], list[str]]] = {
        "merge by count": lambda: plain,
        "merge by count, keep what earns its place (ours)": lambda: choose(
            words, vocab_size, MIN_FREQUENCY, ALPHABET, nothing
        ),
        "merge by likelihood gain, n log(n N / l r)": lambda: merged(
            spellable, room, lambda n, l, r, N: n * math.log(n * N / (l * r))
        ),
        "merge by association, n / l r": lambda: merged(spellable, room, lambda n, l, r, N: n / (l * r)),
    }
    print(f"\n{vocab_size:,} pieces{'tokens per word':>53}{'used < 100 times':>20}")
    for name, rule in rules.items():
        tokenizer = WordPieceTokenizer(rule())
        uses: Counter[int] = Counter()
        for word, count in words.items():
            for piece in tokenizer.match(word):
                uses[piece] += count
        long = [i for i, piece in enumerate(tokenizer.tokens) if i > 4 and len(piece.removeprefix("##")) > 1]
        rare = sum(uses[i] < 100 for i in long)
        print(f"{name:50}{tokens_per_word(tokenizer, held_out)[0]:15.4f}{rare:20,}", flush=True)

    print(f"\n{'limit_alphabet (ours)':24}{'character pieces':>16}{'tokens per word':>17}{'[UNK]':>10}")
    for limit in (100, 300, 1000, 3000):
        pieces = choose(words, vocab_size, MIN_FREQUENCY, limit, nothing)
        characters = sum(len(piece.removeprefix("##")) == 1 for piece in pieces)
        tokens, unknown = tokens_per_word(WordPieceTokenizer(pieces), held_out)
        print(f"{limit:<24,}{characters:16,}{tokens:17.4f}{unknown:10.4%}", flush=True)


def nothing(*_: Any) -> None:
    pass


# --- the run -----------------------------------------------------------------------------------------------


def unpack(sources: list[str], folder: Path, kind: str = "wordpiece") -> tuple[list[Path], list[Path], Counter[str]]:
    """Returns files with all the text, files without the held-out documents, and the held-out documents' words."""
    whole: list[Path] = []
    train: list[Path] = []
    held_out: Counter[str] = Counter()
    split = {"wordpiece": WordSplitter().words, "bpe": byte_level.words, "unigram": str.split}[kind]
    document = -1
    for number, source in enumerate(sources):
        for kind, files in (("whole", whole), ("train", train)):
            files.append(folder / f"{kind}-{number}.txt")
        with (
            open(whole[-1], "w", encoding="utf-8", newline="\n") as everything,
            open(train[-1], "w", encoding="utf-8", newline="\n") as seen,
        ):
            for text, first in read(source):
                document += first
                everything.write(f"{text}\n\n")
                if document % HELD_OUT == 0:
                    held_out.update(split(text))
                else:
                    seen.write(f"{text}\n\n")
    return whole, train, held_out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--kind", choices=LEARNERS, default="wordpiece")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rules", action="store_true", help="also compare rules for choosing pieces and characters")
    parser.add_argument("--text", nargs="+", help="text files; default: those in ../shared/data/pretrain")
    parser.add_argument("--learner", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.learner:
        learn_once(options.kind, options.learner, options.vocab_size, options.out, options.text)
        return
    sources = options.text or [str(PRETRAIN / "wiki.txt.xz"), str(PRETRAIN / "books.txt.xz")]
    for source in sources:
        if not Path(source).exists():
            sys.exit(f"{source} does not exist; pass text files with --text FILE ...")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, train, held_out = unpack(sources, folder, options.kind)
        size = sum(path.stat().st_size for path in whole)
        print(
            f"{options.kind}: {options.vocab_size:,} pieces from {size / 1e6:,.1f} MB of plain text, "
            f"{options.rounds} rounds"
        )
        print(f"{'':12}{'seconds':>10}{'MB resident':>13}   of each round")
        sides = list(LEARNERS[options.kind])
        seconds: dict[str, list[float]] = {side: [] for side in sides}
        memory: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side in sides:
                taken, peak = watched(side, options.vocab_size, folder / "timed.txt", whole, options.kind)
                seconds[side].append(taken)
                memory[side].append(peak)
        for side in sides:
            each = " ".join(f"{taken:.1f}" for taken in seconds[side])
            print(f"{side:14}{statistics.median(seconds[side]):8.1f}{max(memory[side]):13.0f}   {each}")
        for side in sides[1:]:
            ratios = [mine / theirs for mine, theirs in zip(seconds["mini-bert"], seconds[side], strict=True)]
            print(f"time, ours / {side}: {statistics.median(ratios):.2f} (median of {options.rounds} rounds)")

        print(f"\nOn {sum(held_out.values()):,} held-out words:")
        results = {}
        for side in sides:
            out = folder / f"{side}.txt"
            watched(side, options.vocab_size, out, train, options.kind)
            said, results[side] = result_of(options.kind, out, held_out)
            print(f"{side:14}{said}")
        for side in sides[1:]:
            print(f"tokens per word, ours / {side}: {results['mini-bert'] / results[side]:.4f}")
        if options.kind == "bpe":
            same = len({(folder / f"{side}.txt").read_bytes() for side in sides}) == 1
            print(f"the merges of both sides are {'the same' if same else 'different'}")
        if options.rules and options.kind == "wordpiece":
            compare_rules(train, held_out, options.vocab_size)


if __name__ == "__main__":
    main()

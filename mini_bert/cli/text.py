"""The commands `mini-bert tokenizer ...` and `mini-bert data ...`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_bert.cli.words import COLUMN, SOURCES
from mini_bert.common.invocation import command
from mini_bert.common.progress import counted

if TYPE_CHECKING:
    from mini_bert.text.trained import Trained


def tokenizer_show(
    text: Annotated[str, typer.Argument(help="any text")],
    tokenizer: Annotated[
        str,
        typer.Option(help="8k, 50k, bpe-8k, unigram-8k, a tokenizer file, or a folder of a tokenizer, model or run"),
    ] = "8k",
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show how a tokenizer splits a text. Lists each piece, its id, its word, and the part of the text it comes from.

    For example:  mini-bert tokenizer show "Unaffable zebras"
    """
    from mini_bert.common.json_values import as_json
    from mini_bert.text.loading import load_tokenizer

    loaded = load_tokenizer(tokenizer)
    if not json:
        print(loaded.explain(text))
        return
    found = loaded.encode_batch([text])[0]
    pieces = [loaded.readable(i) for i in found.ids]
    print(as_json({"pieces": pieces, "ids": found.ids, "word_ids": found.word_ids, "offsets": found.offsets}))


def tokenizer_train(
    corpus: Annotated[list[str] | None, typer.Argument(help=SOURCES, show_default="builtin")] = None,
    column: Annotated[str | None, typer.Option(help=COLUMN)] = None,
    vocab_size: Annotated[int, typer.Option(help="number of pieces to learn, special tokens included")] = 8192,
    out: Annotated[Path, typer.Option(help="the folder to write")] = Path("tokenizer"),
    kind: Annotated[
        str | None,
        typer.Option(
            help="wordpiece as in BERT, bpe (byte-level) as in RoBERTa and GPT-2, or unigram as in ALBERT",
            show_default="wordpiece, or that of --like",
        ),
    ] = None,
    cased: Annotated[bool, typer.Option("--cased", help="keep upper case and accents; bpe always does")] = False,
    limit_alphabet: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="number of different characters to keep; words with rarer ones become [UNK]; bpe spells all",
            show_default="1000",
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            help="the model whose kind of tokenizer, special tokens and templates to use: bert, distilbert, electra, "
            "roberta, gpt2, deberta, modernbert, albert, xlnet or deberta-v3",
            show_default="bert, roberta or albert, by --kind",
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="processes that count words", show_default="one per core, up to 3")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace a tokenizer that is already in the folder")] = False,
) -> None:
    """Learn the vocabulary of a tokenizer from text. Saves it in files that other libraries can read.

    For example:  mini-bert tokenizer train my_texts/ --vocab-size 16000 --out my_tokenizer

    Or like RoBERTa:  mini-bert tokenizer train my_texts/ --like roberta --out my_tokenizer
    """
    from mini_bert.text import trained

    kind, like = trained.kind_like(kind, like)  # options are checked before files
    if kind == "bpe" and limit_alphabet is not None:
        raise ValueError("--limit-alphabet has no effect with --kind bpe, which spells every character; leave it out")
    _check_out(out, force)
    tokenizer, summary = _train(
        kind, corpus or ["builtin"], vocab_size, not cased, limit_alphabet, like, processes, column
    )
    tokenizer.save(out)
    files = sorted(path.name for path in out.iterdir() if path.name in TOKENIZER_FILES)
    print(f"{summary}\nSaved in {out}: {', '.join(files)}")


def _train(
    kind: str,
    corpus: list[str],
    vocab_size: int,
    lowercase: bool,
    limit_alphabet: int | None,
    like: str,
    processes: int | None,
    column: str | None,
) -> Trained:
    from mini_bert.text import trained

    style = trained.LIKE[kind][like]
    if kind == "bpe":
        return trained.bpe(corpus, vocab_size, processes, column, style)
    given = (corpus, vocab_size, lowercase, 1000 if limit_alphabet is None else limit_alphabet, processes, column)
    return trained.wordpiece(*given) if kind == "wordpiece" else trained.unigram(*given, style)


TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json", "vocab.json", "merges.txt", "spiece.model")


def _check_out(folder: Path, force: bool) -> None:
    """Check, before any work is done, that the folder can be written and that no tokenizer would be overwritten."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise NotADirectoryError(f"{existing} is a file, but a tokenizer is saved in a folder; choose one with --out")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"no permission to write in {existing}; choose another folder with --out")
    if not force and any((folder / name).exists() for name in TOKENIZER_FILES):
        raise FileExistsError(
            f"the folder {folder} already has a tokenizer; choose another with --out, or replace it with --force"
        )


def data_list() -> None:
    """List the data sets that can be downloaded by name. With size, licence, and whether they are installed."""
    from mini_bert.corpora.downloads import overview

    print(overview())


def data_get(
    names: Annotated[list[str], typer.Argument(help=f"names from `{command('data list')}`")],
    force: Annotated[bool, typer.Option("--force", help="download again even if it is installed")] = False,
) -> None:
    """Download data sets from their publishers to the cache folder. An interrupted download is resumed.

    For example:  mini-bert data get wikitext-2 ud-ewt
    """
    from mini_bert.corpora.downloads import dataset, get, installed

    for name in names:
        dataset(name)  # report a wrong name before the first download
    for name in names:
        already = " (already installed)" if not force and installed(name) else ""
        folder = get(name, force)
        print(f"{name}: {counted(len(installed(name)), 'file')} in {folder}{already}")


def data_show(
    source: Annotated[list[str] | None, typer.Argument(help=SOURCES, show_default="builtin")] = None,
    samples: Annotated[int, typer.Option(min=0, help="passages to show")] = 3,
    column: Annotated[str | None, typer.Option(help=COLUMN)] = None,
) -> None:
    """Read text and report what it contains. Also what had to be repaired, and a few passages.

    Without a source, this is the built-in corpus: the English documentation in every Python installation.
    """
    from mini_bert.corpora.reading import Report, read, sample

    report = Report()
    shown = sample(read(source or "builtin", report, column=column), samples)
    print(report, *shown, sep="\n\n  ")


def data_labelled(
    kind: Annotated[
        str, typer.Option(help="sentiment, tags (entities), parsed (parts of speech, trees), similarity, questions")
    ] = "sentiment",
    count: Annotated[int, typer.Option(min=1, help="examples to show")] = 5,
    seed: Annotated[int, typer.Option(help="another seed gives other examples")] = 0,
    split: Annotated[str, typer.Option(help="train, or dev: half of the names never occur in train")] = "train",
    out: Annotated[
        Path | None,
        typer.Option(
            help="write the examples to this file, which fine-tuning and probes can read: .tsv for sentiment and "
            "similarity, .conll for tags, .conllu for parsed, .jsonl for questions"
        ),
    ] = None,
) -> None:
    """Show labelled English made by a grammar, or write it to a file. Probes and fine-tuning use it without a file.

    For example:  mini-bert data labelled --kind parsed --count 2

    Or a file:  mini-bert data labelled --count 1000 --out sentiment.tsv
    """
    from mini_bert.common.atomic import write_atomic
    from mini_bert.data.synthetic.dataset import SYNTHETIC, examples, shown
    from mini_bert.data.synthetic.files import check_name, content_of

    if out is not None:
        check_name(kind, out)
    chosen = examples(kind, count, seed, split)
    if out is not None:
        write_atomic(out, content_of(chosen).encode())
        print(f"{out}: {counted(count, 'example')} of {SYNTHETIC}: {kind}, seed {seed}, split {split}")
        return
    print(f"{SYNTHETIC}: {kind}, seed {seed}, split {split}", *map(shown, chosen), sep="\n")

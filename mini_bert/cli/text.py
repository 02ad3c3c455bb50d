"""The options of `mini-bert tokenizer ...` and `mini-bert data ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mini_bert.cli.words import COLUMN, SOURCES
from mini_bert.common.invocation import command


def tokenizer_show(
    text: Annotated[str, typer.Argument(help="any text")],
    tokenizer: Annotated[str, typer.Option(help="8k, 50k, a model folder, a tokenizer.json or a vocab.txt")] = "8k",
) -> None:
    """Show what a tokenizer makes of a text. Pieces, ids, words, and where each comes from.

    For example:  mini-bert tokenizer show "Unaffable zebras"
    """
    from mini_bert.text.wordpiece import WordPieceTokenizer

    print(WordPieceTokenizer.load(tokenizer).explain(text))


def tokenizer_train(
    corpus: Annotated[list[str] | None, typer.Argument(help=SOURCES, show_default="builtin")] = None,
    column: Annotated[str | None, typer.Option(help=COLUMN)] = None,
    vocab_size: Annotated[int, typer.Option(help="pieces to learn, special tokens included")] = 8192,
    out: Annotated[Path, typer.Option(help="the folder to write")] = Path("tokenizer"),
    cased: Annotated[bool, typer.Option("--cased", help="keep upper case and accents")] = False,
    limit_alphabet: Annotated[
        int, typer.Option(min=1, help="different characters to keep, the most frequent; words with others are [UNK]")
    ] = 1000,
    processes: Annotated[
        int | None, typer.Option(min=1, help="processes that count words", show_default="one a core, up to 3")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace a tokenizer that is in the folder")] = False,
) -> None:
    """Learn a WordPiece vocabulary from text. It is saved as files that others can read.

    For example:  mini-bert tokenizer train my_texts/ --vocab-size 16000 --out my_tokenizer
    """
    from mini_bert.text.vocabulary import train_command

    train_command(
        corpus or ["builtin"],
        vocab_size,
        out,
        cased,
        limit_alphabet=limit_alphabet,
        processes=processes,
        force=force,
        column=column,
    )


def data_list() -> None:
    """List the data sets that can be fetched by name. With size, licence, and whether they are here."""
    from mini_bert.corpora.downloads import list_command

    list_command()


def data_get(
    names: Annotated[list[str], typer.Argument(help=f"names from `{command('data list')}`")],
    force: Annotated[bool, typer.Option("--force", help="fetch again what is here")] = False,
) -> None:
    """Fetch data sets from their publishers. They go to the cache folder; a broken download goes on where it stopped.

    For example:  mini-bert data get wikitext-2 ud-ewt
    """
    from mini_bert.corpora.downloads import get_command

    get_command(names, force)


def data_show(
    source: Annotated[list[str] | None, typer.Argument(help=SOURCES, show_default="builtin")] = None,
    samples: Annotated[int, typer.Option(min=0, help="passages to show")] = 3,
    column: Annotated[str | None, typer.Option(help=COLUMN)] = None,
) -> None:
    """Read text from end to end and say what it holds. Also what had to be repaired, and how it reads.

    Without a source it is the built-in corpus: the English that every Python installation carries.
    """
    from mini_bert.corpora.reading import corpus_command

    corpus_command(source or "builtin", samples, column)


def data_labelled(
    kind: Annotated[
        str, typer.Option(help="sentiment, tags (entities), parsed (parts of speech, trees), similarity, questions")
    ] = "sentiment",
    count: Annotated[int, typer.Option(min=1, help="examples to show")] = 5,
    seed: Annotated[int, typer.Option(help="another seed gives other examples")] = 0,
    split: Annotated[str, typer.Option(help="train, or dev: half of the names never occur in train")] = "train",
) -> None:
    """Show labelled English made by a grammar. Probes and fine-tuning use it when no file is given.

    For example:  mini-bert data labelled --kind parsed --count 2
    """
    from mini_bert.data.synthetic.dataset import SYNTHETIC, examples, shown

    found = examples(kind, count, seed, split)
    print(f"{SYNTHETIC}: {kind}, seed {seed}, split {split}")
    for example in found:
        print(*shown(example), sep="\n")

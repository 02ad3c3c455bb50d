"""The options of `mini-bert fill-mask`, `embed`, `eval`, `metrics` and `export`: what uses a model, or measures it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mini_bert.cli.words import MODELS, SOURCES


def fill_mask(
    text: Annotated[str, typer.Argument(help="a text with one or more [MASK] in it")],
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    top: Annotated[int, typer.Option(min=1, help="guesses for each gap")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Guess what stands in a gap.

    For example:  mini-bert fill-mask "The cat sat on the [MASK]."
    """
    from mini_bert.inference.fill_mask import fill_mask_command

    fill_mask_command(text, model, top, as_json)


def embed(
    texts: Annotated[list[str] | None, typer.Argument(help="sentences; or use --file")] = None,
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    file: Annotated[str | None, typer.Option(help="a text a line; - for standard input")] = None,
    out: Annotated[str | None, typer.Option(help="a .npy or .jsonl file, or - for JSON lines")] = None,
    pooling: Annotated[
        str, typer.Option(help="mean of the words' vectors; all: special tokens too; cls: that of [CLS]")
    ] = "mean",
    batch: Annotated[int, typer.Option(min=1, help="texts at a time")] = 32,
    threads: Annotated[int, typer.Option(min=1, help="threads that work side by side")] = 2,
) -> None:
    """Turn sentences into vectors. Two to ten of them are compared in a table.

    For example:  mini-bert embed "A cat sat down." "A dog lay down." "Prices rose."
    """
    from mini_bert.inference.embed import embed_command

    embed_command(texts, model, file, out, pooling, batch, threads)


def evaluate(
    model: Annotated[str, typer.Argument(help=MODELS)],
    corpus: Annotated[list[str] | None, typer.Option(help=SOURCES)] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="a sentence: how surprised is the model at each token?")
    ] = None,
    whole_words: Annotated[
        bool, typer.Option("--whole-words", help="with --text: hide the pieces behind, too, as far as the word goes")
    ] = False,
    pairs: Annotated[
        list[str] | None, typer.Option(help="a table of two sentences and a score: do their vectors agree with it?")
    ] = None,
    neighbours: Annotated[list[str] | None, typer.Option(help="a word: which tokens lie next to it?")] = None,
    held_out: Annotated[
        float,
        typer.Option(
            help="with --corpus: leave out what `train` with this --held-out has learnt from, so that only text new to "
            "the model counts (config.json of the run says which share it was); 0: measure all"
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="decides the masks")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="sequences at a time")] = 32,
    max_batches: Annotated[int | None, typer.Option(min=1, help="stop after so many")] = None,
    threads: Annotated[int, typer.Option(min=1, help="threads that work side by side")] = 2,
    length: Annotated[int | None, typer.Option(min=3, help="tokens a sequence; default: what the model knows")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """Measure a model on text, sentences, pairs of them, or words.

    Loss, perplexity, accuracy and calibration (--corpus); pseudo-perplexity (--text); agreement with what people call
    alike, and isotropy (--pairs, --neighbours).

    For example:  mini-bert eval mini-bert --corpus my_text.txt --text "The cat sat on the mat."
    """
    from mini_bert.evaluation.evaluate import eval_command

    eval_command(
        model,
        corpus,
        held_out,
        seed,
        batch,
        max_batches,
        threads,
        length,
        as_json,
        text,
        whole_words,
        pairs,
        neighbours,
    )


def metrics(
    test: Annotated[bool, typer.Option("--test", help="compute each on a small case whose answer is known")] = False,
) -> None:
    """List every metric with its formula. With --test, each on a small case beside the value it must have.

    Exits with 1 if one differs.
    """
    from mini_bert.evaluation.known_cases import metrics_command

    raise typer.Exit(metrics_command(test))


def export(
    model: Annotated[str, typer.Argument(help=MODELS)],
    out: Annotated[Path, typer.Option(help="the folder to write")],
    full: Annotated[bool, typer.Option("--full", help="32 bits a weight")] = False,
) -> None:
    """Write a model as a folder for others. Config, weights in 16 bits, tokenizer, card.

    For example:  mini-bert export runs/first --out my-model
    """
    from mini_bert.export.folder import export_command

    export_command(model, out, full)

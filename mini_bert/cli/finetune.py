"""The options of `mini-bert finetune ...` and `mini-bert predict`. What they do is in finetuning/command.py and
finetuning/predict.py.

The four tasks share most options: these stand in `_shared`, once. A task adds its own as a function of its own
(`finetune_tag(stride, column)`), which says what they mean to `finetune_command`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_bert.cli.words import sharing

TRAIN = Annotated[str | None, typer.Option(help="the file to learn from", show_default="synthetic examples")]
DEV = Annotated[str | None, typer.Option(help="the file to measure on; default: a tenth of the other is held out")]
OUT = Annotated[Path | None, typer.Option(help="the folder for the best model; default: only measure")]
ENCODER = Annotated[str, typer.Option(help="mini-bert (the bundled one), or the folder of a run or a published BERT")]
EPOCHS = Annotated[int | None, typer.Option(min=1, help="times that every example is seen")]
BATCH_SIZE = Annotated[int | None, typer.Option(min=1, help="examples for one change of the weights")]
LEARNING_RATE = Annotated[float | None, typer.Option("--learning-rate", "--lr", help="at its peak, for the top layer")]
LAYER_DECAY = Annotated[float | None, typer.Option(help="what each layer gets of the one above it; 1: all alike")]
DROPOUT = Annotated[float | None, typer.Option(help="share that is dropped in training")]
WORD_DROPOUT = Annotated[
    float | None,
    typer.Option(help="share of words that training hides behind [MASK]; default: classify 0.1, else 0"),
]
PATIENCE = Annotated[int | None, typer.Option(min=1, help="measurements without a better one, until it stops")]
SEED = Annotated[int, typer.Option(min=0, help="the first seed; of --max-samples, too")]
SEEDS = Annotated[int, typer.Option(min=1, help="runs with different seeds; mean and spread are shown")]
THREADS = Annotated[int | None, typer.Option(min=1, help="default: all cores, at most 8")]
LENGTH = Annotated[int | None, typer.Option("--max-length", help="tokens a sequence; default: what the model knows")]
STRIDE = Annotated[int | None, typer.Option(min=1, help="tokens from a window to the next; default: half a window")]
SAMPLES = Annotated[int | None, typer.Option("--max-samples", min=1, help="learn from so many, drawn at random")]
SCRATCH = Annotated[bool, typer.Option("--from-scratch", help="also from random weights, as a control")]
AS_JSON = Annotated[bool, typer.Option("--json", help="for programs")]
QUIET = Annotated[bool, typer.Option("--quiet", help="show nothing while it runs")]


def _shared(
    train: TRAIN = None,
    dev: DEV = None,
    out: OUT = None,
    model: ENCODER = "mini-bert",
    epochs: EPOCHS = None,
    batch_size: BATCH_SIZE = None,
    learning_rate: LEARNING_RATE = None,
    layer_decay: LAYER_DECAY = None,
    dropout: DROPOUT = None,
    word_dropout: WORD_DROPOUT = None,
    patience: PATIENCE = None,
    seed: SEED = 0,
    seeds: SEEDS = 1,
    from_scratch: SCRATCH = False,
    threads: THREADS = None,
    max_length: LENGTH = None,
    max_samples: SAMPLES = None,
    as_json: AS_JSON = False,
    quiet: QUIET = False,
) -> None:
    """The options that all tasks have"""


FIRST = 4  # of them stand before the task's own in --help
NAMED = {"from_scratch": "scratch", "max_length": "length"}  # as finetune_command calls them


def _task(kind: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., None]]:
    """Make a command of a function: its options and those that all share in, arguments of finetune_command out"""

    def act(special: dict[str, Any], given: dict[str, Any]) -> None:
        from mini_bert.finetuning.command import finetune_command

        named = {NAMED.get(name, name): value for name, value in given.items()}
        _say_how_it_ended(finetune_command(kind, **named, **special))

    return sharing(_shared, FIRST, act)


@_task("classify")
def finetune_classify(
    text: Annotated[str | None, typer.Option(help="the column of the text; default: the usual names")] = None,
    second: Annotated[str | None, typer.Option(help="the column of the second text, of pairs")] = None,
    label: Annotated[str | None, typer.Option(help="the column of the label")] = None,
) -> dict[str, Any]:
    """Learn to which class a text, or a pair of texts, belongs. From .tsv, .csv or .jsonl with text and label.

    For example:  mini-bert finetune classify --train train.tsv --dev dev.tsv --out sentiment --seeds 3
    """
    return {"columns": {"text": text, "second": second, "label": label}}


@_task("tag")
def finetune_tag(
    column: Annotated[int, typer.Option(help="the column of the tags, from 0; -1: the last")] = -1,
    stride: STRIDE = None,
) -> dict[str, Any]:
    """Learn to tag words, names or parts of speech. From CoNLL, CoNLL-U or .jsonl; names are measured by entity F1.

    For example:  mini-bert finetune tag --train train.conll --dev dev.conll --out names
    """
    return {"columns": {"column": column}, "stride": stride}


@_task("qa")
def finetune_qa(stride: STRIDE = None) -> dict[str, Any]:
    """Learn to find the answer to a question in a text. From SQuAD's JSON; long texts go in windows.

    For example:  mini-bert finetune qa --train train-v1.1.json --dev dev-v1.1.json --out answers
    """
    return {"stride": stride}


@_task("similarity")
def finetune_similarity(
    vectors: Annotated[
        bool, typer.Option("--vectors", help="a vector for each text, compared by cosine, instead of reading both")
    ] = False,
    loss: Annotated[str, typer.Option(help="of vectors: regression or contrastive")] = "regression",
    first: Annotated[str | None, typer.Option(help="the column of the first text; default: the usual names")] = None,
    second: Annotated[str | None, typer.Option(help="the column of the second text")] = None,
    score: Annotated[str | None, typer.Option(help="the column of the score")] = None,
) -> dict[str, Any]:
    """Learn how alike two texts are. From .tsv, .csv or .jsonl with two texts and a score.

    For example:  mini-bert finetune similarity --train sts-train.tsv --dev sts-dev.tsv --vectors --out vectors
    """
    return {"vectors": vectors, "loss": loss, "columns": {"first": first, "second": second, "score": score}}


def finetune_sst2(
    train: Annotated[str | None, typer.Option(help="SST-2's train.tsv", show_default="synthetic sentences")] = None,
    dev: Annotated[str | None, typer.Option(help="SST-2's dev.tsv; default: a tenth of the other is held out")] = None,
    out: OUT = None,
    model: ENCODER = "mini-bert",
    epochs: EPOCHS = None,
    max_samples: Annotated[
        int | None, typer.Option("--max-samples", "--max_samples", min=1, help="learn from so many, drawn at random")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", "--lr", "--learning_rate")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", "--batch_size", min=1)] = None,
    seed: SEED = 0,
    seeds: SEEDS = 1,
    from_scratch: SCRATCH = False,
    threads: THREADS = None,
) -> None:
    """Learn whether a sentence is for or against. `finetune classify` with the names of SST-2, the Stanford treebank.

    `mini-bert data get sst2` fetches it; without a file the sentences are synthetic, and the output says so.
    """
    from mini_bert.finetuning.command import finetune_command

    results = finetune_command(
        "classify", train, dev, out, model, seeds, from_scratch, max_samples, epochs=epochs, batch_size=batch_size,
        learning_rate=learning_rate, seed=seed, threads=threads,
    )  # fmt: skip
    _say_how_it_ended(results)


def _say_how_it_ended(results: list) -> None:
    stopped = results[-1].outcome.stopped
    if stopped in ("interrupted", "nonfinite"):
        raise typer.Exit(130 if stopped == "interrupted" else 1)


def predict(
    model: Annotated[str, typer.Argument(help="a folder that `mini-bert finetune` wrote, or a published BertFor…")],
    texts: Annotated[list[str] | None, typer.Argument(help="texts; of a model for pairs, two")] = None,
    file: Annotated[str | None, typer.Option(help="a text a line (pairs: a tab between); or SQuAD's JSON")] = None,
    question: Annotated[str | None, typer.Option(help="to be answered from --context")] = None,
    context: Annotated[str | None, typer.Option(help="the text that holds the answer")] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="two texts are one example (a published model)")] = False,
    as_json: AS_JSON = False,
) -> None:
    """Ask a fine-tuned model about a text. Labels with probabilities, tags by word, answers, similarity.

    For example:  mini-bert predict sentiment "An instant classic."
    """
    from mini_bert.finetuning.predict import predict_command

    predict_command(model, texts or [], file, question, context, pairs, as_json)

"""The commands `mini-bert finetune ...` and `mini-bert predict`.

The four tasks share most options; `_shared` declares these once. Each task adds its own options as a function
(`finetune_tag(column, stride)`), which returns the columns of its files and the options of its task.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mini_bert.cli.words import BY_NAME, ENGINE, MODELS, sharing
from mini_bert.finetuning.settings import FineTuning

STRIDE = Annotated[int | None, typer.Option(min=1, help="tokens from one window to the next; default: half a window")]
DROPOUT = "dropout in the encoder and before the head; replaces every dropout of the model's config, also the task's"
AS_JSON = Annotated[bool, typer.Option("--json", help="print JSON")]


def _shared(
    train: Annotated[str | None, typer.Option(help="the file to train on", show_default="synthetic examples")] = None,
    dev: Annotated[
        str | None, typer.Option(help="the file to evaluate on; default: about a tenth of --train is held out")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="the folder for the best model; default: none is saved")] = None,
    model: Annotated[str, typer.Option(help=MODELS)] = "mini-bert",
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="passes over the data", show_default="3; more on small data, for 200 steps or more"),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="examples per step")] = FineTuning.batch_size,
    learning_rate: Annotated[
        float | None, typer.Option("--learning-rate", "--lr", help="peak learning rate of the head")
    ] = None,
    layer_decay: Annotated[
        float, typer.Option(help="each layer's learning rate, as a fraction of the layer above's")
    ] = FineTuning.layer_decay,
    dropout: Annotated[float, typer.Option(help=DROPOUT)] = FineTuning.dropout,
    word_dropout: Annotated[
        float | None,
        typer.Option(help="fraction of words replaced by [MASK] in training; default: 0.1 for classify, else 0"),
    ] = None,
    ema_decay: Annotated[
        float,
        typer.Option(help="measure and keep a moving average of the weights, with this decay per step; 0: none"),
    ] = FineTuning.ema_decay,
    patience: Annotated[
        int,
        typer.Option(
            min=1, help="stop after this many evaluations without a better score; each counts for 20 steps or more"
        ),
    ] = FineTuning.patience,
    seed: Annotated[
        int, typer.Option(min=0, help="the first seed; also selects the examples for --max-samples")
    ] = FineTuning.seed,
    seeds: Annotated[int, typer.Option(min=1, help="number of runs with different seeds; shows mean and spread")] = 1,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="also train from random weights, as a control")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="default: all cores, at most 8")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="tokens per sequence; default: 128 (qa: 384), or the model's limit")
    ] = None,
    max_samples: Annotated[int | None, typer.Option(min=1, help="train on this many examples, drawn at random")] = None,
    as_json: AS_JSON = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="show no progress")] = False,
) -> None:
    """The options that all tasks have."""


FIRST = 4  # --help lists this many shared options before the task's own


def _task(kind: str) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., None]]:
    return sharing(_shared, FIRST, lambda own, given: _finetune(kind, given, **own))


def _finetune(kind: str, given: dict[str, Any], columns: dict[str, Any] | None = None, **options: Any) -> None:
    """Read the data, fine-tune, print the results.

    given: shared options by name; columns: column names of the data files; options: options of the task
    """
    from mini_bert.common.progress import showing
    from mini_bert.files.model_folder import locate, read_config
    from mini_bert.finetuning.data import read_data
    from mini_bert.finetuning.finetune import check_out, finetune
    from mini_bert.finetuning.report import describe
    from mini_bert.training.parallel import default_threads

    given["threads"] = given["threads"] or default_threads()
    settings = FineTuning(**{name: given[name] for name in FineTuning.__dataclass_fields__ if name in given})
    model, out, as_json = given["model"], given["out"], given["as_json"]
    check_out(out)
    read_config(locate(model, quiet=True))  # a wrong path is an error before the data is read
    views = options.get("loss") == "views"
    data = read_data(kind, given["train"], given["dev"], given["max_samples"], settings.seed, views, **(columns or {}))
    if not as_json:
        print(describe(kind, model, data), flush=True)
    with showing(not given["quiet"]) as show:
        report = finetune(
            kind, data, settings, model, out, given["seeds"], given["from_scratch"], given["max_length"], show,
            **options,
        )  # fmt: skip
    print(json.dumps(report.summary) if as_json else report.text)
    stopped = report.results[-1].outcome.stopped
    if stopped in ("interrupted", "nonfinite"):
        raise typer.Exit(130 if stopped == "interrupted" else 1)


@_task("classify")
def finetune_classify(
    text: Annotated[str | None, typer.Option(help=BY_NAME.format("text"))] = None,
    second: Annotated[str | None, typer.Option(help="the column of the second text, for pairs")] = None,
    label: Annotated[str | None, typer.Option(help=BY_NAME.format("label"))] = None,
) -> dict[str, Any]:
    """Classify texts or pairs of texts. From .tsv, .csv or .jsonl files with a text and a label column.

    For example:  mini-bert finetune classify --train train.tsv --dev dev.tsv --out sentiment --seeds 3
    """
    return {"columns": {"text": text, "second": second, "label": label}}


@_task("tag")
def finetune_tag(
    column: Annotated[int, typer.Option(help="the column of the tags, counted from 0; -1 is the last")] = -1,
    stride: STRIDE = None,
) -> dict[str, Any]:
    """Tag words: entities or parts of speech. From CoNLL, CoNLL-U or .jsonl; entities are scored by F1.

    For example:  mini-bert finetune tag --train train.conll --dev dev.conll --out names
    """
    return {"columns": {"column": column}, "stride": stride}


@_task("qa")
def finetune_qa(stride: STRIDE = None) -> dict[str, Any]:
    """Find the answer to a question in a text. From SQuAD's JSON; long texts are split into windows.

    For example:  mini-bert finetune qa --train train-v1.1.json --dev dev-v1.1.json --out answers
    """
    return {"stride": stride}


@_task("similarity")
def finetune_similarity(
    vectors: Annotated[
        bool, typer.Option("--vectors", help="encode each text by itself and compare the vectors by cosine")
    ] = False,
    loss: Annotated[
        str,
        typer.Option(
            help="with --vectors: regression, contrastive, or views (SimCSE): --train is plain text, without scores"
        ),
    ] = "regression",
    first: Annotated[str | None, typer.Option(help=BY_NAME.format("first text's"))] = None,
    second: Annotated[str | None, typer.Option(help="the second text's column")] = None,
    score: Annotated[str | None, typer.Option(help=BY_NAME.format("score"))] = None,
) -> dict[str, Any]:
    """Score how similar two texts are. From .tsv, .csv or .jsonl files with two texts and a score.

    For example:  mini-bert finetune similarity --train sts-train.tsv --dev sts-dev.tsv --vectors --out vectors

    Or from plain text:  mini-bert finetune similarity --train wiki.txt --dev sts-dev.tsv --vectors --loss views
    """
    return {"columns": {"first": first, "second": second, "score": score}, "vectors": vectors, "loss": loss}


@_task("classify")
def finetune_sst2() -> dict[str, Any]:
    """Classify the sentiment of sentences. `finetune classify` for SST-2, the Stanford Sentiment Treebank.

    `mini-bert data get sst2` downloads it. Without a file the sentences are synthetic, and the output says so.
    """
    return {}


def predict(
    model: Annotated[str, typer.Argument(help="a folder that `mini-bert finetune` wrote, or a published BertFor…")],
    texts: Annotated[list[str] | None, typer.Argument(help="texts; two if the model takes pairs")] = None,
    file: Annotated[
        str | None,
        typer.Option(
            help="a .tsv, .csv or .jsonl table; CoNLL for a tagger; SQuAD's JSON for questions; else one text per line "
            "(pairs: tab-separated)"
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", "--first", help=BY_NAME.format("table's text")),
    ] = None,
    second: Annotated[str | None, typer.Option(help="the table's column of the second text, for pairs")] = None,
    question: Annotated[str | None, typer.Option(help="a question to answer from --context")] = None,
    context: Annotated[str | None, typer.Option(help="the text that contains the answer")] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="two texts are one example (for published models)")] = False,
    score: Annotated[
        bool, typer.Option("--score", help="also score the predictions: --file has labels, as for fine-tuning")
    ] = False,
    label: Annotated[
        str | None,
        typer.Option(help="with --score: the column of the label or score; for tags its number, counted from 0"),
    ] = None,
    engine: Annotated[str, typer.Option(help=ENGINE)] = "numpy",
    as_json: AS_JSON = False,
) -> None:
    """Predict with a fine-tuned model. Prints labels with probabilities, a tag per word, answers or similarities.

    For example:  mini-bert predict sentiment "An instant classic."

    Or to score it:  mini-bert predict sentiment --file test.tsv --score
    """
    from mini_bert.common.progress import counted, showing
    from mini_bert.export.engine import with_engine
    from mini_bert.finetuning.model import load
    from mini_bert.finetuning.predict import answers_to, described, gather, gather_labelled, shown, shown_scores

    if score and (file is None or texts or question is not None or context is not None):
        raise ValueError("--score compares with the labels of a file; give it with --file, and nothing else to predict")
    if label is not None and not score:
        raise ValueError("--label names the column to compare predictions with; add --score")
    tuned = load(model)
    with_engine(tuned.model, engine)
    if file is not None and score:
        examples = gather_labelled(tuned.task, file, text, second, label)
    else:
        examples = gather(tuned.task, texts or [], file, question, context, text, second, pairs)
    with showing(len(examples) > 500) as show:
        answers = answers_to(tuned, examples, show)
    for one in described(tuned.task, examples, answers):
        print(json.dumps(one, ensure_ascii=False) if as_json else shown(one))
    if score:
        scores = tuned.task.scores(examples, answers)
        line = f"\n{counted(len(examples), 'example')} of {file}: {shown_scores(tuned.task, scores)}"
        print(json.dumps({"examples": len(examples), "scores": scores}) if as_json else line)

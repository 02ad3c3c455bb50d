"""The commands `mini-bert train`, `plan`, `doctor` and `plot`."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import Annotated

import typer

from mini_bert.cli.words import CONFIGS, OBJECTIVES, SOURCES, in_options

CHECKPOINTING = "layers to recompute in backward, which saves memory: all, or numbers such as 0,2,4; the first is 0"

# options of `train` and `plan`
Optimizer = Annotated[
    str | None,
    typer.Option(
        help="muon makes updates of the matrices in blocks orthogonal and learns more in a given time; adam is that of "
        "published models; default: muon, or adam with --init"
    ),
]
Average = Annotated[
    str | None,
    typer.Option(
        help="evaluate and save averaged weights: ema (a moving average), or tail (the mean over the end of the run); "
        "default: none"
    ),
]
BatchStart = Annotated[
    int | None, typer.Option(min=1, help="sequences per step at first; their number grows to the whole batch")
]
MaskStart = Annotated[
    float | None, typer.Option(help="the share of the words to predict at first; it moves to --mask-prob")
]

# options of `train`, `plan` and `info`
ModelName = Annotated[str | None, typer.Option(help=f"{CONFIGS}; default: mini")]
Init = Annotated[
    str | None,
    typer.Option(help="continue the training of a model, published or your own: its folder, for weights and tokenizer"),
]
ObjectiveName = Annotated[str | None, typer.Option(help=f"what to learn: {OBJECTIVES}; default: that of the model")]
MaskingName = Annotated[
    str | None,
    typer.Option(
        help="how words are chosen for prediction: pieces, whole-word, span (runs of 1 to 10 words) or ngram (1 to 3); "
        "default: pieces, or ngram for albert"
    ),
]
MaskProb = Annotated[
    float | None, typer.Option(help="the share of the words to predict; default: 0.15, or 1/6 for permutation")
]
Teacher = Annotated[
    str | None, typer.Option(help="the folder of a model with the same vocabulary to learn from, for distillation")
]
Temperature = Annotated[float | None, typer.Option(help="of the teacher's answers; default: 2")]
ReplacedWeight = Annotated[
    float | None,
    typer.Option(
        help="factor of the discriminator's loss, for replaced_tokens; default: 0.02 for a new ELECTRA, so that the "
        "tables of both models follow the generator; otherwise 50, as published"
    ),
]
TieHead = Annotated[bool, typer.Option("--tie-head", help="the head shares the token table: V × H fewer weights")]
NextSentence = Annotated[
    bool, typer.Option("--next-sentence", help="short for --objective masked_words_and_next_sentence (BERT)")
]
Length = Annotated[
    int | None, typer.Option(min=3, help="tokens per sequence; default: that of --init, or the model's maximum")
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="8k, 50k, bpe-8k, unigram-8k, a tokenizer file, or the folder of a tokenizer, model or run; default: the "
        "model's own"
    ),
]


def train(
    corpus: Annotated[
        list[str] | None, typer.Option(help=f"{SOURCES}; default: text in ./data, or else builtin")
    ] = None,
    model: ModelName = None,
    init: Init = None,
    objective: ObjectiveName = None,
    out: Annotated[Path | None, typer.Option(help="the run folder; default: a new one in ./runs")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="stop after this many optimiser steps")] = None,
    minutes: Annotated[float | None, typer.Option(help="or after this many minutes; default: 4")] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="continue the run in --out (default: the newest in ./runs); with --steps or --minutes, until the "
            "whole run is that long",
        ),
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="default: all cores, at most 8")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="seed for initial weights, order of the text and masks; default: 0")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="sequences per optimiser step; default: 32, or 128 if masked words are learnt with muon for long (a "
            "Mini-BERT: 15 minutes)",
        ),
    ] = None,
    micro_batch: Annotated[
        int | None,
        typer.Option(min=1, help="sequences per thread at a time; default: at most 16, with work for every thread"),
    ] = None,
    checkpointing: Annotated[str | None, typer.Option(help=CHECKPOINTING, show_default="none")] = None,
    attention: Annotated[str | None, typer.Option(help="plain, lean (in tiles), or auto: lean for long texts")] = None,
    moments: Annotated[
        str | None, typer.Option(help="data type of the optimiser's moments: float32, bfloat16 or float16")
    ] = None,
    activations: Annotated[
        str | None, typer.Option(help="data type of activations kept for backward: the same three")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="data type of the stored weights: the same three")] = None,
    tie_head: TieHead = False,
    next_sentence: NextSentence = False,
    masking: MaskingName = None,
    mask_prob: MaskProb = None,
    teacher: Teacher = None,
    temperature: Temperature = None,
    replaced_weight: ReplacedWeight = None,
    init_from_teacher: Annotated[
        bool,
        typer.Option(
            "--init-from-teacher",
            help="start with layers of the teacher, as DistilBERT does; advised if its blocks are as wide as "
            "those of the model",
        ),
    ] = False,
    length: Length = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            "--lr",
            help="peak learning rate; default: 2e-3, 3e-3 with batches of 128, or 1e-3 with adam; less for wider "
            "models, and a tenth of it with --init: trained weights should be adjusted, not undone",
        ),
    ] = None,
    warmup: Annotated[
        float | None, typer.Option(help="fraction of the run spent on warm-up; default: about a minute's worth")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="how the learning rate falls to 0 after warm-up: linear, cosine, or wsd (constant until the last "
            "--decay-share); default: wsd with muon, batches of 32 and time after the warm-up, otherwise linear"
        ),
    ] = None,
    decay_share: Annotated[
        float | None, typer.Option(help="fraction of the run, at its end, in which wsd falls; default: 0.3")
    ] = None,
    optimizer: Optimizer = None,
    muon_learning_rate: Annotated[
        float | None,
        typer.Option(
            "--muon-learning-rate",
            "--muon-lr",
            help="Muon's peak learning rate, for matrices; default: --learning-rate",
        ),
    ] = None,
    momentum: Annotated[float | None, typer.Option(help="of Muon; default: 0.95")] = None,
    beta2: Annotated[
        float | None, typer.Option(help="of Adam's mean of squared gradients, per step; default: 0.999")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="of matrices and tables; default: 0.01, or 0.3 for long runs with muon")
    ] = None,
    average: Average = None,
    ema_decay: Annotated[float | None, typer.Option(help="of the moving average, per step; default: 0.998")] = None,
    tail_share: Annotated[
        float | None, typer.Option(help="fraction of the run, at its end, whose mean is taken; default: 0.15")
    ] = None,
    batch_start: BatchStart = None,
    batch_ramp: Annotated[
        float | None, typer.Option(help="fraction of the run in which it grows; default: 0.5")
    ] = None,
    length_start: Annotated[
        int | None,
        typer.Option(
            min=3, help="tokens per sequence at first, with as many more sequences; it doubles until --length"
        ),
    ] = None,
    length_ramp: Annotated[
        float | None, typer.Option(help="fraction of the run with shorter sequences; default: 0.5")
    ] = None,
    mask_start: MaskStart = None,
    mask_ramp: Annotated[
        float | None, typer.Option(help="fraction of the run in which the masked share changes; default: 1")
    ] = None,
    tokenizer: Tokenizer = None,
    held_out: Annotated[float | None, typer.Option(help="fraction of the documents held out for validation")] = None,
    eval_every: Annotated[int | None, typer.Option(min=1, help="steps between evaluations on held-out text")] = None,
    eval_minutes: Annotated[
        list[float] | None, typer.Option(hidden=True, help="also evaluate after so many minutes; for sweeps")
    ] = None,
    save_every: Annotated[int | None, typer.Option(min=1, help="steps between checkpoints")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="also write TensorBoard files (needs the extra `tensorboard`)")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="show no progress, only important messages")] = False,
) -> None:
    """Train a model on text. With a live display, checkpoints, and a model folder at the end.

    Without options: four minutes on the built-in corpus. Ctrl-C saves a checkpoint and prints how to resume. A finished
    run is trained further with --resume and a new --minutes or --steps; the learning rate then rises again.
    `mini-bert plan` shows how much memory a larger model needs, and which of these options make it fit.

    For example:  mini-bert train --corpus my_texts/ --minutes 60 --out runs/mine

    Or to continue with a trained model:  mini-bert train --init mini-bert --corpus my_texts/
    """
    options = {name: value for name, value in locals().items() if name != "resume"}
    from mini_bert.training.pretraining import pretrain
    from mini_bert.training.pretraining import resume as continue_run
    from mini_bert.training.switches import parse_checkpointing

    given = {name: value for name, value in options.items() if value is not None and value is not False}  # 0 was given
    if resume:
        others = ", ".join(
            f"--{name.replace('_', '-')}" for name in given if name not in inspect.signature(continue_run).parameters
        )
        if others:
            raise ValueError(f"--resume continues with the settings of the run; leave out {others}")
    elif checkpointing is not None:
        given["checkpointing"] = parse_checkpointing(checkpointing)
    with in_options(options, max_seq_length="length"):
        state = (continue_run if resume else pretrain)(**given)
    if state.stopped != "done":
        raise typer.Exit(130 if state.stopped == "interrupted" else 1)


def plan(
    model: ModelName = None,
    init: Init = None,
    objective: ObjectiveName = None,
    batch: Annotated[int, typer.Option("--batch-size", "--batch", min=1, help="sequences per optimiser step")] = 32,
    memory: Annotated[str, typer.Option(help="available memory, such as 1GB, 900MB or 1.5GiB")] = "1GB",
    threads: Annotated[int | None, typer.Option(min=1, help="at most; default: all cores, up to 8")] = None,
    tokenizer: Tokenizer = None,
    length: Length = None,
    next_sentence: NextSentence = False,
    masking: MaskingName = None,
    mask_prob: MaskProb = None,
    teacher: Teacher = None,
    temperature: Temperature = None,
    tie_head: TieHead = False,
    optimizer: Optimizer = None,
    average: Average = None,
    batch_start: BatchStart = None,
    mask_start: MaskStart = None,
) -> None:
    """Predict how much memory training needs. Shows memory by purpose and the options that make it fit; exits with 1 if
    nothing fits.

    For example:  mini-bert plan --model larger --batch-size 8 --memory 1GB
    """
    options = locals()
    from mini_bert.training.plan import plan_report

    text, fits = plan_report(**options)
    print(text)
    raise typer.Exit(0 if fits else 1)


def doctor(run: Annotated[Path, typer.Argument(help="the folder of a training run")]) -> None:
    """Diagnose a training run: what is wrong, and what to try. Exits with 1 if there is an error.

    For example:  mini-bert doctor runs/run-1
    """
    from mini_bert.training.doctor import diagnose, report, summary

    findings = diagnose(run)
    print(f"{run}: {summary(run)}")
    print(report(findings, width=min(shutil.get_terminal_size((100, 24)).columns, 100)))
    raise typer.Exit(int(any(finding.level == "error" for finding in findings)))


def plot(
    runs: Annotated[list[Path], typer.Argument(help="run folders; several are drawn side by side")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="the picture: .png, .svg or .pdf; default: loss.png in the folder of the run, or for several runs.png "
            "in the current folder"
        ),
    ] = None,
) -> None:
    """Draw the curves of one run, or of several side by side. Loss, accuracy, gradients; needs the extra `plots`.

    For example:  mini-bert plot runs/run-1

    Or several:  mini-bert plot runs/run-1 runs/run-2 --out both.svg
    """
    from mini_bert.training.figures import draw_runs

    for path in draw_runs(runs, out):
        print(path)

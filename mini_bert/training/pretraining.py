"""Pretraining in a run folder: choose text, vocabulary and model, train, and report. The loop itself is in loop.py.

pretrain(corpus=["my_texts/"], minutes=60, out=Path("runs/mine"))
resume(Path("runs/mine"))
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.common.invocation import command
from mini_bert.common.memory import return_freed_memory, share_memory_among_threads
from mini_bert.common.progress import counted
from mini_bert.common.values import check_positive
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.data.shards import Shards, open_shards, prepare
from mini_bert.evaluation.evaluate import unigram_entropy, word_counts
from mini_bert.evaluation.unigram_baseline import against, uses_context, verdict
from mini_bert.files.model_folder import MODEL, WEIGHTS
from mini_bert.models.base import MASKED_WORDS, NEXT_SENTENCE, Model
from mini_bert.models.registry import config_from, load_config, model_class
from mini_bert.text.base import Tokenizer
from mini_bert.text.loading import has_tokenizer, load_tokenizer
from mini_bert.training import checkpoint
from mini_bert.training.checkpoint import Checkpoint
from mini_bert.training.defaults import (
    MINUTES,
    TOKENIZERS,
    default_corpus,
    default_learning_rate,
    default_micro_batch,
    default_share,
    default_warmup,
    new_folder,
    newest_folder,
)
from mini_bert.training.display import Display, collected_warnings
from mini_bert.training.history import read_run
from mini_bert.training.loop import train
from mini_bert.training.parallel import default_threads
from mini_bert.training.recorder import Record, State
from mini_bert.training.report import examples, model_card
from mini_bert.training.run_folder import RunFolder, now
from mini_bert.training.run_lock import RunLock
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import checkpointed_layers


def pretrain(
    corpus: Sequence[str] | None = None,
    model: str = "mini",
    tokenizer: str | None = None,
    out: Path | None = None,
    held_out: float | None = None,
    length: int | None = None,
    next_sentence: bool = False,
    tie_head: bool = False,
    tensorboard: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> State:
    """Start a run. `settings` are fields of a TrainingConfig (None: its default).

    corpus          what to read; default: text in ./data, otherwise the built-in corpus
    model           a preset, or the path of a config.json of any architecture
    length          tokens per sequence; default: the model's maximum
    next_sentence   also train next-sentence prediction, on pairs of texts
    """
    share_memory_among_threads()
    given = {name: value for name, value in settings.items() if value is not None}
    steps, minutes = given.pop("steps", None), given.pop("minutes", None)
    if steps is None and minutes is None:
        minutes = MINUTES
    path = out or new_folder()
    RunFolder.check_new(path)
    config = load_config(model)
    if tie_head:
        config = config.with_tied_head()
    notes = [_complete(given, config, steps, minutes)]
    training = TrainingConfig(steps=steps, minutes=minutes, **given)
    checkpointed_layers(training.checkpointing, config.depth)  # refuses layers that do not exist
    if length is not None and not 3 <= length <= config.max_length:
        raise ValueError(f"length is {length}, expected 3 to {config.max_length}, the number of the model's positions")
    source = [_absolute(name) for name in corpus] if corpus else default_corpus()
    vocabulary = _absolute(tokenizer) if tokenizer else _vocabulary(model, config)
    loaded = load_tokenizer(vocabulary)
    if config.vocab_size != loaded.vocab_size:
        notes.append(
            f"the tokenizer {vocabulary} has {loaded.vocab_size:,} pieces, so the model's vocab_size is "
            f"{loaded.vocab_size:,}, instead of the {config.vocab_size:,} in its config"
        )
        config = replace(config, vocab_size=loaded.vocab_size)
    try:
        with collected_warnings() as logged:
            shards = prepare(source, loaded, progress=not quiet)
    except KeyboardInterrupt:
        print(
            "\nStopped while the text was being prepared, before the run began. Run the same command to start again.",
            file=sys.stderr,
        )
        raise KeyboardInterrupt("told") from None
    content = (length or config.max_length) - loaded.added_count()
    share = default_share(shards, content) if held_out is None else held_out
    data = {"corpus": source, "tokenizer": vocabulary, "held_out": share, "shards": str(shards.folder)}
    data |= {"length": length} if length else {}
    data |= {"next_sentence": True} if next_sentence else {}
    description = {"model": config.to_dict(), "training": training.to_dict(), "data": data}
    lock = RunLock(path)
    run = _Run(path, description, loaded, shards, lock, quiet, tensorboard)
    RunFolder.create(path, description)  # last, so that invalid settings leave no folder behind
    return run.train([note for note in notes if note], [*logged, f"the tokenized text is stored in {shards.folder}"])


def resume(out: Path | None = None, quiet: bool = False, tensorboard: bool = False) -> State:
    """Continue a run with its own settings; default: the newest in ./runs."""
    share_memory_among_threads()
    path = out or newest_folder()
    description = RunFolder.config(path)
    with RunLock(path) as lock:
        with collected_warnings() as logged:
            newest = checkpoint.latest(path) if checkpoint.folders(path) else None  # None: no checkpoint was saved yet
        if newest is None and "tokenizer" not in description["data"]:
            raise ValueError(
                f"{path} was started from Python and has no checkpoint yet: its vocabulary and initial weights exist "
                "only in that program, so there is nothing to resume; start it again from there, in a new folder"
            )
        tokenizer = load_tokenizer(newest.path if newest else description["data"]["tokenizer"])
        return _Run(path, description, tokenizer, _text(description["data"]), lock, quiet, tensorboard).train(
            [], logged, newest
        )


class _Run:
    """Everything that a run needs, made from its description (RUN/config.json)."""

    def __init__(
        self,
        path: Path,
        description: dict[str, Any],
        tokenizer: Tokenizer,
        text: Any,
        lock: RunLock,
        quiet: bool,
        tensorboard: bool,
    ):
        self.path, self.lock, self.quiet, self.tensorboard = path, lock, quiet, tensorboard
        self.settings = TrainingConfig.from_dict(description["training"])
        self.data = description["data"]
        config = config_from(description["model"])
        pairs = self.data.get("next_sentence", False)
        self.batches = MLMDataGenerator(
            text, tokenizer, self.data.get("length") or config.max_length, self.settings.micro_batch,
            seed=self.settings.seed, mode="pairs" if pairs else "packed", held_out=self.data["held_out"],
            vocab_size=config.vocab_size, progress=not quiet,
        )  # fmt: skip
        heads = (MASKED_WORDS, NEXT_SENTENCE) if pairs else (MASKED_WORDS,)
        self.model = model_class(description["model"]).build(config, heads, self.settings.seed)
        if pairs:
            self.model.output_head(NEXT_SENTENCE)  # raises an error now if the architecture has none
        start_at_frequencies(self.model, self.batches)

    def train(self, notes: Sequence[str], logged: Sequence[str], start_from: Checkpoint | None = None) -> State:
        """`notes` are shown and logged. `logged` is only logged, because it was shown before there was a log."""
        hooks: list[Callable[[Record], None]] = []
        if self.tensorboard:
            from mini_bert.training.tensorboard_hook import tensorboard as writer

            hooks.append(writer(self.path))
        text = f"text: {', '.join(self.data['corpus'])}; results are saved in {self.path}"
        return train_in_folder(
            self.path, self.model, self.batches, self.settings, self.lock, start_from, hooks, self.quiet, logged,
            [*notes, text],
        )  # fmt: skip


def train_in_folder(
    path: Path,
    model: Model,
    batches: MLMDataGenerator,
    settings: TrainingConfig,
    lock: RunLock | None = None,
    start_from: Checkpoint | None = None,
    hooks: Sequence[Callable[[Record], None]] = (),
    quiet: bool = False,
    logged: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> State:
    """Train with a display, records, checkpoints, and the best model at the end. start_from: a checkpoint to resume."""
    lock = lock or RunLock(path)
    return_freed_memory()  # from reading the text and initialising the weights
    validation = batches.validation() if batches.arguments["held_out"] else None
    with lock, Display(path, settings.steps, settings.minutes, quiet) as display:
        say = partial(display.note, must=True)
        try:
            for line in logged:
                display.keep(line)
            display.note(f"{model.get_parameter_count():,} parameters; {batches}")
            for note in notes:
                display.note(note)
            if validation is None:
                display.note("no text is held out, so the model will not be evaluated on unseen text")
            start = start_record(model, batches, validation, settings)
            hooks = [display.record, *hooks]
            run = RunFolder(path, batches.tokenizer, settings.keep, start_from, hooks, start, lock, say)
            state = train(model, batches, settings, validation, run)
        except KeyboardInterrupt:  # the second one; or the first, if there was no step to finish yet
            kept = checkpoint.folders(path)
            since = f"everything after {kept[0].name} is lost" if kept else "nothing was saved yet"
            display.end()
            say(f"\nStopped at once; {since}. Continue with\n\n    {command('train', '--out', path, '--resume')}\n")
            raise KeyboardInterrupt("told") from None
        display.end()
        _finish(run, state, model, batches, validation, settings, display)
    return state


def start_at_frequencies(model: Model, batches: MLMDataGenerator) -> None:
    """Initialise the bias of the word head with the log frequencies of the text's words.

    Learning these would take hundreds of steps, which would also disturb the initial values of all other weights
    (docs/decisions/0003).
    """
    shares = word_shares(batches)
    bias = model.word_bias.data
    bias[...] = np.log(shares.min())  # ids that the tokenizer never produces
    bias[: shares.size] = np.log(shares)


def word_shares(batches: MLMDataGenerator) -> np.ndarray:
    """The relative frequency of every word in the text, (V,), with a count of 0.5 for words that do not occur."""
    counts = np.maximum(word_counts(batches), 0.5)
    return counts / counts.sum()


def start_record(
    model: Model, batches: MLMDataGenerator, validation: MLMDataGenerator | None, settings: TrainingConfig
) -> Record:
    """The first line of metrics.jsonl: the model, the data, the settings"""
    return {
        "kind": "start", "step": 0, "parameters": model.get_parameter_count(), "steps": settings.steps,
        "minutes": settings.minutes, "threads": settings.threads or default_threads(),
        "batch_size": settings.batch_size, "tokens_per_step": settings.batch_size * batches.arguments["max_seq_length"],
        "sequences": batches.sequences, "train_tokens": batches.tokens,
        "validation_tokens": validation.tokens if validation else 0,
        "unigram_entropy": unigram_entropy(validation or batches), "vocab_size": model.vocab_size,
        "mask_prob": batches.masking.mask_prob, "seed": settings.seed, "time": now(),
    }  # fmt: skip


def _finish(
    run: RunFolder,
    state: State,
    model: Model,
    batches: MLMDataGenerator,
    validation: MLMDataGenerator | None,
    settings: TrainingConfig,
    display: Display,
) -> None:
    from mini_bert.training.doctor import diagnose, report, weights_are_useless
    from mini_bert.training.figures import loss_picture

    findings = [finding for finding in diagnose(run.path) if finding.level != "good"]
    entropy = read_run(run.path).unigram_entropy
    learnt = state.best is not None and entropy is not None and uses_context(state.best, entropy)
    if state.stopped == "done" and weights_are_useless(findings) and not learnt:
        state.stopped = "diverged"
    target = run.path / MODEL
    if state.stopped == "done":  # the model first: pictures can be drawn again
        run.publish(state, model_card(run, state, model, batches, validation, settings))
    drawn = loss_picture(run.path, run.path / "loss.png", say=display.note)
    if state.stopped in ("nonfinite", "diverged"):
        display.note(report(findings), must=True)
        display.note(
            f"\nNo model was written to {target}; checkpoints are in {run.path / checkpoint.FOLDER}", must=True
        )
        return
    if state.stopped == "interrupted":
        again = command("train", "--out", run.path, "--resume")
        display.note(
            f"\nStopped at step {state.step:,}; everything is saved. Continue with\n\n    {again}\n", must=True
        )
        return
    if findings:
        display.note(report(findings), must=any(finding.level != "note" for finding in findings))
    if validation is not None and state.best is not None and entropy is not None:
        display.note(
            f"\nheld-out loss {state.best:.3f}, {against(state.best, entropy)} of {entropy:.3f}: "
            f"{verdict(state.best, entropy)}"
        )
        display.note("\nMasked words in unseen text, and the model's guesses (★ marks the true word):\n")
        best = model.load_checkpoint(target / WEIGHTS)  # into the same memory: a second model may not fit
        for line in examples(best, validation):
            display.note(line)
    curve = f"    loss curve: {run.path / 'loss.png'}" if drawn else ""
    same = ["--model", "larger"] if model.config.name == "Larger-BERT" else []
    mask = f"The answer is not {batches.tokenizer.tokens[batches.tokenizer.mask_id]}."
    display.note(
        f"\nmodel: {target}{curve}\n\nWhat to try next:\n"
        f"    {command('fill-mask', mask, '--model', target)}\n"
        f"    {command('train', *same, '--corpus', 'FILE_OR_FOLDER', '--minutes', '120')}\n"
        f"    {command('plot', run.path)}\n"
        f"    {command('doctor', run.path)}"
    )


# ---------------------------------------------------------------------- defaults


def _complete(given: dict[str, Any], config: Any, steps: int | None, minutes: float | None) -> str:
    """Fill in the settings that were not given. Returns a note for the user, or an empty string."""
    batch_size = given.get("batch_size", TrainingConfig.batch_size)
    given.setdefault("warmup", default_warmup(steps, minutes))
    given.setdefault("learning_rate", default_learning_rate(config))
    threads = given.get("threads", min(default_threads(), batch_size))
    micro = given.setdefault("micro_batch", default_micro_batch(batch_size, threads))
    check_positive("micro_batch", micro)
    given.setdefault("threads", max(1, min(threads, batch_size // micro)))
    if threads <= batch_size // micro:
        return ""
    return (
        f"a batch has {counted(batch_size // micro, 'micro-batch')} of {micro} sequences, so only "
        f"{batch_size // micro} of {threads} threads have work; to use them all, choose a smaller --micro-batch"
    )


def _vocabulary(model: str, config: Any) -> str:
    """The tokenizer beside the model's config.json, or the bundled one with the model's vocabulary size."""
    folder = Path(model) if Path(model).is_dir() else Path(model).parent
    if Path(model).exists() and has_tokenizer(folder):
        return str(folder.absolute())
    return TOKENIZERS.get(config.vocab_size, "8k")


def _text(data: dict[str, Any]) -> Sequence[str] | Shards:
    """The text to read: the corpus, or the shards made from it if it came through a pipe."""
    return open_shards(data["shards"]) if "-" in data["corpus"] else data["corpus"]


def _absolute(name: str) -> str:
    """Make a path absolute, so that the run can be resumed from another folder; other names are not changed."""
    path, mark, column = name.partition("::")
    if Path(path).exists() or any(letter in path for letter in "*?["):
        return f"{Path(path).absolute()}{mark}{column}"
    return name

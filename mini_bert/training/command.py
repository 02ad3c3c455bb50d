"""From a command line to a trained model: choose text, vocabulary and model, train, and show what came of it.

The loop itself is in training/loop.py. This is what stands before it and after it: `mini-bert train`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mini_bert.common.invocation import command
from mini_bert.common.memory import share_memory_among_threads
from mini_bert.common.progress import counted
from mini_bert.common.values import check_positive
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.data.sequences import fair_share
from mini_bert.data.shards import Shards, open_shards, prepare
from mini_bert.evaluation.evaluate import unigram_entropy, word_counts
from mini_bert.evaluation.unigram_baseline import against, uses_context, verdict
from mini_bert.files.model_folder import MODEL, WEIGHTS
from mini_bert.layers.base import Run
from mini_bert.models.config import MINI_BERT_CONFIG, MiniBertConfig, display_name
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.models.registry import load_config
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training import checkpoint
from mini_bert.training.checkpoint import Checkpoint
from mini_bert.training.display import Display, heard
from mini_bert.training.history import Record, finite, read_run
from mini_bert.training.loop import train
from mini_bert.training.parallel import default_threads
from mini_bert.training.run_folder import RunFolder, State, now
from mini_bert.training.run_lock import RunLock
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import checkpointed_layers

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTES = 4.0  # where neither steps nor minutes are given
TOKENIZERS = {8192: "8k", 50000: "50k"}  # the bundled vocabulary for a model of that size
HELD_OUT = 50  # documents to keep aside for validation, if that is not less than 1 % nor more than 20 % of all
EXAMPLES = 6  # filled gaps to show at the end
AROUND = 10  # tokens to show on either side of a gap, if the sequences are long enough


def train_command(
    corpus: Sequence[str] | None = None,
    model: str = "mini",
    tokenizer: str | None = None,
    out: Path | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    held_out: float | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    quiet: bool = False,
    tie_head: bool = False,
    **settings: Any,
) -> State:
    """Start a run, or go on with one; `settings` are other fields of a TrainingConfig (None: its default)."""
    given = {name: value for name, value in settings.items() if value is not None}
    if resume:
        others = {"corpus": corpus, "tokenizer": tokenizer, "steps": steps, "minutes": minutes, "held_out": held_out}
        named = [name for name, value in (others | given).items() if value is not None]
        named += ["model"] if model != "mini" else []
        named += ["tie_head"] if tie_head else []
        if named:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in named)
            raise ValueError(f"--resume goes on with the settings that the run has; leave out {options}")
        return _resume(out, quiet, tensorboard)
    if steps is None and minutes is None:
        minutes = MINUTES
    path = out or new_folder()
    RunFolder.check_new(path)
    batch_size = given.get("batch_size", TrainingConfig.batch_size)
    given.setdefault("warmup", default_warmup(steps, minutes))
    config = load_config(model)
    if tie_head:
        config = replace(config, tie_head=True)
    given.setdefault("learning_rate", default_learning_rate(config))
    threads = given.get("threads", min(default_threads(), batch_size))
    micro = given.setdefault("micro_batch", default_micro_batch(batch_size, threads))
    check_positive("micro_batch", micro)
    given.setdefault("threads", max(1, min(threads, batch_size // micro)))
    training = TrainingConfig(steps=steps, minutes=minutes, **given)
    source = [_absolute(name) for name in corpus] if corpus else default_corpus()
    checkpointed_layers(training.checkpointing, config.num_layers)  # a layer that does not exist is named now
    vocabulary = _absolute(tokenizer) if tokenizer else TOKENIZERS.get(config.vocab_size, "8k")
    loaded = WordPieceTokenizer.load(vocabulary)
    notes = []
    if threads > batch_size // micro:
        notes.append(
            f"a batch has {counted(batch_size // micro, 'micro-batch')} of {micro} sequences, and so work for no more "
            f"of {threads} threads; a smaller --micro-batch has work for all"
        )
    if config.vocab_size != loaded.vocab_size:
        notes.append(
            f"the tokenizer {vocabulary} has {loaded.vocab_size:,} pieces, and so has the model, instead of the "
            f"{config.vocab_size:,} in its config"
        )
        config = replace(config, vocab_size=loaded.vocab_size)
    try:
        with heard() as said:
            shards = prepare(source, loaded, progress=not quiet)
    except KeyboardInterrupt:
        print(
            "\nStopped while the text was made ready. No run has begun; the same command starts anew.", file=sys.stderr
        )
        raise KeyboardInterrupt("told") from None
    share = default_share(shards, config.max_seq_length) if held_out is None else held_out
    data = {"corpus": source, "tokenizer": vocabulary, "held_out": share, "shards": str(shards.folder)}
    description = {"model": config.to_dict(), "training": training.to_dict(), "data": data}
    return _run(
        path,
        description,
        loaded,
        quiet,
        tensorboard,
        RunLock(path),
        notes=notes,
        said=[*said, f"the tokenized text is kept in {shards.folder}"],
    )


def _resume(out: Path | None, quiet: bool, tensorboard: bool) -> State:
    path = out or _newest_folder()
    description = RunFolder.config(path)
    with RunLock(path) as alone:
        with heard() as said:
            found = checkpoint.latest(path) if checkpoint.folders(path) else None  # None: it died before its first
        if found is None and "tokenizer" not in description["data"]:
            raise ValueError(
                f"{path} was started by a program and has no checkpoint yet: its vocabulary and first weights were "
                "that program's, so there is nothing to go on from; start it again there, in a folder of its own"
            )
        tokenizer = WordPieceTokenizer.load(found.path if found else description["data"]["tokenizer"])
        return _run(path, description, tokenizer, quiet, tensorboard, alone, found, new=False, said=said)


def _run(
    path: Path,
    description: dict[str, Any],
    tokenizer: WordPieceTokenizer,
    quiet: bool,
    tensorboard: bool,
    alone: RunLock,
    resume: Checkpoint | None = None,
    new: bool = True,
    notes: Sequence[str] = (),
    said: Sequence[str] = (),
) -> State:
    """`notes` are to be said; `said` was before there was a log."""
    share_memory_among_threads()
    settings = TrainingConfig.from_dict(description["training"])
    config = MiniBertConfig.from_dict(description["model"])
    data = description["data"]
    batches = MLMDataGenerator(
        _text(data), tokenizer, config.max_seq_length, settings.micro_batch, seed=settings.seed,
        held_out=data["held_out"], vocab_size=config.vocab_size, progress=not quiet,
    )  # fmt: skip
    validation = batches.validation() if data["held_out"] else None  # a text of one document has nothing to spare
    model = MiniBERT(config, seed=settings.seed)
    model.named_params()["head.b"].data[...] = np.log(word_shares(batches))
    if new:  # only now: whatever could be wrong with the settings has been said
        RunFolder.create(path, description)
    with alone, Display(path, settings.steps, settings.minutes, quiet) as display:
        hooks: list[Callable[[dict[str, Any]], None]] = [display.record]
        say = partial(display.note, must=True)
        try:
            if tensorboard:
                from mini_bert.training.tensorboard_hook import tensorboard as writer

                hooks.append(writer(path))
            for line in said:
                display.keep(line)
            for note in notes:
                display.note(note)
            display.note(f"{model.get_parameter_count():,} parameters; {batches}")
            if validation is None:
                display.note("nothing is held out, so there is no telling how well it does on text it has not seen")
            display.note(f"text: {', '.join(data['corpus'])}; what comes of it is kept in {path}")
            start = start_record(model, batches, validation, settings)
            run = RunFolder(path, tokenizer, settings.keep, resume, hooks, start, alone, say)
            state = train(model, batches, validation, settings, run)
        except KeyboardInterrupt:  # the second; or the first, before there was a step to finish
            kept = checkpoint.folders(path)
            since = f"what came after {kept[0].name} is not saved" if kept else "nothing is saved yet"
            display.end()
            say(f"\nEnded at once; {since}. Go on with\n\n    {command('train', '--out', path, '--resume')}\n")
            raise KeyboardInterrupt("told") from None
        display.end()
        _finish(run, state, model, batches, validation, settings, display)
    return state


def word_shares(batches: MLMDataGenerator) -> np.ndarray:
    """The share of every word in the text, (V,), at least half an occurrence each.

    A head whose bias starts at the logarithms of these knows from the first step on how frequent words are. Learning it
    would take hundreds of steps, which drag all weights along and spoil how they start (docs/decisions/0003).
    """
    counts = np.maximum(word_counts(batches), 0.5)
    return counts / counts.sum()


def start_record(
    model: MiniBERT, batches: MLMDataGenerator, validation: MLMDataGenerator | None, settings: TrainingConfig
) -> Record:
    """The first line of metrics.jsonl: what is trained, on what"""
    return {
        "kind": "start", "step": 0, "parameters": model.get_parameter_count(), "steps": settings.steps,
        "minutes": settings.minutes, "threads": settings.threads or default_threads(),
        "batch_size": settings.batch_size, "tokens_per_step": settings.batch_size * model.config.max_seq_length,
        "sequences": batches.sequences, "train_tokens": batches.tokens,
        "validation_tokens": validation.tokens if validation else 0,
        "unigram_entropy": unigram_entropy(validation or batches), "vocab_size": model.config.vocab_size,
        "mask_prob": batches.masking.mask_prob, "seed": settings.seed, "time": now(),
    }  # fmt: skip


# ---------------------------------------------------------------------- when it is over


def _finish(
    run: RunFolder,
    state: State,
    model: MiniBERT,
    batches: MLMDataGenerator,
    validation: MLMDataGenerator | None,
    settings: TrainingConfig,
    display: Display,
) -> None:
    from mini_bert.training.doctor import diagnose, report, spoilt
    from mini_bert.training.figures import loss_picture

    findings = [finding for finding in diagnose(run.path) if finding.level != "good"]
    entropy = read_run(run.path).unigram_entropy
    learnt = state.best is not None and entropy is not None and uses_context(state.best, entropy)
    if state.stopped == "done" and spoilt(findings) and not learnt:
        state.stopped = "diverged"
    target = run.path / MODEL
    if state.stopped == "done":  # the model first: pictures can be drawn again
        run.publish(state, model_card(run, state, model, batches, validation, settings))
    drawn = loss_picture(run.path, run.path / "loss.png", say=display.note)
    if state.stopped in ("nonfinite", "diverged"):
        display.note(report(findings), must=True)
        display.note(f"\nso there is no {target}; what there was is in {run.path / checkpoint.FOLDER}", must=True)
        return
    if state.stopped == "interrupted":
        again = command("train", "--out", run.path, "--resume")
        display.note(f"\nStopped at step {state.step:,}; all is saved. Go on with\n\n    {again}\n", must=True)
        return
    if findings:
        display.note(report(findings), must=any(finding.level != "note" for finding in findings))
    if validation is not None and state.best is not None and entropy is not None:
        display.note(
            f"\nheld-out loss {state.best:.3f}, {against(state.best, entropy)} of {entropy:.3f}: "
            f"{verdict(state.best, entropy)}"
        )
        display.note("\nGaps in text it has not seen, and its guesses (★ what stood there):\n")
        best = model.load_checkpoint(target / WEIGHTS)  # in its place: a second model may not fit beside it
        for line in examples(best, validation):
            display.note(line)
    curve = f"    the curve: {run.path / 'loss.png'}" if drawn else ""
    same = ["--model", "larger"] if display_name(model.config) == "Larger-BERT" else []
    display.note(
        f"\nthe model: {target}{curve}\n\nWhat to try next:\n"
        f"    {command('fill-mask', 'The answer is not [MASK].', '--model', target)}\n"
        f"    {command('train', *same, '--corpus', 'FILE_OR_FOLDER', '--minutes', '120')}\n"
        f"    {command('plot', run.path)}\n"
        f"    {command('doctor', run.path)}"
    )


def examples(model: MiniBERT, validation: MLMDataGenerator, count: int = EXAMPLES) -> list[str]:
    """Some gaps of held-out text, one at a time, with the three best guesses; the true word is marked among them."""
    tokenizer = validation.tokenizer
    lines: list[str] = []
    for number in range(0, len(validation), max(1, len(validation) // (3 * count))):
        ids, rows, targets, *_ = validation.batch(number)
        T = ids.shape[1]
        found = next((n for n in range(rows.size) if _is_shown(tokenizer, ids, int(rows[n]), int(targets[n]))), None)
        if found is None or len(lines) == count:
            continue
        row, truth, around = int(rows[found]), int(targets[found]), _around(T)
        text = ids.copy()
        text.flat[rows] = targets  # as it stood: masking puts other words in some places
        sequence, place = text[row // T], row % T
        sequence[place] = tokenizer.mask_id
        y, _ = model.encode(sequence[None], run=Run(), chosen=np.array([place]))
        scores = model.head.forward(y, Run())[0][0, : tokenizer.vocab_size]
        best = np.argsort(-scores)[:3].tolist()
        guesses = ", ".join(("★" if word == truth else "") + tokenizer.tokens[word] for word in best)
        missed = "" if truth in best else f"    (it was: {tokenizer.tokens[truth]})"
        start = next(t for t in range(place - around, place + 1) if not tokenizer.continues[sequence[t]])
        left = tokenizer.decode(sequence[start:place].tolist())
        right = tokenizer.decode(sequence[place + 1 : place + 1 + around].tolist())
        lines.append(f"  … {left} [____] {right} …\n      {guesses}{missed}")
    return lines


def _is_shown(tokenizer: WordPieceTokenizer, ids: np.ndarray, row: int, truth: int) -> bool:
    """A hidden whole word of letters, with text on both sides and no other gap close to it"""
    T = ids.shape[1]
    sequence, place, around = ids[row // T], row % T, _around(T)
    if not around < place < T - around - 1 or sequence[place] != tokenizer.mask_id:
        return False
    near = sequence[place - around : place + around + 1]
    whole = not tokenizer.continues[truth] and not tokenizer.continues[sequence[place + 1]]
    return bool(whole and tokenizer.tokens[truth].isalpha() and np.isin(near, tokenizer.special_ids).sum() == 1)


def _around(T: int) -> int:
    return min(AROUND, T // 4)


def measured(run: Path, sequences: int, most: int) -> str:
    """Rows of the model card: the best measurement on held-out text; where a number is not finite there is a dash."""
    evals = [record for record in read_run(run).of("eval") if finite(record.get("loss")) is not None]
    if not evals:
        return "| held-out loss | not measured |\n"
    text = f"the first {most:,} of {sequences:,} sequences" if most < sequences else counted(sequences, "sequence")
    best = min(evals, key=lambda record: record["loss"])
    rows = [("held-out loss", "loss", ".3f"), ("perplexity", "perplexity", ",.1f"), ("top-1 accuracy", "top1", ".1%"),
            ("top-5 accuracy", "top5", ".1%")]  # fmt: skip
    return f"| held-out text | {text} |\n" + "".join(
        f"| {label} | {'–' if (value := finite(best.get(name))) is None else format(value, form)} |\n"
        for label, name, form in rows
    )


def model_card(
    run: RunFolder,
    state: State,
    model: MiniBERT,
    batches: MLMDataGenerator,
    validation: MLMDataGenerator | None,
    settings: TrainingConfig,
) -> str:
    """README.md of the model folder: what it is, what it learnt from, how well."""
    config = RunFolder.config(run.path)
    names = {"-": "from a pipe, or handed over by a program"}
    corpus = ", ".join(names.get(name) or Path(name).name or name for name in config["data"]["corpus"])
    c, times = model.config, state.tokens / max(batches.tokens, 1)
    return f"""# A {display_name(c)}, trained by mini-bert {config["versions"]["mini-bert"]}

{model.get_parameter_count():,} parameters: {c.num_layers} layers, width {c.hidden_size}, {c.num_heads} heads,
sequences of {c.max_seq_length} tokens, {c.vocab_size:,} word pieces.

| | |
|---|---|
| text | {corpus} |
| tokens | {batches.tokens:,}, each seen {times:.1f} times |
| steps | {state.step:,} of {settings.batch_size} sequences, in {state.seconds / 60:.0f} minutes |
| learning rate | {settings.learning_rate:g} at its peak, warm-up {settings.warmup:.0%}, then down to 0 |
{measured(run.path, validation.sequences if validation else 0, settings.eval_sequences)}
Trained to fill gaps: 15 % of the words, of which 80 % are hidden, 10 % exchanged, 10 % left. It knows the text above
and nothing else; what it says is a guess about words, not a fact.

```python
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.text.wordpiece import WordPieceTokenizer

model, tokenizer = MiniBERT.from_pretrained("."), WordPieceTokenizer.load(".")
```
"""


# ---------------------------------------------------------------------- small choices


def _text(data: dict[str, Any]) -> Any:
    """What to read: the corpus; or, when it came through a pipe and is gone, the shards that were made of it"""
    return open_shards(data["shards"]) if "-" in data["corpus"] else data["corpus"]


def _absolute(name: str) -> str:
    """A path that will still be right when the run is resumed from another folder; other names as they are"""
    path, mark, column = name.partition("::")
    if Path(path).exists() or any(letter in path for letter in "*?["):
        return f"{Path(path).absolute()}{mark}{column}"
    return name


def default_micro_batch(batch_size: int, threads: int) -> int:
    """The largest part of a batch, up to 16 sequences, of which every thread gets as many, or at least one"""
    most = max(1, min(TrainingConfig.micro_batch, batch_size // threads))
    return max(size for size in range(1, most + 1) if batch_size % size == 0)


def default_share(shards: Shards, length: int) -> float:
    """The share of the documents to hold out; 0 where so few tokens would make no sequence on one side."""
    return fair_share(shards, min(0.2, max(0.01, HELD_OUT / max(len(shards.hashes), 1))), length - 2)


def default_corpus() -> list[str]:
    """Text in ./data if there is any, or else the built-in corpus."""
    from mini_bert.corpora.reading import Report, read

    folder = Path("data")
    if folder.is_dir():
        try:
            if next(iter(read(str(folder), report=Report())), None) is not None:
                return [str(folder)]
        except (ValueError, OSError):
            pass
    return ["builtin"]


def default_learning_rate(config: MiniBertConfig) -> float:
    """1e-3 up to Mini-BERT's width, and for wider models as much less as they are wider.

    A weight's step of Adam is about the learning rate, whatever the gradient. What a row of H such steps changes in the
    sum that it takes part in grows with H, so the wider the model, the smaller each of them.
    """
    return TrainingConfig.learning_rate * min(1.0, MINI_BERT_CONFIG.hidden_size / config.hidden_size)


def default_warmup(steps: int | None, minutes: float | None) -> float:
    """400 steps or a minute, or a twentieth of the run if that is longer, but no more than a quarter of it.

    Sooner, and the learning rate is high while the first block still looks at its neighbours for no better reason than
    that it began so (docs/decisions/0003).
    """
    least = 400 / steps if steps else 1 / (minutes or MINUTES)
    return min(0.25, max(0.05, least))


def new_folder(home: Path = Path("runs")) -> Path:
    """The first of runs/run-1, runs/run-2, … that does not exist yet"""
    number = 1
    while (home / f"run-{number}").exists():
        number += 1
    return home / f"run-{number}"


def _newest_folder(home: Path = Path("runs")) -> Path:
    found = sorted(home.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise FileNotFoundError(f"there is no run in {home.resolve()} to resume; name its folder with --out")
    return found[-1].parent

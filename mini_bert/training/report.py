"""The output at the end of a run: guesses on held-out text, and the model card."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mini_bert.common.invocation import command, option_words
from mini_bert.common.progress import counted
from mini_bert.common.wording import duration, perplexity_text, with_article
from mini_bert.data.generator import TextBatches
from mini_bert.files.model_folder import LOADING, MODEL
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, Model
from mini_bert.models.registry import preset_name
from mini_bert.objectives.distillation import Distillation, folder_name
from mini_bert.objectives.masked_words import MaskedWordsAndSentences
from mini_bert.text.base import Tokenizer
from mini_bert.training.history import finite, further_parts, read_run
from mini_bert.training.recorder import State
from mini_bert.training.run_folder import RunFolder
from mini_bert.training.schedules import WORDS
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.symptoms import Finding

if TYPE_CHECKING:
    from mini_bert.training.folder_run import FolderRun

# options of `train` about one run: its length, and when it is measured and saved
OF_ONE_RUN = ("steps", "minutes", "eval_every", "eval_minutes", "save_every")
# fields of a TrainingConfig that are not options of `train`
IN_PYTHON = ("clip", "beta1", "eps", "average_every", "log_every", "eval_sequences", "tensors_every", "keep")
OWN_TEXT = ["--corpus", "FILE_OR_FOLDER"]
EXAMPLES = 6  # masked words to show
AROUND = 10  # tokens to show on either side of a masked word, if the sequences are long enough


def examples(model: Model, validation: TextBatches, count: int = EXAMPLES) -> list[str]:
    """Some masked words of held-out text with the three best guesses; ★ marks the true word."""
    tokenizer = validation.tokenizer
    lines: list[str] = []
    for number in range(0, len(validation), max(1, len(validation) // (3 * count))):
        batch = validation.batch(number)
        ids, rows, targets, mask, types = (
            batch.input_ids, batch.rows, batch.targets, batch.attention_mask, batch.token_type_ids
        )  # fmt: skip
        T = ids.shape[1]
        hit = next((n for n in range(rows.size) if _is_shown(tokenizer, ids, int(rows[n]), int(targets[n]))), None)
        if hit is None or len(lines) == count:
            continue
        row, truth, around = int(rows[hit]), int(targets[hit]), _around(T)
        text = ids.copy()
        text.flat[rows] = targets  # the original text: masking replaced some words by others
        sequence, place = text[row // T], row % T
        sequence[place] = tokenizer.mask_id
        mask, types = (None if array is None else array[row // T][None] for array in (mask, types))
        y, _ = model.encode(sequence[None], mask, types, run=Run(), chosen=np.array([place]))
        scores = model.output_head(MASKED_WORDS).forward(y, Run())[0][0, : tokenizer.vocab_size]
        best = np.argsort(-scores)[:3].tolist()
        guesses = ", ".join(("★" if word == truth else "") + tokenizer.readable(word) for word in best)
        missed = "" if truth in best else f"    (it was: {tokenizer.readable(truth)})"
        continuing = tokenizer.continuing(sequence)
        start = next(t for t in range(place - around, place + 1) if not continuing[t])
        left = tokenizer.decode(sequence[start:place].tolist())
        right = tokenizer.decode(sequence[place + 1 : place + 1 + around].tolist())
        lines.append(f"  … {left} [____] {right} …\n      {guesses}{missed}")
    return lines


def _is_shown(tokenizer: Tokenizer, ids: np.ndarray, row: int, truth: int) -> bool:
    """Whether this is a masked whole word of letters, with text on both sides and no other mask nearby."""
    T = ids.shape[1]
    sequence, place, around = ids[row // T], row % T, _around(T)
    if not around < place < T - around - 1 or sequence[place] != tokenizer.mask_id:
        return False
    near = sequence[place - around : place + around + 1]
    text = sequence.copy()
    text[place] = truth
    whole = not tokenizer.continuing(text)[place : place + 2].any()
    return bool(whole and tokenizer.piece_text(truth).isalpha() and np.isin(near, tokenizer.special_ids).sum() == 1)


def _around(T: int) -> int:
    return min(AROUND, T // 4)


def measured(run: Path, sequences: int, most: int) -> str:
    """Rows of the model card: the best measurement on held-out text, with a dash for numbers that are not finite"""
    history = read_run(run)
    best = history.best
    if not best:
        return "| held-out loss | not measured |\n"
    text = f"the first {most:,} of {sequences:,} sequences" if most < sequences else counted(sequences, "sequence")
    loss, share = "{:.3f}".format, "{:.1%}".format
    rows: list[tuple[str, str, Callable[[float], str]]] = [
        ("held-out loss", "loss", loss), ("perplexity", "perplexity", partial(perplexity_text, digits=1)),
        ("top-1 accuracy", "top1", share), ("top-5 accuracy", "top5", share),
    ]  # fmt: skip
    if owner := history.kind.part_name():
        rows = [(f"{owner}: {label}", name, form) for label, name, form in rows]
    for name in further_parts(best):
        words = history.kind.part_name(name) + (": held-out" if owner else "")
        rows += [(f"{words} loss", f"{name}_loss", loss), (f"{words} accuracy", f"{name}_accuracy", share)]
    return f"| held-out text | {text} |\n" + "".join(
        f"| {label} | {'–' if (value := finite(best.get(name))) is None else form(value)} |\n"
        for label, name, form in rows
    )


def model_card(run: FolderRun, state: State) -> str:
    """README.md of the model folder: what it is, what it was trained on, how well it does."""
    model, batches, settings, config = run.model, run.batches, run.settings, RunFolder.config(run.path)
    names = {"-": "from a pipe or a program"}
    corpus = ", ".join(names.get(name) or Path(name).name or name for name in config["data"]["corpus"])
    changes = ", ".join(f"{earlier['step']:,}" for earlier in config.get("earlier_lengths", []))
    extended = f"; the length of the run was changed after step {changes}" if changes else ""
    history = read_run(run.path)
    samples = (history.best or history.last("train")).get("averaged")
    results = measured(run.path, run.validation.sequences if run.validation else 0, settings.eval_sequences)
    return f"""# A{with_article(model.config.name)[1:]}, trained by mini-bert {config["versions"]["mini-bert"]}

{model.get_parameter_count():,} parameters: {model.depth} layers, width {model.width}, {model.heads} heads,
sequences of {model.max_length} tokens, a vocabulary of {model.vocab_size:,}.

| | |
|---|---|
| text | {corpus} |
| tokens | {batches.tokens:,}, each seen {history.epochs:.1f} times |
| start | {started(config)} |
| steps | {state.step:,} of {settings.batch_size} sequences, in {duration(state.seconds)} |
| learning rate | {rates(settings)}{extended} |
{further_settings(settings, samples)}{results}
{batches.objective.summary}
{learnt(config)}; its answers are guesses about words, not facts.

{LOADING}

```python
from mini_bert import load_model, load_tokenizer

model, tokenizer = load_model("."), load_tokenizer(".")
```
"""


def rates(settings: TrainingConfig) -> str:
    """The learning rate in words, for the model card."""
    peak = f"{settings.learning_rate:g}"
    if settings.optimizer == "muon":
        peak += f" (Adam) and {settings.muon_learning_rate or settings.learning_rate:g} (Muon, for matrices in blocks)"
    falls = WORDS[settings.schedule].format(settings.decay_share)
    return f"{peak} at its peak, warm-up {settings.warmup:.0%}, {falls}"


def further_settings(settings: TrainingConfig, samples: int | None = None) -> str:
    """Rows of the model card for what is not usual: averaged weights, and what changed during the run

    samples: how many the saved weights are the average of; None: older runs did not record it
    """
    rows = []
    of = "" if samples is None else f", of {counted(samples, 'sample')}"
    if settings.average != "none" and samples == 0:
        rows.append(("weights", "of a single step: the best ones are from before the part of the run that is averaged"))
    elif settings.average == "ema":
        rows.append(("weights", f"a moving average, with a decay of {settings.ema_decay:g} per step{of}"))
    elif settings.average == "tail":
        rows.append(("weights", f"the mean over the last {settings.tail_share:.0%} of the run{of}"))
    for name, what in (("batch", "sequences per step"), ("length", "tokens per sequence"), ("mask", "masked share")):
        start, share = getattr(settings, f"{name}_start"), getattr(settings, f"{name}_ramp")
        if start is not None:
            rows.append((what, f"{start:g} at first, as above after {share:.0%} of the run"))
    return "".join(f"| {name} | {value} |\n" for name, value in rows)


def learnt(config: dict[str, Any]) -> str:
    """What the model has seen, for the model card. config: of the run"""
    before = "what it had learnt before" if "init" in config else ""
    teacher = "its teacher" if "teacher" in config.get("objective_options", {}) else ""
    others = " and ".join(filter(None, [before, teacher]))
    return f"Besides {others}, it learnt only from the text above" if others else "It learnt only from the text above"


def started(config: dict[str, Any]) -> str:
    """What the weights were at first, for the model card. config: of the run"""
    if "init" in config:
        return f"the weights of {folder_name(config['init'])}"
    if config.get("init_from_teacher"):
        return "layers of the teacher"
    return "random weights"


def next_steps(run: FolderRun, findings: Sequence[Finding] = ()) -> str:
    """Commands to try after a run, one per line, without the options that led to something wrong with it"""
    tokenizer, config = run.batches.tokenizer, RunFolder.config(run.path)
    wrong = {name for finding in findings for name in finding.options}
    commands = [command("plot", run.path), command("doctor", run.path)]
    if (options := options_of(run)) is not None:
        options = {name: value for name, value in options.items() if name not in wrong}
        corpus = OWN_TEXT if "corpus" in wrong else corpus_options(config)
        commands.insert(0, command("train", *option_words(options), *corpus, "--minutes", "120"))
    if MASKED_WORDS in run.model.output_heads and tokenizer.mask_token:
        text = f"The answer is not {tokenizer.mask_token}."
        commands.insert(0, command("fill-mask", text, "--model", run.path / MODEL))
    if NEXT_WORD in run.model.output_heads:
        commands.insert(0, command("generate", "Once upon a time", "--model", run.path / MODEL))
    return "\n".join(f"    {line}" for line in commands)


def corpus_options(config: dict[str, Any]) -> list[str]:
    """The text of a run as options of `train`; of a run on the built-in corpus, a place for one's own"""
    corpus = config["data"]["corpus"]
    if corpus == ["builtin"] or "-" in corpus:
        return OWN_TEXT
    return option_words({"corpus": [_from_here(name) for name in corpus]})


def _from_here(value: Any) -> Any:
    """A path in the current folder without that folder; other values are not changed."""
    return value.removeprefix(f"{Path.cwd()}{os.sep}") if isinstance(value, str) else value


def options_of(run: FolderRun) -> dict[str, Any] | None:
    """The options of `mini-bert train` that make such a model on any text, in any time; None: there are none.

    Of a run from Python, or of an older version, only the model and the objective are known.
    """
    config = RunFolder.config(run.path)
    model = config.get("model_from", None if "init" in config else preset_name(run.model.config))
    if model is None:  # trained further, or a model of one's own, from Python
        return None
    if "given" in config:
        given = {name: value for name, value in config["given"].items() if name not in (*OF_ONE_RUN, *IN_PYTHON)}
        texts = {name: ",".join(map(str, value)) for name, value in given.items() if isinstance(value, list)}
        return {name: _from_here(value) for name, value in (given | texts).items()}
    name, objective = run.batches.objective.name, config.get("objective_options", {})
    options: dict[str, Any] = {} if model == "mini" else {"model": _from_here(model)}
    if name == MaskedWordsAndSentences.name:
        options["next_sentence"] = True
    elif name not in (run.model.objective, Distillation.name):
        options["objective"] = name
    return options | {name: objective[name] for name in ("teacher",) if name in objective}

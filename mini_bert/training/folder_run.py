"""A training run in a folder: display, records, checkpoints, and at the end the best model and a report."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mini_bert.common.invocation import command
from mini_bert.common.memory import return_freed_memory
from mini_bert.data.generator import TextBatches
from mini_bert.data.sequences import ONE_DOCUMENT
from mini_bert.evaluation.evaluate import word_counts
from mini_bert.evaluation.unigram_baseline import against
from mini_bert.evaluation.word_frequencies import log_frequencies, read_frequencies
from mini_bert.files.model_folder import MODEL, WEIGHTS
from mini_bert.models.base import Model
from mini_bert.training import checkpoint
from mini_bert.training.checkpoint import Checkpoint
from mini_bert.training.display import Display
from mini_bert.training.history import read_run
from mini_bert.training.loop import train
from mini_bert.training.parallel import default_threads
from mini_bert.training.recorder import Record, State
from mini_bert.training.report import examples, model_card, next_steps
from mini_bert.training.run_folder import RunFolder, now
from mini_bert.training.run_lock import RunLock
from mini_bert.training.settings import TrainingConfig


class FolderRun:
    """Trains `model` on `batches` in the run folder `path`, which RunFolder.create made."""

    def __init__(
        self, path: Path, model: Model, batches: TextBatches, settings: TrainingConfig, quiet: bool = False
    ) -> None:
        self.path, self.model, self.batches, self.settings, self.quiet = path, model, batches, settings, quiet
        self.validation = batches.validation() if batches.arguments["held_out"] else None
        self.lock = RunLock(path)
        self.tensorboard = False
        self.adapts_to_text = True  # whether the objective adapts the initial weights to the text
        self.notes: list[str] = []  # shown and logged at the start
        self.logged: list[str] = []  # only logged, because they were shown before there was a log

    def train(self, start_from: Checkpoint | None = None) -> State:
        """Train to the end; start_from: a checkpoint to resume."""
        path, settings = self.path, self.settings
        with self.lock, Display(path, settings.steps, settings.minutes, self.quiet) as display:
            say = partial(display.note, must=True)
            try:
                run = RunFolder(path, self.batches.tokenizer, settings.keep, start_from, self._hooks(display))
                run.lock, run.say = self.lock, say
                if (layout := self.batches.objective.layout) is not None:  # also of runs that began without it
                    run.tokenizer_for_use = self.batches.tokenizer.in_layout(layout)
                self._introduce(display)
                if start_from is not None:
                    run.word_frequencies = read_frequencies(start_from.path)
                    run.start = {"steps": settings.steps, "minutes": settings.minutes}
                else:
                    counts = word_counts(self.batches)
                    run.word_frequencies = log_frequencies(counts)
                    if self.adapts_to_text:
                        self.batches.objective.start(self.model, counts)
                    measured = counts if self.validation is None else word_counts(self.validation)
                    run.start = start_record(self.model, self.batches, self.validation, settings)
                    run.start |= self.batches.objective.start_record(measured, run.word_frequencies)
                return_freed_memory()  # from reading the text and initialising the weights
                state = train(self.model, self.batches, settings, self.validation, run)
            except KeyboardInterrupt:  # the second one; or the first, if there was no step to finish yet
                kept = checkpoint.folders(path)
                since = f"everything after {kept[0].name} is lost" if kept else "nothing was saved yet"
                display.end()
                say(f"\nStopped at once; {since}. Continue with\n\n    {command('train', '--out', path, '--resume')}\n")
                raise KeyboardInterrupt("told") from None
            display.end()
            self._finish(run, state, display)
        return state

    def _hooks(self, display: Display) -> list[Callable[[Record], None]]:
        if not self.tensorboard:
            return [display.record]
        from mini_bert.training.tensorboard_hook import tensorboard

        return [display.record, tensorboard(self.path)]

    def _introduce(self, display: Display) -> None:
        for line in self.logged:
            display.keep(line)
        display.note(f"{self.model.get_parameter_count():,} parameters; {self.batches}")
        for note in self.notes:
            display.note(note)
        if self.validation is None:
            why = f": {ONE_DOCUMENT}" if self.batches.documents.count == 1 else ""
            display.note(f"no text is held out, so the model will not be evaluated on unseen text{why}")

    def _finish(self, run: RunFolder, state: State, display: Display) -> None:
        from mini_bert.training.doctor import diagnose, report, weights_are_useless
        from mini_bert.training.figures import loss_picture
        from mini_bert.training.part_symptoms import discriminator

        findings = [finding for finding in diagnose(self.path) if finding.level not in ("good", "early")]
        history = read_run(self.path)
        learnt = state.best is not None and history.uses_context(state.best)
        if state.stopped == "done" and weights_are_useless(findings) and not learnt:
            state.stopped = "diverged"
        target = self.path / MODEL
        if state.stopped == "done":  # the model first: pictures can be drawn again
            run.publish(state, model_card(self, state))
        drawn = loss_picture(self.path, self.path / "loss.png", say=display.note)
        if state.stopped in ("nonfinite", "diverged"):
            display.note(report(findings), must=True)
            display.note(
                f"\nNo model was written to {target}; checkpoints are in {self.path / checkpoint.FOLDER}", must=True
            )
            return
        if state.stopped == "interrupted":
            again = command("train", "--out", self.path, "--resume")
            display.note(
                f"\nStopped at step {state.step:,}; everything is saved. Continue with\n\n    {again}\n", must=True
            )
            return
        if findings:
            display.note(report(findings), must=any(finding.level != "note" for finding in findings))
        if state.best is not None and history.unigram_loss is not None:
            display.note(
                f"\nheld-out {history.loss_name} {state.best:.3f}, {against(state.best, history.unigram_loss)} of "
                f"{history.unigram_loss:.3f}: {history.verdict(state.best)}"
            )
        if found := discriminator(history, history.best or history.last("train")):
            display.note(found)
        if self.validation is not None and self.batches.objective.word_model(self.model) is not None:
            self.model.load_checkpoint(run.best(state) / WEIGHTS)  # into the same memory: a second model may not fit
            words: Any = self.batches.objective.word_model(self.model)
            if lines := examples(words, self.validation):
                guesses = f"{history.kind.part_name() or 'model'}'s guesses"
                display.note(f"\nMasked words in unseen text, and the {guesses} (★ marks the true word):\n")
                for line in lines:
                    display.note(line)
        curve = f"    loss curve: {self.path / 'loss.png'}" if drawn else ""
        display.note(f"\nmodel: {target}{curve}\n\nWhat to try next:\n{next_steps(self, findings)}")


def start_record(
    model: Model, batches: TextBatches, validation: TextBatches | None, settings: TrainingConfig
) -> Record:
    """The first line of metrics.jsonl: the model, the data, the settings"""
    return {
        "kind": "start", "step": 0, "parameters": model.get_parameter_count(), "steps": settings.steps,
        "minutes": settings.minutes, "threads": settings.threads or default_threads(),
        "batch_size": settings.batch_size, "tokens_per_step": settings.batch_size * batches.arguments["max_seq_length"],
        "length": batches.arguments["max_seq_length"],
        "sequences": batches.sequences, "train_tokens": batches.tokens,
        "validation_tokens": validation.tokens if validation else 0, "vocab_size": model.vocab_size,
        "objective": batches.objective.name, "seed": settings.seed, "optimizer": settings.optimizer,
        "schedule": settings.schedule, "average": settings.average, "time": now(),
    }  # fmt: skip

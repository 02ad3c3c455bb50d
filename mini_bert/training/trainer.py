"""Train any model on any data generator from Python, in a run folder like that of `mini-bert train`.

    trainer = Trainer(MiniBERT())
    data_generator = MLMDataGenerator("my_texts/", trainer.load_tokenizer(), batch_size=8, held_out=0.01)
    trainer.train(data_generator, num_steps=1000)

The run folder (docs/training.md) has checkpoints to resume from, and the best model at the end. The loop itself, which
writes nothing, is `train` in loop.py.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from mini_bert.common.memory import share_memory_among_threads
from mini_bert.common.wording import with_article
from mini_bert.data.generator import TextBatches, check_vocabulary
from mini_bert.evaluation.evaluate import Evaluation, measure
from mini_bert.inference.loading import bundled_tokenizer
from mini_bert.models.base import Model
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.text.base import Tokenizer
from mini_bert.text.loading import load_tokenizer
from mini_bert.training import checkpoint, ramps, switches
from mini_bert.training.checkpoint import Checkpoint
from mini_bert.training.defaults import new_folder, settings_for
from mini_bert.training.folder_run import FolderRun
from mini_bert.training.recorder import State
from mini_bert.training.run_folder import RunFolder
from mini_bert.training.settings import TrainingConfig

SETTINGS = {field.name for field in fields(TrainingConfig)} - {"steps", "minutes", "micro_batch"}


class Trainer:
    """Trains a model on a data generator. Each batch of the generator is one micro-batch.

    out         the run folder; default: a new one in ./runs
    quiet       show nothing while it runs
    settings    fields of a TrainingConfig: learning_rate, threads, checkpointing, seed, batch_size, …

    The defaults are those of a new model. For trained weights, pass optimizer="adam", learning_rate=1e-4.
    """

    def __init__(self, model: Model, out: Any = None, quiet: bool = False, **settings: Any):
        self.model, self.quiet, self.settings = model, quiet, settings
        self.out = self._place = None if out is None else Path(out)
        if unknown := sorted(set(settings) - SETTINGS):
            raise TypeError(
                f"unknown setting(s) {', '.join(unknown)}: settings are fields of a TrainingConfig such as "
                "learning_rate=5e-4; the length of training goes to train(…, num_steps=1000), and the generator's "
                "batch_size is the micro-batch"
            )
        self.state: State | None = None  # of the last run

    def load_tokenizer(self, name: str | os.PathLike[str] | None = None) -> Tokenizer:
        """Load the bundled tokenizer of the model's kind and size, or any tokenizer by name or path."""
        name = bundled_tokenizer(type(self.model), self.model.vocab_size) if name is None else name
        if name is None:
            raise ValueError(
                f"no bundled tokenizer for {with_article(self.model.config.name)} has {self.model.vocab_size:,} "
                "tokens; pass the name or path of this model's tokenizer"
            )
        tokenizer = load_tokenizer(name)
        check_vocabulary(tokenizer, self.model.vocab_size)
        return tokenizer

    def train(
        self, data_generator: TextBatches, num_steps: int | None = None, *, minutes: float | None = None
    ) -> State:
        """Train for a number of steps or minutes. Text that the generator holds out is used for validation."""
        if num_steps is None and minutes is None:
            raise ValueError("for how long? pass num_steps=1000 or minutes=60")
        length: dict[str, Any] = {"steps": num_steps, "minutes": minutes}
        masked = isinstance(data_generator.objective, MaskedWords)
        settings, _ = settings_for(
            self.model.config, data_generator.batch_size, masked=masked, **length, **self.settings
        )
        data_generator.check_fits(self.model)
        switches.check(self.model, settings)
        ramps.check(data_generator, settings)
        path, shards = self._place or new_folder(), str(data_generator.shards.folder)
        data = {"corpus": ["-"], "shards": shards, "held_out": data_generator.arguments["held_out"]}
        description = {"model": self.model.config.to_dict(), "training": settings.to_dict(), "data": data,
                       "objective": data_generator.objective.name}  # fmt: skip
        # The folder comes last, so that an invalid argument leaves none behind.
        another = f'choose another folder: {type(self).__name__}(model, out="runs/another")'
        RunFolder.create(path, description, "resume it with trainer.resume(data_generator)", another)
        return self._run(path, data_generator, settings)

    def resume(self, data_generator: TextBatches, out: str | os.PathLike[str] | None = None) -> State:
        """Continue a stopped run with its own settings; it ends as if it had never stopped."""
        path = self.out if out is None else Path(out)
        if path is None:
            raise ValueError("which run? name its folder: trainer.resume(data_generator, out='runs/run-1')")
        settings = TrainingConfig.from_dict(RunFolder.config(path)["training"])
        if not checkpoint.folders(path):
            raise FileNotFoundError(
                f"{path} has no checkpoint yet, so there is nothing to resume; start again with trainer.train(…) in a "
                "new folder"
            )
        return self._run(path, data_generator, settings, checkpoint.latest(path))

    def evaluate(self, data_generator: TextBatches, sequences: int = TrainingConfig.eval_sequences) -> Evaluation:
        """Loss, perplexity, top-1 and top-5 accuracy on the held-out text, or on all text if none is held out."""
        if data_generator.arguments["held_out"] and data_generator.arguments["split"] == "train":
            data_generator = data_generator.validation()
        batches = data_generator.once(most=sequences)
        return measure(self.model, batches, objective=data_generator.objective).result

    def save(self, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> None:
        """Write a model folder for load_model, with the tokenizer if given."""
        self.model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save(folder)

    def load_checkpoint(self, path: str | os.PathLike[str] | None = None) -> Model:
        """Load weights from a run (its best model; default: the trainer's run), a checkpoint, a folder or a file."""
        path = self.out if path is None else path
        if path is None:
            raise ValueError("which checkpoint? name a run, a folder or a file: trainer.load_checkpoint('runs/run-1')")
        return self.model.load_checkpoint(path)

    def _run(
        self, path: Path, batches: TextBatches, settings: TrainingConfig, start_from: Checkpoint | None = None
    ) -> State:
        share_memory_among_threads()
        self.out = path
        self.state = FolderRun(path, self.model, batches, settings, self.quiet).train(start_from)
        return self.state

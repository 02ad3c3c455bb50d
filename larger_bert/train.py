"""Train Larger-BERT from Python: a wrapper around mini_bert.training, with Larger-BERT's defaults.

    from larger_bert import LargerBERT
    from larger_bert.train import LargerBERTTrainer
    from mini_bert.data import MLMDataGenerator

    trainer = LargerBERTTrainer(LargerBERT())
    tokenizer = trainer.load_tokenizer()                                  # the bundled 50k
    data_generator = MLMDataGenerator("my_texts/", tokenizer, max_seq_length=128, batch_size=4, held_out=0.01)
    trainer.train(data_generator, num_steps=1000)

`mini-bert train --model larger` does the same from the command line, and so does `python larger_bert/train.py`. Either
way you get the same run folder (docs/training.md): checkpoints to resume from, and the best model at the end.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from larger_bert import LargerBERT
from mini_bert.common.memory import share_memory_among_threads
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.evaluation.evaluate import Evaluation, evaluate
from mini_bert.models.base import Model
from mini_bert.text.base import Tokenizer
from mini_bert.text.loading import load_tokenizer
from mini_bert.training import checkpoint, switches
from mini_bert.training.defaults import TOKENIZERS, default_learning_rate, default_warmup, new_folder
from mini_bert.training.parallel import default_threads
from mini_bert.training.pretraining import start_at_frequencies, train_in_folder
from mini_bert.training.recorder import State
from mini_bert.training.run_folder import RunFolder
from mini_bert.training.settings import TrainingConfig

BATCH = 32  # sequences per optimiser step, in micro-batches of the generator's size


class LargerBERTTrainer:
    """Trains a model on a data generator. Each batch of the generator is one micro-batch.

    model       default: a new LargerBERT
    out         the run folder; default: a new one in ./runs
    quiet       show nothing while it runs
    settings    fields of a TrainingConfig: learning_rate, threads, checkpointing, seed, batch_size, …
    """

    def __init__(
        self,
        model: Model | None = None,
        out: str | os.PathLike[str] | None = None,
        quiet: bool = False,
        **settings: Any,
    ):
        self.model = LargerBERT() if model is None else model
        self.out = self._place = None if out is None else Path(out)
        self.quiet, self.settings = quiet, settings
        known = {field.name for field in fields(TrainingConfig)} - {"steps", "minutes", "micro_batch"}
        if unknown := sorted(set(settings) - known):
            raise TypeError(
                f"unknown setting(s) {', '.join(unknown)}: settings are fields of a TrainingConfig such as "
                "learning_rate=5e-4; the length of training goes to train(…, num_steps=1000), and the generator's "
                "batch_size is the micro-batch"
            )
        self.state: State | None = None  # of the last run

    def load_tokenizer(self, name: str | os.PathLike[str] | None = None) -> Tokenizer:
        """Load the bundled vocabulary that has the model's size (50k), or any tokenizer by name or path."""
        V = self.model.vocab_size
        if name is None and V not in TOKENIZERS:
            raise ValueError(
                f"no bundled vocabulary has {V:,} tokens ({', '.join(TOKENIZERS.values())} have "
                f"{', '.join(f'{size:,}' for size in TOKENIZERS)}); pass the name or path of this model's tokenizer"
            )
        tokenizer = load_tokenizer(TOKENIZERS[V] if name is None else name)
        if tokenizer.vocab_size > V:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size:,} tokens, but the model has only {V:,} ids; use the "
                "tokenizer that belongs to the model"
            )
        return tokenizer

    def train(
        self, data_generator: MLMDataGenerator, num_steps: int | None = None, *, minutes: float | None = None
    ) -> State:
        """Train for a number of steps or minutes. Text that the generator holds out is used for validation."""
        settings = self._settings(data_generator, num_steps, minutes)
        path = self._place or new_folder()
        self._check(data_generator)
        switches.check(self.model, settings)
        held_out = data_generator.arguments["held_out"]
        data = {"corpus": ["-"], "shards": str(data_generator.shards.folder), "held_out": held_out}
        RunFolder.create(  # last, so that an invalid argument leaves no folder behind
            path,
            {"model": self.model.config.to_dict(), "training": settings.to_dict(), "data": data},
            "resume it with trainer.resume(data_generator)",
            'choose another folder: LargerBERTTrainer(model, out="runs/another")',
        )
        if not self.model.word_bias.data.any():  # a new model
            start_at_frequencies(self.model, data_generator)
        return self._run(path, data_generator, settings)

    def resume(self, data_generator: MLMDataGenerator, out: str | os.PathLike[str] | None = None) -> State:
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

    def evaluate(self, data_generator: MLMDataGenerator, sequences: int = TrainingConfig.eval_sequences) -> Evaluation:
        """Loss, perplexity, top-1 and top-5 accuracy on the held-out text, or on all text if none is held out."""
        if data_generator.arguments["held_out"] and data_generator.arguments["split"] == "train":
            data_generator = data_generator.validation()
        return evaluate(self.model, data_generator.once(most=sequences))

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

    def _run(self, path: Path, batches: MLMDataGenerator, settings: TrainingConfig, start_from: Any = None) -> State:
        share_memory_among_threads()
        self.out = path
        self.state = train_in_folder(path, self.model, batches, settings, start_from=start_from, quiet=self.quiet)
        return self.state

    def _settings(self, batches: MLMDataGenerator, steps: int | None, minutes: float | None) -> TrainingConfig:
        if steps is None and minutes is None:
            raise ValueError("for how long? pass num_steps=1000 or minutes=60")
        micro = batches.batch_size
        given = {"batch_size": max(micro, BATCH // micro * micro)} | self.settings
        size = given["batch_size"]
        if isinstance(size, int) and size % micro:
            raise ValueError(
                f"batch_size is {size}, which is not a multiple of the generator's {micro}; choose a multiple such as "
                f"batch_size={max(micro, size // micro * micro)}, or build the generator with a batch_size that "
                f"divides {size}"
            )
        given |= {"micro_batch": micro, "steps": steps, "minutes": minutes}
        given.setdefault("threads", min(default_threads(), max(1, given["batch_size"] // micro)))
        given.setdefault("warmup", default_warmup(steps, minutes))
        given.setdefault("learning_rate", default_learning_rate(self.model.config))
        return TrainingConfig(**given)

    def _check(self, batches: MLMDataGenerator) -> None:
        T, V, length = self.model.max_length, self.model.vocab_size, batches.arguments["max_seq_length"]
        if length > T:
            raise ValueError(
                f"the generator makes sequences of {length} tokens, but the model has {T} positions; build the "
                f"generator with max_seq_length={T}"
            )
        if batches.tokenizer.vocab_size > V:
            raise ValueError(
                f"the generator's tokenizer has {batches.tokenizer.vocab_size:,} tokens, but the model has {V:,} ids; "
                "build the generator with trainer.load_tokenizer()"
            )


if __name__ == "__main__":
    import sys

    from mini_bert.cli.main import main

    if "--help" in sys.argv:
        print("The same as `mini-bert train --model larger`, with its options:\n")
    main(["train", "--model", "larger", *sys.argv[1:]])

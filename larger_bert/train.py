"""Training Larger-BERT from Python: a handle on mini_bert.training.loop, and nothing of its own.

    from larger_bert import LargerBERT
    from larger_bert.train import LargerBERTTrainer
    from mini_bert.data.generator import MLMDataGenerator

    trainer = LargerBERTTrainer(LargerBERT())
    tokenizer = trainer.load_tokenizer()                                  # the bundled 50k
    data_generator = MLMDataGenerator("my_texts/", tokenizer, max_seq_length=128, batch_size=4, held_out=0.01)
    trainer.train(data_generator, num_steps=1000)

`mini-bert train --model larger` is the same from a command line, with a display and a choice of text. Both write the
same run folder (docs/training.md): checkpoints to go on from, and in the end the best model as a folder of its own.

`python larger_bert/train.py` is that command.
"""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from larger_bert import LargerBERT
from mini_bert.common.memory import share_memory_among_threads
from mini_bert.data.generator import MLMDataGenerator
from mini_bert.evaluation.evaluate import Evaluation
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.text.base import Tokenizer
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training import checkpoint, switches
from mini_bert.training.checkpoint import Checkpoint
from mini_bert.training.command import (
    TOKENIZERS,
    default_learning_rate,
    default_warmup,
    model_card,
    new_folder,
    start_record,
    word_shares,
)
from mini_bert.training.display import Display
from mini_bert.training.loop import held_out_loss, train
from mini_bert.training.parallel import Team, default_threads
from mini_bert.training.run_folder import RunFolder, State
from mini_bert.training.settings import TrainingConfig

ACCUMULATED = 32  # sequences for one change of the weights, in micro-batches of the generator's size


class LargerBERTTrainer:
    """Trains a model on what a data generator gives; `settings` are fields of a TrainingConfig.

    model       a LargerBERT, or any MiniBERT; without one, a new LargerBERT
    out         the run folder; default: a new one in ./runs
    quiet       show nothing while it runs
    settings    learning_rate, threads, checkpointing, seed, … and batch_size: sequences for one change of the weights
                (default: 32, or the generator's if that is more)
    """

    def __init__(
        self,
        model: MiniBERT | None = None,
        out: str | os.PathLike[str] | None = None,
        quiet: bool = False,
        **settings: Any,
    ):
        self.model = LargerBERT() if model is None else model
        self._place = None if out is None else Path(out)
        self.out = self._place  # of the last run, or of the one to come
        self.quiet, self.settings = quiet, settings
        own = {"steps", "minutes", "micro_batch"}  # said when training starts; the last is the generator's batch_size
        unknown = sorted(set(settings) - {field.name for field in fields(TrainingConfig)} | set(settings) & own)
        if unknown:
            raise TypeError(
                f"unknown setting(s) {', '.join(unknown)}: settings are fields of a TrainingConfig such as "
                "learning_rate=5e-4; for how long, train(…, num_steps=1000) says, and a micro-batch is a batch of the "
                "generator"
            )
        self.state: State | None = None  # how far the last run has come

    def load_tokenizer(self, name: str | os.PathLike[str] | None = None) -> Tokenizer:
        """The bundled vocabulary of the model's size (50k), or one by its name or path."""
        V = self.model.config.vocab_size
        if name is None and V not in TOKENIZERS:
            raise ValueError(
                f"no bundled vocabulary has {V:,} tokens ({', '.join(TOKENIZERS.values())} have "
                f"{', '.join(f'{size:,}' for size in TOKENIZERS)}); name the tokenizer of this model"
            )
        tokenizer = WordPieceTokenizer.load(TOKENIZERS[V] if name is None else name)
        if tokenizer.vocab_size > V:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size:,} tokens, but the model knows {V:,} ids; "
                "use the one that belongs to the model"
            )
        return tokenizer

    def train(
        self, data_generator: MLMDataGenerator, num_steps: int | None = None, *, minutes: float | None = None
    ) -> State:
        """Train for so many steps, or minutes -> how far it came. What the generator holds out measures it.

        The generator's batches are micro-batches: gradients are summed over them until a batch is complete. A new model
        begins with the frequencies of the text's words in the bias of its head, as `mini-bert train` does.
        """
        settings = self._settings(data_generator, num_steps, minutes)
        path = self._place or new_folder()
        description = self._description(data_generator, settings)
        switches.check(self.model, settings)
        bias, known = self.model.named_params()["head.b"].data, word_shares(data_generator)
        RunFolder.create(  # only now: whatever could be wrong has been said
            path,
            description,
            "go on with it by trainer.resume(data_generator)",
            'choose another folder: LargerBERTTrainer(model, out="runs/another")',
        )
        if not bias.any():
            bias[...] = np.log(known.min())  # ids that the tokenizer never gives
            bias[: known.size] = np.log(known)
        self.out = path
        return self._run(data_generator, settings)

    def resume(self, data_generator: MLMDataGenerator, out: str | os.PathLike[str] | None = None) -> State:
        """Go on with a run that was stopped, with its own settings: it ends as if it had never been."""
        path = self.out if out is None else Path(out)
        if path is None:
            raise ValueError("which run? name its folder: trainer.resume(data_generator, out='runs/run-1')")
        settings = TrainingConfig.from_dict(RunFolder.config(path)["training"])
        if not checkpoint.folders(path):
            raise FileNotFoundError(
                f"{path} has no checkpoint yet, so there is nothing to go on from; start again with trainer.train(…), "
                "in a folder of its own"
            )
        self.out = path
        return self._run(data_generator, settings, checkpoint.latest(path))

    def evaluate(self, data_generator: MLMDataGenerator, sequences: int = TrainingConfig.eval_sequences) -> Evaluation:
        """Loss, perplexity, top-1 and top-5 on held-out text (a generator that holds some out stands for that part)."""
        if data_generator.arguments["held_out"] and data_generator.arguments["split"] == "train":
            data_generator = data_generator.validation()
        with Team(self.model, 1) as team:
            return held_out_loss(team, data_generator, sequences)

    def save(self, folder: str | os.PathLike[str], tokenizer: Tokenizer | None = None) -> None:
        """A model folder, as load_model and from_pretrained read it; with its tokenizer if given."""
        self.model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save(folder)

    def load_checkpoint(self, path: str | os.PathLike[str] | None = None) -> MiniBERT:
        """Saved weights into the trainer's model: of a run (its best model; default: the trainer's own run), of a
        checkpoint (`runs/run-1/checkpoints/step-00000500`), of a model folder, or of a weights file."""
        path = self.out if path is None else path
        if path is None:
            raise ValueError("which checkpoint? name a run, a folder or a file: trainer.load_checkpoint('runs/run-1')")
        return self.model.load_checkpoint(path)

    # ------------------------------------------------------------------ behind them

    def _settings(self, batches: MLMDataGenerator, steps: int | None, minutes: float | None) -> TrainingConfig:
        if steps is None and minutes is None:
            raise ValueError("for how long? say num_steps=1000, or minutes=60")
        micro = batches.batch_size
        given = {"batch_size": max(micro, ACCUMULATED // micro * micro)} | self.settings
        size = given["batch_size"]
        if isinstance(size, int) and size % micro:
            fitting = max(micro, size // micro * micro)
            raise ValueError(
                f"batch_size is {size}, but the generator gives {micro} sequences at a time; choose a multiple of that "
                f"such as batch_size={fitting}, or build the generator with a batch_size that divides {size}"
            )
        given |= {"micro_batch": micro, "steps": steps, "minutes": minutes}
        given.setdefault("threads", min(default_threads(), max(1, given["batch_size"] // micro)))
        given.setdefault("warmup", default_warmup(steps, minutes))
        given.setdefault("learning_rate", default_learning_rate(self.model.config))
        return TrainingConfig(**given)

    def _description(self, batches: MLMDataGenerator, settings: TrainingConfig) -> dict[str, Any]:
        T, V = self.model.config.max_seq_length, self.model.config.vocab_size
        if batches.arguments["max_seq_length"] > T:
            raise ValueError(
                f"the generator makes sequences of {batches.arguments['max_seq_length']} tokens, but the model knows "
                f"{T} positions; build the generator with max_seq_length={T}"
            )
        if batches.tokenizer.vocab_size > V:
            raise ValueError(
                f"the generator's tokenizer has {batches.tokenizer.vocab_size:,} tokens, but the model knows {V:,} "
                "ids; build the generator with trainer.load_tokenizer()"
            )
        data = {"corpus": ["-"], "shards": str(batches.shards.folder), "held_out": batches.arguments["held_out"]}
        return {"model": self.model.config.to_dict(), "training": settings.to_dict(), "data": data}

    def _run(self, batches: MLMDataGenerator, settings: TrainingConfig, found: Checkpoint | None = None) -> State:
        share_memory_among_threads()
        assert self.out is not None
        validation = batches.validation() if batches.arguments["held_out"] else None
        with Display(self.out, settings.steps, settings.minutes, self.quiet) as display:
            start = start_record(self.model, batches, validation, settings)
            run = RunFolder(self.out, batches.tokenizer, settings.keep, found, [display.record], start)
            display.note(f"{self.model.get_parameter_count():,} parameters; {batches}")
            state = self.state = train(self.model, batches, validation, settings, run)
            if state.stopped == "done":
                card = model_card(run, state, self.model, batches, validation, settings)
                display.note(f"the model: {run.publish(state, card)}")
            else:
                display.note(f"stopped at step {state.step:,} ({state.stopped}); go on with trainer.resume()")
        return state


if __name__ == "__main__":
    import sys

    from mini_bert.cli.main import main

    if "--help" in sys.argv:
        print("The same as `mini-bert train --model larger`, with its options:\n")
    main(["train", "--model", "larger", *sys.argv[1:]])

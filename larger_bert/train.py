"""Train Larger-BERT from Python: the library's Trainer (mini_bert/training/trainer.py) with a LargerBERT by default.

    from larger_bert.train import LargerBERTTrainer
    from mini_bert.data import MLMDataGenerator

    trainer = LargerBERTTrainer()
    tokenizer = trainer.load_tokenizer()                                  # the bundled 50k
    data_generator = MLMDataGenerator("my_texts/", tokenizer, max_seq_length=128, batch_size=4, held_out=0.01)
    trainer.train(data_generator, num_steps=1000)

`mini-bert train --model larger` does the same from the command line, and so does `python larger_bert/train.py`. Either
way you get the same run folder (docs/training.md): checkpoints to resume from, and the best model at the end.
"""

from __future__ import annotations

import sys
from typing import Any

from larger_bert import LargerBERT
from mini_bert.models.base import Model
from mini_bert.training.trainer import Trainer


class LargerBERTTrainer(Trainer):
    """Trains a LargerBERT, or any other model. out, quiet and settings: see Trainer."""

    def __init__(self, model: Model | None = None, out: Any = None, quiet: bool = False, **settings: Any):
        super().__init__(LargerBERT() if model is None else model, out, quiet, **settings)


if __name__ == "__main__":
    from mini_bert.cli.main import main
    from mini_bert.common.invocation import command

    if "--help" in sys.argv:
        print(f"The same as `{command('train', '--model', 'larger')}`, with its options:\n")
    main(["train", "--model", "larger", *sys.argv[1:]])

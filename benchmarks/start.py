"""Initial weights: trains the same model on the same batches from different starts.

    python benchmarks/start.py                        600 steps each on the built-in corpus
    python benchmarks/start.py --corpus FILE --steps 2000
    python benchmarks/start.py --model bert --starts published frequencies all

Mini-BERT:
noise        every weight N(0, 0.02²), as in published BERT
waves        sinusoidal positions, tokens N(0, 0.1²), projections N(0, 1/fan_in)
neighbours   waves, and the heads of the first block attend to neighbouring tokens
frequencies  neighbours, and the output bias starts at the log frequencies: the default of `mini-bert train`

Other presets, on masked words whatever they usually learn:
published    the start of the architecture's paper
frequencies  published, and the output bias
all          frequencies, and `start_attention`: the default of `mini-bert train`

Prints the held-out loss at intervals, and the unigram baseline for comparison.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from mini_bert.data.generator import MLMDataGenerator
from mini_bert.evaluation.evaluate import word_counts
from mini_bert.evaluation.word_frequencies import log_frequencies
from mini_bert.layers.attention import MultiHeadAttention
from mini_bert.layers.initialisers import sinusoids
from mini_bert.models.base import MASKED_WORDS, Model
from mini_bert.models.mini import AMPLITUDE, MiniBERT
from mini_bert.models.registry import PRESETS, model_class, preset
from mini_bert.objectives.masked_words import unigram_loss
from mini_bert.text.wordpiece import WordPieceTokenizer
from mini_bert.training.loop import held_out_loss
from mini_bert.training.optim import Adam
from mini_bert.training.parallel import Team

STARTS = ("noise", "waves", "neighbours", "frequencies")
OTHERS = ("published", "frequencies", "all")


def build(name: str, how: str, batches: MLMDataGenerator) -> Model:
    """A preset with weights that are initialised this way."""
    config = preset(name)
    model = model_class(config.to_dict())(config, (MASKED_WORDS,))
    if isinstance(model, MiniBERT):
        start(model, how)
    if how == "all":
        model.start_attention()
    if how in ("frequencies", "all"):
        batches.objective.start(model, word_counts(batches))
    return model


def start(model: MiniBERT, how: str) -> None:
    """Initialise the weights this way; a new MiniBERT starts with "neighbours"."""
    rng = np.random.default_rng(1)
    if how == "noise":
        for param in model.named_params().values():
            if param.decay:
                param.data[...] = rng.normal(0, 0.02, param.shape)
    if how == "waves":
        model.tokens.table.data[...] = rng.normal(0, 0.1, model.tokens.table.shape)
        model.positions.table.data[...] = sinusoids(AMPLITUDE)(rng, model.positions.table.shape)
        attention: MultiHeadAttention = model.encoder.blocks[0].attention  # type: ignore[attr-defined]
        attention.qkv.w.data[...] = rng.normal(0, 1 / math.sqrt(attention.width), attention.qkv.w.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", nargs="+", default=["builtin"])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--warmup", type=int, default=400)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--model", default="mini", choices=PRESETS)
    parser.add_argument("--starts", nargs="+", choices=[*STARTS, *OTHERS], help="default: all that apply")
    options = parser.parse_args()
    starts = options.starts or (STARTS if options.model == "mini" else OTHERS)
    tokenizer = WordPieceTokenizer.load("8k")
    marks = [options.steps * i // 6 for i in range(1, 7)]
    print(f"{'held-out loss at step':24}" + "".join(f"{mark:8,}" for mark in marks))
    for how in starts:
        batches = MLMDataGenerator(options.corpus, tokenizer, 64, 8, held_out=0.05, progress=False)
        validation = batches.validation(batch_size=32)
        model = build(options.model, how, batches)
        adam, found = Adam(model.flat), []
        with Team(model, options.threads) as team:
            for step in range(1, options.steps + 1):
                outcome = team.gradient([next(batches) for _ in range(4)])
                lr = options.lr * min(1.0, step / options.warmup)
                adam.step(lr, scale=min(1.0, 1 / outcome.norm), map=team.map)
                if step in marks:
                    found.append(held_out_loss(team, validation, 1024)["masked_words"].loss)
        print(f"{how:24}" + "".join(f"{loss:8.3f}" for loss in found), flush=True)
    baseline = unigram_loss(log_frequencies(word_counts(batches)), word_counts(validation))
    print(f"{'unigram baseline':24}{baseline:8.3f}")


if __name__ == "__main__":
    main()

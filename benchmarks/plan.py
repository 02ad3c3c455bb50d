"""Compares the peak memory that `mini-bert plan` predicts with the peak RssAnon of real training runs (Linux).

    python benchmarks/plan.py                    all settings; about half a minute each on two idle cores
    python benchmarks/plan.py --only mini        only settings whose options contain this text

Each run is a separate process: `mini-bert train` on the built-in corpus for a few steps, with a checkpoint and a model
at the end. Nothing is held out: evaluation uses micro-batches like training, needs no gradients and takes long. Also, a
run with held-out text reads its best model again at the end, 4 P bytes. They fit into the memory freed by the moments,
if the system has reclaimed it. For a small model it has not: Mini-BERT with micro-batches of 4 on one thread takes
123 MB while it trains, and 141 MB at that moment. The plan does not count this.
"""

from __future__ import annotations

import argparse

from peak_memory import peak_of_training

from mini_bert.models.registry import PRESETS
from mini_bert.training.plan import Choice, predicted_peak, train_options
from mini_bert.training.setup import Wanted, set_up

SMALL = Choice(16, 2)
LARGER = Wanted("larger")
SETTINGS: list[tuple[Wanted, int, Choice]] = [  # what is trained, batch, choice
    (Wanted("mini"), 32, SMALL),
    (Wanted("mini"), 32, Choice(8, 2, checkpointing=True)),
    (LARGER, 1, Choice(1, 1)),
    (LARGER, 4, Choice(4, 1)),
    (LARGER, 8, Choice(8, 1)),
    (LARGER, 8, Choice(8, 1, checkpointing=True)),
    (LARGER, 8, Choice(4, 2, checkpointing=(0, 1, 2))),
    (Wanted("larger", tie_head=True), 8, Choice(4, 2)),
    (LARGER, 8, Choice(8, 1, checkpointing=True, moments="bfloat16")),
    (LARGER, 8, Choice(8, 1, activations="bfloat16", moments="bfloat16")),
    (LARGER, 8, Choice(8, 1, True, activations="bfloat16", moments="bfloat16", weights="bfloat16")),
    (LARGER, 8, Choice(8, 2, attention="lean", activations="bfloat16")),
    *((Wanted(name), 32, SMALL) for name in PRESETS if name not in ("mini", "larger")),
    (Wanted("mini", mask_prob=0.5), 32, SMALL),
    (Wanted("distilbert", teacher="mini-bert"), 32, SMALL),
    (Wanted(init="mini-bert"), 32, SMALL),
]


def compare(wanted: Wanted, batch: int, choice: Choice) -> tuple[float, float]:
    """Returns predicted and measured bytes."""
    setup = set_up(wanted)
    sizes = setup.sizes(setup.build(seed=None))
    return predicted_peak(sizes, choice), peak_of_training(*train_options(wanted, batch, choice), steps=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="only settings whose options contain this text")
    only = parser.parse_args().only
    print(f"{'options of `mini-bert train`':100}{'predicted':>10}{'measured':>10}")
    for setting in SETTINGS:
        shown = " ".join(train_options(*setting))
        if only in shown:
            predicted, measured = compare(*setting)
            off = f"{predicted / measured - 1:+.1%}"
            print(f"{shown:100}{predicted / 1e6:7.0f} MB{measured / 1e6:7.0f} MB  {off}", flush=True)


if __name__ == "__main__":
    main()

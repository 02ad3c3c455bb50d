"""What fits: the memory of a training run, before it starts, and the switches that make it fit.

    mini-bert plan --model larger --batch 8 --memory 1GB

Memory is a sum of things that can be counted. P parameters, j threads, micro-batches of B sequences of T tokens:

    parameters     4 P            float32; 2 P where they are kept in 16 bits
    gradients      4 P j          every thread adds into its own (training/parallel.py)
    moments        8 P            Adam's m and v; 4 P in 16 bits
    activations    j · what the caches of one micro-batch hold at the worst moment of a step, and what backward works on
    the rest       Python, NumPy, its product's buffers, tokenizer, place in the data

The worst moment is one of two. **At the head** all blocks have left their caches, and the logits are there: chosen
tokens × V numbers. **In a block of the backward pass** the logits are gone, as are the caches of the blocks above; but
this block works. Checkpointed blocks hold their input alone, until backward comes to them and makes the cache anew.

A test compares the counts with the arrays of real caches, `benchmarks/plan.py` the sums with real runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import NamedTuple

from mini_bert.common.invocation import command
from mini_bert.common.progress import counted
from mini_bert.common.sixteen_bit import check_kind
from mini_bert.common.values import check_positive
from mini_bert.layers.lean_attention import LONG, TILE, is_lean
from mini_bert.layers.matrices import PRODUCT
from mini_bert.models.config import MiniBertConfig, display_name, load_config
from mini_bert.training.optim import CHUNK
from mini_bert.training.parallel import default_threads
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import checkpointed_layers

CHOSEN = 0.15  # the share of tokens that masked language modelling asks for
SIXTEEN = ("activations", "moments", "weights")  # what may be kept in 16 bits
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

# Measured on Linux, CPython 3.13 and NumPy 2 (benchmarks/plan.py):
BASE = 36e6  # Python, NumPy, our modules, a small corpus opened
WORD = 240  # bytes a word of the vocabulary, in the tokenizer
PRODUCT_BUFFERS = 4e6  # of the matrix product, a thread
HOLES = 1.10  # of what is allocated and freed all the time, some stays unused between the rest
SPARE = 0.95  # of the memory that is there, a plan uses no more


@dataclass(frozen=True)
class Choice:
    """One way to run the same training: the switches, in the words of a TrainingConfig.

    All give the same numbers up to rounding, with dropout, too: its masks depend on none of them.
    """

    micro_batch: int
    threads: int = 1
    checkpointing: bool | tuple[int, ...] = False
    attention: str = "auto"
    activations: str = "float32"
    moments: str = "float32"
    weights: str = "float32"

    def __post_init__(self) -> None:
        check_positive("micro_batch", self.micro_batch)
        check_positive("threads", self.threads)
        for name in SIXTEEN:
            check_kind(name, getattr(self, name))
        is_lean(self.attention, 1)  # or says which methods there are


# ---------------------------------------------------------------------- what caches hold


class Held(NamedTuple):
    """Numbers, which may be kept in 16 bits, and dropout's masks, a byte each."""

    numbers: int = 0
    masks: int = 0

    def size(self, kept: str = "float32") -> int:
        return BYTES[kept] * self.numbers + self.masks

    def plus(self, *others: Held) -> Held:
        return Held(*(sum(column) for column in zip(self, *others, strict=True)))


class Shape(NamedTuple):
    """A micro-batch: B sequences of T tokens, N of which are asked for, M of them in one sequence."""

    B: int
    T: int
    N: int
    M: int


def shape_of(config: MiniBertConfig, sequences: int) -> Shape:
    T = config.max_seq_length
    return Shape(sequences, T, round(CHOSEN * sequences * T), math.ceil(CHOSEN * T))


def block_held(config: MiniBertConfig, shape: Shape, last: bool, lean: bool = False) -> Held:
    """The cache of one block; the last one asks for the chosen rows only."""
    B, T, N, M = shape
    H, inner, BT = config.hidden_size, config.intermediate_size, B * T
    asking, seats = (N, B * M) if last else (BT, BT)
    looks = asking_looks = seats * config.num_heads * T  # who looks at whom
    if lean:
        asking_looks = seats * config.num_heads  # of every row its logarithm of Σ exp, instead of all weights
        asking_looks += seats * H if last else 0  # and the contexts where they sit
    projected = 3 * BT * H + 2 * asking * H if not last else 3 * BT * H + N * H + seats * H + N * H
    numbers = (
        (projected + asking_looks)  # attention: x, q, k, v, joined contexts (last: of the chosen x, q, …); weights
        + 2 * (asking * H + asking)  # two norms: x̂ and σ
        + (asking * H + asking * inner)  # feed-forward: x' and f(x' W1 + b1)
    )
    masks = (0 if lean else looks) + 2 * asking * H
    return Held(numbers, masks if config.dropout else 0)


def head_held(config: MiniBertConfig, shape: Shape) -> Held:
    """The final norm's x̂ and σ, what the head reads, the scores of every word, and what to divide them by"""
    return Held(shape.N * (2 * config.hidden_size + 1) + shape.N * (config.vocab_size + 1))


def activations_held(config: MiniBertConfig, shape: Shape, choice: Choice) -> list[tuple[str, Held]]:
    """What is there when `loss` returns, from bottom to top."""
    again = checkpointed_layers(choice.checkpointing, config.num_layers)
    x = shape.B * shape.T * config.hidden_size
    found = [("embeddings", Held(0, x if config.dropout else 0))]
    for index in range(config.num_layers):
        last = index == config.num_layers - 1
        whole = block_held(config, shape, last, is_lean(choice.attention, shape.T))
        found.append((f"block {index}", Held(x) if index in again else whole))
    return [*found, ("head", head_held(config, shape))]


def block_works(config: MiniBertConfig, shape: Shape, last: bool, lean: bool = False) -> int:
    """Numbers that are alive besides, at the worst moment of a block's backward"""
    B, T, N, M = shape
    H, BT = config.hidden_size, B * T
    asking, seats = (N, B * M) if last else (BT, BT)
    looks = tiles(T) if lean else 2 * seats * config.num_heads * T
    if lean and config.dropout:
        looks += 5 * tile_size(T) // 4  # what dropout leaves of a tile, and its mask, a byte a number
    stay = tiles(T) if lean else 0
    attention = 3 * asking * H + 4 * BT * H + looks
    projections = 4 * asking * H + 6 * BT * H + stay  # dq, dk and dv, the same side by side, and the dx of it
    feed_forward = 4 * asking * H + 5 * asking * config.intermediate_size // 4 + stay
    return max(attention, projections, feed_forward)


def tile_size(T: int) -> int:
    return math.ceil(T / math.ceil(T / TILE)) ** 2


def tiles(T: int) -> int:
    """Numbers of the two tiles that lean attention works in; once taken, they stay with the thread"""
    return 2 * min(T, TILE) ** 2


def activation_bytes(config: MiniBertConfig, shape: Shape, choice: Choice) -> tuple[int, str]:
    """The most that one thread holds and works on at any moment of a step -> bytes, and when that is"""
    *lower, (_, head) = activations_held(config, shape, choice)
    kept, lean = choice.activations, is_lean(choice.attention, shape.T)
    again = checkpointed_layers(choice.checkpointing, config.num_layers)
    embeddings, *blocks = (held for _, held in lower)
    counted = shape.N * config.vocab_size  # evaluation asks which words are less likely than the true one
    sizes = [held.size("float32" if index in again else kept) for index, held in enumerate(blocks)]
    tiled = 4 * tiles(shape.T) if lean else 0
    moments = [(embeddings.size() + sum(sizes) + head.size() + counted + tiled, "at the head")]
    for index in range(config.num_layers):
        last = index == config.num_layers - 1
        below = embeddings.size() + sum(sizes[: index + 1])
        whole = block_held(config, shape, last, lean)  # made anew by checkpointed blocks, widened by those in 16 bits
        made = whole.size() if index in again else 4 * whole.numbers if kept != "float32" else 0
        works = 4 * block_works(config, shape, last, lean)
        moments.append((below + made + works, f"in the backward pass of block {index}"))
    return max(moments)


# ---------------------------------------------------------------------- all together


def parameter_count(config: MiniBertConfig) -> int:
    V, H, inner = config.vocab_size, config.hidden_size, config.intermediate_size
    block = 4 * H * H + 2 * H * inner + inner + H + 4 * H
    head = V if config.tie_head else H * V + V
    return V * H + config.max_seq_length * H + config.num_layers * block + 2 * H + head


def memory_by_purpose(config: MiniBertConfig, choice: Choice) -> dict[str, int]:
    """Bytes of a training run, by what they are for"""
    P, j = parameter_count(config), choice.threads
    activations, _ = activation_bytes(config, shape_of(config, choice.micro_batch), choice)
    scratch = 4 * (PRODUCT + CHUNK)  # add_product's and Adam's, a part of the weights at a time
    return {
        "parameters": BYTES[choice.weights] * P,
        "gradients": 4 * P * j,
        "Adam's two moments": 2 * BYTES[choice.moments] * P,
        "activations": round(HOLES * activations) * j,
        "working memory": round(scratch + PRODUCT_BUFFERS) * j,
        "Python, NumPy, tokenizer": round(BASE + WORD * config.vocab_size),
    }


def predicted_peak(config: MiniBertConfig, choice: Choice) -> int:
    return sum(memory_by_purpose(config, choice).values())


def relative_time(config: MiniBertConfig, batch: int, choice: Choice) -> float:
    """Of one step of `batch` sequences; only the order of two choices is meant seriously.

    Products at 40 billion operations a second and thread, memory at 6 billion bytes a second. To that come shares for
    16 bits. Weights in 16 bits are the last resort: they are widened in every product, and rounded at every step, so
    their share is set above that of checkpointing, which changes nothing.
    """
    H, T, L, P = config.hidden_size, config.max_seq_length, config.num_layers, parameter_count(config)
    block = 2 * T * (4 * H * H + 2 * H * config.intermediate_size + 2 * T * H)  # forward, a sequence
    head = 2 * CHOSEN * T * H * config.vocab_size
    again = len(checkpointed_layers(choice.checkpointing, L)) * block
    rounds = math.ceil(batch / choice.micro_batch / choice.threads)  # of 7 parts, one of two threads takes 4
    products = rounds * choice.micro_batch * (3 * (L * block + head) + again) / 40e9
    additions = (rounds - 1) * 12 * P / 6e9
    step = 28 * P / 6e9
    cost = {"activations": 0.06, "moments": 0.03, "weights": 0.4}
    packing = sum(share for name, share in cost.items() if getattr(choice, name) != "float32")
    lean = 1.15 if choice.attention == "lean" and T <= LONG else 1.0  # small tiles, all of them twice
    return (products + additions + step) * (1 + packing) * lean


# ---------------------------------------------------------------------- choosing


def choices(config: MiniBertConfig, batch: int, threads: int) -> Iterator[Choice]:
    """Every way to run it"""
    kinds = [("float32", "bfloat16") for _ in SIXTEEN]
    L, methods = config.num_layers, ("auto", "lean") if config.max_seq_length <= LONG else ("auto",)
    layers: list[bool | tuple[int, ...]] = [False, *(tuple(range(n)) for n in range(1, L)), True]
    for j in range(min(threads, batch), 0, -1):
        most = max(1, min(TrainingConfig.micro_batch, batch // j))
        sizes = [size for size in range(most, 0, -1) if batch % size == 0]
        for micro, checkpointing, method, kept in product(sizes, layers, methods, product(*kinds)):
            yield Choice(micro, j, checkpointing, method, *kept)


def best_choice(config: MiniBertConfig, batch: int, threads: int, memory: float) -> Choice | None:
    """The one that will be fastest among those that fit; None if none does"""
    fitting = [choice for choice in choices(config, batch, threads)
               if predicted_peak(config, choice) <= SPARE * memory]  # fmt: skip
    return min(fitting, key=lambda choice: relative_time(config, batch, choice), default=None)


def plain_choice(config: MiniBertConfig, batch: int, threads: int) -> Choice:
    """What `mini-bert train` does if nothing is asked for."""
    from mini_bert.training.command import default_micro_batch

    micro = default_micro_batch(batch, min(threads, batch))
    return Choice(micro, min(threads, batch // micro))


def parse_memory(text: str) -> float:
    """ "1GB", "900 MB", "1.5GiB" -> bytes"""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if not found or found[2].upper() not in UNITS or not float(found[1]):
        raise ValueError(f"--memory is {text!r}, expected an amount such as 1GB, 900MB or 1.5GiB")
    return float(found[1]) * UNITS[found[2].upper()]


# ---------------------------------------------------------------------- the page that is printed


def reasons(config: MiniBertConfig, batch: int, plain: Choice, best: Choice) -> list[str]:
    """For every difference from the plain choice: what it saves"""
    found, now = [], plain
    for name, why in (
        ("micro_batch", "fewer sequences at once in a thread, so less is held for the backward pass"),
        ("moments", "Adam's two moments in 16 bits"),
        ("activations", "what is held for the backward pass in 16 bits"),
        ("weights", "weights in 16 bits"),
        ("attention", "attention tile by tile, which keeps no weights"),
        ("checkpointing", "these layers hold their input only, and run again in the backward pass"),
        ("threads", "every thread has gradients of its own"),
    ):  # fmt: skip
        if getattr(best, name) != getattr(now, name):
            after = replace(now, **{name: getattr(best, name)})
            saved = predicted_peak(config, now) - predicted_peak(config, after)
            slower = relative_time(config, batch, after) / relative_time(config, batch, now)
            found.append(f"{option(name, best):28} {-saved / 1e6:+7.0f} MB  {slower:5.2f}× the time   {why}")
            now = after
    return found


def option(name: str, choice: Choice) -> str:
    """A switch as one types it"""
    value = getattr(choice, name)
    if name == "checkpointing" and not isinstance(value, bool):
        value = ",".join(map(str, value))
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {'none' if value is False else value}"


def train_options(model: str, config: MiniBertConfig, batch: int, choice: Choice) -> list[str]:
    """The options of `mini-bert train` that train like this"""
    tied = ["--tie-head"] if config.tie_head else []
    switched = [f.name for f in fields(choice) if f.name not in ("micro_batch", "threads")
                and getattr(choice, f.name) != f.default]  # fmt: skip
    switches = [option(name, choice).split() for name in ("micro_batch", "threads", *switched)]
    return ["--model", model, "--batch-size", str(batch), *tied, *(word for words in switches for word in words)]


def plan_command(
    model: str = "mini", batch: int = 32, memory: str = "1GB", threads: int | None = None, tie_head: bool = False
) -> int:
    """Print what a run needs, by purpose, and the choice that fits -> exit code: 0, or 1 if nothing fits"""
    config = load_config(model)
    if tie_head:
        config = replace(config, tie_head=True)
    room, threads = parse_memory(memory), threads or default_threads()
    plain = plain_choice(config, batch, threads)
    best = best_choice(config, batch, threads, room)
    print(
        f"{display_name(config)}, {parameter_count(config):,} parameters{', tied head' if config.tie_head else ''}: "
        f"batches of {batch} × {config.max_seq_length} tokens, {room / 1e6:,.0f} MB\n"
    )
    shown = {"as it comes": plain} | ({"to fit": best} if best and best != plain else {})
    _table(config, shown)
    if best is None:
        least = min(choices(config, batch, threads), key=lambda choice: predicted_peak(config, choice))
        needed = predicted_peak(config, least) / SPARE / 1e6
        print(f"\nNothing fits: the least it takes is {needed:,.0f} MB, with")
        print(f"\n    {command('train', *train_options(model, config, batch, least))}")
        tied = predicted_peak(replace(config, tie_head=True), least) / SPARE / 1e6
        if not config.tie_head:
            print(f"\nA head that shares the token table would bring that to {tied:,.0f} MB: --tie-head, another model")
        return 1
    if best == plain:
        print(f"\nIt fits as it comes:\n\n    {command('train', *train_options(model, config, batch, best))}")
        return 0
    print("\nSo:\n" + "\n".join(f"    {line}" for line in reasons(config, batch, plain, best)))
    print(f"\n    {command('train', *train_options(model, config, batch, best))}")
    return 0


def _packed(choice: Choice, config: MiniBertConfig, name: str) -> bool:
    """Whether what a part holds may be in 16 bits: that of blocks, unless they are checkpointed"""
    again = checkpointed_layers(choice.checkpointing, config.num_layers)
    return name.startswith("block") and int(name.split()[1]) not in again


def _table(config: MiniBertConfig, shown: dict[str, Choice]) -> None:
    needs = [memory_by_purpose(config, choice) for choice in shown.values()]
    print(f"{'MB':44}" + "".join(f"{title:>14}" for title in shown))
    for purpose in needs[0]:
        print(f"  {purpose:42}" + "".join(f"{need[purpose] / 1e6:14,.1f}" for need in needs))
    print(f"  {'together, at its peak':42}" + "".join(f"{sum(need.values()) / 1e6:14,.1f}" for need in needs))
    print("\nactivations of one thread, when the loss is known")
    columns = [activations_held(config, shape_of(config, choice.micro_batch), choice) for choice in shown.values()]
    for row in zip(*columns, strict=True):
        sizes = (
            held.size(choice.activations if _packed(choice, config, row[0][0]) else "float32")
            for (_, held), choice in zip(row, shown.values(), strict=True)
        )
        print(f"  {row[0][0]:42}" + "".join(f"{size / 1e6:14,.1f}" for size in sizes))
    for title, choice in shown.items():
        most, when = activation_bytes(config, shape_of(config, choice.micro_batch), choice)
        threads = counted(choice.threads, "thread")
        print(f"  {title}: micro-batches of {choice.micro_batch}, {threads}; most, {most / 1e6:,.1f} MB, {when}")

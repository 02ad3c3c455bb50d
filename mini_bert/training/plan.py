"""Predicts how much memory a training run needs, and picks the switches that make it fit.

    mini-bert plan --model larger --batch-size 8 --memory 1GB

For P parameters, j threads and micro-batches of B sequences of T tokens:

    parameters     4 P bytes      float32; 2 P in 16 bits
    gradients      4 P j          each thread has its own (training/parallel.py)
    moments        8 P            Adam's m and v; 4 P in 16 bits. Muon has only m for the M parameters of its matrices
    average        4 P            if averaged weights are evaluated and saved
    activations    j times the peak of one micro-batch: its caches and the temporary arrays of backward
    the rest       Python, NumPy, buffers of matrix products, the tokenizer

Activations peak at one of two moments. **At the output head** the caches of all blocks are alive, and so are the
logits, (N,V) for N predicted tokens: about 15 % for masked words, all for the next word. **In the backward pass of a
block** the logits and the caches of the blocks above are free again, but the block needs temporary arrays. A
checkpointed block keeps only its input until backward recomputes its cache. The objective says which tokens are
predicted, and whether another model runs first (objectives/base.py).

A test compares the counts with the arrays of real caches; `benchmarks/plan.py` compares the totals with real runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, product
from typing import Any, NamedTuple

from mini_bert.common.invocation import command
from mini_bert.common.progress import counted
from mini_bert.layers.lean_attention import LONG, is_lean
from mini_bert.layers.matrices import PRODUCT
from mini_bert.models.sizes import Kept, Shape, Sizes, tiles
from mini_bert.training.defaults import default_micro_batch, default_optimizer, most_at_once, note_on_uneven_batch
from mini_bert.training.optim import CHUNK
from mini_bert.training.parallel import default_threads
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.setup import Setup, Wanted, parts_counted, set_up
from mini_bert.training.switches import checkpointed_layers

SIXTEEN = ("activations", "moments", "weights")  # what can be kept in 16 bits
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

# Measured on Linux, CPython 3.13 and NumPy 2 (benchmarks/plan.py):
BASE = 36e6  # Python, NumPy, our modules, a small corpus
WORD = 240  # bytes per vocabulary entry, in the tokenizer
PRODUCT_BUFFERS = 4e6  # of matrix products, per thread
FRAGMENTATION = 1.10  # arrays are allocated and freed all the time, which leaves gaps
UNASKED = 256  # tokens per sequence; more than in any preset, so a note is due if nobody asked for them
SPARE = 0.95  # a plan uses at most this fraction of the memory


# ---------------------------------------------------------------------- the model


def describe(config: Any, tie_head: bool = False) -> Sizes:
    return (config.with_tied_head() if tie_head else config).sizes()


class Choice(NamedTuple):
    """One way to run the same training: the switches, named as in TrainingConfig.

    The results differ only by rounding, dropout included: its masks depend on none of the switches.
    """

    micro_batch: int
    threads: int = 1
    checkpointing: bool | tuple[int, ...] = False
    attention: str = "auto"
    activations: str = "float32"
    moments: str = "float32"
    weights: str = "float32"
    # not a switch: what the user wants, and pays for
    optimizer: str = "adam"
    average: str = "none"


# ---------------------------------------------------------------------- activations


def size(kept: Kept, kind: str = "float32") -> int:
    """The bytes of a cache whose floats are kept in this kind."""
    return BYTES[kind] * kept.floats + kept.masks


def shape_of(model: Sizes, sequences: int) -> Shape:
    T = model.max_length
    return Shape(sequences, T, round(model.predicted * sequences * T), math.ceil(model.predicted * T))


def caches(model: Sizes, shape: Shape, choice: Choice) -> list[Kept]:
    """What is alive when `loss` returns: embeddings, every block, head."""
    recomputed = checkpointed_layers(choice.checkpointing, model.depth)
    lean = is_lean(choice.attention, shape.T)
    blocks = [
        model.input_cache(shape) if index in recomputed else model.block_cache(shape, index, lean)
        for index in range(model.depth)
    ]
    return [model.embedding_cache(shape), *blocks, model.head_cache(shape)]


def peak_activations(model: Sizes, shape: Shape, choice: Choice, trained: bool = True) -> tuple[int, str]:
    """The most bytes that one thread needs for activations in a step, and when that is.

    trained: forward and backward, not only forward
    """
    embeddings, *blocks, head = caches(model, shape, choice)
    kind, lean = choice.activations, is_lean(choice.attention, shape.T)
    recomputed = checkpointed_layers(choice.checkpointing, model.depth)
    sizes = [size(kept, "float32" if index in recomputed else kind) for index, kept in enumerate(blocks)]
    ranked = shape.N * model.classes  # evaluation compares every score with that of the true class
    tiled = 4 * tiles(shape.T) if lean else 0
    ranked += 4 * model.more_scores * shape.N * model.vocab_size
    moments = [(size(embeddings) + sum(sizes) + size(head) + ranked + tiled, "at the output head")]
    for index, below in enumerate(accumulate(sizes[1:], initial=size(embeddings) + sizes[0])) if trained else ():
        whole = model.block_cache(shape, index, lean)
        restored = size(whole) if index in recomputed else 4 * whole.floats if kind != "float32" else 0
        temporary = 4 * model.block_temporaries(shape, index, lean)
        moments.append((below + restored + temporary, f"in the backward pass of block {index}"))
    if model.before is not None:  # it is done when this model begins
        other = model.before._replace(max_length=shape.T)
        teaches = model.held > 0
        switched = Choice(shape.B) if teaches else _for_depth(choice, other.depth)  # a teacher has no switches
        most, when = peak_activations(other, shape_of(other, shape.B), switched, trained=not teaches)
        moments.append((most, f"{when} of the {'teacher' if teaches else 'generator'}"))
    return max(moments)


def _for_depth(choice: Choice, depth: int) -> Choice:
    """The same switches in a model that may have fewer layers"""
    if isinstance(choice.checkpointing, bool):
        return choice
    return choice._replace(checkpointing=tuple(layer for layer in choice.checkpointing if layer < depth))


# ---------------------------------------------------------------------- the whole run


def memory_by_purpose(model: Sizes, choice: Choice) -> dict[str, int]:
    """Bytes of a training run, by what they are used for."""
    P, j, muon = model.parameters, choice.threads, choice.optimizer == "muon"
    activations, _ = peak_activations(model, shape_of(model, choice.micro_batch), choice)
    scratch = 4 * (PRODUCT + CHUNK)  # add_product and Adam work on a part of the weights at a time
    kept = model.held + 4 * model.carried * choice.micro_batch * j
    held = {"kept by the objective": kept} if kept else {}
    if choice.average != "none":
        held["averaged weights"] = 4 * P
    if muon:  # copies of a matrix, and of its products with itself
        scratch += 4 * (3 * model.width * max(model.intermediate, model.width) + 5 * model.width**2)
    return {
        "parameters": BYTES[choice.weights] * P,
        "gradients": 4 * P * j,
        "moments of Muon and Adam" if muon else "Adam's two moments": BYTES[choice.moments]
        * (2 * P - model.matrices * muon),
        "activations": round(FRAGMENTATION * activations) * j,
        "working memory": round(scratch + PRODUCT_BUFFERS) * j,
        **held,
        "Python, NumPy, tokenizer": round(BASE + WORD * model.vocab_size),
    }


def predicted_peak(model: Sizes, choice: Choice) -> int:
    return sum(memory_by_purpose(model, choice).values())


def relative_time(model: Sizes, batch: int, choice: Choice) -> float:
    """A rough time for one step of `batch` sequences, only meant for ranking choices.

    Assumes 40 billion operations per second and thread, and 6 billion bytes per second of memory traffic, plus a
    surcharge for 16 bits. To make a matrix of M numbers orthogonal takes about 13 M H operations, as measured with
    Mini-BERT, which the threads share. Weights in 16 bits are the last resort, because they are rounded at every step:
    their surcharge is set above the cost of checkpointing, which changes no result.
    """
    H, T, L, P = model.width, model.max_length, model.depth, model.parameters
    block = model.block_operations()
    head = 2 * model.predicted * T * H * model.classes
    recomputed = len(checkpointed_layers(choice.checkpointing, L)) * block
    rounds = math.ceil(batch / choice.micro_batch / choice.threads)  # two threads need 4 rounds for 7 micro-batches
    products = rounds * choice.micro_batch * (3 * (L * block + head) + recomputed) / 40e9
    additions = (rounds - 1) * 12 * P / 6e9
    step = 28 * P / 6e9
    if choice.optimizer == "muon":
        step += 13 * model.matrices * H / 40e9 / choice.threads
    surcharges = {"activations": 0.06, "moments": 0.03, "weights": 0.4}
    packing = sum(share for name, share in surcharges.items() if getattr(choice, name) != "float32")
    lean = 1.15 if choice.attention == "lean" and T <= LONG else 1.0
    return (products + additions + step) * (1 + packing) * lean


def choices(model: Sizes, batch: int, threads: int, batch_start: int | None = None, **fixed: Any) -> Iterator[Choice]:
    """Every combination of switches, with up to this many threads. fixed: optimizer and average

    batch_start: sequences per step at first; micro-batches are of one size in all batches
    """
    smallest = math.gcd(batch, batch_start or batch)
    methods = ("auto", "lean") if model.max_length <= LONG else ("auto",)
    some = range(1, model.depth, 1 + model.depth // 24)  # not every number of layers in a very deep model
    layers: list[bool | tuple[int, ...]] = [False, *(tuple(range(n)) for n in some), True]
    kinds = list(product(("float32", "bfloat16"), repeat=len(SIXTEEN)))
    if fixed.get("average", "none") != "none":  # which needs weights in float32
        kinds = [kind for kind in kinds if kind[SIXTEEN.index("weights")] == "float32"]
    for j in range(min(threads, batch), 0, -1):
        sizes = [size for size in range(most_at_once(smallest, j), 0, -1) if smallest % size == 0]
        for micro, checkpointing, method, kept in product(sizes, layers, methods, kinds):
            yield Choice(micro, j, checkpointing, method, *kept, **fixed)


def best_choice(model: Sizes, batch: int, threads: int, memory: float, **fixed: Any) -> Choice | None:
    """The fastest choice that fits, or None. fixed: as for `choices`"""
    every = choices(model, batch, threads, **fixed)
    fitting = (choice for choice in every if predicted_peak(model, choice) <= SPARE * memory)
    return min(fitting, key=lambda choice: relative_time(model, batch, choice), default=None)


@contextmanager
def explained_memory(wanted: Wanted, sizes: Callable[[], Sizes], settings: TrainingConfig) -> Iterator[None]:
    """If the memory is too small for a run, say how much it needs."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "start new thread" not in str(error):  # no memory for its stack
            raise
        model = sizes()
        needs = memory_by_purpose(model._replace(max_length=wanted.length or model.max_length), choice_of(settings))
        parts = ", ".join(f"{purpose} {size / 1e6:,.0f} MB" for purpose, size in needs.items())
        chosen = [
            word for name in ("model", "init") if name in wanted.given for word in _option(name, wanted.given[name])
        ]
        usual = usual_switches(wanted)
        for name in ("optimizer", "average"):
            if getattr(settings, name) != usual[name]:
                chosen += _option(name, getattr(settings, name))
        options = [*chosen, "--batch-size", str(settings.batch_size), "--memory", "1GB"]
        raise MemoryError(
            f"training this model with these settings needs about {sum(needs.values()) / 1e6:,.0f} MB ({parts}). "
            f"`{command('plan', *options)}` shows which settings need less; give the memory that you have"
        ) from error


def choice_of(settings: TrainingConfig) -> Choice:
    threads = settings.threads or default_threads()
    return Choice(settings.micro_batch, threads, *(getattr(settings, name) for name in Choice._fields[2:]))


def note_on_length(wanted: Wanted, setup: Setup, settings: TrainingConfig) -> str:
    """For long sequences that nobody asked for: where their length comes from, what it costs, and how to change it."""
    if wanted.length is not None or setup.length <= UNASKED or setup.length < setup.config.max_length:
        return ""
    sizes, batch = setup.sizes(setup.build(seed=None)), settings.batch_size
    return (
        f"{setup.length:,} tokens per sequence, from {setup.config.length_field} in the config of this "
        f"{setup.config.name} or its default: a step of {counted(batch, 'sequence')} has {batch * setup.length:,} "
        f"tokens and needs about {predicted_peak(sizes, choice_of(settings)) / 1e6:,.0f} MB of memory. "
        "Shorter sequences are much faster: try --length 128"
    )


def default_choice(batch: int, threads: int, batch_start: int | None = None, **fixed: Any) -> Choice:
    """What `mini-bert train` does without options."""
    micro = default_micro_batch(batch, threads, batch_start)
    return Choice(micro, min(threads, batch // micro), **fixed)


# ---------------------------------------------------------------------- the report


def plan_report(
    model: str | None,
    batch: int,
    memory: str,
    threads: int | None,
    optimizer: str | None = None,
    average: str | None = None,
    batch_start: int | None = None,
    mask_start: float | None = None,
    **options: Any,
) -> tuple[str, bool]:
    """Returns the text that `mini-bert plan` prints, and whether anything fits.

    options: the other fields of a Wanted, as for `mini-bert train`.
    """
    fixed: dict[str, Any] = {
        "optimizer": optimizer or default_optimizer(options.get("init") is not None),
        "average": average or TrainingConfig.average,
    }
    ramps: dict[str, Any] = {"batch_start": batch_start, "mask_start": mask_start}
    if batch_start is not None and not 1 <= batch_start <= batch:
        raise ValueError(f"batch_start is {batch_start}, expected 1 to {batch}, the size of the whole batch")
    TrainingConfig(minutes=1, batch_size=batch, micro_batch=1, **ramps, **fixed)  # refuses other values
    fixed["batch_start"] = batch_start
    available, threads = parse_memory(memory), threads or default_threads()
    wanted = Wanted(model, **options)
    setup = set_up(wanted)
    built = setup.build(seed=None)
    sizes = setup.sizes(built)
    if mask_start is not None:
        sizes = sizes._replace(predicted=max(sizes.predicted, mask_start))
    default, best = default_choice(batch, threads, **fixed), best_choice(sizes, batch, threads, available, **fixed)
    uneven = filter(None, [note_on_uneven_batch(batch, threads, batch_start)])
    shown = {"default": default} | ({"to fit": best} if best and best != default else {})
    lines = [
        f"{sizes.name}, {sizes.parameters:,} parameters{' (tied head)' if sizes.tied else ''}: "
        f"batches of {batch} × {sizes.max_length} tokens in {available / 1e6:,.0f} MB of memory",
        f"{parts_counted(built)}\n",
        *table(sizes, shown),
        *(
            f"\nNote: {note}."
            for note in [*setup.notes, *uneven, *(_time_of_muon(sizes, batch, default) if optimizer else [])]
        ),
    ]
    chosen = best
    if chosen is None:
        chosen = min(choices(sizes, batch, threads, **fixed), key=lambda choice: predicted_peak(sizes, choice))
        lines.append(f"\nNothing fits: training needs at least {predicted_peak(sizes, chosen) / SPARE / 1e6:,.0f} MB.")
        if not sizes.tied and wanted.init is None:
            other = set_up(replace(wanted, tie_head=True))
            tied = predicted_peak(other.sizes(other.build(seed=None)), chosen) / SPARE / 1e6
            lines.append(f"With --tie-head, a different model whose head shares the token table, {tied:,.0f} MB.")
        lines.append("\nThe settings that need the least memory:")
    elif chosen == default:
        lines.append("\nThe default settings fit:")
    else:
        lines += ["\nIt fits with", *changes(sizes, batch, default, chosen)]
    start = [word for name, value in ramps.items() if value is not None for word in _option(name, value)]
    lines.append(f"\n    {command('train', *train_options(wanted, batch, chosen), *start)}")
    return "\n".join(lines), best is not None


def _time_of_muon(model: Sizes, batch: int, choice: Choice) -> Iterator[str]:
    if choice.optimizer == "muon":
        times = [relative_time(model, batch, choice._replace(optimizer=name)) for name in ("muon", "adam")]
        yield (
            "Muon makes the updates of matrices orthogonal, which takes the same time for any batch. With "
            f"{counted(batch, 'sequence')}, a step takes about {times[0] / times[1] - 1:.0%} longer than with Adam"
        )


def table(model: Sizes, shown: dict[str, Choice]) -> Iterator[str]:
    """A column for each choice, a row for each purpose."""
    needs = [memory_by_purpose(model, choice) for choice in shown.values()]
    yield f"{'MB':44}" + "".join(f"{title:>14}" for title in shown)
    for purpose in needs[0]:
        yield f"  {purpose:42}" + "".join(f"{need[purpose] / 1e6:14,.1f}" for need in needs)
    yield f"  {'total at the peak':42}" + "".join(f"{sum(need.values()) / 1e6:14,.1f}" for need in needs) + "\n"
    for title, choice in shown.items():
        most, when = peak_activations(model, shape_of(model, choice.micro_batch), choice)
        settings = f"micro-batches of {choice.micro_batch}, {counted(choice.threads, 'thread')}"
        yield f"{title}: {settings}; activations peak at {most / 1e6:,.1f} MB per thread, {when}"


def changes(model: Sizes, batch: int, default: Choice, best: Choice) -> Iterator[str]:
    """A line for each switch that differs from the default: what it saves, what it costs."""
    now = default
    for name, why in (
        ("micro_batch", "a thread processes fewer sequences at once"),
        ("moments", "the optimiser's moments in 16 bits"),
        ("activations", "the blocks' caches in 16 bits"),
        ("weights", "weights in 16 bits"),
        ("attention", "attention in tiles, which stores no attention weights"),
        ("checkpointing", "these layers keep only their input and run again in the backward pass"),
        ("threads", "each thread has its own gradients"),
    ):
        if getattr(best, name) != getattr(now, name):
            after = now._replace(**{name: getattr(best, name)})
            saved = predicted_peak(model, now) - predicted_peak(model, after)
            slower = relative_time(model, batch, after) / relative_time(model, batch, now)
            yield f"    {option(name, best):28} {-saved / 1e6:+7.0f} MB  {slower:5.2f}× the time   {why}"
            now = after


def option(name: str, choice: Choice) -> str:
    """A switch as an option of `mini-bert train`."""
    value = getattr(choice, name)
    if name == "checkpointing" and not isinstance(value, bool):
        value = ",".join(map(str, value))
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {'none' if value is False else value}"


def train_options(wanted: Wanted, batch: int, choice: Choice) -> list[str]:
    """The options of `mini-bert train` for this choice."""
    given = [word for name, value in wanted.given.items() for word in _option(name, value)]
    usual = usual_switches(wanted)
    switched = [name for name in choice._fields[2:] if getattr(choice, name) != usual[name]]
    switches = " ".join(option(name, choice) for name in ("micro_batch", "threads", *switched)).split()
    return [*given, "--batch-size", str(batch), *switches]


def usual_switches(wanted: Wanted) -> dict[str, Any]:
    """What `mini-bert train` does without an option, by its name"""
    return Choice._field_defaults | {"optimizer": default_optimizer(wanted.init is not None)}


def _option(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def parse_memory(text: str) -> float:
    """Bytes from an amount such as "1GB", "900 MB" or "1.5GiB"."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    amount = float(found[1]) * UNITS.get(found[2].upper(), 0) if found else 0.0
    if amount < 1e6:  # "8" is 8 bytes; 8GB was meant
        raise ValueError(f"--memory is {text!r}, expected an amount such as 1GB, 900MB or 1.5GiB")
    return amount

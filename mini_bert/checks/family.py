"""The family side by side: what `mini-bert family` prints, computed from the code.

overview()            tables of all architectures: sizes, context, memory, time of a step; tokenizers and objectives
portrait("albert")    one of them: its differences, and what its idea is worth in the numbers of its configs
"""

from __future__ import annotations

import statistics
import textwrap
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from mini_bert.checks.family_stories import parameters, story
from mini_bert.common.wording import did_you_mean
from mini_bert.data.generator import TextBatches
from mini_bert.data.shards import prepare
from mini_bert.models.family import MEMBERS, VARIANTS, Member
from mini_bert.models.registry import PRESETS, model_class, preset
from mini_bert.objectives.distillation import Distillation
from mini_bert.objectives.registry import OBJECTIVES
from mini_bert.training.parallel import Team, default_threads
from mini_bert.training.plan import default_choice, predicted_peak
from mini_bert.training.setup import Setup, Wanted, set_up

BATCH, LENGTH = 32, 64  # a step: 32 sequences of 64 tokens
ROUNDS = 3  # steps that are timed, after one that is not
WIDTH = 100


class Row(NamedTuple):
    """One architecture in numbers. Memory and time are those of its preset, in steps of 32 × 64 tokens."""

    member: Member  # with the tokenizer and the objective of the published models
    tokenizer: str  # of the preset
    objective: str  # of the preset
    parameters: int  # of the preset
    published: dict[str, int]  # of the published models, by name, with the heads of their objective
    context: int  # tokens, of the first published model
    before: int  # tokens of the segments before them, which its memory holds; 0: it has none
    memory: int  # bytes
    seconds: float | None  # None: not measured


def row(member: Member, timed: bool, threads: int | None = None, corpus: Any = "builtin") -> Row:
    """corpus: what the timed steps read"""
    setup = set_up(Wanted(member.preset, length=min(LENGTH, preset(member.preset).max_length)))
    built = setup.build(seed=0 if timed else None)
    threads = threads or default_threads()
    published = published_configs(member.preset)
    first = next(iter(published.values()))
    return Row(
        member,
        setup.vocabulary,
        setup.objective.name,
        built.get_parameter_count(),
        {name: parameters(config, objective=member.objective) for name, config in published.items()},
        first.max_length,
        first.mem_len if OBJECTIVES[member.objective].consecutive else 0,
        predicted_peak(setup.sizes(built), default_choice(BATCH, threads)),
        step_time(setup, built, threads, corpus) if timed else None,
    )


def published_configs(name: str) -> dict[str, Any]:
    """The configs of the published models by name; for a variant, those of its member and its own."""
    kind = model_class(preset(member_called(name).preset).to_dict())
    found = {**member_called(name).published, **(VARIANTS[name].published if name in VARIANTS else {})}
    return {title: kind.config_class(**values) for title, values in found.items()}


def step_time(setup: Setup, model: Any, threads: int, corpus: Any) -> float:
    """The median time of forward and backward for one step, in seconds."""
    micro = default_choice(BATCH, threads).micro_batch
    objective = setup.make_objective()
    batches = TextBatches(
        prepare(corpus, setup.tokenizer, progress=False), setup.tokenizer, objective, setup.length, micro,
        **objective.sequences, lanes=BATCH if objective.consecutive else None,
    )  # fmt: skip
    times = []
    objective.begin(model, BATCH)
    with Team(model, threads) as team:
        for step in range(1 + ROUNDS):
            parts = [next(batches) for _ in range(BATCH // micro)]
            start = time.perf_counter()
            team.gradient(parts, (0, step), objective)
            times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def overview(timed: bool = True, after_each: Callable[[int, int], None] | None = None) -> list[Row]:
    rows = []
    for number, member in enumerate(MEMBERS, 1):
        rows.append(row(member, timed))
        if after_each is not None:
            after_each(number, len(MEMBERS))
    return rows


def report(rows: list[Row]) -> str:
    """The sizes, the tokenizers and objectives as published and ours, and what each changed about BERT."""
    heading = f"{'':15} {'parameters':>10} {'memory':>8} {'step':>8}"
    lines = [f"{heading}   {'published':16} {'parameters':>10} {'context':>11}"]
    for one in rows:
        name, published = next(iter(one.published.items()))
        context = f"{one.context:,} + {one.before:,}" if one.before else f"{one.context:,}"
        seconds = "-" if one.seconds is None else f"{1e3 * one.seconds:,.0f} ms"
        lines.append(
            f"{one.member.preset:15} {one.parameters / 1e6:9.1f}M {one.memory / 1e6:5,.0f} MB {seconds:>8}   "
            f"{name:16} {published / 1e6:9.1f}M {context:>11}"
        )
    legend = (
        "On the left, the preset that `mini-bert train --model NAME` trains: its parameters, the memory for it, and "
        f"the time of one forward and backward pass of {BATCH} × {LENGTH} tokens. On the right, the published model of "
        "the usual size; `mini-bert family NAME` has the others. context: in tokens, + those in its memory. Parameters "
        "include the heads of the objective, which is below; those of electra and deberta-v3 on the left also include "
        "the generator, which is not part of the published model."
    )
    lines.append(f"\n{textwrap.fill(legend, WIDTH)}\n")
    lines.append(f"{'':15} {'tokenizer':14} {'our preset':11} {'objective':32} our preset")
    for one in rows:
        same = "the same" if one.objective == one.member.objective else one.objective
        lines.append(
            f"{one.member.preset:15} {one.member.tokenizer:14} {one.tokenizer:11} {one.member.objective:32} {same}"
        )
    lines.append(
        "\ntokenizer, objective: of the published models. Bundled tokenizers: 8k is a WordPiece, bpe-8k a byte-level "
        "BPE,\nunigram-8k a Unigram; there is none of whole words.\n"
    )
    width = max(len(one.member.preset) for one in rows)
    for one in rows:
        about = f"{one.member.preset:{width}}  {'; '.join(one.member.differences)} ({one.member.paper})"
        lines.append(textwrap.fill(about, WIDTH, subsequent_indent=" " * (width + 2)))
    return "\n".join(lines)


def member_called(name: str) -> Member:
    """The architecture of a preset"""
    if name not in PRESETS:
        raise ValueError(
            f"there is no architecture {name!r:.40}; expected one of {', '.join(PRESETS)}{did_you_mean(name, PRESETS)}"
        )
    own = VARIANTS[name].member if name in VARIANTS else name
    return next(member for member in MEMBERS if member.preset == own)


def portrait(name: str) -> str:
    """One architecture: its differences from BERT, its sizes, and its story for the preset and the usual size."""
    member = member_called(name)
    kind = model_class(preset(name).to_dict())
    about = f"{member.name} ({member.paper}): {'; '.join(member.differences)}."
    variant = VARIANTS.get(name)
    setup = set_up(Wanted(name))
    paragraphs = [
        about,
        f"A variant of {member.name}: {variant.about}." if variant else "",
        member.note,
        f"Tokenizer: {member.tokenizer}; our preset: {setup.vocabulary}.",
        f"Objective: {_objectives((variant or member).objective, setup.objective.name)}.",
        f"Code: {_path(kind)}",
    ]
    lines = [textwrap.fill(one, WIDTH, break_on_hyphens=False) for one in paragraphs if one]
    published = published_configs(name)
    usual, *_ = variant.published if variant and variant.published else published  # the first is the usual size
    others = [title for title in published if title != usual]
    counts = {
        title: parameters(config, objective=(member if title in member.published else VARIANTS[name]).objective)
        for title, config in published.items()
    }
    for title, config, count in (
        (f"our preset, `--model {name}`", preset(name), parameters(preset(name))),
        (usual, published[usual], counts[usual]),
    ):
        lines.append(f"\n{title}: {count:,} parameters")
        lines.append(textwrap.indent(textwrap.fill(story(member.preset, config), WIDTH - 2), "  "))
    if others:
        listed = f"Parameters of other sizes: {'; '.join(f'{title} {counts[title]:,}' for title in others)}"
        lines.append("\n" + textwrap.fill(listed, WIDTH, break_on_hyphens=False))
    return "\n".join(lines)


def _objectives(published: str, ours: str) -> str:
    """The published objective, and that of the preset if it is another one."""
    if published == ours:
        return published
    option = "--teacher FOLDER" if published == Distillation.name else f"--objective {published}"
    return f"{published}; our preset: {ours}, or the published one with `{option}`"


def _path(kind: type[Any]) -> str:
    return kind.__module__.replace(".", "/") + ".py"

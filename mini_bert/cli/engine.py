"""The commands that look inside: `mini-bert info`, `config`, `simple-test`, `gradcheck`, `demo`."""

from __future__ import annotations

import runpy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mini_bert.cli.training import Init, Length, NextSentence, ObjectiveName, TieHead, Tokenizer
from mini_bert.cli.words import CONFIGS
from mini_bert.common.invocation import command
from mini_bert.common.wording import did_you_mean

if TYPE_CHECKING:
    from mini_bert.checks.gradients import Checked


def config() -> None:
    """Show every value of the configuration and the reason for it."""
    from mini_bert.models.config import main

    main()


def info(
    model: Annotated[str | None, typer.Option(help=f"{CONFIGS}; default: mini")] = None,
    init: Init = None,
    objective: ObjectiveName = None,
    batch: Annotated[int, typer.Option("--batch-size", "--batch", min=1, help="sequences in one micro-batch")] = 16,
    threads: Annotated[int, typer.Option(min=1, help="number of training threads")] = 2,
    tokenizer: Tokenizer = None,
    length: Length = None,
    next_sentence: NextSentence = False,
    tie_head: TieHead = False,
) -> None:
    """Print a model's shapes, parameters, and memory for training. It is the model that `mini-bert train` builds with
    the same options.

    For example:  mini-bert info --model larger --batch-size 4
    """
    from mini_bert.checks.info import architecture
    from mini_bert.training.defaults import default_optimizer
    from mini_bert.training.plan import Choice, memory_by_purpose
    from mini_bert.training.setup import Wanted, parts_counted, set_up

    setup = set_up(Wanted(model, init, objective, next_sentence, tokenizer=tokenizer, length=length, tie_head=tie_head))
    built = setup.build(seed=None)  # only its shapes are needed
    sizes = setup.sizes(built)
    print(f"{sizes.name}: {sizes.parameters:,} parameters\n{parts_counted(built)}")
    for note in setup.notes:
        print(f"Note: {note}.")

    print(f"\n{'architecture':42} {'output':16} weights")
    for layer, shape, weights in architecture(built):
        print(f"  {layer:40} {shape:16} {weights}")

    print(f"\n{'parameters by component':42} {'number':>12}  {'share':>6}")
    for component, count in built.get_parameter_count(by_component=True).items():
        print(f"  {component:40} {count:12,}  {count / sizes.parameters:6.1%}")
    print(f"  {'total':40} {sizes.parameters:12,}")

    print(f"\nmemory for training, batches of {batch} × {sizes.max_length} tokens on {threads} threads")
    needs = memory_by_purpose(sizes, Choice(batch, threads, optimizer=default_optimizer(init is not None)))
    for purpose, size in needs.items():
        print(f"  {purpose:40} {size / 1e6:9.1f} MB")
    print(f"  {'total, at its peak':40} {sum(needs.values()) / 1e6:9.1f} MB")
    print(f"\n`{command('plan')}` shows how to use less.")


def family(
    name: Annotated[
        str | None, typer.Argument(help="a preset of `train`, such as albert: what its idea is worth, in numbers")
    ] = None,
    no_timing: Annotated[
        bool, typer.Option("--no-timing", help="do not run a training step of each, which takes some seconds")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Compare the architectures of the family. Shows sizes, objectives, memory and time; with a name, one in detail.

    For example:  mini-bert family albert
    """
    from mini_bert.checks import family as library
    from mini_bert.common.json_values import as_json
    from mini_bert.common.progress import showing

    if name is not None:
        print(library.portrait(name))
        return
    with showing() as show:

        def after_each(done: int, total: int) -> None:
            show("measuring", f"{done} of {total} architectures", done, total)

        rows = library.overview(not no_timing, after_each)
    print(as_json([one._asdict() for one in rows]) if json else library.report(rows))


def gradcheck(
    part: Annotated[str, typer.Argument(help="only this row, or rows whose name contains this; such as linear")] = "",
    tolerance: Annotated[float, typer.Option(help="largest relative error that passes")] = 1e-6,
    tensors: Annotated[bool, typer.Option("--tensors", help="print a line for every tensor")] = False,
) -> None:
    """Check every gradient against finite differences. Layer by layer, and for whole models. Each row is derived in
    docs/derivations.md.

    Exits with 1 if any error is above the tolerance. Takes one to three minutes; with a name, seconds.

    For example:  mini-bert gradcheck linear
    """
    from mini_bert.checks.gradcheck import all_checks, row_names

    width = max(map(len, [*row_names(part), "layer or model"]))
    start, failed, numbers = time.perf_counter(), [], 0
    print(f"backward against central differences in float64, tolerance {tolerance:.0e}\n")
    print(f"{'layer or model':{width}} {'tensors':>7} {'numbers':>8} {'worst error':>12}  in")
    with _one_blas_thread():
        for name, results in all_checks(part):
            worst = max(results, key=lambda row: row.error if row.error == row.error else float("inf"))
            count = sum(row.entries for row in results)
            numbers += count
            mark = "" if worst.passed(tolerance) else "   <-- WRONG"
            print(f"{name:{width}} {len(results):7} {count:8,} {worst.error:12.1e}  {worst.name}{mark}", flush=True)
            if tensors:
                for row in results:
                    print(f"    {row.name:38} {row.shape!s:>16} {row.entries:8,} {row.error:12.1e}")
            elif part:
                _print_largest(results)
            failed += [f"{name}: {row.name} ({row.error:.1e})" for row in results if not row.passed(tolerance)]
    if failed:
        more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
        print(f"\n{len(failed)} tensor(s) above {tolerance:.0e}: " + "; ".join(failed[:5]) + more)
        raise typer.Exit(1)
    print(f"\nAll gradients agree: {numbers:,} numbers compared in {time.perf_counter() - start:.0f} s.")


def _print_largest(results: Sequence[Checked]) -> None:
    """For each tensor, the number with the largest gradient: what backward says, and what the loss does."""
    for row in results:
        if row.largest is not None:
            place, backward, difference = row.largest
            name = f"{row.name}[{', '.join(map(str, place))}]"
            print(f"    {name:24} backward {backward:+.6f}   (loss(+h) − loss(−h)) / 2h {difference:+.6f}")


def simple_test() -> None:
    """Run every part of the engine once. From configuration to gradient check, in seconds.

    Exits with 1 if a part fails.
    """
    from mini_bert.checks.simple_test import tour

    failed = []
    print("Testing Mini-BERT components...")
    with _one_blas_thread():
        for part, passed, text in tour():
            print(f"[{'OK' if passed else 'FAILED'}] {part}: {text}", flush=True)
            failed += [] if passed else [part]
    print(f"\n[FAILED] {', '.join(failed)}" if failed else "\n[SUCCESS] Ready for training!")
    raise typer.Exit(1 if failed else 0)


def demo(
    name: Annotated[str, typer.Argument(help="attention, block, xlnet, …; without a name: the list")] = "",
) -> None:
    """Run the small example of a layer or a model. It is at the end of its file.

    For example:  mini-bert demo attention
    """
    import mini_bert.layers
    import mini_bert.models

    demos: dict[str, Path] = {}
    for package in (mini_bert.layers, mini_bert.models):
        files = sorted(Path(str(package.__file__)).parent.glob("*.py"))
        found = {path.stem: path for path in files if "__main__" in path.read_text(encoding="utf-8")}
        demos |= found
        if not name:
            print(f"{package.__name__.rpartition('.')[2]} with a demo: {', '.join(found)}")
    if not name:
        return
    if name not in demos:
        raise ValueError(
            f"there is no demo for {name!r}; expected one of {', '.join(demos)}{did_you_mean(name, demos)}"
        )
    runpy.run_path(str(demos[name]), run_name="__main__")


def _one_blas_thread():
    """Small matrix products gain nothing from a second BLAS thread, and run much slower on a busy machine."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)

"""The commands of the course: `mini-bert learn`, `learn check`, `learn reset`, `learn notebooks`."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from mini_bert.cli.words import WIDTH


def learn() -> None:
    """List the pages and exercises of the course, and what to do next."""
    from mini_bert.learning.course import done, overview

    print(overview(done()))


def learn_check(
    exercise: Annotated[str, typer.Argument(help="the number of the exercise, such as 1.2")],
    answer: Annotated[Path, typer.Argument(help="a Python file with your answer")] = Path("my_answer.py"),
    seconds: Annotated[float, typer.Option(min=1, help="stop the file after this time")] = 20,
) -> None:
    """Check an answer and explain what is wrong. Your file runs in a process of its own; exit code 1: not right yet.

    For example:  mini-bert learn check 1.2 my_answer.py
    """
    from mini_bert.learning.course import done, find, mark_done, what_next
    from mini_bert.learning.runner import check_file

    wanted = find(exercise)
    verdict = check_file(wanted, answer, seconds)
    if not verdict.passed:
        print(f"{wanted.id} {wanted.title}: not yet.\n")
        sentence, *arguments = verdict.text.splitlines()
        print(textwrap.fill(sentence, WIDTH, initial_indent="  ", subsequent_indent="  "))
        for argument in arguments:
            print(textwrap.fill(argument, WIDTH, initial_indent="    ", subsequent_indent="      "))
        raise typer.Exit(1)
    mark_done(wanted)
    print(f"{wanted.id} {wanted.title}: right.\n\n{what_next(done() | {wanted.id})}")


def learn_reset() -> None:
    """Forget which exercises are done. They are kept for your user account, not in a folder of the course."""
    from mini_bert.common.progress import counted
    from mini_bert.learning.course import forget

    print(f"Forgot {counted(forget(), 'exercise')}.")


def learn_notebooks(
    out: Annotated[Path, typer.Option(help="the folder for the notebooks")] = Path("notebooks"),
) -> None:
    """Write the pages of the course as Jupyter notebooks. To open them, install Jupyter in the same environment.

    For example:  mini-bert learn notebooks --out my_notebooks
    """
    from mini_bert.learning.notebooks import write_notebooks

    for path in write_notebooks(out):
        print(path)

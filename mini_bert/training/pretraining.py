"""Pretraining in a run folder: choose text, vocabulary and model, then train (folder_run.py). The loop is in loop.py.

pretrain(corpus=["my_texts/"], minutes=60, out=Path("runs/mine"))
resume(Path("runs/mine"))
resume(Path("runs/mine"), minutes=120)  # in total
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from mini_bert.common.invocation import command
from mini_bert.common.memory import share_memory_among_threads
from mini_bert.data.generator import TextBatches
from mini_bert.data.shards import Shards, open_shards, prepare
from mini_bert.files.model_folder import MODEL, locate, read_config
from mini_bert.models.registry import config_from
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.objectives.registry import objective_of_run
from mini_bert.text.base import Tokenizer
from mini_bert.text.loading import load_tokenizer
from mini_bert.training import checkpoint, ramps
from mini_bert.training.defaults import (
    MINUTES,
    default_corpus,
    default_share,
    new_folder,
    newest_folder,
    settings_for,
)
from mini_bert.training.display import collected_warnings
from mini_bert.training.folder_run import FolderRun
from mini_bert.training.initial_weights import start_from_folder, start_from_teacher
from mini_bert.training.loop import is_done, next_learning_rate
from mini_bert.training.plan import explained_memory, note_on_length
from mini_bert.training.recorder import State
from mini_bert.training.run_folder import CONFIG, RunFolder
from mini_bert.training.run_lock import RunLock
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.setup import (
    Wanted,
    absolute,
    build,
    config_of,
    folder_to_store,
    in_own_layout,
    objective_for,
    set_up,
)
from mini_bert.training.switches import checkpointed_layers


def pretrain(
    corpus: Sequence[str] | None = None,
    model: str | None = None,
    tokenizer: str | None = None,
    out: Path | None = None,
    held_out: float | None = None,
    init_from_teacher: bool = False,
    tensorboard: bool = False,
    quiet: bool = False,
    **options: Any,
) -> State:
    """Start a run.

    corpus              what to read; default: text in ./data, otherwise the built-in corpus
    model               a preset, or the path of a config.json of any architecture; default: "mini"
    tokenizer           its name or path; default: the model's own
    init_from_teacher   the student starts with layers of its teacher
    options             further fields of a Wanted (init, objective, length, …) and of a TrainingConfig (steps,
                        learning_rate, …); None: the default
    """
    share_memory_among_threads()
    given = {name: value for name, value in options.items() if value is not None}
    rest = {field.name: given.pop(field.name) for field in fields(Wanted) if field.name in given}
    wanted = Wanted(model, tokenizer=tokenizer, **rest)
    if not {"steps", "minutes"} & set(given):
        given["minutes"] = MINUTES
    if out is not None:
        RunFolder.check_new(out)
    config = config_of(wanted)
    masked = issubclass(objective_for(wanted, config), MaskedWords)
    training, note = settings_for(config, continued=wanted.init is not None, masked=masked, **given)
    with explained_memory(wanted, config.sizes, training):
        setup = set_up(wanted)
    if init_from_teacher and (wanted.teacher is None or wanted.init is not None):
        raise ValueError("--init-from-teacher needs --teacher, and no --init: a model can only start once")
    checkpointed_layers(training.checkpointing, setup.config.depth)  # refuses layers that do not exist
    asked = {**wanted.given, "held_out": held_out, "init_from_teacher": init_from_teacher or None, **given}
    source = [absolute(name) for name in corpus] if corpus else default_corpus()
    try:
        with collected_warnings() as logged:
            shards = prepare(source, setup.tokenizer, progress=not quiet)
    except KeyboardInterrupt:
        print(
            "\nStopped while the text was being prepared, before the run began. Run the same command to start again.",
            file=sys.stderr,
        )
        raise KeyboardInterrupt("told") from None
    share = default_share(shards, setup.content) if held_out is None else held_out
    data = {"corpus": source, "tokenizer": setup.vocabulary, "held_out": share, "shards": str(shards.folder)}
    description = {
        "model": setup.config.to_dict(), "training": training.to_dict(), "objective": setup.objective.name,
        "objective_options": setup.options, "data": data | {"length": setup.length},
        **({"init": setup.init} if setup.init else {"model_from": absolute(wanted.source)}),
        **({"init_from_teacher": True} if init_from_teacher else {}),
        "given": {name: _stored(name, value) for name, value in asked.items() if value is not None},
    }  # fmt: skip
    path = out or new_folder()
    try:
        with _explained_memory(description):
            run = _open(path, description, setup.tokenizer, shards, quiet)
            started = _start(run, description)
        RunFolder.create(path, description)  # last, so that invalid settings leave no folder behind
    except BaseException:
        if out is None:
            with suppress(OSError):
                path.rmdir()
        raise
    run.notes[:0] = filter(None, [note, *setup.notes, note_on_length(wanted, setup, training), started])
    run.logged += [*logged, f"the tokenized text is stored in {shards.folder}"]
    run.tensorboard = tensorboard
    with _explained_memory(description):
        return run.train()


def _stored(name: str, value: Any) -> Any:
    """The value of an option as the description of a run has it: paths hold from any folder."""
    if name in ("init", "teacher"):
        return folder_to_store(value)
    return absolute(value) if name in ("model", "tokenizer") else value


def resume(
    out: Path | None = None,
    quiet: bool = False,
    tensorboard: bool = False,
    steps: int | None = None,
    minutes: float | None = None,
) -> State:
    """Continue a run with its own settings; default: the newest in ./runs.

    steps, minutes   a new length of the whole run, which also extends a run that is finished. The learning rate
                     continues where a run of this length would be now, and falls to 0 at the new end.
    """
    share_memory_among_threads()
    path = out or newest_folder()
    description = RunFolder.config(path)
    with RunLock(path) as lock:
        with collected_warnings() as logged:
            newest = checkpoint.latest(path) if checkpoint.folders(path) else None  # None: no checkpoint was saved yet
        if newest is None and "tokenizer" not in description["data"]:
            raise ValueError(
                f"{path} was started from Python and has no checkpoint yet: its vocabulary and initial weights exist "
                "only in that program, so there is nothing to resume; start it again from there, in a new folder"
            )
        state = State.from_dict(newest.state["run"]) if newest else State()
        note = ""
        if steps is not None or minutes is not None:
            note = _change_length(path, description, state, {"steps": steps, "minutes": minutes})
        elif is_done(state, settings := TrainingConfig.from_dict(description["training"])):
            if (path / MODEL).is_dir():
                print(_finished(path, state, settings), file=sys.stderr, flush=True)
                state.stopped = "done"
                return state
            note = "the run has reached its length; its model is written if it did not diverge"
        _check_teacher(path, description)
        data = description["data"]
        tokenizer = load_tokenizer(newest.path if newest else data["tokenizer"])
        if newest is None and "init" not in description:  # a checkpoint's tokenizer already has its layout
            tokenizer = in_own_layout(tokenizer, config_from(description["model"]), objective_of_run(description))
        with _explained_memory(description):
            run = _open(path, description, tokenizer, _text(data, tokenizer, quiet), quiet)
            run.lock, run.logged, run.tensorboard = lock, logged, tensorboard
            run.notes += filter(None, [note, "" if newest else _start(run, description)])
            return run.train(newest)


def _check_teacher(path: Path, description: dict[str, Any]) -> None:
    """Raise an error if the teacher of a run was moved or deleted."""
    teacher = description.get("objective_options", {}).get("teacher")
    try:
        if teacher is not None:
            read_config(locate(teacher))
    except FileNotFoundError:
        raise ValueError(
            f"the teacher of this run is no longer in {teacher}; put it back there, or if it was moved, write its new "
            f'folder into {path / CONFIG}, as "teacher" in "objective_options"'
        ) from None


def _change_length(path: Path, description: dict[str, Any], state: State, length: dict[str, Any]) -> str:
    """Give a run another length, in its description and its folder. Returns a note for the user."""
    old = description["training"]
    settings = TrainingConfig.from_dict(old | length)
    if is_done(state, settings):
        given = "--steps" if settings.minutes is None else "--minutes"
        raise ValueError(
            f"{path} has done {state.step:,} steps in {state.seconds / 60:.1f} minutes; {given} is the length of the "
            "whole run, so it must be more than that"
        )
    if {name: old[name] for name in length} == length:
        return ""
    earlier = {"step": state.step, "steps": old["steps"], "minutes": old["minutes"]}
    description["earlier_lengths"] = [*description.get("earlier_lengths", []), earlier]
    description["training"] = settings.to_dict()
    RunFolder.write_config(path, description)
    whole = f"{settings.steps:,} steps" if settings.minutes is None else f"{settings.minutes:g} minutes"
    return (
        f"the run is now {whole} long, {state.step:,} steps of which are done. The learning rate continues at "
        f"{next_learning_rate(state, settings):.1e}, where a run of this length would be now, and falls to 0 at its end"
    )


def _finished(path: Path, state: State, settings: TrainingConfig) -> str:
    more = ["--minutes", f"{2 * settings.minutes:g}"] if settings.minutes else ["--steps", str(2 * state.step)]
    return (
        f"{path} is finished: {state.step:,} steps in {state.seconds / 60:.1f} minutes. Its model is in "
        f"{path / MODEL}. To train it further, give a new length of the whole run, for example\n\n"
        f"    {command('train', '--out', path, '--resume', *more)}\n"
    )


def _open(path: Path, description: dict[str, Any], tokenizer: Tokenizer, shards: Shards, quiet: bool) -> FolderRun:
    """Everything that a run needs, made from its description (RUN/config.json)."""
    settings, data = TrainingConfig.from_dict(description["training"]), description["data"]
    config, kind = config_from(description["model"]), objective_of_run(description)
    options = description.get("objective_options", {})
    try:
        objective = kind.for_tokenizer(tokenizer, **options)
    except TypeError:
        raise ValueError(
            f"{path / 'config.json'}: objective_options is {options!r:.100}, but the objective {kind.name} has no such "
            "options; restore the file as the run wrote it"
        ) from None
    batches = TextBatches(
        shards, tokenizer, objective, data.get("length") or config.max_length, settings.micro_batch,
        seed=settings.seed, held_out=data["held_out"], **kind.sequences,
        lanes=settings.batch_size if kind.consecutive else None, step=settings.batch_size,
    )  # fmt: skip
    ramps.check(batches, settings)
    run = FolderRun(path, build(config, kind, settings.seed), batches, settings, quiet)
    run.notes += filter(None, [objective.note(run.model)])
    run.notes.append(f"text: {', '.join(data['corpus'])}; results are saved in {path}")
    return run


def _start(run: FolderRun, description: dict[str, Any]) -> str:
    """Initialise the weights of a new run: those of another model, if it is to start from them, or new ones that learn
    fast. Returns a note for the user."""
    if "init" in description:
        started = start_from_folder(run.model, description["init"])
    elif description.get("init_from_teacher"):
        started = start_from_teacher(run.model, run.batches.objective)
    else:
        run.model.start_attention()
        return ""
    run.adapts_to_text = started.word_head_is_new
    return started.note


def _explained_memory(description: dict[str, Any]) -> AbstractContextManager[None]:
    config, settings = config_from(description["model"]), TrainingConfig.from_dict(description["training"])
    options, objective = description.get("objective_options", {}), objective_of_run(description)
    wanted = Wanted(description.get("model_from"), description.get("init"), length=description["data"].get("length"))
    return explained_memory(wanted, lambda: objective.sizes(config.sizes(), **options), settings)


def _text(data: dict[str, Any], tokenizer: Tokenizer, quiet: bool) -> Shards:
    """The tokenized text: of the corpus, or the shards themselves if it came through a pipe."""
    if "-" in data["corpus"]:
        return open_shards(data["shards"])
    return prepare(data["corpus"], tokenizer, progress=not quiet)

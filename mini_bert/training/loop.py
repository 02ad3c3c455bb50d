"""Training: batch, forward, backward, clip, step, log, save, repeat.

`train` below is the whole loop:

    train(model, batches, TrainingConfig(steps=100))

With a run folder (run_folder.py), the run is also logged (metrics.jsonl, training.log), saved so that it can be killed
at any time and resumed with exactly the same result (checkpoint.py), displayed while it runs (display.py), and
diagnosed (doctor.py). That is what the command does:

    mini-bert train                                     four minutes on the built-in corpus
    mini-bert train --corpus my_texts/ --minutes 120 --out runs/mine
    mini-bert train --out runs/mine --resume            continue after Ctrl-C, a crash, or a power cut
    mini-bert train --out runs/mine --resume --minutes 240      train a finished run further

With `steps`, settings and seed determine the result: for a given number of threads, two runs end with the same weights
to the last bit, however often they were stopped. With `minutes`, the learning rate follows the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np

from mini_bert.common.interrupts import stop_on_signal
from mini_bert.data.batches import Batches
from mini_bert.evaluation.evaluate import Evaluation, measure
from mini_bert.models.base import Model
from mini_bert.objectives.base import Objective
from mini_bert.objectives.masked_words import MaskedWords
from mini_bert.training import switches
from mini_bert.training.averaging import Averaged
from mini_bert.training.muon import Muon
from mini_bert.training.optim import Adam, Optimiser
from mini_bert.training.parallel import Team
from mini_bert.training.ramps import Ramps
from mini_bert.training.recorder import Recorder, State
from mini_bert.training.records import non_finite_record, rates, step_numbers, tensors_record, train_record
from mini_bert.training.schedules import lr_share
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.stopwatch import Stopwatch

HOPELESS = 2.0  # times the loss of a uniform guess: a run that gets there does not recover


def train(
    model: Model,
    batches: Batches | Iterable[Any],
    settings: TrainingConfig,
    validation: Batches | None = None,
    run: Recorder | None = None,
    objective: Objective | None = None,
) -> State:
    """Train the model. Returns the state at the end, including why it stopped.

    batches     micro-batches of settings.micro_batch sequences; training ends early if they run out
    validation  held-out text to evaluate on
    run         receives records and checkpoints, such as a RunFolder. Default: nothing is written
    objective   default: the objective of the batches, or masked words
    """
    run = run or Recorder()
    ramps = Ramps(batches, settings)
    batches = ramps.batches
    objective = objective or getattr(batches, "objective", None) or MaskedWords()
    objective.check(model)
    objective.begin(model, settings.batch_size)
    switched = switches.applied(model, settings)
    with run.lock, switched, ramps, Team(model, settings.threads) as team, stop_on_signal(run.say) as stop:
        optimiser = make_optimiser(model, settings)
        averaged = optimiser.swapped if isinstance(optimiser, Averaged) else nullcontext  # what is evaluated and saved
        with averaged():
            state = run.begin(model, optimiser, batches)
        clock = Stopwatch(state.seconds)
        passed = settings.evaluations_until(state.seconds)
        hopeless = _hopeless(objective.uniform_losses(model))
        state.stopped = _why_stop(state, settings, hopeless, stop)  # a run may be resumed at its end
        if state.stopped == "done" and _is_hopeless(state, hopeless):
            state.stopped = "diverged"
        while not state.stopped:
            progress, lr = next_progress(state, settings), next_learning_rate(state, settings)

            parts = ramps.parts(progress)  # batch
            if not parts:
                state.stopped = "done"
                break
            outcome = team.gradient(parts, (settings.seed, state.step), objective)  # forward, backward
            norm = outcome.norm
            if not outcome.finite:
                run.record(non_finite_record(model, outcome, state.step + 1, rates(settings, lr)))
                state.stopped = "nonfinite"  # the weights are still those of the step before
                break
            optimiser.step(lr, scale=min(1.0, settings.clip / norm) if norm else 1.0, map=team.map)  # clip, step
            if isinstance(optimiser, Averaged):
                optimiser.sample(progress, team.map)

            state.step += 1
            state.tokens += sum(objective.size(part).tokens for part in parts)
            state.since = [*state.since, step_numbers(outcome, settings.clip)][-settings.log_every :]
            state.seconds = clock.step()
            state.stopped = _why_stop(state, settings, hopeless, stop)
            before, passed = passed, settings.evaluations_until(state.seconds)
            if state.step % settings.tensors_every == 0:
                run.record(tensors_record(model, optimiser, state.step, lr))
            ended = state.stopped not in ("", "interrupted")  # an interruption must not affect a resumed run
            samples = {"averaged": int(optimiser.count[0])} if isinstance(optimiser, Averaged) else {}
            if state.step % settings.log_every == 0 or ended or passed > before:  # log
                run.record(train_record(state, settings, lr, batches) | ramps.now | samples)
            best = False
            if validation is not None and (state.step % settings.eval_every == 0 or ended or passed > before):
                with averaged():
                    loss = held_out_loss(team, validation, settings.eval_sequences)
                best = run.judge(state, loss, samples)
                if state.stopped == "done" and _is_hopeless(state, hopeless):
                    state.stopped = "diverged"
            state.seconds = clock.seconds()
            if state.step % settings.save_every == 0 or best or state.stopped:  # save
                with averaged():
                    run.save(state, model, optimiser, batches)
        run.record({"kind": "stop", "step": state.step, "reason": state.stopped, "seconds": round(state.seconds, 2)})
        if isinstance(optimiser, Averaged) and optimiser.count[0]:
            optimiser.swap()  # the model ends with the weights that were evaluated
        del optimiser  # frees its moments before 16-bit weights are widened
    return state


def make_optimiser(model: Model, settings: TrainingConfig) -> Optimiser:
    """The optimiser of a run, with an average of the weights if settings.average is not "none"."""
    names = ("beta1", "beta2", "eps", "weight_decay", "moments")
    options: dict[str, Any] = {name: getattr(settings, name) for name in names}
    optimiser: Optimiser
    if settings.optimizer == "muon":
        optimiser = Muon(
            model, settings.learning_rate, settings.muon_learning_rate, settings.momentum, **options
        )  # fmt: skip
    else:
        optimiser = Adam(model.flat, settings.learning_rate, **options)
    if settings.average == "none":
        return optimiser
    return Averaged(
        optimiser, model.flat, settings.average, settings.average_every, settings.ema_decay, settings.tail_share
    )


def next_learning_rate(state: State, settings: TrainingConfig) -> float:
    share = lr_share(settings.schedule, next_progress(state, settings), settings.warmup, settings.decay_share)
    return settings.learning_rate * share


def next_progress(state: State, settings: TrainingConfig) -> float:
    """The fraction of the run that is done after the next step, from 0 to 1."""
    if settings.steps is not None:
        return (state.step + 1) / (settings.steps + 1)
    assert settings.minutes is not None
    average = state.seconds / state.step if state.step else 0.0
    return min(1.0, (state.seconds + average) / (60 * settings.minutes))


def is_done(state: State, settings: TrainingConfig) -> bool:
    """Whether the run has reached its length."""
    if settings.steps is not None:
        return state.step >= settings.steps
    return settings.minutes is not None and state.seconds >= 60 * settings.minutes


def _hopeless(uniform: dict[str, float]) -> dict[str, float]:
    """The mean loss of some steps from which a run does not recover, by the names of numbers in a record."""
    names = ["loss", *(f"{name}_loss" for name in list(uniform)[1:])]
    return {name: HOPELESS * loss for name, loss in zip(names, uniform.values(), strict=True)}


def _why_stop(state: State, settings: TrainingConfig, hopeless: dict[str, float], stop: threading.Event) -> str:
    """The reason to stop, or "" to continue."""
    done = is_done(state, settings)
    if stop.is_set() and not done:
        return "interrupted"
    if state.since and (done or state.step % settings.log_every == 0):
        means = {name: np.mean([step[name] for step in state.since]) for name in hopeless}
        if any(means[name] > most for name, most in hopeless.items()):
            return "diverged"
    return "done" if done else ""


def _is_hopeless(state: State, hopeless: dict[str, float]) -> bool:
    """Whether no evaluation so far was any good."""
    return state.best is not None and state.best > hopeless["loss"]


def held_out_loss(team: Team, validation: Batches, sequences: int) -> dict[str, Evaluation]:
    """Evaluate each part of the loss on the first `sequences` held-out sequences, always with the same masks."""
    batches, threads = validation.once(most=sequences), len(team.replicas)
    return measure(team.model, batches, threads, objective=validation.objective).parts

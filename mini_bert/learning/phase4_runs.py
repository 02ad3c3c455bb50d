"""Exercises 4.6 and 4.7 of learn/4_training.md: the learning rate, a small doctor."""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Mistake, check_function

# ------------------------------------------------------------------ 4.6


def learning_rate(answer: Answer) -> str | None:
    def right(step, steps, peak, warmup):
        progress = step / steps
        return peak * (progress / warmup if progress < warmup else (1 - progress) / (1 - warmup))

    def no_decay(step, steps, peak, warmup):
        return peak * min(1, step / max(warmup * steps, 1e-9))

    def decays_over_all(step, steps, peak, warmup):
        progress = step / steps
        return peak * (progress / warmup if progress < warmup else 1 - progress)

    def no_warmup(step, steps, peak, warmup):
        return peak * (1 - step / steps)

    def constant_at_first(step, steps, peak, warmup):
        return peak * min(1, (1 - step / steps) / (1 - warmup))

    def in_steps(step, steps, peak, warmup):
        return right(step, steps, peak, warmup / steps)

    def whole_steps(step, steps, peak, warmup):
        end = int(warmup * steps)
        return peak * (step / end if step < end else (steps - step) / (steps - end))

    def of_the_run(step, steps, peak, warmup):
        progress = step / steps
        return peak * (progress if progress < warmup else (1 - progress) / (1 - warmup))

    return check_function(
        answer,
        "my_learning_rate",
        right,
        [
            (3, 40, 0.5, 0.25),
            (22, 40, 0.5, 0.25),
            (10, 40, 0.5, 0.25),
            (40, 40, 0.5, 0.25),
            (5, 30, 0.5, 0.25),  # warm-up ends between two steps
            (0, 10, 0.001, 0.0),
        ],
        [
            Mistake(
                decays_over_all,
                "Your rate jumps down after warm-up, to (1 − warmup) · peak. Divide by 1 − warmup, so that it "
                "falls from the peak.",
            ),
            Mistake(
                no_warmup,
                "There is no warm-up: the rate rises from 0 to the peak in the first part of the run.",
            ),
            Mistake(
                constant_at_first,
                "Your rate is at its peak during warm-up. It rises there in a straight line from 0.",
            ),
            Mistake(
                of_the_run,
                "Your rate rises only to warmup · peak. Divide the progress by warmup, so that it reaches the peak.",
            ),
            Mistake(
                lambda step, steps, peak, warmup: right(step, steps, 1, warmup),
                "Your rate rises to 1. Multiply by the peak.",
            ),
            Mistake(
                in_steps,
                "You use warmup as a number of steps. It is a fraction of the run: warm-up ends at step warmup · "
                "steps.",
            ),
            Mistake(
                no_decay,
                "Your rate stays at the peak after warm-up. It falls in a straight line to 0 at the last step.",
            ),
            Mistake(
                whole_steps,
                "You round warmup · steps down to a whole step. Here it is 7.5: compute with step / steps and warmup.",
            ),
        ],
        hints={"division by zero": "With warmup = 0 nothing rises. Divide by warmup only where step / steps < warmup."},
    )


# ------------------------------------------------------------------ 4.7


def verdict(answer: Answer) -> str | None:
    def of(memorises=0.1, context=0.8, nan=True, uniform_first=True):
        """The verdict with other bounds, or without a rule"""

        def told(held_out, uniform, baseline):
            last, lowest = held_out[-1], np.nanmin(held_out)
            if (nan and np.isnan(last)) or (uniform_first and last > uniform):
                return "broken"
            if last > lowest + memorises:
                return "memorises"
            return "frequencies" if last > baseline - context else "context"

        return told

    right, uniform, baseline = of(), 9.0, 6.4

    def frequencies_first(held_out, uniform, baseline):
        told = right(held_out, uniform, baseline)
        return "frequencies" if told == "memorises" and held_out[-1] > baseline - 0.8 else told

    def compares_with_first(held_out, uniform, baseline):
        told = right(held_out, uniform, baseline)
        return right(held_out[-1:], uniform, baseline) if told == "memorises" and held_out[-1] < held_out[0] else told

    def compares_with_previous(held_out, uniform, baseline):
        told = right(held_out, uniform, baseline)
        rises = len(held_out) < 2 or held_out[-1] > held_out[-2] + 0.1
        return right(held_out[-1:], uniform, baseline) if told == "memorises" and not rises else told

    def above_baseline(held_out, uniform, baseline):
        return "broken" if held_out[-1] > baseline else right(held_out, uniform, baseline)

    losses = [
        [8.9, 6.5, 6.2],  # only just below the baseline
        [8.9, 6.5, 5.2, 4.1],
        [4.6, 4.2, 4.8],
        [8.8, 5.0, 4.2, 4.5],  # lower than at first, but it rises
        [5.0, 5.08, 5.16],  # it rises slowly
        [8.9, 5.5, 5.4, 5.8],
        [8.9, 6.5, 6.6, 6.45],
        [8.9, 6.4, 9.4],
        [8.9, 6.4, float("nan")],
        [8.5],
    ]
    return check_function(
        answer,
        "my_verdict",
        right,
        [(held_out, uniform, baseline) for held_out in losses],
        [
            Mistake(
                of(context=0),
                "A loss of 6.2 is only 0.2 below the baseline of 6.4. Copying the visible words explains that; "
                "context begins at 0.8 below.",
            ),
            Mistake(
                frequencies_first,
                "The order matters: a loss of 5.8 after 5.4 is near the baseline, but it rises, so the first "
                'true verdict is "memorises".',
            ),
            Mistake(
                compares_with_first,
                "You compare the last loss with the first. It is 4.5 after 4.2: a run memorises when the last "
                "loss is more than 0.1 above the lowest.",
            ),
            Mistake(
                compares_with_previous,
                "You compare the last loss with the one before, 5.16 with 5.08. A loss can also rise slowly: compare "
                "it with the lowest, which was 5.0.",
            ),
            Mistake(
                of(memorises=np.inf),
                'The loss is 4.8 after 4.2: it is more than 0.1 above the lowest, so the verdict is "memorises".',
            ),
            Mistake(
                above_baseline,
                "A loss of 6.45 is a little above the baseline of 6.4, but far below ln V = 9: only above "
                "`uniform` is a run broken.",
            ),
            Mistake(
                of(nan=False),
                "NaN compares as False with everything, so `loss > uniform` does not catch it. Test it on its "
                "own: math.isnan(loss).",
            ),
            Mistake(
                of(uniform_first=False),
                'The last loss is 9.4, worse than a blind guess (ln V = 9): the verdict is "broken", whatever '
                "else is true.",
            ),
        ],
    )

"""Answers to the exercises of page 6: one that is right, and wrong ones with a part of the explanation they must get.

Each answer is what a learner would write into my_answer.py. `import numpy as np` is added in front.
"""

DIFFERENCE = """
def my_difference(a, b):
    return {difference}, {error}
"""


def difference(
    difference="a.mean() - b.mean()", error="np.sqrt(np.var(a, ddof=1) / len(a) + np.var(b, ddof=1) / len(b))"
):
    return DIFFERENCE.format(difference=difference, error=error)


PARAMETERS = """
def my_parameters(V, T, H, L):
    block = {block}
    return {result}
"""


def parameters(
    block="4 * H * H + 2 * H * 4 * H + 4 * H + H + 4 * H",
    result="(V + T) * H + L * block + 2 * H + H * V + V",
):
    return PARAMETERS.format(block=block, result=result)


def masking(chosen="rate * tokens", intact="(1 - 0.9 * rate) ** k"):
    return f"def my_masking_trade(rate, tokens, k): return {chosen}, {intact}"


PATH = """
def my_path(steps, peak, warmup, n):
    total = 0.0
    for t in {times}:
        done = t / {length}
        total += {rate}
    return {result}
"""


def path(
    times="range(1, n + 1)",
    length="(steps + 1)",
    rate="done / warmup if done < warmup else (1 - done) / (1 - warmup)",
    result="peak * total",
):
    return PATH.format(times=times, length=length, rate=rate, result=result)


def share(result="np.diagonal(weights, offset).mean()"):
    return f"def my_offset_share(weights, offset): return {result}"


VERDICT = """
def my_gradient_verdict(analytic, numeric):
    tolerance = {tolerance}
    def fits(f):
        return bool((abs(analytic - f * numeric) <= tolerance).all())
    if fits(1):
        return "right"
    if {sign}:
        return "sign"
    f = {factor}
    return "factor" if {fits} else "wrong"
"""


def verdict(
    tolerance="0.001 * abs(numeric).max()",
    sign="fits(-1)",
    factor="(analytic * numeric).sum() / (numeric * numeric).sum()",
    fits="fits(f)",
):
    return VERDICT.format(tolerance=tolerance, sign=sign, factor=factor, fits=fits)


ANSWERS = {
    "6.1": (
        difference(),
        {
            difference(difference="b.mean() - a.mean()"): "the wrong way round",
            difference(difference="abs(a.mean() - b.mean())"): "has lost its sign",
            difference(error="np.sqrt(np.var(a) / len(a) + np.var(b) / len(b))"): "ddof=1",
            difference(error="np.sqrt(np.var(a, ddof=1) + np.var(b, ddof=1))"): "the spread of single runs",
            difference(error="np.var(a, ddof=1) / len(a) + np.var(b, ddof=1) / len(b)"): "square root is missing",
            "def my_difference(a, b): return a.mean() - b.mean()": "return difference, standard_error.",
        },
    ),
    "6.2": (
        parameters(),
        {
            parameters(block="12 * H * H"): "9H in each block",
            parameters(block="12 * H * H + 5 * H"): "The two norms of each block",
            parameters(block="11 * H * H + 9 * H"): "four matrices",
            parameters(block="12 * H * H + 13 * H"): "You have counted biases in attention",
            parameters(result="V * H + L * block + 2 * H + H * V + V"): "The position table is missing",
            parameters(result="(V + T) * H + L * block + 2 * H + V"): "only one of the two large tables",
            parameters(result="(V + T) * H + L * block + 2 * H + H * V"): "The bias of the output head",
            parameters(result="(V + T) * H + L * block + H * V + V"): "The final norm",
            parameters(result="(V + T) * H + block + 2 * H + H * V + V"): "There are L",
        },
    ),
    "6.3": (
        masking(),
        {
            masking(chosen="0.8 * rate * tokens"): "You count the masked tokens",
            masking(chosen="0.9 * rate * tokens"): "They must be guessed, too",
            masking(intact="(1 - rate) ** k"): "A tenth of the chosen tokens stay",
            masking(intact="(1 - 0.8 * rate) ** k"): "A random word spoils a token",
            masking(intact="1 - 0.9 * rate * k"): "Independent events multiply",
            masking(intact="1 - (0.9 * rate) ** k"): "not all k are spoilt",
            masking(intact="(1 - 0.9 * rate) ** 2"): "the argument k",
            masking(intact="1 - 0.9 * rate"): "to the power of k",
        },
    ),
    "6.4": (
        path(),
        {
            path(times="range(n)"): "ends at step n − 1",
            path(times="range(1, n)"): "ends at step n − 1",
            path(length="steps"): "Step t is at t/(steps + 1)",
            path(times="[n]"): "the learning rate of step n",
            path(result="total"): "Multiply by the peak",
            path(rate="1"): "the schedule is missing",
            path(rate="min(done / warmup, 1)"): "stays at the peak after warm-up",
            path(rate="min(done / warmup, (1 - done) / (1 - warmup))"): "ZeroDivisionError",
        },
    ),
    "6.5": (
        share(),
        {
            share("np.diagonal(weights, -offset).mean()"): "You look in the wrong direction",
            share("np.diagonal(weights, offset).sum() / len(weights)"): "You divide by T",
            share("np.diagonal(weights, offset).sum()"): "You return the sum",
            share("np.diagonal(weights).mean()"): "the weight of each token on itself",
            share("np.mean([weights[i, (i + offset) % len(weights)] for i in range(len(weights))])"): "around the end",
            share("weights[:, offset].mean()"): "You read one column",
        },
    ),
    "6.6": (
        verdict(),
        {
            verdict(tolerance="1e-8"): "equal up to 0.001 times the largest number",
            verdict(tolerance="0.02"): "different in the fourth number only",
            verdict(factor="(analytic @ numeric) / (numeric @ numeric)"): "multiply number by number",
            verdict(factor="(analytic / numeric).mean()"): "dividing by it gives NaN",
            verdict(factor="analytic / np.where(numeric == 0, 1, numeric)"): "different in the fourth",
            verdict(sign="False"): "−1 times the true one",
            verdict(fits="f > 0 and fits(f)"): "−3 times the true one",
            verdict(fits="fits(0.5)"): "−3 times the true one",
            verdict(fits="True"): "different in the fourth number only",
            verdict(factor="abs(analytic).max() / abs(numeric).max()", sign="fits(-1)"): "−3 times the true one",
        },
    ),
}

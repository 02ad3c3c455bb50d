"""Exercises 4.3 to 4.5 of learn/4_training.md: the backward pass, the gradient check, Adam.

Letters for shapes: N rows.
"""

from __future__ import annotations

import numpy as np

from mini_bert.learning.exercise import Answer, Mistake, check_function
from mini_bert.learning.phase1 import random
from mini_bert.learning.phase1 import softmax_of as softmax
from mini_bert.learning.results import check_results

# ------------------------------------------------------------------ 4.3


def backward(answer: Answer) -> str | None:
    def network(
        dz_of=lambda p, one_hot: (p - one_hot) / len(p),
        feature=lambda h: np.maximum(h, 0),
        to_a=lambda dz, W2: dz @ W2.T,
        gate=lambda h, da: h > 0,
        to_x=lambda dh, W1: dh @ W1.T,
    ):
        """Backward through softmax(ReLU(x W1) W2) and the cross-entropy, with its parts to be exchanged"""

        def gradients(x, W1, W2, targets):
            h = x @ W1
            p = softmax(np.maximum(h, 0) @ W2)
            dz = dz_of(p, np.eye(W2.shape[1])[targets])
            da = to_a(dz, W2)
            dh = da * gate(h, da)
            return x.T @ dh, feature(h).T @ dz, to_x(dh, W1)

        return gradients

    right = network()

    def case(N, inputs, hidden, words):
        targets = np.arange(N) % words
        return random(N, inputs), random(inputs, hidden, seed=1), random(hidden, words, seed=2), targets

    return check_results(
        answer,
        "my_backward",
        right,
        [case(3, 3, 3, 3), case(5, 2, 7, 3), case(1, 2, 3, 2)],
        {"dW2": 1, "dW1": 0, "dx": 2},
        [
            Mistake(
                network(gate=lambda h, da: 1),
                "Your gradient goes back through ReLU unchanged. Where h ≤ 0 the feature is off, and its "
                "gradient is 0: dh = da * (h > 0).",
            ),
            Mistake(
                network(gate=lambda h, da: da > 0),
                "You apply ReLU to the gradient: da where da > 0. What counts is whether the feature was on: da "
                "where h > 0.",
            ),
            Mistake(
                network(gate=lambda h, da: np.maximum(h, 0)),
                "You multiply da by ReLU(h). The slope of ReLU is 1 where h > 0, else 0: dh = da * (h > 0).",
            ),
            Mistake(
                network(dz_of=lambda p, one: p - one),
                "Your gradients are N times too large. The loss is the mean over N rows, so dz = (p − one-hot)/N.",
            ),
            Mistake(
                network(dz_of=lambda p, one: p / len(p)),
                "You start with dz = p/N. Subtract 1 at the target: dz = (p − one-hot)/N.",
            ),
            Mistake(
                network(dz_of=lambda p, one: one * (p - one) / len(p)),
                "Only the target has a gradient in your dz. Softmax divides by a sum over all words, so each of them "
                "has one: dz = (p − one-hot)/N.",
            ),
            Mistake(
                network(dz_of=lambda p, one: (one - p) / len(p)),
                "All your gradients have the wrong sign: dz is predicted minus correct, (p − one-hot)/N.",
            ),
            Mistake(
                network(feature=lambda h: h),
                "dW2 uses h. The input of the second layer is a = ReLU(h), so dW2 = aᵀ dz.",
            ),
            Mistake(
                network(to_a=lambda dz, W2: dz @ W2),
                "You go back to a with dz W2. a_i affects z_o with factor W2_io, so da = dz W2ᵀ.",
            ),
            Mistake(
                network(to_x=lambda dh, W1: dh @ W1),
                "You go back to x with dh W1. x_i affects h_o with factor W1_io, so dx = dh W1ᵀ.",
            ),
            Mistake(
                lambda *a: (right(*a)[1], right(*a)[0], right(*a)[2]),
                "You return dW2 before dW1. The order is dW1, dW2, dx.",
            ),
        ],
    )


# ------------------------------------------------------------------ 4.4


class Curve:
    """A function of an array of any shape, whose value is one number: what the learner's code differentiates."""

    def __call__(self, w):
        return float(np.exp(w).sum() + np.prod(np.cos(w)) * 3)

    def __repr__(self) -> str:
        return "a function f"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve)

    def __hash__(self) -> int:
        return 0


def numerical_gradient(answer: Answer) -> str | None:
    def differences(value, restore=True):
        """value(f at w, changed by a step s in one number) for each number of w"""

        def gradient(f, w, h):
            result, moved = np.zeros(w.shape), w.astype(float)
            for index in np.ndindex(*w.shape):

                def at(step, index=index):
                    before = moved[index]
                    moved[index] = before + step
                    found = f(moved)
                    if restore:
                        moved[index] = before
                    return found

                result[index] = value(at, h)
            return result

        return gradient

    def all_at_once(f, w, h):
        return np.full(w.shape, (f(w + h) - f(w - h)) / (2 * h))

    def by_rows(f, w, h):
        result = np.zeros(w.shape)
        for i in range(len(w)):
            step = np.zeros(w.shape)
            step[i] = h
            result[i] = (f(w + step) - f(w - step)) / (2 * h)
        return result

    def only_first(f, w, h):
        return right(f, w, h).ravel()[0]

    def not_restored(f, w, h):
        result, moved = np.zeros(w.shape), w.astype(float)
        for index in np.ndindex(*w.shape):
            moved[index] = w[index] + h
            upper = f(moved)
            moved[index] = w[index] - h
            result[index] = (upper - f(moved)) / (2 * h)
        return result

    right = differences(lambda at, h: (at(h) - at(-h)) / (2 * h))
    return check_function(
        answer,
        "my_gradient",
        right,
        [(Curve(), random(2, 3), 0.1), (Curve(), random(5, seed=1), 0.01), (Curve(), random(2, 1, 3, seed=2), 1e-4)],
        [
            Mistake(
                differences(lambda at, h: (at(h) - at(0)) / h),
                "You take a step to one side only, which has an error of size h. Take (f(w + h) − f(w − h)) / "
                "2h: its error is of size h².",
            ),
            Mistake(
                differences(lambda at, h: (at(0) - at(-h)) / h),
                "You take a step to one side only, which has an error of size h. Take (f(w + h) − f(w − h)) / "
                "2h: its error is of size h².",
            ),
            Mistake(
                differences(lambda at, h: (at(2 * h) - at(0)) / (2 * h)),
                "Your two points are w and w + 2h, both on one side, which has an error of size h. Step to both sides: "
                "w + h and w − h.",
            ),
            Mistake(
                differences(lambda at, h: (at(h) - at(0)) / (2 * h)),
                "Your points are w and w + h, only h apart, and you divide by 2h. Take (f(w + h) − f(w − h)) / 2h.",
            ),
            Mistake(
                by_rows,
                "You change a whole row of w at a time, so you get the sum of the row's derivatives. Change one number "
                "at a time: for index in np.ndindex(*w.shape).",
            ),
            Mistake(
                differences(lambda at, h: (at(h) - at(-h)) / h),
                "Your gradient is twice too large: the two points are 2h apart, so divide by 2h.",
            ),
            Mistake(
                differences(lambda at, h: (at(h) - at(-h)) / 2 * h),
                "`/ 2 * h` divides by 2 and multiplies by h. Write `/ (2 * h)`.",
            ),
            Mistake(
                differences(lambda at, h: (at(-h) - at(h)) / (2 * h)),
                "Your sign is wrong: f(w + h) − f(w − h), not the other way round.",
            ),
            Mistake(
                differences(lambda at, h: at(h) - at(-h)),
                "You do not divide. The slope is the difference divided by the distance, 2h.",
            ),
            Mistake(
                all_at_once,
                "You change all numbers of w at once, so you get the sum of all their derivatives. Change one at "
                "a time, and put it back.",
            ),
            Mistake(
                not_restored,
                "You do not put a number back before you change the next one, so later derivatives are taken at "
                "another point.",
            ),
            Mistake(
                only_first,
                "You return one number. The gradient has the shape of w, one number for each of its numbers.",
            ),
        ],
        tolerance=1e-6,
    )


# ------------------------------------------------------------------ 4.5


def adam(answer: Answer) -> str | None:
    def update(
        mean=lambda m, g: 0.9 * m + 0.1 * g,
        square=lambda v, g: 0.999 * v + 0.001 * g * g,
        first=lambda t: 1 - 0.9**t,
        second=lambda t: 1 - 0.999**t,
        divide=lambda m, v: m / (np.sqrt(v) + 1e-8),
        sign=-1,
    ):
        """One step of Adam, with its parts to be exchanged"""

        def step(w, g, m, v, t, lr):
            m, v = mean(m, g), square(v, g)
            return w + sign * lr * divide(m / first(t), v / second(t)), m, v

        return step

    right = update()

    def corrected_moments(w, g, m, v, t, lr):
        w, m, v = right(w, g, m, v, t, lr)
        return w, m / (1 - 0.9**t), v / (1 - 0.999**t)

    def case(t, seed, *shape):
        g, m, v = random(*shape, seed=seed + 1), 0.1 * random(*shape, seed=seed + 2), random(*shape, seed=seed + 3) ** 2
        return random(*shape, seed=seed), g, m, v, t, 0.01

    start = random(3), np.array([1e-8, -2.0, 300.0]), np.zeros(3), np.zeros(3), 1, 0.1
    return check_results(
        answer,
        "my_adam",
        right,
        [case(3, 5, 7), case(1, 20, 2, 3), start],
        {"m": 1, "v": 2, "w": 0},
        [
            Mistake(
                update(first=lambda t: 1, second=lambda t: 1),
                "The corrections are missing: m̂ = m/(1 − 0.9ᵗ) and v̂ = v/(1 − 0.999ᵗ). Without them, the first "
                "steps have the wrong size.",
            ),
            Mistake(
                update(first=lambda t: 0.1, second=lambda t: 0.001),
                "You divide by 1 − β, which is right for t = 1 only. The corrections are 1 − βᵗ.",
            ),
            Mistake(
                update(first=lambda t: 1 - 0.9 ** (t + 1), second=lambda t: 1 - 0.999 ** (t + 1)),
                "Your t is one too large. It counts from 1: at the first step, the corrections are 1 − 0.9 and 1 "
                "− 0.999.",
            ),
            Mistake(
                update(square=lambda v, g: 0.999 * v + 0.001 * g),
                "v is the running mean of g². You have averaged g.",
            ),
            Mistake(
                update(square=lambda v, g: 0.999 * v + 0.001 * abs(g)),
                "v is the running mean of g². You have averaged |g|.",
            ),
            Mistake(
                update(mean=lambda m, g: 0.1 * m + 0.9 * g),
                "You have exchanged the shares of m: keep 0.9 of the old mean and take 0.1 of the new gradient.",
            ),
            Mistake(
                update(mean=lambda m, g: 0.9 * m + g),
                "The new gradient enters m with the factor 1 − 0.9 = 0.1.",
            ),
            Mistake(
                update(divide=lambda m, v: m / (v + 1e-8)),
                "You divide by v̂. Divide by its square root, which has the size of a gradient.",
            ),
            Mistake(
                update(divide=lambda m, v: m / np.sqrt(v + 1e-8)),
                "You add ε inside the root. It is added after the root: √v̂ + ε.",
            ),
            Mistake(
                update(divide=lambda m, v: m),
                "The division by √v̂ is missing. It makes the step independent of the size of the gradient.",
            ),
            Mistake(
                update(sign=1),
                "Your weights move uphill. Subtract the step: the gradient points to where the loss grows.",
            ),
            Mistake(
                corrected_moments,
                "You return m̂ and v̂. Return m and v: the corrections are for this step only, and the next step "
                "needs the plain means.",
            ),
        ],
    )

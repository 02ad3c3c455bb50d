"""Answers to the exercises of page 4: one that is right, and wrong ones with a part of the explanation they must get.

Each answer is what a learner would write into my_answer.py. `import numpy as np` is added in front.
"""

HIDE = """
def my_hide(ids, positions, u, random_ids, mask_id):
    targets = ids[positions]
    new = {new}
    hidden = ids.copy()
    hidden[positions] = new
    return hidden, {targets}
"""


def hide(new="np.where(u < 0.8, mask_id, np.where(u < 0.9, random_ids, targets))", targets="targets"):
    return HIDE.format(new=new, targets=targets)


LOSS = """
def my_cross_entropy(logits, targets):
    z = logits - logits.max(-1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return {result}
"""

BACKWARD = """
def my_backward(x, W1, W2, targets):
    N = len(x)
    h = x @ W1
    a = np.maximum(h, 0)
    z = a @ W2
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    dz = p.copy()
    {dz}
    dW2 = {feature}.T @ dz
    da = dz @ W2.T
    dh = {dh}
    return {result}
"""


def backward(
    dz="dz[np.arange(N), targets] -= 1; dz /= N", feature="a", dh="da * (a > 0)", result="x.T @ dh, dW2, dh @ W1.T"
):
    return BACKWARD.format(dz=dz, feature=feature, dh=dh, result=result)


GRADIENT = """
def my_gradient(f, w, h):
    found = np.zeros(w.shape)
    for index in np.ndindex(*w.shape):
        up, down = w.copy(), w.copy()
        up[index] += h
        down[index] -= h
        found[index] = {difference}
    return found
"""

ADAM = """
def my_adam(w, g, m, v, t, lr):
    m = {m}
    v = {v}
    a, b = {corrections}
    return {result}
"""


def adam(
    m="0.9 * m + 0.1 * g",
    v="0.999 * v + 0.001 * g ** 2",
    corrections="m / (1 - 0.9 ** t), v / (1 - 0.999 ** t)",
    result="w - lr * a / (np.sqrt(b) + 1e-8), m, v",
):
    return ADAM.format(m=m, v=v, corrections=corrections, result=result)


RATE = """
def my_learning_rate(step, steps, peak, warmup):
    done = step / steps
    if done < warmup:
        return {up}
    return {down}
"""


def rate(up="peak * done / warmup", down="peak * (1 - done) / (1 - warmup)"):
    return RATE.format(up=up, down=down)


VERDICT = """
def my_verdict(held_out, uniform, baseline):
    last = held_out[-1]
    if {broken}:
        return "broken"
    if {memorises}:
        return "memorises"
    return "frequencies" if last > baseline - {margin} else "context"
"""


def verdict(broken="not last <= uniform", memorises="last > min(held_out) + 0.1", margin=0.8):
    return VERDICT.format(broken=broken, memorises=memorises, margin=margin)


ANSWERS = {
    "4.1": (
        hide(),
        {
            hide(new="mask_id"): "replace all chosen words by the mask",
            hide(new="np.where(u < 0.8, mask_id, targets)"): "You never use random_ids",
            hide(new="np.where(u < 0.8, mask_id, random_ids)"): "None of your chosen words stays",
            hide(new="np.where(u < 0.9, random_ids, targets)"): "Your random words overwrite the masks",
            hide(targets="new"): "Your targets are the tokens after hiding",
            hide(targets="ids"): "Your targets are all tokens",
            hide(new="np.where(u <= 0.8, mask_id, np.where(u < 0.9, random_ids, targets))"): "not ≤",
            hide(new="np.where(u < 0.8, mask_id, np.where(u < 0.9, targets, random_ids))"): "exchanged the last two",
            hide(
                new="np.where(u < 0.8, mask_id, np.where(u < 0.9, random_ids[positions], targets))"
            ): "do not index them",
            """
def my_hide(ids, positions, u, random_ids, mask_id):
    targets = ids[positions]
    ids[positions] = np.where(u < 0.8, mask_id, np.where(u < 0.9, random_ids, targets))
    return ids, targets
""": "begin with ids = ids.copy()",
        },
    ),
    "4.2": (
        LOSS.format(result="-np.mean([row[t] for row, t in zip(log_p, targets)])"),
        {
            LOSS.format(result="-log_p[np.arange(len(targets)), targets].sum()"): "the loss is the mean",
            LOSS.format(result="-log_p[np.arange(len(targets)), targets]"): "a loss for each row",
            LOSS.format(result="log_p[np.arange(len(targets)), targets].mean()"): "Your sign is wrong",
            LOSS.format(result="-log_p[:, targets].mean()"): "picks every target from every row",
            LOSS.format(result="-log_p.mean()"): "You average over all words",
            LOSS.format(
                result="np.mean(-np.log(np.exp(log_p)[range(len(targets)), targets]))"
            ): "too small for a float",
            """
def my_cross_entropy(logits, targets):
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return np.mean([-np.log(row[t]) for row, t in zip(p, targets)])
""": "exp(1000) overflows",
            "def my_cross_entropy(logits, targets): return -np.log2(np.exp(logits)[0, targets[0]])": "expected",
        },
    ),
    "4.3": (
        backward(),
        {
            backward(dh="da"): "through ReLU unchanged",
            backward(dh="np.maximum(da, 0)"): "You apply ReLU to the gradient",
            backward(dz="dz[np.arange(N), targets] -= 1"): "N times too large",
            backward(dz="dz /= N"): "Subtract 1 at the target",
            backward(dz="dz[np.arange(N), targets] -= 1; dz /= -N"): "the wrong sign",
            backward(dz="dz *= 0; n = np.arange(N); dz[n, targets] = (p[n, targets] - 1) / N"): "Only the target",
            backward(feature="h"): "dW2 uses h",
            backward(dz="dz[np.arange(N), targets] -= 1", result="x.T @ dh, dW2, dh @ W1"): "N times too large",
            backward(result="x.T @ dh, dW2, dh @ W1"): "dx = dh W1ᵀ",
            backward(result="x.T @ dh, dW2"): "return dW1, dW2, dx.",
        },
    ),
    "4.4": (
        GRADIENT.format(difference="(f(up) - f(down)) / (2 * h)"),
        {
            GRADIENT.format(difference="(f(up) - f(w)) / h"): "one side only",
            GRADIENT.format(difference="(f(up + up - w) - f(w)) / (2 * h)"): "both on one side",
            GRADIENT.format(difference="(f(up) - f(w)) / (2 * h)"): "only h apart",
            GRADIENT.format(difference="(f(up) - f(down)) / (2 * h)").replace(
                "np.ndindex(*w.shape)", "range(len(w))"
            ): "a whole row of w",
            GRADIENT.format(difference="(f(up) - f(down)) / h"): "twice too large",
            GRADIENT.format(difference="(f(up) - f(down)) / 2 * h"): "Write `/ (2 * h)`",
            GRADIENT.format(difference="(f(down) - f(up)) / (2 * h)"): "Your sign is wrong",
            "def my_gradient(f, w, h): return 0 * w + (f(w + h) - f(w - h)) / 2 / h": "all numbers of w at once",
            """
def my_gradient(f, w, h):
    found = np.zeros(w.shape)
    for index in np.ndindex(*w.shape):
        w[index] += h
        up = f(w)
        w[index] -= 2 * h
        found[index] = (up - f(w)) / (2 * h)
    return found
""": "changes its argument w",
            "def my_gradient(f, w, h): return [(f(w + h) - f(w)) / h for _ in w]": "has shape (2,), expected (2, 3)",
        },
    ),
    "4.5": (
        adam(),
        {
            adam(corrections="m, v"): "The corrections are missing",
            adam(corrections="m / 0.1, v / 0.001"): "right for t = 1 only",
            adam(v="0.999 * v + 0.001 * g"): "You have averaged g",
            adam(v="0.999 * v + 0.001 * abs(g)"): "averaged |g|",
            adam(m="0.1 * m + 0.9 * g"): "exchanged the shares of m",
            adam(result="w - lr * a / (b + 1e-8), m, v"): "Divide by its square root",
            adam(result="w + lr * a / (np.sqrt(b) + 1e-8), m, v"): "move uphill",
            adam(result="w - lr * a / (np.sqrt(b) + 1e-8), a, b"): "You return m̂ and v̂",
            adam(result="w - lr * a / np.sqrt(b + 1e-8), m, v"): "inside the root",
            adam(result="w - lr * a / (np.sqrt(b) + 1e-8)"): "return w, m, v.",
        },
    ),
    "4.6": (
        rate(),
        {
            rate(up="peak"): "at its peak during warm-up",
            rate(down="peak"): "stays at the peak after warm-up",
            rate(down="peak * (1 - done)"): "jumps down after warm-up",
            rate(up="done / warmup", down="(1 - done) / (1 - warmup)"): "Multiply by the peak",
            rate(up="peak * done"): "rises only to warmup · peak",
            "def my_learning_rate(step, steps, peak, warmup): return peak * (1 - step / steps)": "There is no warm-up",
            """
def my_learning_rate(step, steps, peak, warmup):
    done = step / steps
    return peak * min(done / warmup, (1 - done) / (1 - warmup))
""": "With warmup = 0 nothing rises",
            """
def my_learning_rate(step, steps, peak, warmup):
    end = int(warmup * steps)
    return peak * (step / end if step < end else (steps - step) / (steps - end))
""": "a whole step",
        },
    ),
    "4.7": (
        verdict(),
        {
            verdict(margin=0): "context begins at 0.8 below",
            verdict(memorises="False"): "more than 0.1 above the lowest",
            verdict(memorises="last > held_out[0] + 0.1"): "You compare the last loss with the first",
            verdict(memorises="last > held_out[max(-2, -len(held_out))] + 0.1"): "with the one before",
            verdict(broken="last > uniform"): "NaN compares as False",
            verdict(broken="last != last"): "worse than a blind guess",
            verdict(broken="not last <= baseline"): "only above `uniform` is a run broken",
            "def my_verdict(held_out, uniform, baseline): return 'fine'": "is 'fine', expected 'frequencies'",
        },
    ),
}

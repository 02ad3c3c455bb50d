"""Answers to the exercises of page 5: one that is right, and wrong ones with a part of the explanation they must get.

Each answer is what a learner would write into my_answer.py. `import numpy as np` is added in front.
"""

EVALUATE = """
def my_evaluate(logits, targets, k):
    N = len(targets)
    z = {z}
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    loss = {loss}
    best = {best}
    hits = (best == targets[:, None]).any(-1)
    return loss, {perplexity}, {share}
"""


def evaluate(
    z="logits - logits.max(-1, keepdims=True)",
    loss="-log_p[np.arange(N), targets].mean()",
    best="np.argsort(-logits)[:, :k]",
    perplexity="np.exp(loss)",
    share="hits.mean()",
):
    return EVALUATE.format(z=z, loss=loss, best=best, perplexity=perplexity, share=share)


CALIBRATION = """
def my_calibration_error(confidence, right, bins):
    number = {number}
    error = 0.0
    for b in range(bins):
        inside = number == b
        if inside.any():
            gap = {gap}
            error {step}
    return {result}
"""


def calibration(
    number="np.minimum((confidence * bins).astype(int), bins - 1)",
    gap="abs(right[inside].mean() - confidence[inside].mean())",
    step="+= inside.mean() * gap",
    result="error",
):
    return CALIBRATION.format(number=number, gap=gap, step=step, result=result)


SCORE = """
def my_score(ids, log_probs, mask_id):
    total = 0.0
    {before}
    for t in {places}:
        {hide}
        total += log_probs(hidden)[t, {which}]
    return {result}
"""


def score(
    before="", places="range(1, len(ids) - 1)", hide="hidden = ids.copy(); hidden[t] = mask_id", which="ids[t]",
    result="total",
):  # fmt: skip
    return SCORE.format(before=before, places=places, hide=hide, which=which, result=result)


HEADS = """
def my_attention_output(context, Wo, heads, off):
    d = context.shape[1] // heads
    kept, W = context.copy(), Wo.copy()
    for a in off:
        {off}
    return {result}
"""


def heads(off="kept[:, a * d : (a + 1) * d] = 0", result="kept @ W"):
    return HEADS.format(off=off, result=result)


def control(result="labels[np.floor(chance[words] * len(labels)).astype(int)]"):
    return f"def my_control_labels(words, labels, chance): return {result}"


COSINE = """
def my_mean_cosine(vectors, centred):
    x = {centre}
    u = {unit}
    N = len(u)
    return {result}
"""


def cosine(
    centre="vectors - vectors.mean(0) if centred else vectors",
    unit="x / np.linalg.norm(x, axis=1, keepdims=True)",
    result="((u @ u.T).sum() - N) / (N * (N - 1))",
):
    return COSINE.format(centre=centre, unit=unit, result=result)


CLASSIFY = """
def my_classify(hidden, mask, W, b):
    u = {mean}
    z = {scores}
    p = np.exp(z - z.max(-1, keepdims=True))
    return {result}
"""


def classify(
    mean="np.array([h[m == 1].mean(0) for h, m in zip(hidden, mask)])",
    scores="u @ W + b",
    result="p / p.sum(-1, keepdims=True)",
):
    return CLASSIFY.format(mean=mean, scores=scores, result=result)


ANSWERS = {
    "5.1": (
        evaluate(),
        {
            evaluate(loss="-log_p[np.arange(N), targets].sum()"): "Your loss is the sum over the rows",
            evaluate(loss="-np.log(np.exp(log_p[np.arange(N), targets]).mean())"): "−ln of the mean probability",
            evaluate(loss="log_p[np.arange(N), targets].mean()"): "Your loss has the wrong sign",
            evaluate(perplexity="2**loss"): "Your perplexity is 2^loss",
            evaluate(perplexity="np.exp(-log_p[np.arange(N), targets]).mean()"): "the mean of 1/p",
            evaluate(best="np.argsort(logits)[:, :k]"): "You take the k smallest logits",
            evaluate(best="logits.argmax(-1)[:, None]"): "counts first guesses only",
            evaluate(share="hits.sum()"): "it is a share",
            evaluate(z="logits"): "exp overflows",
        },
    ),
    "5.2": (
        calibration(),
        {
            calibration(step="+= gap / bins"): "You divide by the number of bins",
            calibration(step="= max(error, gap)"): "the worst bin",
            calibration(gap="right[inside].mean() - confidence[inside].mean()"): "Gaps of different sign cancel",
            calibration(gap="abs(right[inside].mean() - (b + 0.5) / bins)"): "the middle of each bin",
            calibration(number="(confidence * bins).astype(int)"): "the last bin includes 1",
            calibration(number="np.ceil(confidence * bins).astype(int) - 1"): "upper bound",
            calibration().replace("inside.any()", "True"): "the mean of an empty bin",
            calibration(result="abs(right - confidence).mean()"): "You compare each guess on its own",
            calibration(result="abs(right.mean() - confidence.mean())"): "compare within each bin",
        },
    ),
    "5.3": (
        score(),
        {
            score(hide="hidden = ids"): "The token is visible",
            score(hide="hidden = ids; hidden[t] = mask_id", which="3"): "changes its argument ids",
            score(before="hidden = ids.copy(); hidden[1:-1] = mask_id", hide="pass"): "You hide all tokens at once",
            score(before="hidden = ids.copy()", hide="hidden[t] = mask_id"): "stay hidden",
            score(result="total / (len(ids) - 2)"): "You return the mean",
            score(places="range(len(ids))"): "You also score [CLS] and [SEP]",
            score(places="range(1, len(ids))"): "You also score [SEP]",
            score(result="-total"): "Your sign is wrong",
            score(which="mask_id"): "the probability of the mask itself",
            score(which=":"): "has shape (8,), expected ()",
        },
    ),
    "5.4": (
        heads(),
        {
            heads(off="W[:, a * d : (a + 1) * d] = 0"): "Wo has mixed the heads there",
            heads(off="pass"): "All heads are still on",
            heads(off="kept[:, a] = 0"): "A head has d = H/heads columns",
            heads(off="kept[:, a::heads] = 0"): "You take every heads-th column",
            heads(off="kept[:, (a - 1) * d : a * d] = 0"): "heads are counted from 0",
            heads(result="kept"): "Multiply it by Wo",
            heads(off="Wo[a * d : (a + 1) * d] = 0"): "changes its argument Wo",
            heads(off="kept[:, a * d : (a + 1) * d] = 0; break"): "only the first head in the list",
        },
    ),
    "5.5": (
        control(),
        {
            control("np.unique(labels)[(chance[words] * len(np.unique(labels))).astype(int)]"): "equally likely",
            control("labels[(chance[words] * len(chance)).astype(int)]"): "You multiply by the number of words",
            control("labels[np.rint(chance[words] * len(labels)).astype(int)]"): "Round down",
            control("labels[(chance * len(labels)).astype(int)]"): "Return one for each place",
            control("labels"): "These are the real labels",
            control("(chance[words] * len(labels)).astype(int)"): "Return the labels at these places",
            control("labels[chance[words] * len(labels)]"): "IndexError",
        },
    ),
    "5.6": (
        cosine(),
        {
            cosine(result="(u @ u.T).mean()"): "the cosine of each vector with itself",
            cosine(result="np.triu(u @ u.T, 1).sum() / (N * (N - 1))"): "each pair once",
            cosine(result="(u @ u.T).sum() - N"): "You return the sum",
            cosine(unit="x / np.linalg.norm(x, axis=0)", result="(u @ u.T)[~np.eye(N, dtype=bool)].mean()"): "axis=1",
            cosine(centre="vectors - vectors.mean(0)"): "although `centred` is False",
            cosine(centre="vectors"): "although `centred` is True",
            cosine(centre="vectors - vectors.mean(1, keepdims=True) if centred else vectors"): "the mean of each row",
            cosine(unit="x", result="(u @ u.T)[~np.eye(N, dtype=bool)].mean()"): "These are dot products",
            cosine(unit="x / np.linalg.norm(x, axis=1)"): "keepdims=True",
        },
    ),
    "5.7": (
        classify(),
        {
            classify(mean="hidden.mean(1)"): "Padding is part of your mean",
            classify(mean="(hidden * mask[..., None]).mean(1)"): "still divide by T",
            classify(mean="(hidden * mask[..., None]).sum(1)"): "You add the vectors up",
            classify(mean="hidden[:, 0]"): "You take the first token",
            classify(mean="(hidden * mask).sum(1)"): "mask[..., None]",
            classify(result="z"): "You return the scores",
            classify(scores="u @ W"): "The bias is missing",
        },
    ),
}

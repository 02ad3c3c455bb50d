"""Answers to the exercises of page 3: one that is right, and wrong ones with a part of the explanation they must get.

Each answer is what a learner would write into my_answer.py. `import numpy as np` is added in front.
"""

NORM = """
def norm(x, gamma, beta, eps):
    return gamma * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) + beta
"""
FILL = """
def my_fill(predict, ids, mask_id):
    ids = list(ids)
    while mask_id in ids:
        p = predict(ids)
        gaps = [t for t, i in enumerate(ids) if i == mask_id]
        t = {choice}
        ids[t] = int(np.argmax(p[t]))
    return ids
"""
COUNT = "def my_parameters(V, H, L, I, T): return V*H + {positions} + L*({block}) + 2*H + {head}"


def count(positions="T*H", block="4*H*H + 2*H*I + I + H + 4*H", head="H*V + V"):
    return COUNT.format(positions=positions, block=block, head=head)


def add_and_norm(result):
    return f"{NORM}\ndef my_add_and_norm(x, f, gamma, beta, eps): return {result}\n"


def block(first, result):
    return f"""
def my_block(x, attention, feed_forward, norm_1, norm_2):
    y = {first}
    return {result}
"""


BATCH = """
def my_batch(rows, pad_id):
    ids = np.full((len(rows), max(len(row) for row in rows)), {fill})
    mask = np.{start}(ids.shape, int)
    for b, row in enumerate(rows):
        ids[b, {place}] = row
        mask[b, {place}] = {value}
    return ids, {mask}
"""


def batch(fill="pad_id", place=":len(row)", start="zeros", value=1, mask="mask"):
    return BATCH.format(fill=fill, place=place, start=start, value=value, mask=mask)


TOP = """
def my_top_words(logits, words, k):
    p = np.exp(logits - logits.max())
    p = {p}
    found = {found}
    return [words[i] for i in found], {shown}
"""
BEST = """[i for i in np.argsort({}) if words[i][0] + words[i][-1] != "[]"][:k]"""


def top(p="p / p.sum()", found=None, shown="p[found]"):
    return TOP.format(p=p, found=found or BEST.format("-p"), shown=shown)


ANSWERS = {
    "3.1": (
        batch(),
        {
            batch(start="ones", value=0): "Your mask is inverted",
            batch().replace("return ids, mask", "return mask, ids"): "Return the ids first",
            batch(place="len(ids[b]) - len(row):"): "You pad on the left",
            batch(fill="0"): "You fill with 0",
            batch(start="ones"): "Your mask is 1 everywhere",
            batch(mask="ids != pad_id"): "Compute the mask from the lengths",
            "def my_batch(rows, pad_id): return [row[:3] for row in rows], 1": "cut all texts to the shortest",
            "def my_batch(rows, pad_id): return np.array(rows), 1": "stopped with ValueError",
            """
def my_batch(rows, pad_id):
    for row in rows:
        row += [pad_id] * (5 - len(row))
    return np.array(rows), np.array(rows) != pad_id
""": "begin with rows = [list(row) for row in rows]",
        },
    ),
    "3.2": (
        add_and_norm("norm(x + f, gamma, beta, eps)"),
        {
            add_and_norm("norm(f, gamma, beta, eps)"): "The residual connection is missing",
            add_and_norm("norm(x + f(x), gamma, beta, eps)"): "f is an array",
            add_and_norm("norm(x + f + x, gamma, beta, eps)"): "You add x twice",
            add_and_norm("x + norm(x + f, gamma, beta, eps)"): "once more after the norm",
            add_and_norm("x + f"): "you do not normalise",
            add_and_norm("x + norm(f, gamma, beta, eps)"): "You normalise f and then add x",
            add_and_norm("norm(x, gamma, beta, eps) + f"): "You normalise x and then add f",
            add_and_norm("norm(x + f, 1, 0, eps)"): "gamma and beta are missing",
            add_and_norm("norm(x + f, gamma, beta, eps).mean(-1)"): "has shape (2, 5), expected (2, 5, 3)",
        },
    ),
    "3.3": (
        block("norm_1(x + attention(x))", "norm_2(y + feed_forward(y))"),
        {
            block("norm_1(attention(x))", "norm_2(feed_forward(y))"): "Both residual connections are missing",
            block("norm_1(x + attention(x))", "norm_2(feed_forward(y))"): "The second residual connection is missing",
            block("norm_1(attention(x))", "norm_2(y + feed_forward(y))"): "The first residual connection is missing",
            block("norm_1(x + attention(x))", "norm_2(x + feed_forward(y))"): "adds the input of the block",
            block("norm_1(x + attention(x))", "norm_2(y + feed_forward(x))"): "It must read x'",
            block("x + attention(norm_1(x))", "y + feed_forward(norm_2(y))"): "pre-norm",
            block("norm_1(x + attention(x))", "y + feed_forward(y)"): "The last norm is missing",
            block("norm_2(x + attention(x))", "norm_1(y + feed_forward(y))"): "exchanged the two norms",
            block("norm_1(x + attention(x))", "norm_1(y + feed_forward(y))"): "You use norm_1 twice",
            block("norm_1(x + feed_forward(x))", "norm_2(y + attention(y))"): "Attention comes first",
        },
    ),
    "3.4": (
        top(),
        {
            top(found="np.argsort(-p)[:k]"): "You offer a special token",
            top(shown="logits[found]"): "You return logits",
            top(shown="p[found] / p[found].sum()"): "Your k probabilities sum to 1",
            top(found="[i for i in np.argsort(-p)[:k] if '[' not in words[i]]"): "fewer than k words are left",
            top(found="[i for i in np.argsort(-p) if words[i][0] != '['][:k]"): 'You leave out the word "["',
            top(found=BEST.format("p")): "the least likely words",
            top(shown="p[found[0]]"): "Your probabilities has shape (), expected (3,)",
        },
    ),
    "3.5": (
        count(),
        {
            count(block="4*H*H + 2*H*I + 4*H"): "The biases of the feed-forward network are missing",
            count(block="4*H*H + 4*H + 2*H*I + I + H + 4*H"): "Mini-BERT's attention has none",
            count(block="3*H*H + 2*H*I + I + H + 4*H"): "W_o (H × H), is missing",
            count(block="4*H*H + 2*H*I + I + H + 2*H"): "There are two, each with γ and β",
            count(block="4*H*H + 8*H*H + 4*H + H + 4*H"): "It is the argument I",
            count(positions="64*H"): "Their number is the argument T",
            count(head="V"): "The matrix of the head",
            count(head="H*V"): "The bias of the head is missing",
            count(positions="0"): "The table of positions is missing",
            count().replace("L*(", "("): "You count one block",
            count().replace("2*H + H*V", "H*V"): "The final norm after the last block is missing",
            count(positions="2*T*H"): "expected",
        },
    ),
    "3.6": (
        FILL.format(choice="gaps[int(np.argmax(p[gaps].max(-1)))]"),
        {
            FILL.format(choice="gaps[0]"): "from left to right",
            FILL.format(choice="gaps[int(np.argmin(p[gaps].max(-1)))]"): "the least certain gap",
            """
def my_fill(predict, ids, mask_id):
    best = predict(ids).argmax(-1)
    return [int(b) if i == mask_id else i for i, b in zip(ids, best)]
""": "You fill all gaps from one pass",
            """
def my_fill(predict, ids, mask_id):
    p = predict(ids)
    ids = list(ids)
    for t in np.argsort(-p.max(-1)):
        if ids[t] == mask_id:
            ids[t] = int(predict(ids)[t].argmax())
    return ids
""": "Decide anew after each word",
            "def my_fill(predict, ids, mask_id): return predict(ids).argmax(-1)": "You replace every token",
            """
def my_fill(predict, ids, mask_id):
    while mask_id in ids:
        p = predict(ids)
        t = max((t for t, i in enumerate(ids) if i == mask_id), key=lambda t: p[t].max())
        ids[t] = int(p[t].argmax())
    return ids
""": "begin with ids = list(ids)",
        },
    ),
}

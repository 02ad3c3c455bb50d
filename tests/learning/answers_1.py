"""Answers to the exercises of page 1: one that is right, and wrong ones with a part of the explanation they must get.

Each answer is what a learner would write into my_answer.py. `import numpy as np` is added in front.
"""

ANSWERS = {
    "1.1": (
        """
def my_embed(ids, E, P):
    return E[ids] + P[:ids.shape[1]]
""",
        {
            "def my_embed(ids, E, P): return E[ids]": "add no positions",
            "def my_embed(ids, E, P): return E[ids] + P[ids]": "index P with the ids",
            "def my_embed(ids, E, P): return E[ids] + P[np.arange(1, ids.shape[1] + 1)]": "count positions from 1",
            "def my_embed(ids, E, P): return E[ids - 1] + P[:ids.shape[1]]": "count ids from 1",
            "def my_embed(ids, E, P): return E[ids] + P": "You need the first T: P[:T]",
            "def my_embed(ids, E, P): return E[ids] + P[:len(ids)]": "as many rows of P as there are sentences",
            "def my_embed(ids, E, P): return E[ids].sum(1)": "has shape (1, 3), expected (1, 4, 3)",
        },
    ),
    "1.2": (
        """
def my_linear(x, W, b):
    return np.einsum("...i,io->...o", x, W) + b
""",
        {
            "def my_linear(x, W, b): return x @ W": "The bias is missing",
            "def my_linear(x, W, b): return x @ W.T + b": "multiply by Wᵀ",
            "def my_linear(x, W, b): return np.dot(W, x) + b": "x stands on the left",
            "def my_linear(x, W, b): return x * W + b": "number by number",
            "def my_linear(x, W, b): return (x @ W).T + b": "You transpose the product",
            "def my_linear(x, W, b): return x @ W + 2 * b": "Your result[0, 0] is",
            "def my_linear(x, W, b): return x @ (W + b)": "add b to W before",
            "def my_linear(x, W): return x @ W": "called with 3 arguments, but yours is my_linear(x, W)",
        },
    ),
    "1.3": (
        """
def my_feed_forward(x, W1, b1, W2, b2):
    h = x @ W1 + b1
    h = np.where(h > 0, h, 0)
    return h @ W2 + b2
""",
        {
            "def my_feed_forward(x, W1, b1, W2, b2): return (x @ W1 + b1) @ W2 + b2": "no ReLU between",
            "def my_feed_forward(x, W1, b1, W2, b2): return np.maximum((x @ W1 + b1) @ W2 + b2, 0)": "ReLU at the end",
            "def my_feed_forward(x, W1, b1, W2, b2): return np.maximum(x @ W1, 0) @ W2 + b2": "b1 is missing",
            "def my_feed_forward(x, W1, b1, W2, b2): return max(x @ W1 + b1, 0) @ W2 + b2": "np.maximum",
            "def my_feed_forward(x, W1, b1, W2, b2): return abs(x @ W1 + b1) @ W2 + b2": "absolute value",
            "def my_feed_forward(x, W1, b1, W2, b2): return np.maximum(x @ W1 + b1, 0) @ W2": "b2 is missing",
        },
    ),
    "1.4": (
        """
def my_layer_norm(x, gamma, beta, eps):
    centred = x - x.mean(axis=-1, keepdims=True)
    sigma = np.sqrt((centred ** 2).mean(axis=-1, keepdims=True) + eps)
    return centred / sigma * gamma + beta
""",
        {
            """
def my_layer_norm(x, gamma, beta, eps):
    return gamma * (x - x.mean(0)) / np.sqrt(x.var(0) + eps) + beta
""": "average over the tokens",
            """
def my_layer_norm(x, gamma, beta, eps):
    return gamma * (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps) + beta
""": "use axis=-1",
            """
def my_layer_norm(x, gamma, beta, eps):
    return gamma * (x - x.mean()) / np.sqrt(x.var() + eps) + beta
""": "for the whole array",
            """
def my_layer_norm(x, gamma, beta, eps):
    return gamma * (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + eps) + beta
""": "inside the root",
            """
def my_layer_norm(x, gamma, beta, eps):
    return gamma * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True, ddof=1) + eps) + beta
""": "ddof=1",
            """
def my_layer_norm(x, gamma, beta, eps):
    return gamma * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True)) + beta
""": "eps is missing",
            """
def my_layer_norm(x, gamma, beta, eps):
    return gamma * (x - x.mean(-1)) / np.sqrt(x.var(-1) + eps) + beta
""": "with shapes (5,3) (5,). keepdims=True keeps the axis",
            """
def my_layer_norm(x, gamma, beta, eps):
    x -= x.mean(-1, keepdims=True)
    return gamma * x / np.sqrt(x.var(-1, keepdims=True) + eps) + beta
""": "changes its argument x",
        },
    ),
    "1.5": (
        """
def my_softmax(x):
    p = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return p / np.sum(p, axis=-1, keepdims=True)
""",
        {
            "def my_softmax(x): return np.exp(x) / np.exp(x).sum(0)": "columns sum to 1, not your rows",
            "def my_softmax(x): return np.exp(x) / np.exp(x).sum()": "All your numbers together",
            "def my_softmax(x): return x / x.sum(-1, keepdims=True)": "without exp",
            "def my_softmax(x): return np.exp(x) / np.exp(x).sum(-1, keepdims=True)": "exp(1000) overflows",
            "def my_softmax(x): return np.exp(x) / np.exp(x).sum(-1)": "Without keepdims=True",
            "def my_softmax(x): e = np.exp(x - x.max()); return e / e.sum(-1, keepdims=True)": "the whole array",
            "def my_softmax(x): e = np.exp(x - x.max(-1)); return e / e.sum(-1)": "Without keepdims=True",
            "def my_softmax(x): print(x)": "returns None",
            "def softmax(x): return x": "You have not defined `my_softmax`; did you mean softmax?",
        },
    ),
    "1.6": (
        """
def my_guess(hidden, W, b):
    scores = hidden @ W + b
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    return np.argmax(p, -1), np.max(p, -1)
""",
        {
            """
def my_guess(hidden, W, b):
    p = np.exp(hidden @ W)
    p /= p.sum(-1, keepdims=True)
    return p.argmax(-1), p.max(-1)
""": "The bias is missing",
            "def my_guess(h, W, b): return (h @ W + b).argmax(-1), (h @ W + b).max(-1)": "largest score",
            """
def my_guess(hidden, W, b):
    p = np.exp(hidden @ W + b)
    p /= p.sum(-1, keepdims=True)
    return p.argmax(0), p.max(0)
""": "over the tokens",
            "def my_guess(h, W, b): return (h @ W + b).argmax(-1)": "the ids only",
            "def my_guess(h, W, b): return (h @ W + b).argmax(-1), np.zeros(len(h))": "Your result[1][0] is 0",
        },
    ),
}

"""Answers to the exercises of page 2: one is right; the wrong ones have a part of their explanation."""

SOFTMAX = """
def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)
"""

ANSWERS = {
    "2.1": (
        """
def my_mix(x):
    weights = np.exp(x @ x.T)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights @ x
""",
        {
            SOFTMAX + "def my_mix(x): return softmax(x @ x.T, 0) @ x": "over the columns",
            SOFTMAX + "def my_mix(x): return softmax(x @ x.T, None) @ x": "All your weights together",
            SOFTMAX + "def my_mix(x): return softmax(x @ x.T / x.shape[1] ** 0.5) @ x": "section 2.3",
            SOFTMAX + "def my_mix(x): return x @ softmax(x.T @ x)": "You mix features",
            "def my_mix(x): return x @ x.T @ x": "the scores as weights",
            SOFTMAX + "def my_mix(x): return softmax(x @ x.T)": "return the weights",
            SOFTMAX + "def my_mix(x): return softmax(x.T @ x) @ x": "between features",
        },
    ),
    "2.2": (
        """
def my_scores(x, Wq, Wk):
    return x @ Wq @ Wk.T @ x.T
""",
        {
            "def my_scores(x, Wq, Wk): return (x @ Wk) @ (x @ Wq).T": "transposed",
            "def my_scores(x, Wq, Wk): return (x @ Wq) @ (x @ Wq).T": "queries twice",
            "def my_scores(x, Wq, Wk): return (x @ Wq).T @ (x @ Wk)": "(d, d)",
            "def my_scores(x, Wq, Wk): return (x @ Wq) * (x @ Wk)": "number by number",
            "def my_scores(x, Wq, Wk): return (x @ Wq) @ (x @ Wk)": "The keys are not transposed",
            "def my_scores(x, Wq, Wk): return (x @ Wq.T) @ (x @ Wk.T).T": "You multiply by Wqᵀ",
            "def my_scores(x, Wq, Wk): return (x @ Wq) @ (x @ Wk).T / Wq.shape[1] ** 0.5": "divided by √d already",
            "def my_scores(x, Wq, Wk): return (x @ Wq) @ x": "In a @ b, a must have",
            SOFTMAX + "def my_scores(x, Wq, Wk): return softmax((x @ Wq) @ (x @ Wk).T)": "already applied softmax",
        },
    ),
    "2.3": (
        SOFTMAX
        + """
def my_attention(q, k, v):
    d = q.shape[-1]
    return softmax(q @ k.T / d ** 0.5) @ v
""",
        {
            SOFTMAX + "def my_attention(q, k, v): return softmax(q @ k.T) @ v": "not divided by √d",
            SOFTMAX + "def my_attention(q, k, v): return softmax(q @ k.T / q.shape[1]) @ v": "divide by d.",
            SOFTMAX + "def my_attention(q, k, v): return softmax(q @ k.T / len(q) ** 0.5) @ v": "number of tokens",
            SOFTMAX + "def my_attention(q, k, v): return softmax(q @ k.T) / q.shape[1] ** 0.5 @ v": "after softmax",
            SOFTMAX + "def my_attention(q, k, v): return softmax(q @ k.T / q.shape[1] ** 0.5) @ k": "average the keys",
            "def my_attention(q, k, v): e = np.exp(q @ k.T / 5 ** 0.5); return e / e.sum(-1) @ v": "Without keepdims",
            SOFTMAX + "def my_attention(q, k, v): return softmax(k @ q.T / q.shape[1] ** 0.5) @ v": "k qᵀ",
            SOFTMAX + "def my_attention(q, k, v): return softmax(q @ k.T / q.shape[1] ** 0.5).T @ v": "transpose the",
            SOFTMAX + "def my_attention(q, k, v): return softmax(q @ k.T / q.shape[1] ** 0.5, None) @ v": "All your",
            SOFTMAX + "def my_attention(q, k, v): return softmax(q @ k / q.shape[1] ** 0.5) @ v": "a must have as many",
        },
    ),
    "2.4": (
        SOFTMAX
        + """
def my_masked_weights(scores, mask):
    return softmax(np.where(mask, scores, np.finfo(scores.dtype).min))
""",
        {
            SOFTMAX + "def my_masked_weights(scores, mask): return softmax(scores) * mask": "no longer sums to 1",
            SOFTMAX + "def my_masked_weights(scores, mask): return softmax(scores * mask)": "exp(0) = 1",
            SOFTMAX + "def my_masked_weights(s, mask): return softmax(np.where(mask, -np.inf, s))": "inverted",
            SOFTMAX + "def my_masked_weights(s, m): return softmax(np.where(m[:, None], s, -1e30))": "mask rows",
            SOFTMAX + "def my_masked_weights(s, m): return softmax(np.where(m[:, None], s, -np.inf))": "mask rows",
            SOFTMAX + "def my_masked_weights(s, m): return softmax(np.where(m, s, -10))": "weights are not 0",
            SOFTMAX + "def my_masked_weights(s, m): return softmax(s[:, m])": "You cut the masked keys out",
            SOFTMAX
            + """
def my_masked_weights(scores, mask):
    scores[:, ~mask] = -np.inf
    return softmax(scores)
""": "begin with scores = scores.copy()",
        },
    ),
    "2.5": (
        SOFTMAX
        + """
def my_multi_head(q, k, v, heads):
    d = q.shape[1] // heads
    contexts = []
    for head in range(heads):
        own = slice(head * d, (head + 1) * d)
        contexts.append(softmax(q[:, own] @ k[:, own].T / np.sqrt(d)) @ v[:, own])
    return np.concatenate(contexts, axis=1)
""",
        {
            SOFTMAX + "def my_multi_head(q, k, v, heads): return softmax(q @ k.T / q.shape[1] ** 0.5) @ v": "one",
            SOFTMAX
            + """
def my_multi_head(q, k, v, heads):
    T, H = q.shape
    q, k, v = (x.reshape(T, heads, -1).transpose(1, 0, 2) for x in (q, k, v))
    c = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(H)) @ v
    return c.transpose(1, 0, 2).reshape(T, H)
""": "divide by √H",
            SOFTMAX
            + """
def my_multi_head(q, k, v, heads):
    d = q.shape[1] // heads
    out = np.zeros_like(q)
    for a in range(heads):
        out[:, a::heads] = softmax(q[:, a::heads] @ k[:, a::heads].T / np.sqrt(d)) @ v[:, a::heads]
    return out
""": "every second column",
            SOFTMAX
            + "def my_multi_head(q, k, v, heads): return softmax(q @ k.T / (q.shape[1] / heads) ** 0.5) @ v": "one",
            SOFTMAX
            + """
def my_multi_head(q, k, v, heads):
    T, H = q.shape
    q, k, v = (x.reshape(heads, T, -1) for x in (q, k, v))
    return (softmax(q @ k.transpose(0, 2, 1) / np.sqrt(H / heads)) @ v).reshape(T, H)
""": "mixes tokens",
            SOFTMAX
            + """
def my_multi_head(q, k, v, heads):
    T, H = q.shape
    q, k, v = (x.reshape(T, heads, -1).transpose(1, 0, 2) for x in (q, k, v))
    return (softmax(q @ k.transpose(0, 2, 1) / np.sqrt(H / heads)) @ v).reshape(T, H)
""": "Swap the first two axes back",
        },
    ),
    "2.6": (
        """
def my_entropy(weights):
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return -(weights * logs).sum(-1)
""",
        {
            "def my_entropy(p): return (p * np.log(np.where(p > 0, p, 1))).sum(-1)": "The sign",
            "def my_entropy(p): return -(p * np.log2(np.where(p > 0, p, 1))).sum(-1)": "base 2",
            "def my_entropy(p): return -(p * np.log(p)).sum(-1)": "0 · ln 0",
            "def my_entropy(p): return -(p * np.log(p)).sum()": "all rows",
            "def my_entropy(p): return -(p * np.log(p)).mean(-1)": "The entropy is the sum",
            "def my_entropy(p): return -(p * np.log(p)).sum(0)": "over the columns",
        },
    ),
}

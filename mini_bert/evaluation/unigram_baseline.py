"""What a loss is measured by, the same in every command: the unigram entropy of the text.

It is the loss of knowing how frequent words are, and nothing of what stands around a gap. To be below it is not enough
for using the context: one chosen token in ten stands there unchanged, and a model that has learnt no more than to copy
those is about a tenth below. So the band from ABOVE over the entropy to BELOW under it counts as "frequencies only",
and this side of it a model uses context.
"""

ABOVE, BELOW = 0.3, 0.8  # nats


def uses_context(loss: float, entropy: float) -> bool:
    return loss <= entropy - BELOW


def knows_frequencies(loss: float, entropy: float) -> bool:
    return loss < entropy + ABOVE


def against(loss: float, entropy: float) -> str:
    """
    >>> against(6.1, 6.51), against(9.01, 6.51)
    ('0.41 below the unigram entropy', '2.50 above the unigram entropy')
    """
    return f"{abs(entropy - loss):.2f} {'below' if loss < entropy else 'above'} the unigram entropy"


def verdict(loss: float, entropy: float) -> str:
    """What the loss says of the model.

    >>> verdict(4.0, 6.5), verdict(6.2, 6.5)
    ('it uses what stands around a gap', 'it knows how frequent words are, but does not use context yet')
    >>> verdict(8.0, 6.5)
    'it does not even know how frequent words are'
    """
    if uses_context(loss, entropy):
        return "it uses what stands around a gap"
    if knows_frequencies(loss, entropy):
        return "it knows how frequent words are, but does not use context yet"
    return "it does not even know how frequent words are"

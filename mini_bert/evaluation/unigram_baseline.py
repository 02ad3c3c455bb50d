"""The unigram entropy as a reference for losses, the same in every command.

It is the loss of a model that predicts token frequencies and ignores context. A loss slightly below it does not show
that a model uses context: one chosen token in ten is left unchanged, and a model that has only learnt to copy those
is about a tenth below. So losses from ABOVE over the entropy to BELOW under it count as "frequencies only".
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
    """What a loss shows about the model.

    >>> verdict(4.0, 6.5), verdict(6.2, 6.5)
    ('it uses context', 'it has learnt word frequencies, but does not use context yet')
    >>> verdict(8.0, 6.5)
    'it has not even learnt word frequencies yet'
    """
    if uses_context(loss, entropy):
        return "it uses context"
    if knows_frequencies(loss, entropy):
        return "it has learnt word frequencies, but does not use context yet"
    return "it has not even learnt word frequencies yet"

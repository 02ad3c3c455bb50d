"""The unigram baseline, a reference for losses, the same in every command.

    baseline = −Σ q(w) log p(w)        q: share of w in the text that is measured, p: share of w in the training text

This is the loss of a model that has learnt the word frequencies of its training text and ignores context. The unigram
entropy of the measured text, −Σ q log q, is lower: it needs the frequencies of the very text that is measured, which no
model knows. (Runs of older versions recorded it; their plots and diagnoses use it as the baseline.)

A loss slightly below the baseline does not show that a model uses context: one chosen token in ten is left unchanged,
and a model that has only learnt to copy those is about a tenth below. So losses from ABOVE over the baseline to BELOW
under it count as "frequencies only".
"""

ABOVE, BELOW = 0.3, 0.8  # nats


def uses_context(loss: float, baseline: float) -> bool:
    return loss <= baseline - BELOW


def knows_frequencies(loss: float, baseline: float) -> bool:
    return loss < baseline + ABOVE


def against(loss: float, baseline: float) -> str:
    """
    >>> against(6.1, 6.51), against(9.01, 6.51)
    ('0.41 below the unigram baseline', '2.50 above the unigram baseline')
    """
    return f"{abs(baseline - loss):.2f} {'below' if loss < baseline else 'above'} the unigram baseline"


def verdict(loss: float, baseline: float) -> str:
    """What a loss shows about the model.

    >>> verdict(4.0, 6.5), verdict(6.2, 6.5)
    ('it uses context', 'it has learnt word frequencies, but does not use context yet')
    >>> verdict(8.0, 6.5)
    'it has not even learnt word frequencies yet'
    """
    if uses_context(loss, baseline):
        return "it uses context"
    if knows_frequencies(loss, baseline):
        return "it has learnt word frequencies, but does not use context yet"
    return "it has not even learnt word frequencies yet"


def verdict_on_text(loss: float, baseline: float) -> str:
    """What a loss on any text shows about a trained model.

    >>> verdict_on_text(4.0, 6.5)
    'it uses context'
    """
    if uses_context(loss, baseline):
        return "it uses context"
    if knows_frequencies(loss, baseline):
        return "on this text, it is no better than the word frequencies of its training text"
    return "it is worse than word frequencies: hardly trained, or on text very different from this"

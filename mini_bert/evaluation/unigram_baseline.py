"""The loss of guessing by word frequency as a reference for losses, the same in every command.

It is the loss of a model that predicts token frequencies and ignores context. Training compares with the unigram
entropy of its held-out text. `eval`, which may measure any text, compares with the frequencies of the training text
(word_frequencies.py).

A loss slightly below it does not show that a model uses context: one chosen token in ten is left unchanged, and a model
that has only learnt to copy those is about a tenth below. So losses from ABOVE over the baseline to BELOW under it
count as "frequencies only".
"""

ABOVE, BELOW = 0.3, 0.8  # nats


def uses_context(loss: float, entropy: float) -> bool:
    return loss <= entropy - BELOW


def knows_frequencies(loss: float, entropy: float) -> bool:
    return loss < entropy + ABOVE


def against(loss: float, entropy: float, name: str = "unigram entropy") -> str:
    """
    >>> against(6.1, 6.51), against(9.01, 6.51)
    ('0.41 below the unigram entropy', '2.50 above the unigram entropy')
    """
    return f"{abs(entropy - loss):.2f} {'below' if loss < entropy else 'above'} the {name}"


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


def verdict_on_text(loss: float, baseline: float) -> str:
    """What a loss on any text shows about a trained model. baseline: of its training text's word frequencies

    >>> verdict_on_text(4.0, 6.5)
    'it uses context'
    """
    if uses_context(loss, baseline):
        return "it uses context"
    if knows_frequencies(loss, baseline):
        return "on this text, it is no better than the word frequencies of its training text"
    return "it is worse than word frequencies: hardly trained, or on text very different from this"

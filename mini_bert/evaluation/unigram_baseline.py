"""The unigram baseline, a reference for losses, the same in every command.

    baseline = −Σ q(w) log p(w)        q: share of w in the text that is measured, p: share of w in the training text

This is the loss of a model that has learnt the word frequencies of its training text and ignores context. The unigram
entropy of the measured text, −Σ q log q, is lower: it needs the frequencies of the very text that is measured, which no
model knows. (Runs of older versions recorded it; their plots and diagnoses use it as the baseline.)

How far below the baseline a loss shows that a model uses context depends on the objective. Of masked words, one chosen
token in ten is left unchanged, and a model that has only learnt to copy those is about a tenth below. So losses from
ABOVE over the baseline to `margin` under it count as "frequencies only": 0.8 for masked words, 1.1 for ELECTRA's
generator, which sees 15 % of its targets, 0.2 where no target can be copied (next words, permutations).
"""

from mini_bert.objectives.masking import TO_RANDOM

ABOVE = 0.3  # nats
CHANCE = 0.2
COPIED = 6.0  # what a word costs a model that knows frequencies only, and not one that sees it


def margin(visible: float) -> float:
    """visible: the share of the targets that can be copied from the input (objectives/base.py)

    >>> round(margin(0.1), 3), margin(0.0)
    (0.8, 0.2)
    """
    return CHANCE + COPIED * visible


def uses_context(loss: float, baseline: float, visible: float = 1 - TO_RANDOM) -> bool:
    return loss <= baseline - margin(visible)


def knows_frequencies(loss: float, baseline: float) -> bool:
    return loss < baseline + ABOVE


def against(loss: float, baseline: float) -> str:
    """
    >>> against(6.1, 6.51), against(9.01, 6.51)
    ('0.41 below the unigram baseline', '2.50 above the unigram baseline')
    """
    return f"{abs(baseline - loss):.2f} {'below' if loss < baseline else 'above'} the unigram baseline"


def verdict(loss: float, baseline: float, visible: float = 1 - TO_RANDOM, subject: str = "it") -> str:
    """What a loss shows about the model. subject: what to call it

    >>> verdict(4.0, 6.5), verdict(6.2, 6.5)
    ('it uses context', 'it has learnt word frequencies, but shows no clear sign of context yet')
    >>> verdict(6.4, 6.5, subject="the generator")
    'the generator has learnt word frequencies, but does not use context yet'
    >>> verdict(6.52, 6.5, subject="the generator")
    'the generator does almost as well as word frequencies alone'
    >>> verdict(8.0, 6.5)
    'it has not even learnt word frequencies yet'
    """
    if uses_context(loss, baseline, visible):
        return f"{subject} uses context"
    if uses_context(loss, baseline, visible=0):  # or it copies
        return f"{subject} has learnt word frequencies, but shows no clear sign of context yet"
    if loss < baseline:
        return f"{subject} has learnt word frequencies, but does not use context yet"
    if knows_frequencies(loss, baseline):
        return f"{subject} does almost as well as word frequencies alone"
    return f"{subject} has not even learnt word frequencies yet"


def verdict_on_text(loss: float, baseline: float, visible: float = 1 - TO_RANDOM) -> str:
    """What a loss on any text shows about a trained model; it follows what `against` says, and an explanation of the
    baseline.

    >>> verdict_on_text(4.0, 6.5), verdict_on_text(6.45, 6.5)
    ('it uses context', 'on this text, it does no better')
    """
    if uses_context(loss, baseline, visible):
        return "it uses context"
    if uses_context(loss, baseline, visible=0):
        return "on this text, it does hardly better"
    if knows_frequencies(loss, baseline):
        return "on this text, it does no better"
    return "it is hardly trained, or was trained on text very different from this"

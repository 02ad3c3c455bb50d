"""What a reader of attention maps should know about the model: which tokens it cannot see, which heads are shared.

    $ mini-bert attention "The cat sat on the mat." --model runs/albert
    All 6 layers are the same block, used again: head 0 has the same weights in each. …

The notes are computed from the masks and blocks of the model, so they hold for any architecture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from mini_bert.common.progress import counted
from mini_bert.inside.attention_maps import AttentionMaps
from mini_bert.models.base import QUERY, Model


def attention_notes(model: Model, maps: AttentionMaps | None = None) -> list[str]:
    """Sentences about this model, and about these maps."""
    notes = shared_blocks(model)
    if model.reads_forward:
        notes.append(
            "A token sees only itself and those before it, so no token attends to the next one, and the first tokens "
            "are seen by the most others. Means are over the words that can see a token."
        )
    if maps is None:
        return notes
    notes += narrow_layers(maps)
    if maps.memory is not None:
        notes.append(
            "memory: the share of the weight on the tokens before this text; there are none, so it is on vectors of "
            "zeros, as at the beginning of a document. The other columns are about the rest of the weight."
        )
    if maps.stream == QUERY:
        notes.append(
            "This is the query stream: each word is hidden in turn and predicted from all others, so no token attends "
            "to itself."
        )
    elif QUERY in model.streams:
        notes.append(
            "This is the content stream, which reads the text. The query stream, which predicts a word without seeing "
            'it, has the same weights but other maps: --stream query, or attention_maps(…, stream="query").'
        )
    return notes


def shared_blocks(model: Model) -> list[str]:
    """Layers that are one block, used several times (ALBERT)"""
    blocks = model.encoder.blocks
    groups: dict[int, list[int]] = {}
    for layer, block in enumerate(blocks):
        groups.setdefault(id(block), []).append(layer)
    shared = [layers for layers in groups.values() if len(layers) > 1]
    if not shared:
        return []
    if len(groups) == 1:
        which = f"All {len(blocks)} layers are the same block, used again: head 0 has the same weights in each of them."
    else:
        which = ", ".join(f"layers {listed(layers)} are one block" for layers in shared)
        which = f"{which[0].upper()}{which[1:]}, used again: there, heads with the same number have the same weights."
    return [f"{which} Their maps differ only because each layer reads what the one before it wrote."]


def narrow_layers(maps: AttentionMaps) -> list[str]:
    """Layers in which tokens see only those nearby (ModernBERT)"""
    seen = maps.seen()
    whole = np.logical_or.reduce(seen)  # what tokens see in any layer
    places = np.arange(whole.shape[0])
    away = np.abs(places - places[:, None])
    narrow = {layer: int(away[own].max()) for layer, own in enumerate(seen) if (own != whole).any()}
    notes = []
    for reach in sorted(set(narrow.values())):
        layers = [layer for layer, own in narrow.items() if own == reach]
        verb = "is local: there" if len(layers) == 1 else "are local: there"
        noun = "Layer" if len(layers) == 1 else "Layers"
        notes.append(f"{noun} {listed(layers)} {verb}, a token sees only {counted(reach, 'token')} on each side.")
    return notes


def listed(numbers: Sequence[int]) -> str:
    """
    >>> listed([0, 1, 2, 5]), listed([1, 2]), listed([4])
    ('0–2 and 5', '1 and 2', '4')
    """
    parts = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        own = [number for _, number in run]
        parts += [f"{own[0]}–{own[-1]}"] if len(own) > 2 else [str(number) for number in own]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

"""How text is normalised before it is split into pieces, from a description that can be saved.

{"type": "sentencepiece",                     from a spiece.model: text/sentencepiece_text.py
 "character_map": in base64,                  text/character_map.py
 "add_dummy_prefix": true, ...                and other arguments of SentencePieceText
 "steps": ["spaces", "quotes", "lower"],      some of STEPS, before everything else
 "split_commas": true}                        ALBERT's rule for pieces such as "2000,", see text/unigram.py

{"type": "tokenizers",                        from a tokenizer.json: text/metaspace_text.py
 "normalizer": ..., "pre_tokenizer": ...}     as in that file
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mini_bert.text.character_map import CharacterMap
from mini_bert.text.metaspace_text import MetaspaceText
from mini_bert.text.normalizers import Step
from mini_bert.text.sentencepiece_text import DropAccents, LowerText, OneSpace, Quotes, SentencePieceText

STEPS: dict[str, Callable[[], Step]] = {
    "spaces": OneSpace, "quotes": Quotes, "accents": DropAccents, "lower": LowerText,
}  # fmt: skip
_ARGUMENTS = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces", "space_as_suffix")


def text_rules(rules: Mapping[str, Any], symbols: Sequence[str]) -> SentencePieceText | MetaspaceText:
    """symbols: the user-defined symbols of a SentencePiece model"""
    if rules["type"] == "tokenizers":
        return MetaspaceText.read(rules["normalizer"], rules["pre_tokenizer"])
    return SentencePieceText(
        CharacterMap(base64.b64decode(rules.get("character_map", ""))),
        symbols,
        steps=[STEPS[name]() for name in rules.get("steps", ())],
        **{name: rules[name] for name in _ARGUMENTS if name in rules},
    )

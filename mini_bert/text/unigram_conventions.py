"""What the Unigram tokenizers of published models differ in, besides their vocabulary; a spiece.model does not say it.

ALBERT        [CLS] a [SEP] b [SEP]; lower case, without accents; a piece such as "2000," is split at the comma
XLNet         a <sep> b <sep> <cls>, padded on the left with token type 3; without accents; commas as in ALBERT
DeBERTa v3    [CLS] a [SEP] b [SEP]; text as it is; [MASK] follows the pieces of the model
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mini_bert.text.templates import LAYOUTS, Layout

BERT_LIKE, XLNET_LIKE, BARE = LAYOUTS["bert"], LAYOUTS["xlnet"], Layout("A:0", "A:0 B:1")


class Style(NamedTuple):
    """What the class of a tokenizer decides."""

    tokenizer_class: str
    model_type: str  # in the model's config.json
    roles: dict[str, str]
    layout: Layout
    steps: tuple[str, ...]  # before SentencePiece's own rules; see STEPS in text/sentencepiece_text.py
    split_commas: bool = False


ALBERT = Style(
    "AlbertTokenizer", "albert",
    {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    BERT_LIKE, ("spaces", "quotes", "accents", "lower"), True,
)  # fmt: skip
XLNET = Style(
    "XLNetTokenizer", "xlnet",
    {"pad": "<pad>", "unk": "<unk>", "cls": "<cls>", "sep": "<sep>", "mask": "<mask>"},
    XLNET_LIKE, ("spaces", "quotes", "accents"), True,
)  # fmt: skip
DEBERTA = Style(
    "DebertaV2Tokenizer", "deberta-v2",
    {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    BERT_LIKE, (),
)  # fmt: skip
STYLES = (ALBERT, XLNET, DEBERTA)

SPELLINGS = {  # of special tokens, where no style is known
    "pad": ("<pad>", "[PAD]"), "cls": ("[CLS]", "<cls>", "<s>"), "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}  # fmt: skip


def layout_of(roles: Mapping[str, str], style: Style | None) -> Layout:
    """Of a style, or of the model that has these special tokens."""
    if not {"cls", "sep"} <= roles.keys():
        return BARE
    if style:
        return style.layout
    return XLNET_LIKE if roles["cls"] == XLNET.roles["cls"] else BERT_LIKE

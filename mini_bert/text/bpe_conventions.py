"""What tokenizers with byte-level BPE differ in, besides their vocabulary: special tokens, templates, spaces.

GPT-2        <|endoftext|> after each document, nothing around a text; no mask, so text is padded with <|endoftext|>
RoBERTa      <s> text </s>, <s> a </s></s> b </s>; <mask> takes the spaces before it with it
DeBERTa      [CLS] a [SEP] b [SEP], the second text with token type 1
ModernBERT   the same; text is normalised first, and some strings, such as runs of spaces, are tokens of their own
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from mini_bert.text.templates import LAYOUTS


class Conventions(NamedTuple):
    """The rules of one tokenizer; its files define them (text/bpe_files.py)."""

    roles: Mapping[str, str]  # the text of the special tokens, such as {"mask": "<mask>"}
    single: str = "A:0"  # the templates, see text/templates.py
    pair: str = "A:0 B:0"
    special_tokens: tuple[str, ...] = ()  # further special tokens
    added_tokens: tuple[str, ...] = ()  # found in a text as a whole, like special tokens, but ordinary text
    lstrip: tuple[str, ...] = ()  # tokens that take the white space before them with them
    rstrip: tuple[str, ...] = ()
    add_prefix_space: bool = False  # put a space before every text that does not start with one
    trim_offsets: bool = False  # spans exclude spaces at their ends ...
    trim_first: bool = True  # ... also one space at the start of the text
    compose: bool = False  # first normalise text to NFC (text/canonical.py)
    ignore_merges: bool = False  # a word that is in the vocabulary is one piece, even if merging does not lead to it
    unknown: str | None = None  # the token for bytes that are not in the vocabulary; without one, they are dropped


END_OF_TEXT = "<|endoftext|>"
GPT2 = Conventions(dict.fromkeys(("pad", "unk", "sep"), END_OF_TEXT))
ROBERTA = Conventions(
    {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"},
    *LAYOUTS["roberta"][:2],
    lstrip=("<mask>",),
    trim_offsets=True,
)
DEBERTA = Conventions(
    {"cls": "[CLS]", "pad": "[PAD]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"},
    *LAYOUTS["bert"][:2],
    lstrip=("[MASK]",),
)
MODERNBERT = DEBERTA._replace(compose=True)  # without the tokens for runs of spaces


def usual_roles(named: Mapping[str, str], tokens: Collection[str]) -> dict[str, str]:
    """The roles that files name, such as {"mask": "<mask>", "eos": "</s>"}, and for others the tokens that usually have
    them, if they are among `tokens`. Without tokens of their own, documents end with eos, which also pads."""
    roles = {}
    for role in ROBERTA.roles:
        usual = [rules.roles[role] for rules in (ROBERTA, DEBERTA) if rules.roles[role] in tokens]
        token = named.get(role) or (usual[0] if usual else None)
        if token is not None:
            roles[role] = token
    end = roles.get("sep") or named.get("eos") or (END_OF_TEXT if END_OF_TEXT in tokens else None)
    if end is not None:
        roles |= {role: end for role in ("sep", "pad", "unk") if role not in roles}
    return roles


def usual_conventions(roles: Mapping[str, str]) -> Conventions:
    """For files that do not say: the rules of the model that has these special tokens."""
    if "cls" not in roles:
        return GPT2._replace(roles=roles)
    rules = DEBERTA if roles["cls"] == DEBERTA.roles["cls"] else ROBERTA
    return rules._replace(roles=roles, lstrip=(roles["mask"],) if "mask" in roles else ())

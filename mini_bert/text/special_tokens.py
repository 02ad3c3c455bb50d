"""The vocabulary of a tokenizer with its special tokens: each has a role, and is found in a text as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mini_bert.text.finding import Cut, Finder
from mini_bert.text.user_input import checked_vocabulary

Special = bool | str | None  # which special tokens are recognised in a text: all (True), none, or only this one

ADDED_ROLES = ("pad", "cls", "sep")  # tokens around texts; unk and mask replace words


class SpecialTokens:
    """tokens: the pieces, in the order of their ids. roles: the text of the special tokens, such as {"mask": "[MASK]"}.

    lstrip, rstrip: special tokens that take the white space before, or after, them with them
    """

    continues: np.ndarray  # (V,) which pieces continue the word before them

    def __init__(
        self,
        tokens: Sequence[str],
        roles: Mapping[str, str],
        extra_special_tokens: Sequence[str] = (),
        lstrip: Sequence[str] = (),
        rstrip: Sequence[str] = (),
    ):
        self.tokens = checked_vocabulary(tokens)
        self.vocab = {token: i for i, token in enumerate(self.tokens)}
        self.roles = dict(roles)
        self.extra_special_tokens = tuple(extra_special_tokens)
        special = dict.fromkeys((*roles.values(), *self.extra_special_tokens))
        if "" in special:
            raise ValueError("an extra special token is empty, so it would match everywhere; remove it")
        if missing := [token for token in special if token not in self.vocab]:
            raise ValueError(
                f"the vocabulary of {len(self.tokens):,} tokens lacks {', '.join(missing)}; "
                f"{type(self).__name__} needs {', '.join(special)}: put them first"
            )
        self.special_ids = tuple(sorted(self.vocab[token] for token in special))
        self._is_word = np.ones(len(self.tokens), bool)
        self._is_word[list(self.special_ids)] = False
        self._special = Finder(special, lstrip, rstrip)

    @property
    def mask_token(self) -> str | None:
        """The text of the mask token, such as "[MASK]"; None for a tokenizer without one."""
        return self.roles.get("mask")

    @property
    def mask_id(self) -> int:
        return self._id_of("mask")

    @property
    def pad_id(self) -> int:
        return self._id_of("pad")

    @property
    def unk_id(self) -> int:
        return self._id_of("unk")

    @property
    def cls_id(self) -> int:
        return self._id_of("cls")

    @property
    def sep_id(self) -> int:
        return self._id_of("sep")

    def _id_of(self, role: str) -> int:
        if role not in self.roles:
            raise ValueError(
                f"{self!r} has no {role} token, only {', '.join(self.roles)}; for this, use a tokenizer that has one, "
                "with a model that was trained with it"
            )
        return self.vocab[self.roles[role]]

    def added_roles(self, ids: Iterable[int]) -> list[str]:
        """For each id "pad", "cls" or "sep", or "" for a token of the text."""
        names = {self._id_of(role): role for role in ADDED_ROLES if role in self.roles}
        return [names.get(int(i), "") for i in ids]

    def continuing(self, ids: np.ndarray) -> np.ndarray:
        """Which tokens of a sequence, or of several (B,T), continue the word of the token before.

        The first token and one next to a special token continue nothing, whatever the piece: in byte-level BPE, the
        first word of a text has no mark. Override this where the rest cannot be told from single pieces either.
        """
        word = self._is_word[ids]
        more = self.continues[ids] & word
        more[..., 0] = False
        more[..., 1:] &= word[..., :-1]
        return more

    def _segments(self, text: str, special: Special) -> Iterable[Cut]:
        """Cuts a text at its special tokens: each part, its position, and the special token that it is, or None."""
        if not special:
            return [(text, 0, None)]
        return self._special.cut(text, None if special is True else special)

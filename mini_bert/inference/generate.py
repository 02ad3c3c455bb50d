"""Write on from a prompt, one token at a time, with a model that predicts the next word (GPT-2, Transformer-XL).

    for piece in generate(model, tokenizer, "Once upon a time", tokens=50):
        print(piece, end="", flush=True)

Each token is read, the scores of the next one are computed, one is chosen (sampling.py) and appended. What the model
computed for earlier tokens is an input of the next pass (`Inputs.memory`), so that a new token costs one row and not a
whole text.

**Long texts.** A model with a table of positions reads at most `max_length` tokens at once. When these are used up, the
window slides by half: the last max_length/2 tokens are read again as a new text, and the ones before are forgotten.

**Text, not tokens.** A token may end in the middle of a character. Text is passed on as soon as no later token can
change it: an unfinished character is held back, and so is what may become a stop string.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mini_bert.common.values import check_positive
from mini_bert.common.wording import with_article
from mini_bert.inference.sampling import PLAIN, Sampling
from mini_bert.layers.base import Run
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED, Model
from mini_bert.text.base import Tokenizer

logger = logging.getLogger(__name__)
LONGEST = 1024  # tokens that a model without a limit reads in one pass: attention needs memory for each pair of them
CONTEXT = 64  # tokens that are decoded together with new ones
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what an incomplete character is decoded to, or a lone surrogate


def generate(
    model: Model,
    tokenizer: Tokenizer,
    prompt: str | Sequence[int],
    tokens: int = 50,
    sampling: Sampling = PLAIN,
    stop: Sequence[str] = (),
    after_each: Callable[[int], None] | None = None,
) -> Generator[str, None, bool]:
    """Yields the text that follows the prompt, as it is written. Returns whether it ended at a stop string.

    It ends after `tokens` tokens, before a stop string, or where the model ends the document. After each token,
    `after_each(tokens so far)` is called. prompt: a text, or its ids without special tokens
    """
    check_causal(model)  # errors come now, not when the first piece is wanted
    check_positive("tokens", tokens)
    check_stop(stop)
    sampling.check()
    ids = tokenizer.ids([prompt], special=False)[0] if isinstance(prompt, str) else list(prompt)
    given = fitting(model, ids, tokens)
    start = given or [tokenizer.sep_id]  # nothing before the text: a document begins
    ends = end_ids(model, tokenizer)
    written = generate_ids(model, start, tokens, sampling, ends, banned_ids(model, tokenizer, ends))
    if after_each is not None:
        written = _counting(written, after_each)
    return GrowingText(tokenizer, given, stop).pieces(written)


def whole(pieces: Generator[str, None, bool]) -> tuple[str, bool]:
    """All that `generate` yields, and what it returns."""
    text: list[str] = []
    while True:
        try:
            text.append(next(pieces))
        except StopIteration as end:
            return "".join(text), end.value


def _counting(ids: Iterator[int], after_each: Callable[[int], None]) -> Iterator[int]:
    for count, token in enumerate(ids, 1):
        after_each(count)
        yield token


def generate_ids(
    model: Model,
    prompt: Sequence[int],
    tokens: int,
    sampling: Sampling = PLAIN,
    ends: Collection[int] = (),
    banned: np.ndarray | None = None,
) -> Iterator[int]:
    """Yields the ids that follow those of the prompt, at most `tokens`.

    ends: an id that ends the text, and is not part of it; banned: (V,) True for ids that are never chosen
    """
    reader = Reader(model)
    given: list[int] = list(prompt)
    for step in range(tokens):
        scores = reader.read(given)
        if banned is not None:
            scores[banned] = -np.inf
        token = sampling.choose(scores, step)
        if token in ends:
            return
        yield token
        given = [token]


class Reader:
    """Reads a text piece by piece, and gives the scores of the token after it."""

    def __init__(self, model: Model):
        self.model, self.head, self.run = model, model.output_head(NEXT_WORD), Run()
        self.memory: Any = model.empty_memory
        self.ids: list[int] = []  # all tokens in the window
        room = model.room(model.empty_memory)
        self.most = int(room) if room < math.inf else max(model.max_length, LONGEST)  # tokens in one pass

    def read(self, ids: Sequence[int]) -> np.ndarray:
        """The scores of the next token, (V,)"""
        if not ids:
            raise ValueError("there is nothing to read; expected at least one token")
        new = list(ids)
        self.ids += new
        if self.memory is None or len(new) > self.model.room(self.memory):
            if len(self.ids) > self.most:  # the window slides by half
                self.ids = self.ids[-max(1, self.model.max_length // 2) :]
            new, self.memory = self.ids, self.model.empty_memory
        passes = [self._pass(new[start : start + self.most]) for start in range(0, len(new), self.most)]
        self.ids = self.ids[-self.most :]
        return self.head.forward(passes[-1], self.run)[0][0]

    def _pass(self, ids: list[int]) -> np.ndarray:
        """The hidden state of the last token, (1,H)"""
        inputs = self.model.check_inputs([ids])._replace(memory=self.memory)
        hidden, cache = self.model.encode_inputs(inputs, self.run, np.array([len(ids) - 1]))
        self.memory = cache.memory  # None: this model remembers nothing, and reads all tokens again
        return hidden


class GrowingText:
    """The text of a growing list of tokens. `add` returns what no later token can change."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str] = ()):
        self.tokenizer, self.ids, self.stop = tokenizer, list(prompt), stop
        self.before = len(tokenizer.decode(self.ids))  # characters of the prompt
        self.done = 0  # characters of the text that were passed on
        self.stopped = False

    def pieces(self, tokens: Iterable[int]) -> Generator[str, None, bool]:
        """The text of these tokens, as it is written. Returns whether it ended at a stop string."""
        for token in tokens:
            if piece := self.add(token):
                yield piece
            if self.stopped:
                return True
        if piece := self.rest():
            yield piece
        return False

    def add(self, token: int) -> str:
        self.ids.append(token)
        text = self._text()
        held = len(_held(text, self.stop))
        piece = self._until(text, len(text) - held)
        if len(self.ids) > 2 * CONTEXT:
            self._forget(held)
        return piece

    def _forget(self, held: int) -> None:
        """Decode only the last tokens from now on: what was passed on does not change. (If all tokens were decoded for
        each new one, a text of 4,000 would take four times as long as one of 2,000.)"""
        text = self.tokenizer.decode(self.ids[-CONTEXT:])
        if len(text) > held:
            self.ids, self.before, self.done = self.ids[-CONTEXT:], len(text) - held, 0

    def rest(self) -> str:
        """What was held back, at the end."""
        text = self._text()
        return "" if self.stopped else self._until(text, len(text))

    def _text(self) -> str:
        """The text after the prompt, up to the first stop string."""
        text = self.tokenizer.decode(self.ids)[self.before :]
        found = [place for one in self.stop if (place := text.find(one)) >= 0]
        self.stopped = bool(found)
        return text[: min(found)] if found else text

    def _until(self, text: str, end: int) -> str:
        end = len(text) if self.stopped else end
        new, self.done = text[self.done : end], max(self.done, end)
        return "".join(UNFINISHED if _is_surrogate(character) else character for character in new)


def _held(text: str, stop: Sequence[str]) -> str:
    """The end of a text that the next token may change: the start of a character, or of a stop string."""
    complete = text
    while complete and (complete[-1] == UNFINISHED or _is_surrogate(complete[-1])) and len(text) - len(complete) < 3:
        complete = complete[:-1]  # a character has at most 4 bytes, so 3 can be missing their last
    longest = max((size for one in stop for size in range(len(one)) if complete.endswith(one[:size])), default=0)
    return text[len(complete) - longest :]


def _is_surrogate(character: str) -> bool:
    """Whether it stands for a byte that is not UTF-8 (PEP 383)."""
    return "\ud800" <= character <= "\udfff"


TRAIN_ONE = "`mini-bert train --model gpt2 --out runs/gpt2`"  # a remedy, in messages
DOES = {  # what models do that do not write
    MASKED_WORDS: "it fills gaps, and reads the words after a gap as well as those before; use `mini-bert fill-mask`",
    REPLACED: "it reads a whole text, and says of each token whether it was replaced",
}


def check_causal(model: Model, name: str = "") -> None:
    """Raise an error for a model that does not predict the next word. name: what the user calls it"""
    if NEXT_WORD not in model.head_shapes:
        which = f"{name} is {with_article(type(model).__name__)}, which" if name else f"this {type(model).__name__}"
        does = next((does for head, does in DOES.items() if head in model.output_heads), "it predicts no words")
        raise ValueError(
            f"{which} cannot write: {does}. To write, name the folder of a model that predicts the next word with "
            f"--model, such as a GPT-2; {TRAIN_ONE} trains one"
        )
    model.output_head(NEXT_WORD)  # raises an error for one that was fine-tuned


def check_stop(stop: Sequence[str]) -> None:
    if isinstance(stop, str) or not all(isinstance(one, str) and one for one in stop):
        raise ValueError(f"stop is {stop!r:.60}, expected a list of texts, each with at least one character")


def fitting(model: Model, ids: list[int], tokens: int) -> list[int]:
    """The end of a prompt that is too long. There remains room for the new tokens, or at least half of the window."""
    room = model.room(model.empty_memory)
    if len(ids) <= room:
        return ids
    kept = int(room) - min(tokens, int(room) // 2)
    logger.warning(
        "the prompt has %s tokens, but this model reads at most %s at once; only the last %s are used",
        f"{len(ids):,}", f"{room:,}", f"{kept:,}",
    )  # fmt: skip
    return ids[-kept:]


def end_ids(model: Model, tokenizer: Tokenizer) -> set[int]:
    """The ids that end a text: the separator of documents, and what the model's config names."""
    ends = getattr(model.config, "eos_token_id", None)
    named = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return {*named, *([tokenizer.sep_id] if "sep" in tokenizer.roles else [])}


def text_ends(model: Model, tokenizer: Tokenizer) -> dict[str, Any]:
    """The ids that begin, end and pad texts, under the names by which other programs read them in config.json and
    generation_config.json. {} for a model that does not write."""
    if NEXT_WORD not in model.output_heads or "sep" not in tokenizer.roles:
        return {}
    ends = sorted(end_ids(model, tokenizer))
    ids = {"bos_token_id": tokenizer.sep_id} | ({"pad_token_id": tokenizer.pad_id} if "pad" in tokenizer.roles else {})
    own = {name: value for name, value in model.file_config().items() if name in ids and value is not None}
    return {**ids, **own, "eos_token_id": ends[0] if len(ends) == 1 else ends}


def banned_ids(model: Model, tokenizer: Tokenizer, ends: Collection[int]) -> np.ndarray:
    """(V,) True for ids that are no text: special tokens, except the ends, and ids without a token."""
    banned = np.zeros(model.vocab_size, bool)
    banned[tokenizer.vocab_size :] = True
    banned[[i for i in tokenizer.special_ids if i not in ends]] = True
    return banned

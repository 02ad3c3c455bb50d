"""The model interface, used by training, fine-tuning, probes, attention analysis, export and planning.

    hidden, cache = model.encode(ids, attention_mask, token_types)      hidden (B,T,H)
    dx = model.encode_backward(dhidden, cache)                          adds to every gradient
    cache["attention_weights_0"], cache["query_0"], cache["block_input_0"]      the same names for every model

A model consists of embeddings, an encoder of L blocks, and output heads. An architecture's file defines how ids are
embedded, what follows the last block, which heads there are, and the names of its tensors in files. The rest is here
and in loss.py (the loss at chosen tokens), memory.py (the weights in memory) and saving.py (files); cache.py lists the
arrays in a cache.

Letters: B batch, T tokens, H hidden width, A heads, d = H/A, V vocabulary, L layers, N chosen rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np

from mini_bert.common.inputs import check_ids, check_mask, check_rows
from mini_bert.layers.base import Layer, Param, Run
from mini_bert.layers.encoder import Encoder
from mini_bert.models.cache import EncodeCache
from mini_bert.models.cache import Inputs as Inputs  # part of the interface: objectives make them
from mini_bert.models.loss import Term, WithLoss
from mini_bert.models.saving import Saved

# The names of output heads that several models have: what they predict.
MASKED_WORDS, NEXT_WORD = "masked_words", "next_word"
NEXT_SENTENCE, SENTENCE_ORDER, REPLACED = "next_sentence", "sentence_order", "replaced"
POOLER = "pooler"  # the vector of [CLS], (B,H), which heads for whole sequences read
HEADS: Mapping[str, str] = {  # how errors call them
    MASKED_WORDS: "head for masked words", NEXT_WORD: "head for the next word", NEXT_SENTENCE: "next-sentence head",
    SENTENCE_ORDER: "head for the order of sentences", REPLACED: "head for replaced words", POOLER: "pooler",
}  # fmt: skip
NEW_HEAD = "or give it a new one with `mini-bert train --init`"  # for `head_help`
NO_WORD_HEAD = (
    "no head for masked words: it was published without one, for sentence vectors or other tasks; try "
    f"`mini-bert embed`, load a masked language model, {NEW_HEAD}"
)
NO_POOLER = "no pooler: use the mean of the tokens' vectors, as `mini-bert embed` does"
HIDDEN = "hidden"
CONTENT, QUERY = "content", "query"  # streams of attention: a token that sees itself, and one that does not


class Output(SimpleNamespace):
    """The results of `forward` by name: `hidden` (B,T,H), and one for each head; or their gradients for `backward`.

    A head that the model does not have is None.
    """

    def __getattr__(self, name: str) -> Any:  # called only for attributes that do not exist
        if name in (HIDDEN, *HEADS):
            return None
        raise AttributeError(name)


class Model(WithLoss, Saved):
    """A layer that owns its memory: `flat.data` holds all weights, `flat.grad` all gradients, one vector each.

    An architecture provides its constructor, `embed` and `embed_backward`, the names of its tensors (saving.py), and
    output heads as attributes with the names in `head_shapes` (None or absent: this model has no such head).

    If its encoder is not a chain of blocks that all get the same mask, it writes its own: a subclass of `Encoder` with
    other `block_inputs`, or with its own forward and backward (two streams, an input shared by all blocks), or its own
    `encode_inputs` and `encode_backward`.
    """

    model_type: ClassVar[str]
    # The output heads that it can have, with the shapes of their outputs; a head comes after the one that it reads.
    head_shapes: ClassVar[Mapping[str, str]] = {}
    head_help: ClassVar[Mapping[str, str]] = {}  # "no pooler: what to do without it", by the name of a head
    embedding_parts: ClassVar[tuple[str, ...]] = ("tokens",)  # its attributes before the first block, in order
    objective: ClassVar[str] = "masked_words"  # what it is pretrained on by default (objectives/registry.py)
    masking: ClassVar[str] = "pieces"  # how its words are chosen for prediction by default (training/setup.py, MASKING)
    vocabulary: ClassVar[str] = "8k"  # the bundled one for its preset, of the published kind if there is one
    layout: ClassVar[str] = "bert"  # special tokens around its texts, and padding, by name (text/templates.py, LAYOUTS)
    empty_memory: ClassVar[Any] = None  # `Inputs.memory` before the first token; None: what it reads is not remembered
    keeps_keys: ClassVar[bool] = False  # that memory is (keys, values) of each block, (B,A,M,d) each
    reads_forward: ClassVar[bool] = False  # no token sees a later one, so only the last one has seen a whole text
    streams: ClassVar[tuple[str, ...]] = (CONTENT,)  # of attention; XLNet has another one
    pools_cls: ClassVar[bool] = True  # fine-tuning classifies the vector of [CLS]; False: a mean over all words

    tokens: Any  # the embedding of token ids
    encoder: Encoder
    final_norm: Any = None  # the norm after the last block, if there is one
    task: Any = None  # the layer on top of a fine-tuned model
    fine_tuned: str = ""  # how it was, such as "for a task", also if only its encoder was loaded; "": it was not

    def __new__(cls, config: Any = None, output_heads: Collection[str] = (), *_: Any, **__: Any) -> Self:
        """Checks the names of the heads, because constructors only look for those that they know."""
        if isinstance(output_heads, str) or not isinstance(output_heads, Collection):
            raise TypeError(
                f"output_heads is {output_heads!r}, expected a list of names, such as {tuple(cls.head_shapes)}"
            )
        for name in output_heads:
            if name not in cls.head_shapes:
                heads = ", ".join(map(repr, cls.head_shapes)) or "no heads"
                raise ValueError(f"{name!r} is no output head of a {cls.__name__}, which can have {heads}")
        return super().__new__(cls)

    # ------------------------------------------------------------------ what an architecture defines

    __init__: Callable[..., None]  # (config, output_heads, seed, dtype); the heads by name; seed None: all weights 0
    embed: Callable[..., tuple[np.ndarray, Any]]  # (inputs, run) -> the input of the first block (B,T,H), cache
    embed_backward: Callable[..., np.ndarray]  # (dx, inputs, cache, run) -> the gradient at the sum of the embeddings

    def encoder_inputs(self, inputs: Inputs) -> dict[str, Any]:
        """What the encoder gets besides the embeddings."""
        return {"mask": inputs.mask}

    def finish(self, x, run: Run) -> tuple[np.ndarray, Any]:
        """What follows the last block: the final norm, or nothing."""
        return (x, None) if self.final_norm is None else self.final_norm.forward(x, run)

    def finish_backward(self, dy, cache: Any, run: Run):
        return dy if self.final_norm is None else self.final_norm.backward(dy, cache, run)

    def more_arrays(self, embedding: Any, final: Any) -> dict[str, np.ndarray]:
        """Arrays of the caches of `embed` and `finish` to look at, by the names in cache.py."""
        return {} if self.final_norm is None else {"final_norm": final.x_hat}

    def embed_tokens(self, ids: Any) -> np.ndarray:
        """Each token's own term in the sum of the embeddings: (…,H), or (…,E) if the embeddings have another width."""
        return self.tokens.table.data[ids]

    def room(self, memory: Any) -> float:
        """How many tokens it can read after those in a memory."""
        return self.max_length

    @property
    def word_bias(self) -> Param | None:
        """The bias of the head for masked words, which starts at the words' log frequencies; None: it has none."""
        return None

    def start_words(self, shares: np.ndarray) -> None:
        """Set the bias of the word head to the words' log frequencies, if it has one that was not trained.

        shares: (V,) the relative frequency of each word; ids that the tokenizer never makes may be missing at the end
        """
        if self.word_bias is None or self.word_bias.data.any():
            return
        self.word_bias.data[...] = np.log(shares.min())
        self.word_bias.data[: shares.size] = np.log(shares)

    def start_attention(self) -> None:
        """Initialise the attention of a new model that is about to be trained, where noise is a slow start."""

    # ------------------------------------------------------------------ sizes and heads

    @property
    def width(self) -> int:
        return self.config.width

    @property
    def depth(self) -> int:
        return self.config.depth

    @property
    def heads(self) -> int:
        return self.config.heads

    @property
    def max_length(self) -> int:
        return self.config.max_length

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def output_heads(self) -> tuple[str, ...]:
        """The names of the output heads that this model has."""
        return tuple(name for name in self.head_shapes if getattr(self, name, None) is not None)

    def output_head(self, name: str) -> Layer:
        """The head with this name. If the model has none, the error says what to do."""
        head = getattr(self, name, None)
        if head is None:
            raise ValueError(f"this {type(self).__name__} has {self.without_head(name)}")
        return head

    def without_head(self, name: str) -> str:
        """ "no pooler: …", why, and what to do"""
        missing = f"no {HEADS.get(name, f'head {name!r}')}"
        if self.fine_tuned:
            source = ", or load the model it was fine-tuned from" if name in self.head_shapes else ""
            use = f"use `mini-bert predict` (with --score to evaluate it){source}"
            return f"{missing}: it was fine-tuned {self.fine_tuned}; {use}"
        known, here = (", ".join(names) or "none" for names in (self.head_shapes, self.output_heads))
        return self.head_help.get(name, f"{missing}: a model of its kind can have {known}, and this one has {here}")

    def heights(self) -> dict[str, float]:
        """How far up every parameter is: 0 in the embeddings, l in block l (counted from 1), L after the last block,
        L + 1 in heads. A block that is used several times counts with the mean of its places."""
        places: dict[int, list[int]] = {}
        for height, block in enumerate(self.encoder.blocks, 1):
            for param in block.named_params().values():
                places.setdefault(id(param), []).append(height)
        top = len(self.encoder.blocks)
        heads = {id(param) for name in self.output_heads for param in self.output_head(name).named_params().values()}
        heights: dict[str, float] = {}
        for name, param in self.named_params().items():
            part = name.partition(".")[0]
            if id(param) in places:
                heights[name] = sum(places[id(param)]) / len(places[id(param)])
            elif part in self.embedding_parts or part == "encoder":
                heights[name] = 0
            else:
                heights[name] = top + 1 if part == "task" or id(param) in heads else top
        return heights

    def untrained(self, seed: int) -> Self:
        """A model with the same configuration and heads, but random weights: the control for probes and fine-tuning."""
        return type(self)(self.config, self.output_heads, seed, self.dtype)

    # ------------------------------------------------------------------ ids -> one vector per token

    def check_inputs(self, input_ids, attention_mask=None, token_types=None) -> Inputs:
        ids = check_ids(input_ids, self.vocab_size, self.max_length)
        return Inputs(ids, check_mask(attention_mask, ids.shape), self.check_types(token_types, ids))

    def check_types(self, token_types, ids: np.ndarray) -> np.ndarray | None:
        """Checked token types; models without them ignore them."""
        return None

    @property
    def tells_texts_apart(self) -> bool:
        """Whether token types make a difference to this model"""
        types = np.array([[0, 1]])
        return np.array_equal(self.check_types(types, np.zeros_like(types)), types)  # type: ignore[arg-type]

    def encode(self, input_ids, attention_mask=None, token_types=None, run: Run | None = None, chosen=None):
        """Returns hidden (B,T,H), or (N,H) for chosen rows (b·T + t), and the cache.

        attention_mask: 1 for tokens, 0 for padding. token_types: 0 in the first text, 1 in the second.
        """
        run = self._new_run() if run is None else run
        return self.encode_inputs(self.check_inputs(input_ids, attention_mask, token_types), run, chosen)

    def encode_inputs(self, inputs: Inputs, run: Run, chosen=None):
        """`encode` for inputs that are already checked."""
        embedded, embedding = self.embed(inputs, run)  # (B,T,H)
        x, blocks = self.encoder.forward(embedded, run, chosen, **self.encoder_inputs(inputs))
        hidden, final = self.finish(x, run)
        more = self.more_arrays(embedding, final)
        return hidden, EncodeCache(inputs, embedded, embedding, blocks, final, hidden, more)

    def encode_backward(self, dhidden, cache: EncodeCache, run: Run | None = None):
        """Returns dx (B,T,H), the gradient at the sum of the embeddings. The cache cannot be used again."""
        run = run or self.run
        self.check_gradient(dhidden, cache)
        dx = self.finish_backward(dhidden, cache.final, run)
        dx = self.encoder.backward(dx, cache.blocks, run)
        return self.embed_backward(dx, cache.inputs, cache.embedding, run)

    def check_gradient(self, dhidden, cache: EncodeCache) -> None:
        if np.shape(dhidden) != cache.hidden.shape:
            raise ValueError(f"dhidden has shape {np.shape(dhidden)}, expected {cache.hidden.shape}, that of hidden")

    def hide(self, inputs: Inputs, hidden_rows, mask_id: int) -> Inputs:
        """The same inputs with the tokens at these rows hidden, so that they can be predicted from all others."""
        ids = inputs.ids.copy()
        ids.reshape(ids.size)[hidden_rows] = mask_id
        return self.asking(inputs._replace(ids=ids), hidden_rows)

    def asking(self, inputs: Inputs, hidden_rows) -> Inputs:
        """The inputs for predicting the tokens at these rows, which are masked in the ids."""
        return inputs

    # ------------------------------------------------------------------ every output

    def forward(self, input_ids, attention_mask=None, token_types=None, run: Run | None = None):
        """Returns an Output, with hidden (B,T,H) and the output of each head, and the cache for `backward`."""
        run = run or self._new_run()
        hidden, cache = self.encode(input_ids, attention_mask, token_types, run)
        outputs = {HIDDEN: hidden}
        for name in self.output_heads:
            x = outputs[self.head_inputs.get(name, HIDDEN)]
            outputs[name], cache.outputs[name] = self.output_head(name).forward(x, run)
        return Output(**outputs), cache

    def backward(self, dout: Output, cache: EncodeCache, run: Run | None = None):
        """Returns dx (B,T,H) at the sum of the embeddings; adds to every gradient.

        dout: an Output with the gradients of the outputs. None: this output is not part of the loss.
        """
        run = run or self.run
        self.encoder.check(cache.blocks)
        gradients = dict(vars(dout))
        for name in reversed(self.output_heads):
            if gradients.get(name) is not None:
                below = self.head_inputs.get(name, HIDDEN)
                dx = self.output_head(name).backward(gradients[name], cache.outputs[name], run)
                gradients[below] = dx if gradients.get(below) is None else gradients[below] + dx
        if gradients.get(HIDDEN) is None:
            raise ValueError("all gradients in dout are None; expected at least one")
        return self.encode_backward(gradients[HIDDEN], cache, run)

    # ------------------------------------------------------------------ the loss at chosen tokens

    def loss(
        self,
        input_ids,
        rows,
        targets,
        attention_mask=None,
        token_types=None,
        next_sentence=None,
        run: Run | None = None,
        count: int | None = None,
        sentences: int | None = None,
    ):
        """Mean cross-entropy at the chosen rows, plus that of next-sentence labels if given.

        Returns the loss and the cache for `loss_backward`.

        Token t of sequence b is row b·T + t; targets are the correct ids. next_sentence (B,) is 0 where the second text
        follows the first, 1 where it does not. `count` and `sentences` divide the sums (default: the numbers in this
        batch), so that the losses of parts of a large batch add up to its loss.

        Only the chosen rows enter the loss, so the head and most of the last block run on these rows only.
        """
        inputs = self.check_inputs(input_ids, attention_mask, token_types)
        terms = [Term(MASKED_WORDS, *check_rows(rows, targets, inputs.ids.shape), count)]
        if next_sentence is not None:
            B, T = inputs.ids.shape
            labels = check_ids([next_sentence], 2, B, "next_sentence")[0]
            terms.append(Term(NEXT_SENTENCE, np.arange(B) * T, labels, sentences))  # it reads [CLS]
        return self.loss_of(inputs, terms, run)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The same as `forward`."""
        return self.forward(*args, **options)

    def __repr__(self) -> str:
        sizes = f"{self.depth} layers, width {self.width}, {self.heads} heads, vocabulary of {self.vocab_size:,}"
        heads = ", ".join(self.output_heads) or "none"
        return (
            f"<{type(self).__name__}: {self.get_parameter_count():,} parameters in {self.dtype}; {sizes}, at most "
            f"{self.max_length} tokens; output heads: {heads}>"
        )

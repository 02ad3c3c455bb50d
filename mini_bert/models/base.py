"""The model interface, used by training, fine-tuning, probes, attention analysis, export and planning.

    hidden, cache = model.encode(ids, attention_mask, token_types)      hidden (B,T,H)
    dx = model.encode_backward(dhidden, cache)                          adds to every gradient
    cache["attention_weights_0"], cache["query_0"], cache["block_input_0"]      the same names for every model

A model consists of embeddings, an encoder of L blocks, and output heads. An architecture's file defines how ids are
embedded, what follows the last block, which heads there are, and the names of its tensors in files. The rest is here;
reading and writing files is in saving.py, and cache.py lists the arrays in a cache.

Letters: B batch, T tokens, H hidden width, A heads, d = H/A, V vocabulary, L layers, N chosen rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mini_bert.common.inputs import check_ids, check_mask, check_rows
from mini_bert.common.sixteen_bit import check_kind, narrow, stored, widen
from mini_bert.layers.base import Flat, Layer, Param, Pool, Run, bind
from mini_bert.layers.chosen import choose_rows_backward
from mini_bert.layers.cross_entropy import CrossEntropyCache, cross_entropy, cross_entropy_backward
from mini_bert.layers.encoder import Encoder
from mini_bert.layers.matrices import add_rows, rows
from mini_bert.models.cache import EncodeCache
from mini_bert.models.cache import Inputs as Inputs  # part of the interface: objectives make them
from mini_bert.models.saving import Saved

PART = 1 << 20  # weights that are rounded at a time

# The names of output heads that several models have: what they predict.
MASKED_WORDS, NEXT_WORD = "masked_words", "next_word"
NEXT_SENTENCE, SENTENCE_ORDER, REPLACED = "next_sentence", "sentence_order", "replaced"
POOLER = "pooler"  # the vector of [CLS], (B,H), which heads for whole sequences read
HEADS: Mapping[str, str] = {  # how errors call them
    MASKED_WORDS: "head for masked words", NEXT_WORD: "head for the next word", NEXT_SENTENCE: "next-sentence head",
    SENTENCE_ORDER: "head for the order of sentences", REPLACED: "head for replaced words", POOLER: "pooler",
}  # fmt: skip
HIDDEN = "hidden"
CONTENT, QUERY = "content", "query"  # streams of attention: a token that sees itself, and one that does not
OUTER = -1  # a key in the memo of a deepcopy, where ids are keys: a model is being copied as a part of another one


class Output(SimpleNamespace):
    """The results of `forward` by name: `hidden` (B,T,H), and one for each head; or their gradients for `backward`.

    A head that the model does not have is None.
    """

    def __getattr__(self, name: str) -> Any:  # called only for attributes that do not exist
        if name in (HIDDEN, *HEADS):
            return None
        raise AttributeError(name)


class Term(NamedTuple):
    """A part of the loss: the cross-entropy of an output head's scores at some rows."""

    head: str
    rows: np.ndarray | None  # (N,) row b·T + t is token t of sequence b; None: all rows, in order
    targets: np.ndarray  # (N,) the correct class of each row
    divisor: int | None = None  # of the sum over the rows; default: their number
    weight: float = 1.0  # of this part in the sum of all


class ScoreCache(NamedTuple):
    below: Any  # of the head that this one reads, or None
    own: Any
    binary: bool  # whether the head has one logit per row
    chosen: np.ndarray | None  # the rows that were asked for, of a head that reads whole sequences; None: all
    shape: tuple[int, ...]  # of what the head returned


class TermCache(NamedTuple):
    term: Term
    scores: ScoreCache | None  # None: the head has a loss of its own
    loss: float  # of this term, before its weight
    entropy: Any  # a CrossEntropyCache, or another with `targets`, `correct` and `pieces`


class LossCache(NamedTuple):
    encoded: EncodeCache
    terms: list[TermCache]  # backward empties this: the scores of a head are the largest of all caches

    def parts(self) -> dict[str, tuple[float, CrossEntropyCache]]:
        """The terms of the loss with their cross-entropies, by the name of the head. Read them before backward."""
        return {cache.term.head: (cache.loss, cache.entropy) for cache in self.terms}

    @property
    def cross_entropy(self) -> CrossEntropyCache:
        """Of the first term"""
        return self.terms[0].entropy


class Model(Saved):
    """A layer that owns its memory: `flat.data` holds all weights, `flat.grad` all gradients, one vector each.

    `run` is the default for calls without a `run` argument: `set_training` turns its dropout on and off.

    An architecture provides `build`, `embed` and `embed_backward`, the names of its tensors (saving.py), and output
    heads as attributes with the names in `head_shapes` (None or absent: this model has no such head).

    If its encoder is not a chain of blocks that all get the same mask, it writes its own: a subclass of `Encoder` with
    other `block_inputs`, or with its own forward and backward (two streams, an input shared by all blocks), or its own
    `encode_inputs` and `encode_backward`.
    """

    model_type: ClassVar[str]
    # The output heads that it can have, with the shapes of their outputs; a head comes after the one that it reads.
    head_shapes: ClassVar[Mapping[str, str]] = {}
    head_inputs: ClassVar[Mapping[str, str]] = {}  # a head that reads another one's output, such as the pooler's
    sequence_heads: ClassVar[frozenset[str]] = frozenset()  # for a row, they read other rows of its sequence, too
    head_help: ClassVar[Mapping[str, str]] = {}  # "no pooler: what to do without it", by the name of a head
    embedding_parts: ClassVar[tuple[str, ...]] = ("tokens",)  # its attributes before the first block, in order
    objective: ClassVar[str] = "masked_words"  # what it is pretrained on by default (objectives/registry.py)
    masking: ClassVar[str] = "pieces"  # how its words are chosen for prediction by default (training/setup.py, MASKING)
    vocabulary: ClassVar[str] = "8k"  # the bundled one for its preset, of the kind that it was published with
    empty_memory: ClassVar[Any] = None  # `Inputs.memory` before the first token; None: what it reads is not remembered
    reads_forward: ClassVar[bool] = False  # no token sees a later one, so only the last one has seen a whole text
    streams: ClassVar[tuple[str, ...]] = (CONTENT,)  # of attention; XLNet has another one
    pools_cls: ClassVar[bool] = True  # fine-tuning classifies the vector of [CLS]; False: a mean over all words

    tokens: Any  # the embedding of token ids
    encoder: Encoder
    task: Any = None  # the layer on top of a fine-tuned model
    flat: Flat
    run: Run
    _passes = 0

    # ------------------------------------------------------------------ what an architecture defines

    build: Callable[..., Any]  # (config, heads, seed, dtype) -> a new model with these output heads; seed None: all 0
    embed: Callable[..., tuple[np.ndarray, Any]]  # (inputs, run) -> the input of the first block (B,T,H), cache
    embed_backward: Callable[..., np.ndarray]  # (dx, inputs, cache, run) -> the gradient at the sum of the embeddings

    def encoder_inputs(self, inputs: Inputs) -> dict[str, Any]:
        """What the encoder gets besides the embeddings."""
        return {"mask": inputs.mask}

    def finish(self, x, run: Run) -> tuple[np.ndarray, Any]:
        """What follows the last block: nothing, or a final norm."""
        return x, None

    def finish_backward(self, dy, cache: Any, run: Run):
        return dy

    def more_arrays(self, embedding: Any, final: Any) -> dict[str, np.ndarray]:
        """Arrays of the caches of `embed` and `finish` to look at, by the names in cache.py."""
        return {}

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
            others = ", ".join(self.output_heads) or "none"
            general = f"no {HEADS.get(name, f'head {name!r}')}: its architecture has other ones; here: {others}"
            raise ValueError(f"this {type(self).__name__} has {self.head_help.get(name, general)}")
        return head

    def heights(self) -> dict[str, float]:
        """How far up every parameter is: 0 in the embeddings, l in block l (counted from 1), L after the last block,
        L + 1 in heads. A block that is used several times counts with the mean of its places."""
        places: dict[int, list[int]] = {}
        for height, block in enumerate(self.encoder.blocks, 1):
            for param in block.named_params().values():
                places.setdefault(id(param), []).append(height)
        top = len(self.encoder.blocks)
        heads = {id(param) for name in self.output_heads for param in self.output_head(name).named_params().values()}
        found: dict[str, float] = {}
        for name, param in self.named_params().items():
            part = name.partition(".")[0]
            if id(param) in places:
                found[name] = sum(places[id(param)]) / len(places[id(param)])
            elif part in self.embedding_parts or part == "encoder":
                found[name] = 0
            else:
                found[name] = top + 1 if part == "task" or id(param) in heads else top
        return found

    def untrained(self, seed: int) -> Self:
        """A model with the same configuration and heads, but random weights: the control for probes and fine-tuning."""
        return type(self).build(self.config, self.output_heads, seed, self.dtype)

    # ------------------------------------------------------------------ ids -> one vector per token

    def check_inputs(self, input_ids, attention_mask=None, token_types=None) -> Inputs:
        ids = check_ids(input_ids, self.vocab_size, self.max_length)
        return Inputs(ids, check_mask(attention_mask, ids.shape), self.check_types(token_types, ids))

    def check_types(self, token_types, ids: np.ndarray) -> np.ndarray | None:
        """Checked token types; models without them ignore them."""
        return None

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
        return inputs._replace(ids=ids)

    # ------------------------------------------------------------------ every output

    def forward(self, input_ids, attention_mask=None, token_types=None, run: Run | None = None):
        """Returns an Output, with hidden (B,T,H) and the output of each head, and the cache for `backward`."""
        run = run or self._new_run()
        hidden, cache = self.encode(input_ids, attention_mask, token_types, run)
        found = {HIDDEN: hidden}
        for name in self.output_heads:
            x = found[self.head_inputs.get(name, HIDDEN)]
            found[name], cache.outputs[name] = self.output_head(name).forward(x, run)
        return Output(**found), cache

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

    def loss_of(self, inputs: Inputs, terms: Sequence[Term], run: Run | None = None):
        """The sum of the terms, for inputs that are already checked. Returns the loss and the cache for
        `loss_backward`."""
        run = self._new_run() if run is None else run
        for term in terms:
            self.output_head(term.head)
        every = any(term.rows is None or term.head in self.sequence_heads for term in terms)
        chosen = None if every else _concatenated([term.rows for term in terms])
        hidden, encoded = self.encode_inputs(inputs, run, chosen)  # (N,H) the rows of all terms, or (B,T,H)
        x, start, loss, caches = rows(hidden), 0, 0.0, []
        for term in terms:
            if term.head in self.sequence_heads:
                cache = self.term_loss(term, hidden, run)
            elif every:
                cache = self.term_loss(term, x if term.rows is None else x[term.rows], run)
            else:
                cache = self.term_loss(term, x[start : start + term.targets.size], run)
                start += term.targets.size
            loss += cache.loss if term.weight == 1 else term.weight * cache.loss
            caches.append(cache)
        return loss, LossCache(encoded, caches)

    def loss_backward(self, cache: LossCache, dloss: float = 1.0, run: Run | None = None):
        """Returns dx (B,T,H) at the sum of the embeddings; adds to every gradient."""
        run = run or self.run
        if not isinstance(cache, LossCache):
            raise TypeError(f"loss_backward takes the cache of loss, not a {type(cache).__name__}; see also backward")
        self.encoder.check(cache.encoded.blocks)
        gradients = []
        while cache.terms:
            part = cache.terms.pop(0)
            dx = self.term_loss_backward(dloss * part.term.weight, part, run)  # (N,H)
            gradients.append((None if part.term.head in self.sequence_heads else part.term.rows, dx))
            del part  # the blocks reuse its memory
        dhidden = _joined(gradients, cache.encoded.hidden.shape)
        del gradients
        return self.encode_backward(dhidden, cache.encoded, run)

    def term_loss(self, term: Term, x, run: Run) -> TermCache:
        """The cross-entropy of a term for its rows x (N,H), or all rows (B,T,H) for a head that reads sequences.

        A head may have a `loss` of its own that computes only some of the scores (adaptive_softmax.py).
        """
        head: Any = self.output_head(term.head)
        if hasattr(head, "loss"):
            return TermCache(term, None, *head.loss(x, term.targets, term.divisor, run))
        chosen = term.rows if term.head in self.sequence_heads else None
        scores, cache = self.score(term.head, x, run, chosen)  # (N,C)
        return TermCache(term, cache, *cross_entropy(scores, term.targets, term.divisor, out=scores))

    def term_loss_backward(self, dloss: float, cache: TermCache, run: Run):
        """Returns dx (N,H); adds to the gradients of the head."""
        head: Any = self.output_head(cache.term.head)
        if cache.scores is None:
            return head.loss_backward(dloss, cache.entropy, run)
        dscores = cross_entropy_backward(dloss, cache.entropy, out=cache.entropy.exp)
        return self.score_backward(cache.term.head, dscores, cache.scores, run)

    def score(self, name: str, x, run: Run, chosen=None) -> tuple[np.ndarray, ScoreCache]:
        """The scores of an output head for rows x (N,H): (N,C), and the cache for `score_backward`.

        A head that reads whole sequences needs all rows, x (B,T,H), and its scores are those of the chosen ones.

        One logit z per row answers a yes-or-no question: its scores are [0, z], and their softmax is [1 − σ(z), σ(z)].
        """
        below = None
        if name in self.sequence_heads and x.ndim != 3:
            raise ValueError(f"the head {name!r} reads whole sequences, so x needs the shape (B,T,H), got {x.shape}")
        if name in self.head_inputs:
            x, below = self.output_head(self.head_inputs[name]).forward(x[:, None], run)
        scores, own = self.output_head(name).forward(x, run)
        cache = ScoreCache(below, own, scores.shape[-1] == 1, chosen, scores.shape)
        scores = rows(scores) if chosen is None else rows(scores)[chosen]
        return np.pad(scores, ((0, 0), (1, 0))) if cache.binary else scores, cache

    def score_backward(self, name: str, dscores, cache: ScoreCache, run: Run):
        """Returns dx (N,H), of all rows for a head that reads whole sequences; adds to the gradients of the head."""
        dscores = dscores[:, 1:] if cache.binary else dscores
        if cache.chosen is not None:
            dscores = choose_rows_backward(dscores, (cache.shape, cache.chosen))
        dx = self.output_head(name).backward(dscores.reshape(cache.shape), cache.own, run)
        if name in self.head_inputs:
            dx = self.output_head(self.head_inputs[name]).backward(dx, cache.below, run)[:, 0]
        return rows(dx)

    # ------------------------------------------------------------------ weights in memory

    def _own_memory(self, seed: int | None, dtype: Any) -> None:
        """Call at the end of a constructor, when all Params are declared. Without a seed all weights are 0."""
        if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype is {np.dtype(dtype)}, expected float32 (for use) or float64 (for checking)")
        try:
            flat = bind(self, dtype=dtype, seed=seed)
        except MemoryError:
            raise MemoryError(self._needs_memory(np.dtype(dtype).itemsize)) from None
        self._use(flat, Run(seed=seed or 0, pool=Pool()))

    def _use(self, flat: Flat, run: Run) -> None:
        """Set the memory and the default run, also for models inside this one."""
        self.flat, self.run = flat, run
        for inner in self.inner_models():
            inner._use(flat, run)

    def inner_models(self) -> list[Model]:
        """Models inside this one, which share its memory: the generator of an ELECTRA."""
        return [part for part in vars(self).values() if isinstance(part, Model)]

    def _needs_memory(self, width: int) -> str:
        parameters = sum(param.size for param in self.named_params().values())
        use, training = (f"{count * width * parameters / 1e9:,.1f} GB" for count in (2, 4))
        return (
            f"not enough memory for this model of {parameters:,} parameters: it needs {use} for weights and "
            f"gradients, and at least {training} to train; `mini-bert plan` shows how to use less"
        )

    def replica(self) -> Self:
        """The same model on the same weights, with its own gradients and scratch memory: for a second thread."""
        twin = self._unbound({})
        twin._use(bind(twin, self.flat.data), self._own_run())
        return twin

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

    def __deepcopy__(self, memo: Any) -> Self:
        twin = self._unbound(memo)
        if OUTER not in memo:
            data, grad = (np.concatenate([flat[place] for place in self._places()]) for flat in self.flat[:2])
            twin._use(bind(twin, data, grad), self._own_run())
        return twin

    def __reduce__(self):
        """A pickle contains the weights, but not the gradients, which are 0 afterwards."""
        return _unpickled, (
            type(self),
            self._parts(),
            self.flat.data,
            self.flat.grad.dtype,
            self.run.seed,
            self.run.train,
        )

    def __copy__(self) -> Self:
        return self.replica()

    def _parts(self) -> dict[str, Any]:
        """All attributes but those that concern memory."""
        return {name: part for name, part in vars(self).items() if name not in ("flat", "run")}

    def _unbound(self, memo: dict[Any, Any]) -> Self:
        """A copy of all layers whose weights have no memory yet. memo: as for `__deepcopy__`"""
        twin = object.__new__(type(self))
        vars(twin).update(deepcopy(self._parts(), {**memo, OUTER: True} if OUTER not in memo else memo))
        return twin

    def _places(self) -> list[slice]:
        """Our parts of the flat arrays, in the order of `bind`: all of them, unless this model is inside another."""
        if self.flat.data.size == self.get_parameter_count():
            return [slice(None)]
        return [param.place for param in sorted(self.named_params().values(), key=lambda param: not param.decay)]

    def _own_run(self) -> Run:
        """A Run with its own scratch memory"""
        return Run(self.run.seed, self.run.train, Pool())

    def keep_weights(self, kind: str) -> Self:
        """Store the weights as "float32", "bfloat16" or "float16"; products and gradients stay float32."""
        self.check_weights(kind)
        exact = self.flat.data if self.flat.data.itemsize == 4 else widen(self.flat.data)
        data = exact if kind == "float32" else stored(exact.size, kind)
        if data is not exact:
            for start in range(0, exact.size, PART):  # rounding copies: one part at a time
                narrow(exact[start : start + PART], data[start : start + PART])
        self._use(bind(self, data, self.flat.grad), self.run)
        return self

    def check_weights(self, kind: str) -> None:
        """Raise the error that `keep_weights` would raise."""
        check_kind("kind", kind)
        if self.dtype != np.float32:
            raise ValueError(f"this model computes in {self.dtype}; 16-bit weights need float32")

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.flat.grad.dtype

    def set_training(self, training: bool) -> Self:
        """True: dropout is on. False, as at the start: the same input gives the same output every time."""
        self.run.train = bool(training)
        return self

    def _new_run(self) -> Run:
        """A Run for one forward pass without a `run` argument: in training, every pass draws different numbers."""
        self._passes += 1
        return self.run.fork(self._passes)

    def zero_grad(self) -> None:
        self.flat.grad[...] = 0
        for param in self.named_params().values():
            param.grad_is_unset = False

    def get_parameter_count(self, by_component: bool = False) -> Any:
        """The number of parameters, or a dictionary {component: number} that sums to it."""
        if not by_component:
            return sum(param.size for param in self.named_params().values())
        counts: dict[str, int] = {}
        for name, param in self.named_params().items():
            parts = name.split(".")  # encoder.blocks.0.attention.qkv.w belongs to encoder.blocks.0, head.b to head
            inside = 0 if parts[0] != "encoder" else 2 if parts[1] == "blocks" else 1
            component = ".".join(parts[: 1 + inside])
            counts[component] = counts.get(component, 0) + param.size
        return counts


def _concatenated(arrays):
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _joined(gradients, shape):
    """The gradient at the hidden states, from those at the rows of each term; rows None: all.

    shape (N,H): the hidden states are the rows of all terms, one after the other. shape (B,T,H): they are all rows.
    """
    if len(shape) == 2 or (gradients[0][0] is None and len(gradients) == 1):
        return _concatenated([dx for _, dx in gradients]).reshape(shape)
    dhidden = np.zeros(shape, gradients[0][1].dtype)
    for chosen, dx in gradients:
        if chosen is None:
            dhidden += dx.reshape(shape)
        else:
            add_rows(rows(dhidden), chosen, dx)
    return dhidden


def _unpickled(kind: type[Model], parts: dict[str, Any], data: np.ndarray, dtype: Any, seed: Any, train: bool) -> Model:
    model = object.__new__(kind)
    vars(model).update(parts)
    if data.size == model.get_parameter_count():  # else it is inside another model, which is unpickled next
        model._use(bind(model, data, np.zeros(data.size, dtype)), Run(seed, train, Pool()))
    return model

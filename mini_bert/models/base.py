"""The model interface, used by training, fine-tuning, probes, attention analysis, export and planning.

    hidden, cache = model.encode(ids, attention_mask, token_types)      hidden (B,T,H)
    dx = model.encode_backward(dhidden, cache)                          adds to every gradient
    cache["attention_weights_0"], cache["query_0"], cache["block_input_0"]      the same names for every model

A model consists of embeddings, an encoder of L blocks, and output heads. An architecture's file defines how ids are
embedded, what follows the last block, which heads there are, and the names of its tensors in files. The rest is here.

Letters: B batch, T tokens, H hidden width, A heads, d = H/A, V vocabulary, L layers, N chosen rows.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from mini_bert.common.inputs import check_ids, check_mask, check_rows
from mini_bert.common.sixteen_bit import check_kind, narrow, stored, widen
from mini_bert.files.model_folder import WEIGHT_FILES, Name, assign, read_folder, read_tensors, write_folder
from mini_bert.layers.base import Flat, Layer, Param, Pool, Run, bind
from mini_bert.layers.cross_entropy import CrossEntropyCache, cross_entropy, cross_entropy_backward
from mini_bert.layers.encoder import Encoder, RecomputeCache
from mini_bert.layers.lean_attention import LeanCache
from mini_bert.layers.packed import PackedCache

PART = 1 << 20  # weights that are rounded at a time
MASKED_WORDS, NEXT_SENTENCE, POOLER = "masked_words", "next_sentence", "pooler"  # names of output heads


class Inputs(NamedTuple):
    """Checked inputs of one batch."""

    ids: np.ndarray  # (B,T)
    mask: np.ndarray | None = None  # (B,1,1,T), True for tokens that may be attended to; None: all
    types: np.ndarray | None = None  # (B,T) 0 in the first text, 1 in the second; None: 0 everywhere


class EncodeCache(Mapping[str, np.ndarray]):
    """The intermediate results of `encode`, for `encode_backward` and for inspection by name.

    cache["attention_weights_0"] is (B,A,T,T): row t holds how much token t attends to each token in the first block.
    `list(cache)` lists all names. Norms are given as x̂, before γ and β; `feed_forward_inner` is the hidden layer after
    its activation.
    """

    def __init__(
        self, inputs: Inputs, embedded: np.ndarray, embedding: Any, blocks: list[Any], final: Any, hidden: np.ndarray
    ):
        self.inputs, self.embedded, self.embedding = inputs, embedded, embedding
        self.blocks, self.final, self.hidden = blocks, final, hidden

    def hidden_states(self) -> list[np.ndarray]:
        """[embeddings, after block 1, …, after block L−1, hidden]: L+1 arrays (B,T,H). Read them before backward."""
        return [*map(_block_input, self.blocks), self.hidden]

    def attention_weights(self) -> list[np.ndarray]:
        """The weights of each block, (B,A,T,T); every row sums to 1. Lean attention computes them on request."""
        if any(isinstance(block, RecomputeCache) for block in self.blocks):
            raise ValueError(
                "gradient checkpointing keeps no attention weights; inspect the model without gradient checkpointing"
            )
        return [_unpacked(block).attention.attended.probs for block in self.blocks]

    def arrays(self) -> dict[str, np.ndarray]:
        named = {"embeddings": self.embedded}
        for index, block in enumerate(self.blocks):
            named[f"block_input_{index}"] = _block_input(block)
            if isinstance(block, RecomputeCache):  # keeps nothing else
                continue
            block = _unpacked(block)
            named |= {f"{name}_{index}": array for name, array in attention_arrays(block.attention).items()}
            named[f"attention_norm_{index}"] = block.attention_norm.x_hat
            named[f"feed_forward_inner_{index}"] = block.feed_forward.contract
            named[f"output_norm_{index}"] = block.output_norm.x_hat
        if self.final is not None:
            named["final_norm"] = self.final.x_hat
        named["hidden"] = self.hidden
        return named

    def __getitem__(self, name: str) -> np.ndarray:
        arrays = self.arrays()
        if name not in arrays:
            why = "" if self.blocks else " (backward has used up the caches of the blocks)"
            if name.startswith("attention_weights_") and name.replace("attention_weights", "query") in arrays:
                why = " (lean attention keeps none; cache.attention_weights() computes them)"
            elif (
                f"block_input_{name.rpartition('_')[2]}" in arrays and f"query_{name.rpartition('_')[2]}" not in arrays
            ):
                why = " (gradient checkpointing keeps only a block's input)"
            raise KeyError(f"no array {name!r} in this cache{why}; it has {', '.join(arrays)}")
        return arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays())

    def __len__(self) -> int:
        return len(self.arrays())


def _unpacked(block: Any) -> Any:
    return block.unpacked() if isinstance(block, PackedCache) else block


def _block_input(block: Any) -> np.ndarray:
    if isinstance(block, RecomputeCache):
        return block.x
    return _unpacked(block).attention.projected


def attention_arrays(cache: Any) -> dict[str, np.ndarray]:
    """The arrays of one attention cache, by name; lean attention keeps no weights."""
    named = {
        "attention_input": cache.projected,
        "query": cache.q,
        "key": cache.k,
        "value": cache.attended.v,
        "attention_weights": None if isinstance(cache.attended, LeanCache) else cache.attended.probs,
        "context": cache.output,
    }
    return {name: array for name, array in named.items() if array is not None}


class LossCache(NamedTuple):
    encoded: EncodeCache
    head: Any
    entropy: list[CrossEntropyCache]  # one, removed by backward: it is the largest of all caches
    sentences: Any = None  # caches of pooler, next-sentence head and its cross-entropy
    losses: tuple[float, ...] = ()  # the terms of the loss: of masked words, and of next-sentence labels

    @property
    def cross_entropy(self) -> CrossEntropyCache:
        return self.entropy[0]

    def parts(self) -> dict[str, tuple[float, CrossEntropyCache]]:
        """The terms of the loss with their cross-entropies, by the name of the head. Read them before backward."""
        entropies = [*self.entropy, *([] if self.sentences is None else [self.sentences[-1]])]
        return dict(zip((MASKED_WORDS, NEXT_SENTENCE), zip(self.losses, entropies, strict=True), strict=False))


class Model(Layer):
    """A layer that owns its memory: `flat.data` holds all weights, `flat.grad` all gradients, one vector each.

    `run` is the default for calls without a `run` argument: `set_training` turns its dropout on and off.

    An architecture provides `build`, `embed` and `embed_backward`, the names of its tensors, and its heads as
    attributes `masked_words`, `pooler`, `next_sentence` (None: this model has no such head).
    """

    model_type: ClassVar[str]
    config_class: ClassVar[Any]
    family: ClassVar[str]  # "Bert" in the names of published classes such as BertForMaskedLM
    head_help: ClassVar[Mapping[str, str]]  # what to do if the head with this name is missing

    pools_cls: ClassVar[bool] = True  # fine-tuning classifies the vector of [CLS]; False: a mean over all words
    prefix: ClassVar[str] = ""  # of the encoder's names in a file that also holds heads
    head_prefixes: ClassVar[tuple[str, ...]] = ()  # of the names of its heads

    config: Any
    tokens: Any  # the embedding of token ids
    encoder: Encoder
    masked_words: Any = None
    pooler: Any = None
    next_sentence: Any = None
    task: Any = None  # the layer on top of a fine-tuned model
    flat: Flat
    run: Run
    _passes = 0

    # ------------------------------------------------------------------ what an architecture defines

    build: Callable[..., Any]  # (config, heads, seed, dtype) -> a new model with these output heads; seed None: all 0
    embed: Callable[..., tuple[np.ndarray, Any]]  # (inputs, run) -> the input of the first block (B,T,H), cache
    embed_backward: Callable[..., np.ndarray]  # (dx, inputs, cache, run) -> the gradient at the sum of the embeddings
    heads_in: Callable[..., list[str]]  # (config.json, tensors) -> the output heads that a file holds
    word_bias: Param  # the bias of the head for masked words

    def finish(self, x, run: Run) -> tuple[np.ndarray, Any]:
        """What follows the last block: nothing, or a final norm."""
        return x, None

    def finish_backward(self, dy, cache: Any, run: Run):
        return dy

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
        return tuple(name for name in (MASKED_WORDS, POOLER, NEXT_SENTENCE) if getattr(self, name) is not None)

    def output_head(self, name: str) -> Layer:
        """The head with this name. If the model has none, the error says what to do."""
        head = getattr(self, name, None)
        if head is None:
            what = {MASKED_WORDS: "head for masked words", NEXT_SENTENCE: "next-sentence head"}.get(name, name)
            raise ValueError(f"this {type(self).__name__} has no {what}: {self.head_help[name]}")
        return head

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
        x, blocks = self.encoder.forward(embedded, run, mask=inputs.mask, chosen=chosen)
        hidden, final = self.finish(x, run)
        return hidden, EncodeCache(inputs, embedded, embedding, blocks, final, hidden)

    def encode_backward(self, dhidden, cache: EncodeCache, run: Run | None = None):
        """Returns dx (B,T,H), the gradient at the sum of the embeddings. The cache cannot be used again."""
        run = run or self.run
        dx = self.finish_backward(dhidden, cache.final, run)
        dx = self.encoder.backward(dx, cache.blocks, run)
        return self.embed_backward(dx, cache.inputs, cache.embedding, run)

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
        rows, targets = check_rows(rows, targets, inputs.ids.shape)
        if next_sentence is not None:
            next_sentence = check_ids([next_sentence], 2, len(inputs.ids), "next_sentence")[0]
        return self.loss_of(inputs, rows, targets, next_sentence, run, count, sentences)

    def loss_of(
        self,
        inputs: Inputs,
        rows,
        targets,
        next_sentence=None,
        run: Run | None = None,
        count: int | None = None,
        sentences: int | None = None,
    ):
        """`loss` for inputs that are already checked."""
        run = self._new_run() if run is None else run
        words = self.output_head(MASKED_WORDS)
        if next_sentence is not None:
            self.output_head(NEXT_SENTENCE)
        B, T = inputs.ids.shape
        chosen = rows if next_sentence is None else np.concatenate([rows, np.arange(B) * T])  # the pooler reads [CLS]
        hidden, encoded = self.encode_inputs(inputs, run, chosen)  # (N,H) or (N+B,H)
        logits, head = words.forward(hidden[: rows.size], run)  # (N,V)
        loss, entropy = cross_entropy(logits, targets, count, out=logits)
        if next_sentence is None:
            return loss, LossCache(encoded, head, [entropy], losses=(loss,))
        pooled, pooler = self.output_head(POOLER).forward(hidden[rows.size :, None], run)
        logits, following = self.output_head(NEXT_SENTENCE).forward(pooled, run)
        next_loss, next_entropy = cross_entropy(logits, next_sentence, sentences)
        sentences_cache = (pooler, following, next_entropy)
        return loss + next_loss, LossCache(encoded, head, [entropy], sentences_cache, (loss, next_loss))

    def loss_backward(self, cache: LossCache, dloss: float = 1.0, run: Run | None = None):
        """Returns dx (B,T,H) at the sum of the embeddings; adds to every gradient."""
        run = run or self.run
        if not isinstance(cache, LossCache):
            raise TypeError(f"loss_backward takes the cache of loss, not a {type(cache).__name__}; see also backward")
        self.encoder.check(cache.encoded.blocks)
        entropy = cache.entropy.pop()
        dlogits = cross_entropy_backward(dloss, entropy, out=entropy.exp)
        dhidden = self.output_head(MASKED_WORDS).backward(dlogits, cache.head, run)
        del entropy, dlogits  # the blocks reuse their memory
        if cache.sentences is not None:
            pooler, following, next_entropy = cache.sentences
            dlogits = cross_entropy_backward(dloss, next_entropy)
            dpooled = self.output_head(NEXT_SENTENCE).backward(dlogits, following, run)
            dfirst = self.output_head(POOLER).backward(dpooled, pooler, run)  # (B,1,H)
            dhidden = np.concatenate([dhidden, dfirst[:, 0]])
        return self.encode_backward(dhidden, cache.encoded, run)

    # ------------------------------------------------------------------ weights in memory

    def _own_memory(self, seed: int | None, dtype: Any) -> None:
        """Call at the end of a constructor, when all Params are declared. Without a seed all weights are 0."""
        if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
            raise ValueError(f"dtype is {np.dtype(dtype)}, expected float32 (for use) or float64 (for checking)")
        self.flat = bind(self, dtype=dtype, seed=seed)
        self.run = Run(seed=seed or 0, pool=Pool())

    def replica(self) -> Self:
        """The same model on the same weights, with its own gradients and scratch memory: for a second thread."""
        twin = self._unbound()
        twin.flat = bind(twin, self.flat.data)
        return twin

    def __deepcopy__(self, memo: Any) -> Self:
        twin = self._unbound()
        twin.flat = bind(twin, self.flat.data.copy(), self.flat.grad.copy())
        return twin

    def _unbound(self) -> Self:
        """A copy of all layers whose weights have no memory yet."""
        twin = copy(self)
        vars(twin).update(deepcopy({name: part for name, part in vars(self).items() if name not in ("flat", "run")}))
        twin.run = Run(self.run.seed, self.run.train, Pool())
        return twin

    def keep_weights(self, kind: str) -> Self:
        """Store the weights as "float32", "bfloat16" or "float16"; products and gradients stay float32."""
        self.check_weights(kind)
        exact = self.flat.data if self.flat.data.itemsize == 4 else widen(self.flat.data)
        data = exact if kind == "float32" else stored(exact.size, kind)
        if data is not exact:
            for start in range(0, exact.size, PART):  # rounding copies: one part at a time
                narrow(exact[start : start + PART], data[start : start + PART])
        self.flat = bind(self, data, self.flat.grad)
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
            return self.flat.data.size
        counts: dict[str, int] = {}
        for name, param in self.named_params().items():
            parts = name.split(".")  # encoder.blocks.0.attention.qkv.w belongs to encoder.blocks.0, head.b to head
            component = ".".join(parts[:3]) if parts[0] == "encoder" else parts[0]
            counts[component] = counts.get(component, 0) + param.size
        return counts

    # ------------------------------------------------------------------ files

    def names(self) -> list[Name]:
        """The table of tensor names in files and here, for loading and saving. By default the names are the same."""
        return [Name(name, (name,)) for name in self.named_params()]

    @classmethod
    def canonical(cls, name: str) -> str:
        """One spelling for the names that different versions of a library wrote."""
        return name

    def task_names(self, head_name: str) -> list[Name]:
        """The same for the task layer of a fine-tuned model; files call its last linear layer `head_name`."""
        return []

    def reconcile(self, tensors: dict[str, Any], table: list[Name], source: str) -> list[str]:
        """Complete a file's tensors where older files lack some; returns the names that no part of the model uses."""
        return []

    def file_tensors(self, head_name: str = "") -> dict[str, Any]:
        """All weights under the names that files use."""
        params = self.named_params()
        tensors: dict[str, Any] = {}
        for entry in [*self.names(), *self.task_names(head_name)]:
            tensors |= entry.save(params[entry.ours].data)
        heads = (*self.head_prefixes, *([f"{head_name}."] if head_name else []))
        if not any(name.startswith(heads) for name in tensors):
            return tensors
        return {name if name.startswith(heads) else self.prefix + name: array for name, array in tensors.items()}

    def file_config(self) -> dict[str, Any]:
        """The content of config.json."""
        return self.config.to_dict()

    def assign_tensors(self, tensors: Mapping[str, Any], source: str, head_name: str = "") -> None:
        """Copy a file's tensors into our weights; nothing changes unless all of them fit."""
        params = self.named_params()
        table = [*self.names(), *self.task_names(head_name)]
        known = {name for entry in table for name in entry.theirs}
        if known != set(params) != set(tensors):  # published names
            found = {self.canonical(name): array for name, array in tensors.items()}
            unused = self.reconcile(found, table, source)
            absent = sorted(known - set(found))
            if absent:
                raise ValueError(f"{source} lacks {', '.join(absent[:5])}{' and more' if len(absent) > 5 else ''}")
            if unused:
                warnings.warn(f"{source}: no part of this model uses {', '.join(unused)}", stacklevel=3)
            tensors = {entry.ours: entry.load(found) for entry in table}
        assign(params, tensors, source)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write `config.json` and `model.safetensors`; published architectures use the names `transformers` expects."""
        write_folder(folder, self.file_config(), self.file_tensors())

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], dtype: Any = np.float32) -> Self:
        """Read a model folder, the folder of a run, or a bundled model by name.

        The model has the heads that the file has. From a fine-tuned folder only the encoder is loaded.
        """
        values, tensors = read_folder(folder)
        config = cls.config_class.from_dict(values)
        if "fine_tuning" in values and any(name.startswith("task.") for name in tensors):
            warnings.warn(
                f"{folder} was fine-tuned; only its encoder is loaded here (`mini-bert predict` uses all of it)",
                stacklevel=2,
            )
            tensors = {name: array for name, array in tensors.items() if not name.startswith("task.")}
        found = {cls.canonical(name): array for name, array in tensors.items()}
        model = cls.build(config, cls.heads_in(values, found), seed=None, dtype=dtype)
        model.assign_tensors(tensors, str(folder))
        return model

    def load_checkpoint(self, path: str | os.PathLike[str]) -> Self:
        """Load weights from a file (`model.safetensors`) or the folder of a model, a checkpoint or a run.

        For a run, this is its best model, or its newest checkpoint if there is no best model yet.
        """
        is_file = Path(path).suffix in WEIGHT_FILES and not Path(path).is_dir()
        tensors = read_tensors(path) if is_file else read_folder(path)[1]
        self.assign_tensors(tensors, str(path))
        return self


def linear_names(ours: str, *theirs: str) -> list[Name]:
    """Files store weights as (out,in), we as (in,out); several of their tensors may form one of ours, side by side."""
    return [
        Name(f"{ours}.w", tuple(f"{name}.weight" for name in theirs), transposed=True),
        Name(f"{ours}.b", tuple(f"{name}.bias" for name in theirs)),
    ]


def norm_names(ours: str, theirs: str) -> list[Name]:
    return [Name(f"{ours}.gamma", (f"{theirs}.weight",)), Name(f"{ours}.beta", (f"{theirs}.bias",))]

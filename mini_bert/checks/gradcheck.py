"""Every layer and every model against finite differences: the table for `mini-bert gradcheck`.

The tests use `CASES` too, to check the whole contract of each layer. Where possible, every dimension is a different
prime, so that swapped axes fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mini_bert.checks.case import Case, Function, plain
from mini_bert.checks.deberta_cases import DEBERTA_CASES
from mini_bert.checks.gradients import Checked, gradient_check
from mini_bert.checks.objective_cases import distilled, pair
from mini_bert.checks.pre_norm_cases import PRE_NORM_CASES
from mini_bert.checks.relative_cases import RELATIVE_CASES, transformer_xl, xlnet
from mini_bert.common.wording import did_you_mean
from mini_bert.finetuning.heads import (
    PairHead,
    SentenceHead,
    SpanHead,
    TokenHead,
    VectorHead,
    span_loss,
    span_loss_backward,
)
from mini_bert.finetuning.model import with_task
from mini_bert.finetuning.tasks.answer import Answer
from mini_bert.finetuning.tasks.base import Batch, Task
from mini_bert.finetuning.tasks.classify import Classify
from mini_bert.finetuning.tasks.similarity import Similarity
from mini_bert.finetuning.tasks.tag import Tag
from mini_bert.layers.activations import ACTIVATIONS
from mini_bert.layers.attention import MultiHeadAttention, attend, attend_backward
from mini_bert.layers.base import Layer, Run, bind
from mini_bert.layers.block import TransformerBlock
from mini_bert.layers.chosen import choose_rows, choose_rows_backward
from mini_bert.layers.cross_entropy import cross_entropy, cross_entropy_backward
from mini_bert.layers.dropout import dropout, dropout_backward
from mini_bert.layers.efficient_attention import EfficientAttention
from mini_bert.layers.embedding import Embedding, PositionEmbedding
from mini_bert.layers.encoder import Encoder, Recompute
from mini_bert.layers.feed_forward import FeedForward
from mini_bert.layers.layer_norm import LayerNorm
from mini_bert.layers.linear import Linear, TiedLinear
from mini_bert.layers.pooling import POOLING
from mini_bert.layers.similarity import (
    beside,
    beside_backward,
    contrastive,
    contrastive_backward,
    cosine,
    cosine_backward,
    squared_error,
    squared_error_backward,
    views,
    views_backward,
)
from mini_bert.layers.soft_cross_entropy import soft_cross_entropy, soft_cross_entropy_backward
from mini_bert.layers.softmax import softmax, softmax_backward
from mini_bert.models.albert import Albert, AlbertConfig, SentenceOrderHead
from mini_bert.models.base import MASKED_WORDS, NEXT_WORD, REPLACED, SENTENCE_ORDER, Model
from mini_bert.models.bert import Bert, BertConfig
from mini_bert.models.config import MINI_BERT_CONFIG, MiniBertConfig
from mini_bert.models.deberta import Deberta, DebertaConfig
from mini_bert.models.deberta_v2 import DebertaV2, DebertaV2Config
from mini_bert.models.distilbert import DistilBert, DistilBertConfig
from mini_bert.models.electra import Electra, ElectraConfig, ReplacedHead
from mini_bert.models.gpt2 import GPT2, GPT2Config
from mini_bert.models.heads import MaskedWordHead, Pooler
from mini_bert.models.loss import Term
from mini_bert.models.mini import MiniBERT
from mini_bert.models.modernbert import ModernBert, ModernWordHead, PredictionHead
from mini_bert.models.modernbert_config import ModernBertConfig
from mini_bert.models.roberta import Roberta, RobertaConfig
from mini_bert.training.settings import TrainingConfig
from mini_bert.training.switches import apply


def _tied(bias: bool = True) -> Layer:
    owner = Embedding(11, 7, std=1.0)
    return TiedLinear(owner.table, bias)


B, T, A, D, I, V = 2, 5, 3, 7, 13, 17
H = A * D  # 21
_MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
_PADDED = {"mask": _MASK[:, None, None, :]}
_CAUSAL = {"mask": np.tri(T, dtype=bool)}
_FULLY_MASKED = {"mask": np.array([[1, 1, 1, 1, 0], [0, 0, 0, 0, 0]], bool)[:, None, None, :]}
_ASKED = {"asked": np.array([[0, 1, 1, 1, 0], [0, 1, 0, 0, 0]], bool)}
_TWO = {"asked": np.array([[[0, 1, 1, 0, 0], [0, 1, 0, 0, 0]], [[0, 0, 0, 1, 0], [0, 0, 0, 1, 1]]], bool)}
_CHOSEN = {"chosen": np.array([6, 2, 2, 0])}  # unordered, one twice
_TEACHER = np.sin(np.arange(33.0)).reshape(3, 11)
_X = ((B, T, H),)
_LEAN = ((B, T, 2 * D),)
_SCORES_V = ((B, A, T, T), (B, A, T, D))
_BERT = BertConfig(
    vocab_size=V, hidden_size=6, num_hidden_layers=2, num_attention_heads=2, intermediate_size=11,
    max_position_embeddings=7, type_vocab_size=3, initializer_range=0.5,
)  # fmt: skip

_MODERN = ModernBertConfig(V, 8, 11, 2, 2, initializer_range=0.5, local_attention=2, local_rope_theta=50.0)


def _block(p: float = 0.0, activation: str = "relu", bias: bool = False) -> TransformerBlock:
    return TransformerBlock(H, A, I, activation, attention_bias=bias, p=p)


def _lean(attention: EfficientAttention) -> EfficientAttention:
    attention.method, attention.tile = "lean", 3  # 5 tokens in two tiles
    return attention


CASES = [
    Case("linear", lambda: Linear(7, 11), ((2, 3, 7),)),
    Case("linear without bias", lambda: Linear(7, 11, bias=False), ((2, 3, 7),)),
    Case("tied linear", _tied, ((2, 3, 7),)),
    Case("tied linear without bias", lambda: _tied(bias=False), ((2, 3, 7),)),
    Case("embedding", lambda: Embedding(11, 7), (), fixed=(np.array([[1, 5, 1], [10, 1, 0]]),)),
    Case("position embedding", lambda: PositionEmbedding(5, 7), ((2, 3, 7),)),
    Case("position embedding, given positions", lambda: PositionEmbedding(5, 7), ((2, 3, 7),),
         keywords={"positions": np.array([[2, 3, 4], [3, 1, 1]])}),
    Case("layer norm", lambda: LayerNorm(7), ((2, 3, 7),)),
    Case("layer norm without bias", lambda: LayerNorm(7, bias=False), ((2, 3, 7),)),
    Case("dropout", lambda: Function(lambda x, run: dropout(x, 0.3, run), dropout_backward), ((2, 3, 7),)),
    *(Case(name, plain(f.forward, f.backward), ((2, 3, 7),)) for name, f in ACTIVATIONS.items()),
    Case("softmax", plain(softmax, softmax_backward), ((2, 3, 7),)),
    Case("cross-entropy", plain(cross_entropy, cross_entropy_backward, np.array([1, 0, 10])), ((3, 11),)),
    Case("soft cross-entropy", plain(soft_cross_entropy, soft_cross_entropy_backward, _TEACHER, 2.0, 5), ((3, 11),)),
    Case("choose rows", plain(choose_rows, choose_rows_backward, np.array([5, 0, 3])), ((2, 3, 7),)),
    Case("attend", lambda: Function(attend, attend_backward), _SCORES_V, keywords=_PADDED),
    Case("attend, dropout", lambda: Function(attend, attend_backward), _SCORES_V, keywords={"p": 0.2}),
    Case("attention", lambda: MultiHeadAttention(H, A), _X),
    Case("attention without bias", lambda: MultiHeadAttention(H, A, bias=False), _X),
    Case("attention, padding", lambda: MultiHeadAttention(H, A), _X, keywords=_PADDED),
    Case("attention, causal", lambda: MultiHeadAttention(H, A), _X, keywords=_CAUSAL),
    Case("attention, fully masked", lambda: MultiHeadAttention(H, A), _X, keywords=_FULLY_MASKED),
    Case("attention, dropout", lambda: MultiHeadAttention(H, A, p=0.2), _X),
    Case("feed-forward", lambda: FeedForward(H, I), _X),
    Case("feed-forward, gelu", lambda: FeedForward(H, I, "gelu"), _X),
    Case("block", _block, _X),
    Case("block, gelu", lambda: _block(activation="gelu", bias=True), _X, keywords=_PADDED),
    Case("block, dropout", lambda: _block(p=0.2), _X, keywords=_PADDED),
    Case("attention, chosen rows", lambda: EfficientAttention(H, A), _X, keywords=_CHOSEN | _PADDED),
    Case("attention, chosen rows, causal", lambda: EfficientAttention(H, A, p=0.2), _X, keywords=_CHOSEN | _CAUSAL),
    Case("block, chosen rows", lambda: _block(p=0.2), _X, keywords=_CHOSEN | _PADDED),
    Case("encoder, chosen rows", lambda: Encoder([_block(), Recompute(_block(p=0.2))]), _X, keywords=_CHOSEN),
    Case("block, recomputed", lambda: Recompute(_block(p=0.2)), _X, keywords=_PADDED),
    Case("encoder", lambda: Encoder([_block(p=0.1), _block(p=0.1)]), _X, keywords=_PADDED),
    Case("lean attention, padding", lambda: _lean(EfficientAttention(2 * D, 2)), _LEAN, keywords=_PADDED),
    Case("lean attention, fully masked", lambda: _lean(EfficientAttention(2 * D, 2)), _LEAN, keywords=_FULLY_MASKED),
    Case("lean attention, dropout, chosen, causal", lambda: _lean(EfficientAttention(2 * D, 2, p=0.2)), _LEAN,
         keywords=_CHOSEN | _CAUSAL),
    *PRE_NORM_CASES,
    *RELATIVE_CASES,
    Case("pooler", lambda: Pooler(7, std=0.5), ((2, 3, 7),)),
    *(Case(f"pooling, {name}", plain(f.forward, f.backward, _MASK), _X) for name, f in POOLING.items()),
    Case("cosine", lambda: Function(lambda u, v, run: cosine(u, v), cosine_backward), ((3, 7), (3, 7))),
    Case("beside", lambda: Function(lambda u, v, run: beside(u, v), beside_backward), ((3, 7), (3, 7))),
    Case("squared error", plain(squared_error, squared_error_backward, np.array([1.0, -2.0, 0.5]), 5), ((3,),)),
    Case("contrastive", plain(contrastive, contrastive_backward, np.array([1.0, 0.0, 0.3]), 5, 1.5), ((3,),)),
    Case("views", lambda: Function(lambda u, v, run: views(u, v, 7, 0.5), views_backward), ((5, 3), (5, 3))),
    Case("sentence head", lambda: SentenceHead(H, 3, ("cls", "mean", "max")), _X, keywords=_ASKED),
    Case("sentence head, dense", lambda: SentenceHead(H, 3, ("cls",), dense=True), _X),
    Case("sentence head, gelu, dropout before", lambda: SentenceHead(H, 3, ("cls",), True, 0.2, 0.5, "gelu", True), _X),
    Case("pair head", lambda: PairHead(H, 3, ("mean", "max")), _X, keywords=_TWO),
    Case("vector head", lambda: VectorHead(("mean", "max")), _X, keywords=_ASKED),
    Case("token head", lambda: TokenHead(H, 11), ((13, H),)),
    Case("span head", lambda: SpanHead(H), _X),
    Case("span head, dropout", lambda: SpanHead(H, 0.2), _X),
    Case("span loss", plain(span_loss, span_loss_backward, np.array([[1, 4], [0, 2]]), _MASK), ((B, 2, T),)),
    *DEBERTA_CASES,
    Case("masked-word head", lambda: MaskedWordHead(6, Embedding(V, 6, std=1.0).table, "gelu", 1e-12, 0.5),
         ((2, 3, 6),)),
    Case("masked-word head, narrow table, untied",
         lambda: MaskedWordHead(11, Embedding(V, 5).table, "gelu_new", 1e-5, 0.5, tied=False), ((2, 3, 11),)),
    Case("sentence-order head", lambda: SentenceOrderHead(H, 0.2, 0.5), ((3, H),)),
    Case("replaced head", lambda: ReplacedHead(H, "gelu", 0.5), _X),
    Case("prediction head", lambda: PredictionHead(_MODERN), ((2, 3, 8),)),
    Case("prediction head, words", lambda: ModernWordHead(_MODERN, Embedding(V, 8, std=1.0).table), ((2, 3, 8),)),
]  # fmt: skip


def check_case(case: Case, entries: int = 64, seed: int = 0) -> list[Checked]:
    """The gradient of sum(y · random) with respect to every weight and every input."""
    layer = case.build()
    bind(layer, dtype=np.float64, seed=seed)
    rng = np.random.default_rng(seed + 1)
    inputs = [rng.normal(size=shape) for shape in case.shapes]

    def forward() -> tuple[Any, Any]:
        return layer.forward(*inputs, *case.fixed, Run(seed, train=True), **case.keywords)

    y, cache = forward()
    dy = rng.normal(size=np.shape(y))
    dx = layer.backward(dy, cache, Run(seed, train=True))
    dx = dx if isinstance(dx, tuple) else (dx,)
    params = layer.named_params()
    arrays = {f"input {i}": x for i, x in enumerate(inputs)}
    gradients = {f"input {i}": d for i, d in enumerate(dx[: len(inputs)])}
    arrays |= {name: p.data for name, p in params.items()}
    gradients |= {name: p.grad for name, p in params.items()}
    return gradient_check(lambda: float(np.sum(forward()[0] * dy)), arrays, gradients, entries)


def check_model(
    model: Any, loss: Callable[[], tuple[Any, Any]], entries: int, seed: int = 0, ids: Any = None
) -> list[Checked]:
    """The gradient of a model's training loss with respect to every weight; `loss` returns (loss, cache).

    With `ids`, the gradient at the embeddings, which `loss_backward` returns, is checked too. The ids must be distinct
    and the head must not be tied, so that each row of the token table affects the input at one position only.
    """
    model.zero_grad()
    _, cache = loss()
    dx = model.loss_backward(cache)
    params = model.named_params()
    arrays = {name: p.data for name, p in params.items()}
    gradients = {name: p.grad.copy() for name, p in params.items()}
    if ids is not None:
        arrays["input"], gradients["input"] = arrays["tokens.table"], np.zeros_like(gradients["tokens.table"])
        gradients["input"][ids] = dx
    return gradient_check(lambda: loss()[0], arrays, gradients, entries, seed)


def _mini(config: MiniBertConfig, entries: int, lean: bool = False, **switched: Any) -> Callable[[], list[Checked]]:
    def check() -> list[Checked]:
        model = MiniBERT(config, dtype=np.float64)
        if lean:
            for block in model.encoder.blocks:
                _lean(block.attention)  # type: ignore[attr-defined]
        apply(model, TrainingConfig(steps=1, attention="lean" if lean else "auto", **switched))
        rng = np.random.default_rng(0)
        ids = rng.permutation(config.vocab_size)[: B * T].reshape(B, T)
        chosen, targets = np.array([1, 3, 4, 7]), rng.integers(0, config.vocab_size, 4)
        return check_model(
            model,
            lambda: model.loss(ids, chosen, targets, _MASK, run=Run(0, train=True)),
            entries,
            ids=None if config.tie_head else ids,
        )

    return check


def _bert(entries: int, tied: bool = True) -> Callable[[], list[Checked]]:
    def check() -> list[Checked]:
        model = Bert(replace(_BERT, tie_word_embeddings=tied), dtype=np.float64)
        rng = np.random.default_rng(0)
        ids, types = rng.permutation(V)[: B * T].reshape(B, T), rng.integers(0, 3, (B, T))
        chosen, targets, follows = np.array([1, 3, 4, 7]), rng.integers(0, V, 4), np.array([0, 1])

        def loss() -> tuple[Any, Any]:
            return model.loss(ids, chosen, targets, _MASK, types, follows, run=Run(0, train=True))

        return check_model(model, loss, entries, ids=None if tied else ids)

    return check


def _remembering(build: Callable[..., Any], **switched: Any) -> Callable[[], list[Checked]]:
    """A model with a memory; `build` returns it with its loss."""

    def check() -> list[Checked]:
        model, loss = build(**switched)
        return check_model(model, loss, 100)

    return check


def _predicting(build: Callable[[], Model], head: str, entries: int) -> Callable[[], list[Checked]]:
    """The loss of one head at some tokens, with dropout and padding."""

    def check() -> list[Checked]:
        model, rng = build(), np.random.default_rng(0)
        inputs = model.check_inputs(rng.permutation(V)[: B * T].reshape(B, T), _MASK)
        terms = [Term(head, np.array([1, 3, 4, 7]), rng.integers(0, V, 4))]
        return check_model(model, lambda: model.loss_of(inputs, terms, Run(0, train=True)), entries)

    return check


def _relative(build: Callable[[], Model], entries: int, sentences: str = "") -> Callable[[], list[Checked]]:
    """A relative of BERT, on masked words or replaced words. sentences: the head for a label of each pair of texts"""

    def check() -> list[Checked]:
        model, rng = build(), np.random.default_rng(0)
        ids, types = rng.permutation(V)[: B * T].reshape(B, T), rng.integers(0, 2, (B, T))
        if REPLACED in model.output_heads:
            terms = [Term(REPLACED, np.flatnonzero(_MASK), rng.integers(0, 2, _MASK.sum()), weight=3.0)]
        else:
            terms = [Term(MASKED_WORDS, np.array([1, 3, 4, 7]), rng.integers(0, V, 4))]
        if sentences:
            terms.append(Term(sentences, np.arange(B) * T, np.array([0, 1])))
        inputs = model.check_inputs(ids, _MASK, types)
        return check_model(model, lambda: model.loss_of(inputs, terms, Run(0, train=True)), entries)

    return check


def _fine_tuned(build: Callable[[], Model], task: Task, targets: Any) -> Callable[[], list[Checked]]:
    """The gradient of a task's loss, with dropout, with respect to every weight of encoder and head."""

    def check() -> list[Checked]:
        model = with_task(build(), task, dropout=0.2, seed=1)
        rng = np.random.default_rng(0)
        for param in model.task.named_params().values():
            param.data += rng.normal(size=param.shape)  # larger weights, for larger gradients in the encoder
        types = np.array([[0, 0, 1, 1, 1], [0, 0, 1, 0, 0]])
        asked = np.array([[0, 1, 1, 1, 0], [0, 1, 1, 0, 0]], bool)  # in both texts
        batch = Batch(rng.permutation(V)[: B * T].reshape(B, T), _MASK, types, asked, np.array(targets), types == 1)

        def loss() -> float:
            return task.loss(model, batch, Run(0, train=True), 3)[0]

        model.zero_grad()
        loss()
        params = model.named_params()
        gradients = {name: param.grad.copy() for name, param in params.items()}
        return gradient_check(loss, {name: param.data for name, param in params.items()}, gradients, 8)

    return check


def _tiny_mini() -> MiniBERT:
    return MiniBERT(_TINY, dtype=np.float64)


def _tiny_bert() -> Bert:
    return Bert(_BERT, dtype=np.float64)


def _tiny_gpt2() -> GPT2:
    config = GPT2Config(V, T + 2, 6, 2, 2, 11, initializer_range=0.5, scale_attn_by_inverse_layer_idx=True)
    return GPT2(config.with_dropout(0.1), dtype=np.float64)


def _tiny_modernbert() -> ModernBert:
    """A global layer and a local one."""
    return ModernBert(_MODERN.with_dropout(0.1), dtype=np.float64)


_TINY = MiniBertConfig(V, 2 * D, 2, 2, I, T + 2)
_LABELS = ["a", "b", "c"]
_SIZES: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 11,
    "type_vocab_size": 2, "initializer_range": 0.5,
}  # fmt: skip

_GENERATOR = {"hidden_size": 4, "num_attention_heads": 2, "intermediate_size": 7}


def _tiny_roberta() -> Roberta:
    return Roberta(RobertaConfig(**_SIZES, max_position_embeddings=9, pad_token_id=3), dtype=np.float64)


def _tiny_distilbert() -> DistilBert:
    config = DistilBertConfig(
        V, 7, n_layers=2, n_heads=2, dim=6, hidden_dim=11, initializer_range=0.5, activation="relu"
    )
    return DistilBert(config, dtype=np.float64)


def _tiny_albert() -> Albert:
    config = AlbertConfig(
        **_SIZES | {"num_hidden_layers": 3}, embedding_size=5, num_hidden_groups=2, inner_group_num=2,
        max_position_embeddings=7, hidden_dropout_prob=0.1,
    )  # fmt: skip
    return Albert(config, dtype=np.float64)


def _tiny_electra(heads: tuple[str, ...] = (REPLACED,), **more: Any) -> Electra:
    return Electra(
        ElectraConfig(**_SIZES, embedding_size=5, max_position_embeddings=7, **more), heads, dtype=np.float64
    )


def _tiny_deberta(**more: Any) -> Deberta:
    switches: dict[str, Any] = {"relative_attention": True, "pos_att_type": ("c2p", "p2c"), "max_relative_positions": 3}
    return Deberta(DebertaConfig(**_SIZES, max_position_embeddings=7, **switches | more), dtype=np.float64)


def _tiny_deberta_v2(heads: tuple[str, ...] = (MASKED_WORDS,), **more: Any) -> DebertaV2:
    switches: dict[str, Any] = {
        "relative_attention": True, "pos_att_type": ("p2c", "c2p"), "position_buckets": 4, "share_att_key": True,
        "norm_rel_ebd": "layer_norm", "conv_kernel_size": 3, "position_biased_input": False,
    }  # fmt: skip
    return DebertaV2(DebertaV2Config(**_SIZES, max_position_embeddings=7, **switches | more), heads, dtype=np.float64)


MODELS: dict[str, Callable[[], list[Checked]]] = {
    "tiny Mini-BERT": _mini(_TINY, 400),
    "tiny Mini-BERT, tied head": _mini(replace(_TINY, tie_head=True), 400),
    "tiny Mini-BERT, dropout": _mini(replace(_TINY, dropout=0.1), 400),
    "tiny Larger-BERT, dropout, lean, checkpointing":
        _mini(replace(_TINY, dropout=0.1, init="depth_scaled"), 16, lean=True, checkpointing=True),
    "tiny BERT, masked words + next sentence": _bert(400),
    "tiny BERT, untied head": _bert(100, tied=False),
    "tiny GPT-2, next word": _predicting(_tiny_gpt2, NEXT_WORD, 100),
    "tiny ModernBERT, masked words": _predicting(_tiny_modernbert, MASKED_WORDS, 100),
    "tiny Transformer-XL, memory, dropout": _remembering(transformer_xl),
    "tiny Transformer-XL, norms first, shared biases":
        _remembering(transformer_xl, pre_lnorm=True, untie_r=False, div_val=1),
    "tiny XLNet, two streams, memory, dropout": _remembering(xlnet),
    "tiny XLNet, causal, shared biases": _remembering(xlnet, attn_type="uni", untie_r=False, tie_word_embeddings=False),
    "tiny Mini-BERT, fine-tuned: classify": _fine_tuned(_tiny_mini, Classify(_LABELS, ("mean", "max")), [2, 0]),
    "tiny Mini-BERT, fine-tuned: tag": _fine_tuned(_tiny_mini, Tag(["O", "B-X", "I-X"]), [2, 0, 1, 0, 2]),
    "tiny Mini-BERT, fine-tuned: pairs": _fine_tuned(_tiny_mini, Classify(_LABELS, pairs=True), [2, 0]),
    "tiny Mini-BERT, fine-tuned: vectors": _fine_tuned(_tiny_mini, Similarity(0, 5, vectors=True), [4.0]),
    "tiny BERT, fine-tuned: classify": _fine_tuned(_tiny_bert, Classify(_LABELS, ("cls",), dense=True), [2, 0]),
    "tiny BERT, fine-tuned: qa": _fine_tuned(_tiny_bert, Answer(), [[1, 3], [1, 1]]),
    "tiny BERT, fine-tuned: similarity":
        _fine_tuned(_tiny_bert, Similarity(0, 5, pooling=("cls",), dense=True), [4.0, 1.0]),
    "tiny RoBERTa": _relative(_tiny_roberta, 100),
    "tiny DistilBERT": _relative(_tiny_distilbert, 100),
    "tiny ALBERT, masked words + sentence order": _relative(_tiny_albert, 100, SENTENCE_ORDER),
    "tiny ELECTRA, discriminator": _relative(_tiny_electra, 100),
    "tiny ELECTRA, generator": _relative(lambda: _tiny_electra((MASKED_WORDS,), tie_word_embeddings=False), 100),
    "tiny ELECTRA, both models": pair(lambda: _tiny_electra(generator=_GENERATOR)),
    "tiny DistilBERT, distilled from BERT": distilled(_tiny_distilbert, _tiny_bert),
    "tiny DeBERTa": _relative(_tiny_deberta, 100),
    "tiny DeBERTa, talking heads": _relative(lambda: _tiny_deberta(talking_head=True, embedding_size=5), 100),
    "tiny DeBERTa v2": _relative(_tiny_deberta_v2, 100),
    "tiny DeBERTa v3, discriminator": _relative(lambda: _tiny_deberta_v2((REPLACED,), conv_kernel_size=0), 100),
    "tiny DeBERTa, fine-tuned: classify": _fine_tuned(_tiny_deberta, Classify(_LABELS, ("cls",), dense=True), [2, 0]),
    "tiny RoBERTa, fine-tuned: classify": _fine_tuned(_tiny_roberta, Classify(_LABELS, ("cls",), dense=True), [2, 0]),
    "tiny DistilBERT, fine-tuned: classify":
        _fine_tuned(_tiny_distilbert, Classify(_LABELS, ("cls",), dense=True), [2, 0]),
    "tiny DistilBERT, fine-tuned: qa": _fine_tuned(_tiny_distilbert, Answer(), [[1, 3], [1, 1]]),
    "tiny ALBERT, fine-tuned: classify": _fine_tuned(_tiny_albert, Classify(_LABELS, ("cls",), dense=True), [2, 0]),
    "tiny ELECTRA, fine-tuned: classify": _fine_tuned(_tiny_electra, Classify(_LABELS, ("cls",), dense=True), [2, 0]),
    "tiny GPT-2, fine-tuned: classify": _fine_tuned(_tiny_gpt2, Classify(_LABELS, ("cls",)), [2, 0]),
    "tiny ModernBERT, fine-tuned: classify": _fine_tuned(_tiny_modernbert, Classify(_LABELS, ("all",)), [2, 0]),
    "tiny ModernBERT, fine-tuned: tag": _fine_tuned(_tiny_modernbert, Tag(["O", "B-X", "I-X"]), [2, 0, 1, 0, 2]),
    "tiny ModernBERT, fine-tuned: qa": _fine_tuned(_tiny_modernbert, Answer(), [[1, 3], [1, 1]]),
    "Mini-BERT, full size, 8 per tensor": _mini(MINI_BERT_CONFIG, 8),
}  # fmt: skip


def row_names(part: str = "") -> list[str]:
    """The row with this name, or else all whose names contain it."""
    names = [*(case.name for case in CASES), *MODELS]
    chosen = [name for name in names if name == part] or [name for name in names if part.lower() in name.lower()]
    if not chosen:
        raise ValueError(f"no row of gradcheck contains {part!r}{did_you_mean(part, names) or '; without a name: all'}")
    return chosen


def all_checks(part: str = "") -> Iterator[tuple[str, list[Checked]]]:
    """Yields the name and the results of each layer and model, or of those that `row_names(part)` lists."""
    chosen = row_names(part)
    for case in CASES:
        if case.name in chosen:
            yield case.name, check_case(case)
    for name, check in MODELS.items():
        if name in chosen:
            yield name, check()

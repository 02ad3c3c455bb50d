"""The config of a ModernBERT (modernbert.py), whose files have two forms, an older and a newer one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mini_bert.common.values import check_size
from mini_bert.layers.activations import activation
from mini_bert.models.pre_norm_sizes import GatedSizes
from mini_bert.models.published import ENCODER, PublishedConfig
from mini_bert.models.sizes import Sizes

GLOBAL, LOCAL = "full_attention", "sliding_attention"  # the published names of the two kinds of layers


@dataclass(frozen=True)
class ModernBertConfig(PublishedConfig):
    """The fields of a published `config.json` that affect the results; the defaults are those of ModernBERT-base.

    Older files say which layers are global by `global_attn_every_n_layers`, newer ones by `layer_types`; the bases of
    the rotary positions are `global_rope_theta` and `local_rope_theta`, or `rope_parameters`. Both forms are read and
    written. A file that has both must say the same in both: `transformers` reads the newer form and ignores the older.
    """

    model_type: ClassVar[str] = "modernbert"
    name: ClassVar[str] = "ModernBERT"
    only: ClassVar[Mapping[str, Any]] = {**ENCODER, "rope_scaling": None, "head_dim": None}
    # The results do not depend on these: how published code computes them, and fields that it never reads.
    neutral: ClassVar[frozenset[str]] = frozenset({
        "deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index", "reference_compile",
        "repad_logits_with_grad", "position_embedding_type", "layer_norm_eps",
        "global_attn_every_n_layers", "rope_parameters",  # from_dict has read these
    })  # fmt: skip

    vocab_size: int = 50368
    hidden_size: int = 768
    intermediate_size: int = 1152
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    hidden_activation: str = "gelu"
    max_position_embeddings: int = 8192
    initializer_range: float = 0.02
    initializer_cutoff_factor: float = 2.0
    norm_eps: float = 1e-5
    norm_bias: bool = False
    attention_bias: bool = False
    attention_dropout: float = 0.0
    layer_types: tuple[str, ...] = ()  # (): every third layer is global, starting with the first
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    local_attention: int = 128  # a token sees half as many on each side
    embedding_dropout: float = 0.0
    mlp_bias: bool = False
    mlp_dropout: float = 0.0
    decoder_bias: bool = True
    classifier_pooling: str = "cls"
    classifier_dropout: float = 0.0  # kept for transformers; `finetune --dropout` replaces it
    classifier_bias: bool = False
    classifier_activation: str = "gelu"
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 50283
    bos_token_id: int | None = 50281
    eos_token_id: int | list[int] | None = 50282
    cls_token_id: int | None = 50281
    sep_token_id: int | None = 50282

    def check(self) -> None:
        activation(self.hidden_activation, "hidden_activation")
        activation(self.classifier_activation, "classifier_activation")
        if self.classifier_pooling not in ("cls", "mean"):
            raise ValueError(f"classifier_pooling is {self.classifier_pooling!r:.60}, expected 'cls' or 'mean'")
        if not _is_complete(self.kinds, self.depth):
            raise ValueError(
                f"layer_types is {list(self.layer_types)!r:.100}, expected {GLOBAL!r} or {LOCAL!r} for each of the "
                f"{self.depth} layers"
            )
        if self.width // self.heads % 2:
            raise ValueError(
                f"hidden_size {self.width} among {self.heads} heads gives heads of width {self.width // self.heads}, "
                "but rotary positions need an even width"
            )

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of each layer, whether it is global or local."""
        return self.layer_types or every(3, self.depth)

    @property
    def reach(self) -> int:
        """How far a token sees in each direction, in a local layer."""
        return self.local_attention // 2

    @property
    def dropout(self) -> float:
        return self.mlp_dropout

    def with_padding(self, pad_id: int) -> ModernBertConfig:
        return replace(self, pad_token_id=pad_id)

    @classmethod
    def from_dict(cls, values):
        values = dict(values)
        depth, kinds = values.get("num_hidden_layers", cls.num_hidden_layers), values.get("layer_types")
        step = values.get("global_attn_every_n_layers", 3 if kinds is None else None)
        check_size("num_hidden_layers", depth)
        if kinds is None:
            kinds = every(step, depth)
        kinds = tuple(kinds) if isinstance(kinds, list | tuple) else (kinds,)
        if step is not None and _is_complete(kinds, depth) and kinds != every(step, depth):
            refuse_both("global_attn_every_n_layers", step, "layer_types", list(kinds))
        values["layer_types"] = () if kinds == every(3, depth) else kinds
        for kind, field in ((GLOBAL, "global_rope_theta"), (LOCAL, "local_rope_theta")):
            theta = rope_theta(values.get("rope_parameters"), kind)
            if theta is not None:
                if values.get(field, theta) not in (theta, None):
                    refuse_both(field, values[field], "rope_parameters", f"rope_theta {theta!r} for {kind}")
                values[field] = theta
        if "local_rope_theta" in values and values["local_rope_theta"] is None:  # older files: the same for both
            values["local_rope_theta"] = values.get("global_rope_theta", cls.global_rope_theta)
        return super().from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):
            if isinstance(values[name], int) and values[name] >= self.vocab_size:
                values[name] = None  # the default is for a larger vocabulary
        thetas = {GLOBAL: self.global_rope_theta, LOCAL: self.local_rope_theta}
        rotary = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
        step = next((n for n in (3, *range(1, self.depth + 1)) if every(n, self.depth) == self.kinds), None)
        older = {} if step is None else {"global_attn_every_n_layers": step}
        return {**values, "layer_types": list(self.kinds), "rope_parameters": rotary, **older}

    def sizes(self) -> Sizes:
        V, H, L, inner, T = self.vocab_size, self.width, self.depth, self.intermediate_size, self.max_length
        norm = H * (1 + self.norm_bias)
        block = 4 * H * H + 3 * H * inner + 2 * norm + self.attention_bias * 4 * H + self.mlp_bias * (2 * inner + H)
        head = H * H + self.classifier_bias * H + norm + self.decoder_bias * V + (0 if self.tie_head else H * V)
        parameters = V * H + norm + L * block + head  # the first block lacks a norm, the last is followed by one
        return GatedSizes(self.name, V, H, L, self.heads, inner, T, parameters, self.tie_head, self.dropout > 0,
                          self.attention_dropout > 0, True, 4, 5.25, 6)  # fmt: skip


def every(step: Any, depth: int) -> tuple[str, ...]:
    """Every `step`-th layer is global, starting with the first."""
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise ValueError(f"global_attn_every_n_layers is {step!r:.60}, expected a whole number of at least 1")
    return tuple(LOCAL if index % step else GLOBAL for index in range(depth))


def _is_complete(kinds: tuple[Any, ...], depth: int) -> bool:
    return len(kinds) == depth and all(kind in (GLOBAL, LOCAL) for kind in kinds)


def refuse_both(older: str, given: Any, newer: str, also: Any) -> None:
    """The error for two forms of a setting that have different values"""
    raise ValueError(
        f"{older} is {given!r:.60}, but {newer} says {also!s:.100}; these are two forms of the same setting, and they "
        f"contradict each other. Leave out {older} if {newer} is right, as transformers assumes, or {newer} if not"
    )


def rope_theta(parameters: Any, kind: str) -> float | None:
    """The base of the rotary positions of one kind of layers; None: not given. Other kinds of rotation are refused."""
    if parameters is None:
        return None
    expected = f"expected an object with {GLOBAL!r} and {LOCAL!r}, each with 'rope_type' and 'rope_theta'"
    if not isinstance(parameters, dict) or not set(parameters) <= {GLOBAL, LOCAL}:
        raise ValueError(f"rope_parameters is {parameters!r:.100}, {expected}")
    given = parameters.get(kind) or {}
    if not isinstance(given, dict) or not set(given) <= {"rope_type", "rope_theta"}:
        raise ValueError(f"rope_parameters is {given!r:.100} for {kind}, {expected}")
    if given.get("rope_type", "default") != "default":
        raise ValueError(
            f"rope_type is {given['rope_type']!r:.60} for {kind}, but only 'default' is supported for ModernBERT; with "
            "another value, the model would compute something else"
        )
    return given.get("rope_theta")

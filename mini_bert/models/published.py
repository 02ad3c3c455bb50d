"""What the configs of published architectures share: they are read from a `config.json`, checked, and written again.

A config is a frozen dataclass whose fields have the published names and defaults. Of the other fields in a file,

    only        have a single supported value: any other value would change the results, and is refused by name
    NEUTRAL     do not affect the results, and are ignored
    the rest    are refused by name, because they may change the results; empty ones (null, false, 0, "", [], {})
                are ignored with a warning, unless they look like a misspelt field
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, ClassVar, Self

from mini_bert.common.values import (
    check_eps,
    check_heads,
    check_positive_number,
    check_probability,
    check_size,
    check_spread,
    check_token_id,
)

_NEUTRAL = """
    model_type architectures auto_map dtype torch_dtype transformers_version _name_or_path name_or_path
    id2label label2id num_labels problem_type finetuning_task fine_tuning task_specific_params tokenizer_class
    output_attentions output_hidden_states output_past return_dict torchscript use_bfloat16 tf_legacy_loss use_cache
    gradient_checkpointing chunk_size_feed_forward attn_implementation _attn_implementation _attn_implementation_autoset
    bos_token_id eos_token_id eos_token_ids pad_token_id sep_token_id cls_token_id mask_token_id decoder_start_token_id
    classifier_dropout prefix language initializer_factor vocab_file is_composition
    directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
    typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
    num_return_sequences output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id
    max_new_tokens min_new_tokens max_time penalty_alpha guidance_scale low_memory generation_config renormalize_logits
    sentence_transformers transformers.js_config onnx_config adapters adapter_fusion xla_device _commit_hash model_name
    unk_token_id pad_token bos_token eos_token tie_weights_ tie_encoder_decoder use_return_dict license
    remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens eight_bit
    sentence_pooling
"""
NEUTRAL = frozenset(_NEUTRAL.split())
ENCODER: Mapping[str, Any] = {"is_decoder": False, "is_encoder_decoder": False, "add_cross_attention": False,
                              "cross_attention_hidden_size": None, "pruned_heads": {}}  # fmt: skip
EMPTY: tuple[Any, ...] = (None, False, 0, "", [], {})  # values of a switch that is off
CLOSE = 0.85  # how similar a misspelt field is to the real one, from 0 to 1


@dataclass(frozen=True)
class PublishedConfig:
    """The parts of a config that do not depend on the architecture."""

    model_type: ClassVar[str]
    other_names: ClassVar[Mapping[str, str]] = {}  # under which files may have a field -> its own name
    name: ClassVar[str]  # for people: "RoBERTa"
    only: ClassVar[Mapping[str, Any]] = ENCODER
    may_be_zero: ClassVar[frozenset[str]] = frozenset()  # whole numbers that need not be positive
    neutral: ClassVar[frozenset[str]] = frozenset()  # more fields that do not affect the results

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                check_size(field.name, value, 0 if field.name in self.may_be_zero else 1)
            elif field.type == "float":
                _check_of(field.name)(field.name, value)
            elif field.type == "bool" and not isinstance(value, bool):
                raise ValueError(f"{field.name} is {value!r}, expected True or False")
        self.check_heads()
        self.check()

    def check_heads(self) -> None:
        check_heads(self.width, self.heads)

    def check(self) -> None:
        """Checks of an architecture's own, after those of the fields."""

    # The sizes under the names that every config has. `other_names` has the fields of architectures that do not use
    # BERT's names.

    def _size(self, name: str) -> int:
        return getattr(self, self.other_names.get(name, name))

    @property
    def width(self) -> int:
        return self._size("hidden_size")

    @property
    def depth(self) -> int:
        return self._size("num_hidden_layers")

    @property
    def heads(self) -> int:
        return self._size("num_attention_heads")

    @property
    def length_field(self) -> str:
        """The field that limits `max_length`, for messages."""
        return self.other_names.get("max_position_embeddings", "max_position_embeddings")

    @property
    def max_length(self) -> int:
        return getattr(self, self.length_field)

    @property
    def dropout(self) -> float:
        return self.hidden_dropout_prob  # type: ignore[attr-defined]

    @property
    def tie_head(self) -> bool:
        return self.tie_word_embeddings  # type: ignore[attr-defined]

    def with_vocabulary(self, size: int) -> Self:
        """The same with another number of words"""
        return replace(self, vocab_size=size)  # type: ignore[call-arg]

    def with_tied_head(self) -> Self:
        return replace(self, tie_word_embeddings=True)  # type: ignore[call-arg]

    def with_padding(self, pad_id: int) -> Self:
        """For a tokenizer with this id for padding. Only RoBERTa's positions depend on it."""
        return self

    @property
    def padding_id(self) -> int | None:
        """The id that padding must have in the tokenizer; None: any."""
        return None

    def with_dropout(self, p: float) -> Self:
        """The same probability for every kind of dropout, also for those of a task, such as `classifier_dropout`"""
        return replace(self, **{field.name: p for field in fields(self) if "drop" in field.name})

    # Files

    def to_dict(self) -> dict[str, Any]:
        return {"model_type": self.model_type, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from a published `config.json`; the top of this file says what happens to fields that are not ours."""
        model_type = values.get("model_type", "bert")  # missing in the first configs
        if model_type != cls.model_type:
            raise ValueError(
                f"config.json has model_type {model_type!r}, expected {cls.model_type!r}; mini_bert.load_model reads "
                "folders of every kind"
            )
        values = with_own_names(values, cls.other_names)
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in values.items() if name in known and value is not None}
        odd = []
        for name, value in values.items():
            if name in cls.only:
                if value is not None and value != cls.only[name]:
                    raise ValueError(
                        f"{name} is {value!r:.60}, but only {cls.only[name]!r} is supported for {cls.name}; with "
                        "another value, the model would compute something else"
                    )
            elif name not in known | NEUTRAL | cls.neutral:
                meant = get_close_matches(name, known | set(cls.only), 1, CLOSE)
                if meant:
                    raise ValueError(f"unknown field {name!r:.60}; did you mean {meant[0]!r}?")
                if value not in EMPTY:
                    raise ValueError(
                        f"{name!s:.60} is {value!r:.60}, but a {cls.name} here has no such field, and it may change "
                        "the results; if it does not, remove it from config.json"
                    )
                odd.append(f"{name!s:.40}")
        if odd:
            more = f" and {len(odd) - 5:,} more" if len(odd) > 5 else ""
            warnings.warn(
                f"config.json has fields that a {cls.name} does not use: {', '.join(odd[:5])}{more}", stacklevel=2
            )
        config = cls(**given)
        if "pad_token_id" in given:  # of the others, published folders have ids of other vocabularies
            check_token_id("pad_token_id", given["pad_token_id"], config.vocab_size)  # type: ignore[attr-defined]
        return config


def with_own_names(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The values with a config's own names for fields that have two. names: the other name -> the own one"""
    two = {*names, *names.values()}
    found: dict[str, Any] = {}
    called: dict[str, str] = {}  # the name in the file, by the own one
    for name, value in values.items():
        if name in two and value is None:
            continue
        own = names.get(name, name)
        other = called.setdefault(own, name)
        if found.setdefault(own, value) != value:
            raise ValueError(
                f"{other} is {found[own]!r:.60} and {name} is {value!r:.60}, but both are names of the same field; "
                "leave out one of them"
            )
    return found


def _check_of(name: str) -> Callable[[str, Any], None]:
    """The check for a number with a fraction, by the name of its field."""
    if "drop" in name:
        return check_probability
    if "eps" in name:
        return check_eps
    return check_spread if "init" in name and "factor" not in name else check_positive_number

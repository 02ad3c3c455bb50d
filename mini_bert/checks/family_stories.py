"""What each architecture's idea is worth, in the numbers of a config: a part of `mini-bert family NAME`.

Each story takes a config and yields sentences. All numbers in them are computed from the config.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mini_bert.models.modernbert_config import LOCAL
from mini_bert.models.registry import model_class
from mini_bert.objectives.registry import OBJECTIVES
from mini_bert.training.setup import default_objective

MASKED = 0.15  # of the tokens, in masked language modelling
BERT_VOCABULARY = 30522


def parameters(config: Any, part: str = "", objective: str | None = None) -> int:
    """The parameters of the model with the heads of an objective, or of one component, such as "encoder".

    objective: a name from objectives/registry.py; None: the one that `train` chooses for this config
    """
    heads = (default_objective(config) if objective is None else OBJECTIVES[objective]).heads
    model = model_class(config.to_dict())(config, heads, seed=None, dtype=None)
    return sum(count for name, count in model.get_parameter_count(by_component=True).items() if name.startswith(part))


def bert(config: Any) -> Iterator[str]:
    V, T, H, L = config.vocab_size, config.max_length, config.width, config.depth
    total, blocks = parameters(config), parameters(config, "encoder")
    yield f"{L} blocks have {blocks:,} parameters, {blocks / total:.0%} of all; the token table has {V * H:,}."
    yield f"Positions have a table of {T:,} rows: longer text cannot be read."
    yield f"Of {T:,} tokens, {MASKED:.0%} are masked: {MASKED * T:,.0f} give a training signal, the others are context."


def roberta(config: Any) -> Iterator[str]:
    V, H, rows = config.vocab_size, config.width, config.max_position_embeddings
    share = V * H / parameters(config)
    yield f"The vocabulary of {V:,} pieces costs {V * H:,} parameters, {share:.0%} of all. Its bytes can spell"
    yield f"any text, so there is no unknown token. BERT's {BERT_VOCABULARY:,} pieces would cost"
    yield f"{BERT_VOCABULARY * H:,}."
    yield f"Positions count from {rows - config.max_length}: a table of {rows:,} rows is for"
    yield f"{config.max_length:,} tokens."


def albert(config: Any) -> Iterator[str]:
    V, E, H, L = config.vocab_size, config.embedding_size, config.width, config.depth
    shared = parameters(config, "encoder")
    separate = shared // (config.num_hidden_groups * config.inner_group_num) * config.inner_group_num * L
    whole, factored = V * H, V * E + E * H + H
    total = parameters(config)
    yield f"Sharing: {shared:,} parameters are used {L} times; {L} layers of their own would need {separate:,}, which "
    yield f"saves {separate - shared:,}."
    yield f"Factorisation: a table of {V:,} × {E} and a matrix of {E} × {H} have {factored:,} parameters; a table of "
    yield f"{V:,} × {H} would have {whole:,}, which saves {whole - factored:,}."
    yield f"Together: {total:,} parameters instead of {total + separate - shared + whole - factored:,}."
    yield f"Neither saves time: the shared block is computed {L} times, as {L} different ones would be."


def distilbert(config: Any) -> Iterator[str]:
    blocks, L = parameters(config, "encoder"), config.depth
    yield f"{L} layers of {blocks // L:,} parameters; a teacher of twice the depth has {blocks:,} more, and takes"
    yield f"twice the time in its blocks. From a teacher, it learns the probabilities of all {config.vocab_size:,}"
    yield "words at each masked token, not only which word is right."


def electra(config: Any) -> Iterator[str]:
    T = config.max_length
    yield f"Masking trains on {MASKED * T:,.0f} of {T:,} tokens; the discriminator learns from all {T:,}, "
    yield f"{1 / MASKED:.1f} times as many."
    yield f"Its head answers yes or no and has {parameters(config, 'replaced'):,} parameters; the scores of a"
    yield f"head for words need {config.vocab_size:,} numbers per token."
    if config.generator:
        yield f"The generator adds {parameters(config, 'generator'):,} parameters, and is not needed after pretraining."


def deberta(config: Any) -> Iterator[str]:
    H, span, terms = config.width, _span(config), 1 + len(config.pos_att_type)
    yield f"A score is a sum of {terms} products: content with content, and content with relative position in"
    yield f"{terms - 1} ways. It is divided by √({terms}d) instead of √d."
    yield f"Distances from −{span} to {span - 1} have {2 * span:,} vectors, {2 * span * H:,} parameters, for all"
    yield "layers."
    if getattr(config, "share_att_key", False):
        yield "They use the query and key matrices of the content, so no layer has matrices of its own for them."
    else:
        yield f"Their projections add {(terms - 1) * H * H:,} parameters to each layer."
    if not config.position_biased_input:
        yield f"No position is added to the embeddings, which saves a table of {config.max_length:,} × {H}."


def _span(config: Any) -> int:
    for name in ("position_buckets", "max_relative_positions", "max_position_embeddings"):
        if getattr(config, name, 0) > 0:
            return int(getattr(config, name))
    raise ValueError("this config has no relative positions")


def transformer_xl(config: Any) -> Iterator[str]:
    L, M, H = config.n_layer, config.mem_len, config.d_model
    yield f"A memory of {M:,} hidden states per layer: a token sees {M:,} tokens back directly, and up to"
    yield f"{L * M:,} through {L} layers. It takes {4 * L * M * H / 1e6:,.1f} MB per sequence, and gets no gradient."
    edges = [0, *config.cutoffs, config.vocab_size]
    widths = [config.d_embed // config.div_val**i for i in range(len(edges) - 1)]
    if len(set(widths)) > 1:
        table = sum((end - start) * w for start, end, w in zip(edges, edges[1:], widths, strict=False))
        yield f"Rarer words have narrower vectors ({', '.join(map(str, widths))} numbers): {table:,} parameters"
        yield f"instead of {config.vocab_size * config.d_embed:,}."


def xlnet(config: Any) -> Iterator[str]:
    T = config.max_length
    yield "Words are predicted in random order, each from those before it in that order: no [MASK], which real"
    yield "text never has, and every token can be context for every other. About a sixth is predicted,"
    yield f"{T // 6:,} of {T:,}."
    yield "In training, a second stream passes through the same weights. It adds no parameters but its first"
    yield f"vector, of {config.width:,} numbers. After training, one stream is left."


def gpt2(config: Any) -> Iterator[str]:
    T, L, H = config.max_length, config.depth, config.width
    yield f"Every token predicts the next: {T:,} training signals in {T:,} tokens; masking trains on"
    yield f"{MASKED * T:,.0f} of them."
    yield f"Generating with stored keys and values takes {2 * L * H:,} numbers per token,"
    yield f"{8 * L * H * T / 1e6:,.1f} MB for a full context, and each new token costs one row instead of all."
    yield f"The head is the token table again, which saves {config.vocab_size * H:,} parameters."


def modernbert(config: Any) -> Iterator[str]:
    T, H, inner, L = config.max_length, config.width, config.intermediate_size, config.depth
    window, local = config.local_attention, sum(kind == LOCAL for kind in config.kinds)
    yield f"{local} of {L} layers attend to {window // 2} tokens on each side: {min(window + 1, T):,} scores per"
    yield f"query instead of {T:,}."
    yield f"The gated feed-forward network has three matrices of {H} × {inner}, {3 * H * inner:,} parameters;"
    yield f"BERT's two of {H} × {4 * H} have {8 * H * H:,}."
    yield "Positions are rotations of queries and keys: no table, no parameters."


STORIES: dict[str, Callable[[Any], Iterator[str]]] = {
    "bert": bert,
    "roberta": roberta,
    "albert": albert,
    "distilbert": distilbert,
    "electra": electra,
    "deberta": deberta,
    "deberta-v3": deberta,
    "transformer-xl": transformer_xl,
    "xlnet": xlnet,
    "gpt2": gpt2,
    "modernbert": modernbert,
}


def story(name: str, config: Any) -> str:
    """The sentences of a story as one paragraph"""
    return " ".join(sentence.strip() for sentence in STORIES[name](config))

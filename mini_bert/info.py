"""What a model is made of and what training it will need: the page behind `mini-bert info`."""

from __future__ import annotations

import math

from mini_bert.config import MiniBertConfig, TrainingConfig
from mini_bert.layers.attention import is_lean
from mini_bert.layers.base import PRODUCT
from mini_bert.layers.lean_attention import TILE
from mini_bert.model import MiniBERT

CHOSEN = 0.15  # the share of tokens that masked language modelling asks for


def activation_numbers(
    config: MiniBertConfig, batch: int, tokens: int, chosen: int, most: int, attention: str = "auto"
) -> int:
    """How many numbers the caches of one training `loss` call hold until backward uses them.

    `chosen` of the tokens enter the loss, `most` of them in one sequence; `attention` is its method. Follows the
    caches from layer to layer; a test compares it with the arrays of a real cache.
    """
    BT, H, inner = batch * tokens, config.hidden_size, config.intermediate_size
    lean = is_lean(attention, tokens)
    looks = batch * config.num_heads * tokens * (1 if lean else tokens)  # who looks at whom, or log-sum-exps
    seats = batch * most  # places for the chosen that ask in the last block
    block = (
        (5 * BT * H + looks)  # attention: x, q, k, v, joined contexts; weights
        + 2 * (BT * H + BT)  # two norms: x̂ and σ
        + (BT * H + BT * inner)  # feed-forward: x' and f(x' W1 + b1)
    )
    last = (
        (3 * BT * H + chosen * H + seats * H + looks * most // tokens + chosen * H)  # x, k, v; of the chosen: x, q, …
        + 2 * (chosen * H + chosen)
        + (chosen * H + chosen * inner)
    )
    if lean:
        last += seats * H  # the contexts where they sit
    embedded = 0
    if config.dropout:  # masks; lean attention draws its own again
        masked = 0 if lean else looks
        block += masked + 2 * BT * H
        last += masked * most // tokens + 2 * chosen * H
        embedded = BT * H
    final = chosen * (2 * H + 1)  # the norm's x̂ and σ, and what the head reads
    head = chosen * (config.vocab_size + 1)  # the probabilities of every word for each, and what to divide them by
    return embedded + (config.num_layers - 1) * block + last + final + head


def working_numbers(config: MiniBertConfig, batch: int, tokens: int, chosen: int, attention: str = "auto") -> int:
    """How many more are alive at the worst moment of backward: in a block, when the head's have gone already."""
    BT, H = batch * tokens, config.hidden_size
    looks = min(tokens, TILE) ** 2 if is_lean(attention, tokens) else batch * config.num_heads * tokens**2
    block = max(7 * BT * H + 2 * looks, 4 * BT * H + 5 * BT * config.intermediate_size // 4)
    return max(0, block - chosen * config.vocab_size) + PRODUCT


def training_bytes(config: MiniBertConfig, parameters: int, batch: int, threads: int) -> dict[str, int]:
    """Memory by purpose; every thread has gradients, activations and working memory of its own."""
    T = config.max_seq_length
    sizes = (config, batch, T, round(CHOSEN * batch * T))
    return {
        "parameters": 4 * parameters,
        "gradients": 4 * parameters * threads,
        "Adam's two moments": 8 * parameters,
        "activations": 4 * activation_numbers(*sizes, most=math.ceil(CHOSEN * T)) * threads,
        "working memory of backward": 4 * working_numbers(*sizes) * threads,
    }


def main(config: MiniBertConfig, name: str, batch: int = TrainingConfig.micro_batch, threads: int = 2) -> None:
    """Print architecture, parameters and memory."""
    model = MiniBERT(config, seed=None)  # its shapes are wanted, not its weights
    T, H, V, inner = config.max_seq_length, config.hidden_size, config.vocab_size, config.intermediate_size
    total = model.get_parameter_count()
    print(f"{name}: {total:,} parameters\n")

    rows = [
        ("ids", f"(B,{T})", ""),
        ("E[ids] + P", f"(B,{T},{H})", f"E ({V},{H})  P ({T},{H})"),
        *(
            row
            for index in range(1, config.num_layers + 1)
            for row in (
                (f"block {index}: attention, {config.num_heads} heads of {config.head_size}", f"(B,{T},{H})",
                 f"W_qkv ({H},{3 * H})  W_o ({H},{H})"),
                ("         add & norm", f"(B,{T},{H})", f"γ β ({H},)"),
                (f"         feed-forward {H} → {inner} → {H}", f"(B,{T},{H})",
                 f"W1 ({H},{inner}) b1  W2 ({inner},{H}) b2"),
                ("         add & norm", f"(B,{T},{H})", f"γ β ({H},)"),
            )
        ),
        ("final norm", f"(B,{T},{H})", f"γ β ({H},)"),
        ("head", f"(B,{T},{V})", f"{'Eᵀ' if config.tie_head else 'W'} ({H},{V})  b ({V},)"),
    ]  # fmt: skip
    print(f"{'architecture':42} {'output':16} weights")
    for label, shape, weights in rows:
        print(f"  {label:40} {shape:16} {weights}")

    print(f"\n{'parameters by component':42} {'number':>12}  {'share':>6}")
    for component, count in model.get_parameter_count(by_component=True).items():
        print(f"  {component:40} {count:12,}  {count / total:6.1%}")
    print(f"  {'together':40} {total:12,}")

    print(f"\nmemory for training, batches of {batch} × {T} tokens on {threads} threads")
    needs = training_bytes(config, total, batch, threads)
    for purpose, size in needs.items():
        print(f"  {purpose:40} {size / 1e6:9.1f} MB")
    print(f"  {'together (Python and NumPy add about 40)':40} {sum(needs.values()) / 1e6:9.1f} MB")

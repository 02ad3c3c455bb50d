"""What a model is made of and what training it will need: the page behind `mini-bert info`."""

from __future__ import annotations

from mini_bert.config import MiniBertConfig
from mini_bert.model import MiniBERT

CHOSEN = 0.15  # the share of tokens that masked language modelling asks for


def activation_numbers(config: MiniBertConfig, batch: int, tokens: int, chosen: int) -> int:
    """How many numbers the caches of one `loss` call hold until backward uses them, without dropout.

    Follows the caches from layer to layer; a test compares it with the arrays of a real cache.
    """
    BT, H, heads = batch * tokens, config.hidden_size, config.num_heads
    attention = 5 * BT * H + batch * heads * tokens**2  # x, q, k, v, joined contexts; who looks at whom
    norms = 2 * (BT * H + BT)  # x̂ and σ, twice
    feed_forward = BT * H + BT * config.intermediate_size  # x' and f(x' W1 + b1)
    block = attention + norms + feed_forward
    final = BT * H + BT
    head = chosen * (H + config.vocab_size)  # the chosen rows, and the probabilities of every word for each
    return config.num_layers * block + final + head


def training_bytes(config: MiniBertConfig, parameters: int, batch: int, threads: int) -> dict[str, int]:
    """Memory by purpose; every thread has gradients and activations of its own."""
    tokens = config.max_seq_length
    chosen = round(CHOSEN * batch * tokens)
    return {
        "parameters": 4 * parameters,
        "gradients": 4 * parameters * threads,
        "Adam's two moments": 8 * parameters,
        "activations": 4 * activation_numbers(config, batch, tokens, chosen) * threads,
    }


def main(config: MiniBertConfig, name: str, batch: int = 8, threads: int = 2) -> None:
    """Print architecture, parameters and memory."""
    model = MiniBERT(config)
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

"""The layers of a model with their shapes, for `mini-bert info`."""

from __future__ import annotations

from mini_bert.models.config import MiniBertConfig


def architecture(config: MiniBertConfig) -> list[tuple[str, str, str]]:
    """Returns (layer, shape of its output, its weights), from the ids to the logits."""
    T, H, V, inner = config.max_seq_length, config.hidden_size, config.vocab_size, config.intermediate_size
    rows = [("ids", f"(B,{T})", ""), ("E[ids] + P", f"(B,{T},{H})", f"E ({V},{H})  P ({T},{H})")]
    for index in range(1, config.num_layers + 1):
        rows += [
            (f"block {index}: attention, {config.num_heads} heads of {config.head_size}", f"(B,{T},{H})",
             f"W_qkv ({H},{3 * H})  W_o ({H},{H})"),
            ("         add & norm", f"(B,{T},{H})", f"γ β ({H},)"),
            (f"         feed-forward {H} → {inner} → {H}", f"(B,{T},{H})", f"W1 ({H},{inner}) b1  W2 ({inner},{H}) b2"),
            ("         add & norm", f"(B,{T},{H})", f"γ β ({H},)"),
        ]  # fmt: skip
    head = "Eᵀ" if config.tie_head else "W"
    return [
        *rows,
        ("final norm", f"(B,{T},{H})", f"γ β ({H},)"),
        ("head", f"(B,{T},{V})", f"{head} ({H},{V})  b ({V},)"),
    ]

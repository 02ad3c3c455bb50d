"""What a model is made of and what training it will need: the page behind `mini-bert info`."""

from __future__ import annotations

from mini_bert.common.invocation import command
from mini_bert.models.config import MiniBertConfig
from mini_bert.models.mini_bert import MiniBERT
from mini_bert.training.plan import Choice, describe, memory_by_purpose
from mini_bert.training.settings import TrainingConfig


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
    needs = memory_by_purpose(describe(config), Choice(batch, threads))
    for purpose, size in needs.items():
        print(f"  {purpose:40} {size / 1e6:9.1f} MB")
    print(f"  {'together, at its peak':40} {sum(needs.values()) / 1e6:9.1f} MB")
    print(f"\n`{command('plan')}` says how to make do with less.")

"""The architecture of a model as a table of shapes, for `mini-bert info`."""

from __future__ import annotations

from mini_bert.models.base import Model


def architecture(model: Model) -> list[tuple[str, str, str]]:
    """Returns (layer, shape of its output, its weights), from the ids to the heads."""
    T, H, inner = model.max_length, model.width, model.config.intermediate_size
    hidden = f"(B,{T},{H})"
    parts: dict[str, list[str]] = {}  # the weights outside the blocks, by component
    for name, param in model.named_params().items():
        component, _, rest = name.partition(".")
        if component != "encoder":
            parts.setdefault(component, []).append(f"{rest} {_shape(param.shape)}")
    before = [name for name in ("tokens", "positions", "types", "norm") if name in parts]
    rows = [("ids", f"(B,{T})", "")]
    rows += [(f"embeddings: {name}", hidden, "  ".join(parts.pop(name))) for name in before]
    for index in range(1, model.depth + 1):
        rows += [
            (f"block {index}: attention, {model.heads} heads of {H // model.heads}", hidden,
             f"W_qkv ({H},{3 * H})  W_o ({H},{H})"),
            ("         add & norm", hidden, f"γ β ({H},)"),
            (f"         feed-forward {H} → {inner} → {H}", hidden, f"W1 ({H},{inner}) b1  W2 ({inner},{H}) b2"),
            ("         add & norm", hidden, f"γ β ({H},)"),
        ]  # fmt: skip
    outputs = {
        "head": f"(B,{T},{model.vocab_size})",
        "masked_words": f"(B,{T},{model.vocab_size})",
        "final_norm": hidden,
    }
    outputs |= {"pooler": f"(B,{H})", "next_sentence": "(B,2)"}
    return rows + [(name, outputs.get(name, ""), "  ".join(weights)) for name, weights in parts.items()]


def _shape(shape: tuple[int, ...]) -> str:
    return "(" + ",".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"

"""Compare a model with its reference implementation in `transformers`: outputs, loss and every gradient, in float64.

    compare(Peer("RobertaForMaskedLM", {"hidden_size": 12, …}, {"masked_words": "logits"}), tmp_path)

The reference model gets random weights, away from their initial values, and writes a folder. We load that folder, so
names, shapes and the config are part of the comparison. Both run on the same batch. The loss is Σ output ⊙ random, over
the tokens that are not padding, so that its gradients reach every weight that any output depends on.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from mini_bert.inference.loading import load_model
from mini_bert.models.base import HIDDEN, Model, Output

TOLERANCE = 1e-9  # of the largest number in each array


class Peer(NamedTuple):
    """One random model of `transformers`, and what to compare."""

    theirs: str  # a class of transformers
    config: dict[str, Any]  # fields of its config
    outputs: dict[str, str]  # our head (or "hidden") -> the field of their output
    types: int = 0  # the number of token types; 0: the model takes none
    left: bool = False  # padding on the left
    shape: tuple[int, int] = (3, 7)  # B, T
    padded: bool = True

    def __str__(self) -> str:
        return f"{self.theirs}-{'-'.join(f'{name}={value}' for name, value in self.config.items())}"[:100]


class Inputs(NamedTuple):
    ids: np.ndarray
    mask: np.ndarray
    types: np.ndarray | None


def compare(peer: Peer, folder: Path, seed: int = 0) -> Model:
    """Returns our model, after its backward pass, for further checks."""
    theirs = random_model(peer, seed)
    theirs.save_pretrained(folder)
    ours = load_model(folder, np.float64)
    inputs = random_inputs(peer, theirs.config, seed)
    output, cache = ours.forward(inputs.ids, inputs.mask, inputs.types)
    assert {HIDDEN, *ours.output_heads} >= set(peer.outputs), ours.output_heads
    wanted = their_outputs(theirs, inputs)
    rng, gradients, loss = np.random.default_rng(seed + 1), {}, 0.0
    for name, field in peer.outputs.items():
        found, expected = getattr(output, name), getattr(wanted, field)
        if found.ndim == expected.ndim + 1:  # one logit per token: their last axis is squeezed
            expected = expected[..., None]
        real = inputs.mask.astype(bool) if found.ndim == 3 else slice(None)
        agree(found[real], expected.detach().numpy()[real], name)
        gradients[name] = np.zeros_like(found)
        gradients[name][real] = rng.normal(size=found[real].shape)
        loss = loss + (expected * as_tensor(gradients[name])).sum()
    loss.backward()
    ours.backward(Output(**gradients), cache)
    compare_gradients(ours, theirs)
    return ours


def random_model(peer: Peer, seed: int) -> Any:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(seed)
    kind = getattr(transformers, peer.theirs)
    config = kind.config_class(**peer.config)
    config._attn_implementation = "eager"
    model = kind(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.tie_weights()
    return model


def random_inputs(peer: Peer, config: Any, seed: int) -> Inputs:
    """Ids without the padding id, except as padding: PyTorch gives its row of the table no gradient."""
    rng, (B, T) = np.random.default_rng(seed), peer.shape
    pad = getattr(config, "pad_token_id", None) or 0
    lengths = rng.integers(2, T + 1, (B, 1)) if peer.padded else np.full((B, 1), T)
    lengths[0] = T
    mask = (np.arange(T) >= T - lengths if peer.left else np.arange(T) < lengths).astype(int)
    ids = rng.integers(0, config.vocab_size - 1, (B, T))
    ids += ids >= pad
    types = rng.integers(0, peer.types, (B, T)) if peer.types else None
    return Inputs(np.where(mask, ids, pad), mask, types)


def their_outputs(theirs: Any, inputs: Inputs, **more: Any) -> Any:
    given = {"input_ids": inputs.ids, "attention_mask": inputs.mask, "token_type_ids": inputs.types}
    return theirs(**{name: as_tensor(array) for name, array in given.items() if array is not None}, **more)


def compare_gradients(ours: Model, theirs: Any) -> None:
    """Every gradient, by the names that files use"""
    agree_on_gradients(ours, {name: p.grad.numpy() for name, p in theirs.named_parameters() if p.grad is not None})


def stored_gradients(expected: dict[str, Any]) -> dict[str, Any]:
    """Those in a golden file, by the names of the tensors"""
    return {name.removeprefix("grad."): array for name, array in expected.items() if name.startswith("grad.")}


def agree_on_gradients(model: Model, wanted: dict[str, Any], least: float = 1e-6) -> set[str]:
    """Returns the names of all our tensors. least: of the largest gradient; a key's bias has none but rounding"""
    twin = deepcopy(model)
    twin.flat.data[...] = model.flat.grad
    found = twin.file_tensors()
    assert wanted and not {*wanted} - {*found}, f"we have no gradient for {sorted({*wanted} - {*found})}"
    largest = max(np.abs(array).max() for array in wanted.values())
    for name, array in wanted.items():
        agree(found[name], array, name, least * largest)
    return set(found)


def agree(found: np.ndarray, wanted: np.ndarray, name: str, least: float = 0.0) -> None:
    assert found.shape == wanted.shape, f"{name}: {found.shape}, expected {wanted.shape}"
    scale = max(np.abs(wanted).max(), least)
    difference = np.abs(found - wanted).max()
    assert difference <= TOLERANCE * scale, f"{name} differs by {difference:.1e}, its largest number is {scale:.1e}"


def as_tensor(array: np.ndarray) -> Any:
    return pytest.importorskip("torch").tensor(array)

"""Check the inputs of a model once, before anything is computed. Errors name the value and what to do."""

import math
import sys

import numpy as np


def check_ids(ids, vocab_size: int, max_length: int, name: str = "input_ids") -> np.ndarray:
    """Returns ids as an array (B,T) of integers from 0 to vocab_size − 1, with T ≤ max_length."""
    try:
        ids = np.asarray(ids)
    except ValueError:  # lists of different lengths
        raise ValueError(
            f"{name} contains sequences of different lengths; pad them to one length and pass an attention_mask"
        ) from None
    if ids.ndim != 2 or ids.size == 0:
        raise ValueError(
            f"{name} must have shape (batch, tokens) with at least one token, got {ids.shape}; "
            "pass a single sequence as [ids]"
        )
    if ids.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must be integers, got dtype {ids.dtype}, for example {ids.flat[0]!r}; "
            "use a tokenizer to turn text into ids"
        )
    if ids.shape[1] > max_length:
        raise ValueError(
            f"{name} contains sequences of {ids.shape[1]} tokens, but this model is configured for at most "
            f"{max_length}; truncate to {max_length}, or use a model for longer sequences"
        )
    if ids.min() < 0 or ids.max() >= vocab_size:
        b, t = np.argwhere((ids < 0) | (ids >= vocab_size))[0]
        raise ValueError(f"{name}[{b}, {t}] is {ids[b, t]}, expected 0 to {vocab_size - 1}")
    return ids


def check_token_types(token_types, ids: np.ndarray, count: int) -> np.ndarray:
    """Returns token types as an array of the shape of ids, (B,T), from 0 to count − 1."""
    types = check_ids(token_types, count, sys.maxsize, "token_types")
    if types.shape != ids.shape:
        raise ValueError(f"token_types has shape {types.shape}, expected {ids.shape}, the shape of input_ids")
    return types


def check_mask(mask, shape: tuple[int, ...]) -> np.ndarray | None:
    """Turns a mask (B,T), 1 = token, 0 = padding, into (B,1,1,T) booleans for attention; None if nothing is padded."""
    if mask is None:
        return None
    try:
        mask = np.asarray(mask)
    except ValueError:
        raise ValueError(
            f"attention_mask has rows of different lengths, expected {shape}, the shape of input_ids"
        ) from None
    if mask.shape != shape:
        raise ValueError(f"attention_mask has shape {mask.shape}, expected {shape}, the shape of input_ids")
    if not np.isin(mask, (0, 1)).all():
        bad = mask[~np.isin(mask, (0, 1))].tolist()[0]
        raise ValueError(f"attention_mask contains {bad!r}, expected 1 for tokens and 0 for padding")
    mask = mask.astype(bool)
    return None if mask.all() else mask[:, None, None, :]


def check_rows(rows, targets, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Returns two (N,) integer arrays: positions in the flat list of B·T tokens, and the ids to predict there."""
    rows, targets = np.asarray(rows), np.asarray(targets)
    if rows.size == targets.size == 0:
        return rows.astype(np.intp).reshape(0), targets.astype(np.intp).reshape(0)
    for name, array in (("rows", rows), ("targets", targets)):
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise TypeError(f"{name} must be a list of integers, got dtype {array.dtype} and shape {array.shape}")
    if rows.shape != targets.shape:
        raise ValueError(f"there are {rows.size} rows but {targets.size} targets; each chosen row needs one target")
    if rows.min() < 0 or rows.max() >= math.prod(shape):
        raise ValueError(
            f"rows lie in [{rows.min()}, {rows.max()}], expected 0 to {math.prod(shape) - 1}: "
            f"token t of sequence b is row b·{shape[1]} + t"
        )
    return rows, targets


def check_finite(results: np.ndarray, what: str) -> None:
    """Raise an error instead of returning results that are NaN or infinite."""
    if not np.isfinite(results).all():
        raise ValueError(
            f"{what} are not finite: numbers inside the model are too large to compute with; its weights are "
            "damaged, or the training that made them failed"
        )

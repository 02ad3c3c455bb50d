"""What a model has learnt so far: its guesses and its attention on fixed sentences, for every checkpoint of a run.

    snapshot(Path("runs/run-1"), 250)           of checkpoints/step-00000250; kept in runs/run-1/lab/step-00000250.json

A run deletes its older checkpoints, so the lab makes a snapshot as soon as a checkpoint appears. Snapshots are small,
and stay.

A head *specialises* in an offset if its words give most of their weight to the token at that distance:

    share[o] = mean over words i of P[i, i + o]         o = −1: the previous token, 0: itself, 1: the next
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mini_bert.common.atomic import write_atomic
from mini_bert.common.json_values import read_json
from mini_bert.inference.loading import load
from mini_bert.inside.attention_page import packed
from mini_bert.lab.bench import Bench, rounded
from mini_bert.lab.family import word_places
from mini_bert.lab.fields import BadRequest
from mini_bert.lab.mask import gap_probabilities, gaps_of, way_of
from mini_bert.models.base import MASKED_WORDS
from mini_bert.training import checkpoint
from mini_bert.training.history import finite

FOLDER = "lab"
FORMAT = 1
NAME = re.compile(r"step-(\d{8})\.json")
TOP = 5  # guesses
OFFSETS = (-3, -2, -1, 0, 1, 2, 3)
THRESHOLD = 0.5  # of the weight
SENTENCES = (  # with a gap, and the word that was there
    ("She opened the {} and looked into the room.", "door"),
    ("Return the number of items in the {}.", "list"),
    ("If the file does not {}, an error is raised.", "exist"),
    ("The old man {} his eyes and smiled.", "closed"),
    ("This method returns a {} of the object.", "copy"),
)


def steps(run: Path) -> list[int]:
    """The steps that have a snapshot or a checkpoint, in order."""
    try:
        names = [found[1] for path in (run / FOLDER).iterdir() if (found := NAME.fullmatch(path.name))]
    except OSError:
        names = []
    kept = [path.name.removeprefix("step-") for path in checkpoint.folders(run)]
    return sorted({int(name) for name in (*names, *kept)})


def snapshot(run: Path, step: int) -> dict[str, Any]:
    """The snapshot of a step: read, or computed from its checkpoint and kept."""
    found = kept(run, step)
    if found is not None:
        return found
    source = run / checkpoint.FOLDER / f"step-{step:08d}"
    if not source.is_dir() or not inside(source, run):
        raise BadRequest(f"step {step:,} of {run.name} has no checkpoint any more, and no snapshot was made of it")
    try:
        bench = Bench("", *load(str(source)))
    except (OSError, ValueError) as error:
        raise BadRequest(f"the checkpoint of step {step:,} of {run.name} cannot be read: {error}") from None
    made = {"format": FORMAT, "step": step, **describe(bench)}
    with suppress(OSError):  # a folder in which we may not write: it is computed again next time
        (run / FOLDER).mkdir(exist_ok=True)
        if inside(run / FOLDER, run):
            write_atomic(run / FOLDER / f"step-{step:08d}.json", json.dumps(made, separators=(",", ":")).encode())
    return made


def inside(path: Path, folder: Path) -> bool:
    """Whether a path is in a folder, and no link leads out of it."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a loop of links
        return False


def kept(run: Path, step: int) -> dict[str, Any] | None:
    """The snapshot on disk, if there is an intact one."""
    path = run / FOLDER / f"step-{step:08d}.json"
    return _read(path, path.stat().st_mtime_ns if path.is_file() and inside(path, run) else 0)


@lru_cache(512)
def _read(path: Path, changed: int) -> dict[str, Any] | None:
    try:
        found = read_json(path) if changed else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT and _complete(found) else None


def _complete(found: dict[str, Any]) -> bool:
    """Whether a file has what the page draws."""
    sizes = [found.get(name) for name in ("step", "layers", "heads")]
    if not all(type(size) is int and size >= 0 for size in sizes) or not isinstance(found.get("weights"), str):
        return False
    rows, shown = found.get("offsets"), found.get("sentences")
    return (
        isinstance(shown, list)
        and all(isinstance(one, dict) and {"tokens", "word", "p", "guesses"} <= set(one) for one in shown)
        and isinstance(rows, list)
        and len(rows) == found["layers"] * found["heads"]
        and all(isinstance(row, list) and len(row) == len(OFFSETS) and None not in map(finite, row) for row in rows)
    )


def describe(bench: Bench, sentences: Sequence[tuple[str, str]] = SENTENCES) -> dict[str, Any]:
    """Guesses for every sentence, the attention of the first one, and what each head attends to in all."""
    if way_of(bench) != MASKED_WORDS:
        raise BadRequest(
            f"this {type(bench.model).__name__} does not guess hidden words, so there is nothing to show here"
        )
    shown, shares = [], []
    first = None
    for text, word in sentences:
        reading, whole = bench.read(text.format(bench.tokenizer.mask_token)), bench.read(text.format(word))
        (gap,) = gaps_of(reading, [])
        probs = gap_probabilities(bench, reading, [gap])[0]
        own = [whole.ids[place] for place in word_places(whole, text.index("{"))]
        tokens = zip(reading.tokens, reading.roles, strict=True)
        shown.append({
            "tokens": [{"text": token, "role": role} for token, role in tokens],
            "gap": gap,
            "word": word,
            "p": rounded(probs[own[0]]) if len(own) == 1 else None,
            "guesses": [
                {"word": bench.tokenizer.readable(i), "p": rounded(probs[i]), "own": [i] == own}
                for i in bench.best(probs, TOP)
            ],
        })  # fmt: skip
        weights = np.stack([one[0] for one in bench.encode(reading).attention_weights()])  # (L,A,T,T)
        shares.append(offset_shares(weights))
        first = weights if first is None else first
    assert first is not None
    L, A = first.shape[:2]
    means = np.mean(shares, axis=0)  # (L,A,offsets)
    return {
        "sentences": shown,
        "layers": L,
        "heads": A,
        "weights": packed(first),
        "offsets": [[rounded(value, 4) for value in row] for row in means.reshape(L * A, -1)],
    }


def offset_shares(weights: np.ndarray) -> np.ndarray:
    """(L,A,offsets) the mean weight on the token at each offset, over the tokens between [CLS] and [SEP] that have one.

    >>> offset_shares(np.eye(4)[None, None])[0, 0].tolist()
    [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    """
    T = weights.shape[-1]
    words = np.arange(1, T - 1)
    found = []
    for offset in OFFSETS:
        rows = words[(words + offset >= 0) & (words + offset < T)]
        found.append(weights[..., rows, rows + offset].mean(-1) if rows.size else np.zeros(weights.shape[:2]))
    return np.stack(found, -1)


def specialised(snapshots: Sequence[dict[str, Any]], threshold: float = THRESHOLD) -> list[dict[str, Any]]:
    """When heads specialised: for each head that does so in the last snapshot, since which step without a break."""
    if not snapshots:
        return []
    marks = []
    last = snapshots[-1]
    for head, shares in enumerate(last["offsets"]):
        best = int(np.argmax(shares))
        if shares[best] <= threshold:
            continue
        since = last["step"]
        for one in reversed(snapshots):
            if one["offsets"][head][best] <= threshold:
                break
            since = one["step"]
        layer, number = divmod(head, last["heads"])
        marks.append({
            "layer": layer, "head": number, "offset": OFFSETS[best], "share": shares[best], "step": since,
            "always": since == snapshots[0]["step"],
        })  # fmt: skip
    return marks

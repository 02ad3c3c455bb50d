"""Answers as JSON. Large ones are written in a thread, in pieces, so that other requests need not wait for them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from mini_bert.common.extras import extra
from mini_bert.serving.calls import LARGE, Call
from mini_bert.serving.failures import Failure
from mini_bert.serving.metrics import NEEDED

OBJECT = 80  # characters of a small JSON object
PIECE = 100  # such objects that are written together


class Json(str):
    """JSON as text"""


def as_text(value: Any) -> Json:
    """JSON of a small value."""
    try:
        return Json(json.dumps(value, allow_nan=False))
    except ValueError:
        raise Failure(
            "Backend", "the answer has numbers that are not finite; are the model's weights damaged?"
        ) from None


def large_text(value: Any) -> Json:
    """JSON of a large value, in pieces: json.dumps keeps Python's lock, and all other requests would wait for it."""
    if not isinstance(value, list):
        return as_text(value)
    if value and isinstance(value[0], list):
        return Json(f"[{', '.join(map(large_text, value))}]")
    pieces = (as_text(value[start : start + PIECE])[1:-1] for start in range(0, len(value), PIECE))
    return Json(f"[{', '.join(pieces)}]")


async def written(call: Call, size: int, work: Callable[[], Any]) -> Json:
    """JSON of what `work` returns; in a thread if it has many characters. size: of the answer, about"""
    size = max(size, call.size)
    return await call.in_thread_if_large(size, lambda: (as_text if size <= LARGE else large_text)(work()))


def numbers(x: np.ndarray) -> str:
    """An array as JSON, with as many digits as identify a float32: a tenth of the time of Python's formatting."""
    orjson = extra("orjson", *NEEDED)
    return orjson.dumps(np.ascontiguousarray(x), option=orjson.OPT_SERIALIZE_NUMPY).decode()


def base64_of(vector: np.ndarray) -> str:
    return f'"{base64.b64encode(vector.astype("<f4").tobytes()).decode()}"'

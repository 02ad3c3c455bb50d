"""Prepare values for JSON."""

from __future__ import annotations

import json
import math
from typing import Any


def as_json(record: Any) -> str:
    """Indented JSON of a record's `finite_values`."""
    return json.dumps(finite_values(record), indent=2, ensure_ascii=False, allow_nan=False)


def finite_values(record: Any) -> Any:
    """NaN and infinity, which JSON lacks, become null; named tuples become objects.

    >>> finite_values({"loss": math.nan, "steps": [1, 2.5]})
    {'loss': None, 'steps': [1, 2.5]}
    """
    if hasattr(record, "_asdict"):
        record = record._asdict()
    if isinstance(record, dict):
        return {name: finite_values(value) for name, value in record.items()}
    if isinstance(record, list):
        return [finite_values(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record

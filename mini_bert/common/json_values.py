"""Prepare values for JSON."""

from __future__ import annotations

import math
from typing import Any


def finite_values(record: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(record, dict):
        return {name: finite_values(value) for name, value in record.items()}
    if isinstance(record, list):
        return [finite_values(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record

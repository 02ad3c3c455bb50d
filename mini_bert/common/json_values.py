"""Values that JSON can hold."""

from __future__ import annotations

import math
from typing import Any


def finite_values(record: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(record, dict):
        return {name: finite_values(value) for name, value in record.items()}
    if isinstance(record, list):
        return [finite_values(value) for value in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record

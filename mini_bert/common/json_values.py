"""Read JSON files, and prepare values for JSON."""

from __future__ import annotations

import json
import math
import os
from typing import Any

LARGEST_FILE = 1 << 28  # bytes; a tokenizer.json of 250,000 pieces has 17 MB


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of a JSON file. A ValueError says in one sentence what is wrong with it."""
    with open(path, "rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"{path} has more than {LARGEST_FILE:,} bytes, too much for a file of settings")
    return parse_json(content, path)


def parse_json(text: str | bytes, source: str | os.PathLike[str]) -> Any:
    """The value of a JSON text; `source` is named in errors."""
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise ValueError(f"{source} is nested too deeply to be read as JSON") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not valid JSON: it is not UTF-8 text ({error})") from None
    except ValueError as error:
        raise ValueError(f"{source} is not valid JSON ({error})") from error


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The object in a JSON file: its values by name."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} contains a {type(content).__name__}, expected an object")
    return content


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

"""The fields of a request, checked. Every error is one sentence that the page shows under the sentence editor.

fields = Fields(request)
text, layer = fields.text(), fields.integer("layer", 0, 2)
fields.end()                                                    # refuses fields that nothing has read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LONGEST_TEXT = 2000  # characters
MOST_PLACES = 128  # in a list of positions


class Unable(ValueError):
    """What the chosen model cannot do. The request is right: the page shows the sentence where the result would be."""


class Fields:
    """Reads the fields of one request. A missing field takes its default; without a default it is an error."""

    def __init__(self, request: Mapping[str, Any]):
        self.request, self.read = request, set[str]()

    def _get(self, name: str, default: Any) -> Any:
        self.read.add(name)
        value = self.request.get(name, default)
        if value is None:
            raise ValueError(f"the request has no {name!r}; add it")
        return value

    def text(self, name: str = "text", longest: int = LONGEST_TEXT) -> str:
        """A text of at most `longest` characters, none of them half a character."""
        value = self._get(name, None)
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r:.40}, expected a text")
        if len(value) > longest:
            raise ValueError(f"the text has {len(value):,} characters; the lab takes at most {longest:,}")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError("the text contains half of a character (a lone surrogate); type it again")
        return value

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self._get(name, default)
        if type(value) is not int or not low <= value <= high:  # True is not a number here
            raise ValueError(f"{name} is {value!r:.40}, expected a whole number from {low} to {high}")
        return value

    def integers(self, name: str, low: int, high: int) -> list[int]:
        """Distinct whole numbers in ascending order; none if the field is missing."""
        values = self._get(name, [])
        if not isinstance(values, list) or len(values) > MOST_PLACES:
            raise ValueError(f"{name} is {values!r:.40}, expected a list of at most {MOST_PLACES} numbers")
        for value in values:
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name} contains {value!r:.40}, expected whole numbers from {low} to {high}")
        return sorted(set(values))

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        value = self._get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name} is {value!r:.40}, expected one of {', '.join(choices)}")
        return value

    def end(self) -> None:
        """Refuse fields that were not read: a misspelt name would otherwise be ignored without a word."""
        if unknown := sorted(set(self.request) - self.read):
            raise ValueError(f"the request has an unknown field {unknown[0]!r:.40}; it takes {', '.join(self.read)}")

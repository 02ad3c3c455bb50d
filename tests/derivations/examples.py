"""What the library computes for the example of each section of docs/derivations/.

A function takes the arrays that the page gives, by name, and returns the arrays that the page computes. Pages show one
sequence without its batch axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.derivations import basic_examples, loss_examples, model_examples, position_examples

EXAMPLES: dict[str, Callable[..., dict[str, Any]]] = {
    **basic_examples.EXAMPLES,
    **position_examples.EXAMPLES,
    **model_examples.EXAMPLES,
    **loss_examples.EXAMPLES,
}

"""What can go wrong with a request: the kinds of text-embeddings-inference, each with its status code."""

from __future__ import annotations

from typing import Any

STATUS = {
    "Empty": 400,  # there is nothing to compute
    "Unauthorized": 401,
    "NotFound": 404,
    "Validation": 422,  # wrong types or values, too many inputs, too many tokens
    "Backend": 424,  # the model cannot do this, or its numbers are not finite
    "Overloaded": 429,
    "Gone": 499,  # the client has hung up
    "Internal": 500,
    "Unhealthy": 503,
}
BY_STATUS = {status: kind for kind, status in STATUS.items() if kind != "Empty"}  # a 400 need not be about texts


class Failure(Exception):
    """An answer that is an error. status: if it is not that of its kind"""

    def __init__(self, kind: str, sentence: str, status: int | None = None):
        super().__init__(sentence)
        self.kind, self.sentence, self.status = kind, sentence, status or STATUS[kind]


def body_of(status: int, kind: str, sentence: str, openai: bool) -> dict[str, Any]:
    """The body of the answer. OpenAI's routes have their own."""
    if openai:
        return {"message": sentence, "code": status, "type": kind}
    return {"error": sentence, "error_type": kind}

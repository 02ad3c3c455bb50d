"""Routes on which a model writes: OpenAI's /v1/completions, and /generate and /generate_stream as in TGI.

A text is written token by token, each in a turn of its own in one of a few threads, so that several texts grow side by
side. A stream is a series of server-sent events; when its client is gone, nothing more is written.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from mini_bert.inference.generate import generate
from mini_bert.inference.sampling import Sampling
from mini_bert.serving.answers import cannot
from mini_bert.serving.calls import Call


class Stream(NamedTuple):
    """An answer that is sent in parts"""

    events: AsyncIterator[str]


class Writing:
    """A text that is being written: `async for piece in writing`, then `reason` and `count`"""

    def __init__(self, call: Call, prompt: str, tokens: int, sampling: Sampling, stop: list[str]):
        served = call.served
        if not served.writes:
            raise cannot(call, "text: it does not predict the next word")
        self.call, self.prompt, self.tokens, self.count = call, prompt, tokens, 0
        self.given = len(served.tokenizer.ids([prompt], special=False)[0])
        self.pieces = generate(served.model, served.tokenizer, prompt, tokens, sampling, stop, self._counted)

    def _counted(self, count: int) -> None:
        self.count = count

    async def __aiter__(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        while (piece := await loop.run_in_executor(self.call.writers, next, self.pieces, None)) is not None:
            if piece:
                yield piece
        self.call.tokens += self.given + self.count

    @property
    def ran_out(self) -> bool:
        """Whether it ended because it may not be longer"""
        return self.count == self.tokens


def share(top_p: float | None) -> float | None:
    """0, which some clients send, leaves the likeliest token."""
    return None if top_p is None else max(top_p, 1e-9)


def seed_of(call: Call) -> int:
    return secrets.randbits(32) if call["seed"] is None else call["seed"]


# ---------------------------------------------------------------------- OpenAI


async def complete(call: Call) -> Any:
    stop = [call["stop"]] if isinstance(call["stop"], str) else call["stop"]
    sampling = Sampling(call["temperature"], None, share(call["top_p"]), seed_of(call))
    writing = Writing(call, call["prompt"], call["max_tokens"], sampling, [one for one in stop if one])
    common = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time()),
              "model": call.served.name}  # fmt: skip
    start = call["prompt"] if call["echo"] else ""

    def answer(text: str, reason: str | None) -> dict[str, Any]:
        return {**common, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}]}

    async def events() -> AsyncIterator[str]:
        if start:
            yield event(answer(start, None))
        async for piece in writing:
            yield event(answer(piece, None))
        yield event(answer("", "length" if writing.ran_out else "stop"))
        yield "data: [DONE]\n\n"

    if call["stream"]:
        return Stream(events())
    text = start + "".join([piece async for piece in writing])
    usage = {"prompt_tokens": writing.given, "completion_tokens": writing.count,
             "total_tokens": writing.given + writing.count}  # fmt: skip
    return {**answer(text, "length" if writing.ran_out else "stop"), "usage": usage}


# ---------------------------------------------------------------------- TGI


async def generate_text(call: Call) -> Any:
    writing = tgi_writing(call)
    if call["stream"]:
        return Stream(tgi_events(writing))
    text = "".join([piece async for piece in writing])
    answer: dict[str, Any] = {"generated_text": (call["inputs"] if call["return_full_text"] else "") + text}
    return {**answer, "details": details(writing)} if call["details"] else answer


async def generate_stream(call: Call) -> Stream:
    return Stream(tgi_events(tgi_writing(call)))


def tgi_writing(call: Call) -> Writing:
    draws = call["do_sample"] or call["temperature"] is not None
    temperature = 0.0 if not draws else 1.0 if call["temperature"] is None else call["temperature"]
    sampling = Sampling(temperature, call["top_k"], share(call["top_p"]), seed_of(call))
    return Writing(call, call["inputs"], call["max_new_tokens"], sampling, [one for one in call["stop"] if one])


def details(writing: Writing) -> dict[str, Any]:
    reason = "length" if writing.ran_out else "stop_sequence"
    return {"finish_reason": reason, "generated_tokens": writing.count, "seed": None, "prefill": [], "tokens": []}


async def tgi_events(writing: Writing) -> AsyncIterator[str]:
    """An event for each piece of text, then one with the whole text and details"""
    text, index = "", 0

    def token(piece: str, more: dict[str, Any]) -> str:
        one = {"id": 0, "text": piece, "logprob": 0.0, "special": not piece}
        return event({"index": index, "token": one, "generated_text": None, "details": None, **more})

    async for piece in writing:
        text, index = text + piece, index + 1
        yield token(piece, {})
    index += 1
    yield token("", {"generated_text": text, "details": details(writing)})


def event(value: Any) -> str:
    return f"data: {json.dumps(value)}\n\n"

"""Routes on which a model writes: OpenAI's /v1/completions, and /generate and /generate_stream as in TGI.

A text is written token by token, each in a turn of its own in one of a few threads, so that several texts grow side by
side. A stream is a series of server-sent events; when its client is gone, nothing more is written.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from typing import Any, NamedTuple

from mini_bert.inference.generate import generate
from mini_bert.inference.sampling import Sampling
from mini_bert.serving.answers import cannot
from mini_bert.serving.calls import Call, too_slow


class Stream(NamedTuple):
    """An answer that is sent in parts"""

    events: AsyncIterator[str]


class Writing:
    """A text that is being written: `async for piece in writing`, then `reason` and `count`"""

    def __init__(self, call: Call, prompt: str, tokens: int, sampling: Sampling, stop: list[str]):
        served = call.served
        ids = served.tokenizer.ids([prompt], special=False)[0]
        self.call, self.given, self.tokens, self.count = call, len(ids), tokens, 0
        self.stopped = False  # by a stop string
        self.pieces = self._noted(generate(served.model, served.tokenizer, ids, tokens, sampling, stop, self._counted))

    @classmethod
    async def begin(cls, call: Call, prompt: str, tokens: int, sampling: Sampling, stop: Sequence[str]) -> Writing:
        if not call.served.writes:
            raise cannot(call, "text: it does not predict the next word")
        return await call.read(cls, call, prompt, tokens, sampling, [one for one in stop if one])

    def _counted(self, count: int) -> None:
        self.count = count

    def _noted(self, pieces: Generator[str, None, bool]) -> Iterator[str]:
        self.stopped = yield from pieces

    async def __aiter__(self) -> AsyncIterator[str]:
        loop, call = asyncio.get_running_loop(), self.call
        while (piece := await loop.run_in_executor(call.writers, next, self.pieces, None)) is not None:
            if time.perf_counter() - call.began > call.limits.timeout:
                raise too_slow(call.limits)
            yield piece
        call.tokens += self.given + self.count

    @property
    def reason(self) -> str:
        """Why it ended, in TGI's words: at a stop string, because it may not be longer, or where the model ended it"""
        return "stop_sequence" if self.stopped else "length" if self.count == self.tokens else "eos_token"


def share(top_p: float | None) -> float | None:
    """0, which some clients send, leaves the likeliest token."""
    return None if top_p is None else max(top_p, 1e-9)


def seed_of(call: Call) -> int:
    return secrets.randbits(32) if call["seed"] is None else call["seed"]


# ---------------------------------------------------------------------- OpenAI


async def complete(call: Call) -> Any:
    stop = [call["stop"]] if isinstance(call["stop"], str) else call["stop"]
    sampling = Sampling(call["temperature"], None, share(call["top_p"]), seed_of(call))
    writing = await Writing.begin(call, call["prompt"], call["max_tokens"], sampling, stop)
    common = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": int(time.time()),
              "model": call.served.name}  # fmt: skip
    start = call["prompt"] if call["echo"] else ""

    def answer(text: str, reason: str | None) -> dict[str, Any]:
        return {**common, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}]}

    def reason() -> str:
        return "length" if writing.reason == "length" else "stop"

    async def events() -> AsyncIterator[str]:
        if start:
            yield event(answer(start, None))
        async for piece in writing:
            yield event(answer(piece, None))
        yield event(answer("", reason()))
        yield "data: [DONE]\n\n"

    if call["stream"]:
        return Stream(events())
    text = start + "".join([piece async for piece in writing])
    usage = {"prompt_tokens": writing.given, "completion_tokens": writing.count,
             "total_tokens": writing.given + writing.count}  # fmt: skip
    return {**answer(text, reason()), "usage": usage}


# ---------------------------------------------------------------------- TGI


async def generate_text(call: Call) -> Any:
    writing = await tgi_writing(call)
    if call["stream"]:
        return Stream(tgi_events(writing))
    text = "".join([piece async for piece in writing])
    answer: dict[str, Any] = {"generated_text": (call["inputs"] if call["return_full_text"] else "") + text}
    return {**answer, "details": details(writing)} if call["details"] else answer


async def generate_stream(call: Call) -> Stream:
    return Stream(tgi_events(await tgi_writing(call)))


async def tgi_writing(call: Call) -> Writing:
    draws = call["do_sample"] or call["temperature"] is not None
    temperature = 0.0 if not draws else 1.0 if call["temperature"] is None else call["temperature"]
    sampling = Sampling(temperature, call["top_k"], share(call["top_p"]), seed_of(call))
    return await Writing.begin(call, call["inputs"], call["max_new_tokens"], sampling, call["stop"])


def details(writing: Writing) -> dict[str, Any]:
    return {"finish_reason": writing.reason, "generated_tokens": writing.count, "seed": None, "prefill": [],
            "tokens": []}  # fmt: skip


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

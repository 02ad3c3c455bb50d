"""One request on its way: the model it is for, its fields, the rows it is waiting for, and what it has cost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from mini_bert.serving.batching import Batcher, Compute, Done
from mini_bert.serving.failures import Failure
from mini_bert.serving.served import Served

LARGE = 16 << 10  # bytes of a body, or characters or numbers of an answer
logger = logging.getLogger(__name__)
Result = TypeVar("Result")


class Limits(NamedTuple):
    """The limits of text-embeddings-inference, with its defaults except where a CPU needs other ones"""

    max_concurrent_requests: int = 512
    max_client_batch_size: int = 32  # inputs of a request
    max_batch_tokens: int = 1024  # that are computed together, padding included
    payload_limit: int = 2_000_000  # bytes of a body
    auto_truncate: bool = True
    timeout: float = 60.0  # seconds for a request, from its body to the answer
    patience: float = 10.0  # seconds for a client to send a request, or to take an answer


def too_slow(limits: Limits) -> Failure:
    remedy = "send less at once, or start the server with another --timeout"
    return Failure("Unhealthy", f"this took longer than {limits.timeout:g} seconds; {remedy}")


@dataclass
class Call:
    served: Served
    batcher: Batcher
    limits: Limits
    readers: Executor
    writers: Executor
    size: int  # of the body, in bytes
    request: dict[str, Any]
    tokens: int = 0
    reading: float = 0.0  # seconds
    queued: float = 0.0
    computed: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    def __getitem__(self, name: str) -> Any:
        return self.request[name]

    @property
    def truncate(self) -> bool:
        wanted = self.request.get("truncate")  # some routes do not have it
        return self.limits.auto_truncate if wanted is None else wanted

    def check_count(self, inputs: Sequence[Any], name: str = "inputs") -> None:
        if not inputs:
            raise Failure("Empty", f"`{name}` cannot be empty")
        most = self.limits.max_client_batch_size
        if len(inputs) > most:
            raise Failure("Validation", f"batch size {len(inputs)} > maximum allowed batch size {most}")

    async def read(self, work: Callable[..., Result], *args: Any) -> Result:
        """What `work` returns, which reads texts. A ValueError is a sentence about the texts, for the client."""
        began = time.perf_counter()
        try:
            return await self.in_thread_if_large(self.size, work, *args)
        except ValueError as error:
            raise Failure("Validation", str(error)) from None
        finally:
            self.reading += time.perf_counter() - began

    async def in_thread_if_large(self, size: int, work: Callable[..., Result], *args: Any) -> Result:
        """What `work` returns. If it reads or writes more than LARGE bytes or numbers, it runs in a thread, and other
        requests need not wait for it."""
        if size <= LARGE:
            return work(*args)
        return await asyncio.get_running_loop().run_in_executor(self.readers, work, *args)

    async def rows(self, inputs: Any, name: str = "inputs") -> list[list[int]]:
        """The ids of one text or several."""
        one = isinstance(inputs, str) or (bool(inputs) and isinstance(inputs[0], int))
        several = [inputs] if one else inputs
        self.check_count(several, name)
        side, prompt = self.request.get("truncation_direction", "right"), self.request.get("prompt_name")
        return await self.read(self.served.rows, several, self.truncate, side, prompt)

    async def compute(self, work: Compute, rows: Sequence[Any], lengths: Sequence[int] | None = None) -> list[Any]:
        """The results of these rows, computed together with those of other requests."""
        lengths = self.served.lengths(rows) if lengths is None else lengths
        try:
            done: Done = await self.batcher.run(work, rows, lengths)
        except Exception as error:
            logger.error("%s could not compute: %s", self.served.name, error)
            raise Failure("Backend", str(error)) from error
        self.tokens += sum(lengths)
        self.queued += done.queued
        self.computed += done.computed
        return done.results

    def headers(self) -> dict[str, str]:
        """What the request has cost, in milliseconds, as in text-embeddings-inference"""
        times = {
            "x-total-time": time.perf_counter() - self.began,
            "x-tokenization-time": self.reading,
            "x-queue-time": self.queued,
            "x-inference-time": self.computed,
        }
        return {"x-compute-tokens": str(self.tokens), **{name: f"{1e3 * took:.0f}" for name, took in times.items()}}

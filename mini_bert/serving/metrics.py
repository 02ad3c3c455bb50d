"""Metrics for Prometheus, with the names of text-embeddings-inference.

Prometheus' own library would call a counter te_request_count_total, and dashboards look for te_request_count: so
counters are gauges here that only grow. (rate() does not look at the type.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_bert.common.extras import extra
from mini_bert.serving.calls import Call

NEEDED = (
    "the server needs Starlette, uvicorn, orjson and prometheus-client (the extra `serve`); one is not installed",
    "starlette uvicorn orjson prometheus-client",
)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
POWERS = tuple(2**power for power in range(15))


class Metrics:
    def __init__(self) -> None:
        self.library = library = extra("prometheus_client", *NEEDED)
        self.registry = library.CollectorRegistry()
        self.requests = self._gauge("te_request_count", "requests that were let in", "method")
        self.successes = self._gauge("te_request_success", "requests that were answered", "method")
        self.failures = self._gauge("te_request_failure", "requests that got an error", "err")
        self.active = self._gauge("te_request_active", "requests that are being answered")
        self.duration = self._histogram("te_request_duration", "seconds from the body to the answer", SECONDS)
        self.reading = self._histogram("te_request_tokenization_duration", "of these, reading texts", SECONDS)
        self.queued = self._histogram("te_request_queue_duration", "of these, waiting in the queue", SECONDS)
        self.computed = self._histogram("te_request_inference_duration", "of these, computing", SECONDS)
        self.tokens = self._histogram("te_request_input_length", "tokens of a request", POWERS)
        self.queue = self._gauge("te_queue_size", "inputs that wait", "model")
        self.batch_rows = self._histogram("te_batch_next_size", "inputs of a batch", POWERS[:7], "model")
        self.batch_tokens = self._histogram("te_batch_next_tokens", "tokens of a batch, with padding", POWERS, "model")
        self.reloads = self._gauge("te_model_reloads", "models that were replaced, or could not be", "model", "result")

    def _gauge(self, name: str, about: str, *labels: str) -> Any:
        return self.library.Gauge(name, about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Any:
        return self.library.Histogram(name, about, labels, buckets=buckets, registry=self.registry)

    def batch_of(self, model: str) -> Callable[[int, int], None]:
        """A function that counts a batch of this model."""
        rows, tokens = self.batch_rows.labels(model), self.batch_tokens.labels(model)

        def seen(count: int, width: int) -> None:
            rows.observe(count)
            tokens.observe(width)

        return seen

    def answered(self, call: Call, took: float, method: str) -> None:
        self.successes.labels(method).inc()
        self.duration.observe(took)
        self.reading.observe(call.reading)
        self.queued.observe(call.queued)
        self.computed.observe(call.computed)
        self.tokens.observe(call.tokens)

    def failed(self, kind: str) -> None:
        self.failures.labels(kind.lower()).inc()

    def text(self) -> bytes:
        return bytes(self.library.generate_latest(self.registry))

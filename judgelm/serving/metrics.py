"""Prometheus metrics of the server."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from judgelm.runs.engine_worker import EngineWorker
from judgelm.serving.request_log import RequestRecord
from judgelm.serving.unknown_prompts import UnknownPrompts

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Metrics for one server. Each server in the process has a separate registry."""

    def __init__(self, worker: EngineWorker, unknown_prompts: UnknownPrompts) -> None:
        self._registry = registry = CollectorRegistry(auto_describe=True)
        registry.register(_ServerCollector(worker, unknown_prompts))
        self._requests = Counter(
            "judgelm_requests", "Requests answered.", ("route", "status", "dialect", "judge"), registry=registry
        )
        self._seconds = Histogram(
            "judgelm_request_seconds", "Seconds from the request headers to the end of the response.", ("route",),
            buckets=_BUCKETS_S, registry=registry,
        )  # fmt: skip
        about_failures = "Judgments without a valid verdict, by failure code."
        self._failures = Counter("judgelm_failures", about_failures, ("code", "judge"), registry=registry)
        about_errors = "Rejected or failed requests, by error code."
        self._errors = Counter("judgelm_errors", about_errors, ("code",), registry=registry)
        self._prompt_tokens = Counter("judgelm_prompt_tokens", "Prompt tokens.", ("judge",), registry=registry)
        about_completions = "Completion tokens."
        self._completion_tokens = Counter("judgelm_completion_tokens", about_completions, ("judge",), registry=registry)

    def count(self, record: RequestRecord) -> None:
        """Count a finished request."""
        self._requests.labels(record.route, str(record.status), record.dialect, record.judge).inc()
        self._seconds.labels(record.route).observe(record.duration_s)
        if record.error:
            self._errors.labels(record.error).inc()
        for code in record.failures:
            self._failures.labels(code, record.judge).inc()
        if record.prompt_tokens is not None:
            self._prompt_tokens.labels(record.judge).inc(record.prompt_tokens)
            self._completion_tokens.labels(record.judge).inc(record.completion_tokens)

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)


class _ServerCollector:
    def __init__(self, worker: EngineWorker, unknown_prompts: UnknownPrompts) -> None:
        self._worker = worker
        self._unknown_prompts = unknown_prompts

    def collect(self) -> Iterator[Metric]:
        counts = self._worker.counts
        yield GaugeMetricFamily(
            "judgelm_waiting", "Judgments in flight, whether queued or in the engine.", self._worker.in_flight
        )
        for name, meaning, count in (
            ("asked", "Judgments requested.", counts.submitted),
            ("joined", "Requested judgments that shared the result of an identical judgment in flight.", counts.joined),
            ("refused", "Judgments rejected because the queue was full.", counts.refused),
            ("answered", "Judgments that returned a result.", counts.answered),
            ("failed", "Judgments that raised an error.", counts.failed),
            ("dropped", "Judgments dropped because their clients disconnected.", counts.dropped),
        ):
            yield CounterMetricFamily(f"judgelm_{name}", meaning, count)
        about_unknown = "Unrecognised prompts that were not judged, by the most similar known prompt."
        unknown = CounterMetricFamily("judgelm_unknown_prompts", about_unknown, labels=("nearest",))
        for name, count in self._unknown_prompts.counts.copy().items():
            unknown.add_metric((name,), count)
        yield unknown

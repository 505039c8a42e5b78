"""Counters of the server in Prometheus' format, for `/metrics`."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from judgelm.serving.engine_worker import EngineWorker

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The counters of one server, separate from those of others in this process."""

    def __init__(self, worker: EngineWorker) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        self._registry.register(_WorkerCollector(worker))
        own = self._registry
        self._requests = Counter(
            "judgelm_requests", "Requests answered.", ("route", "status", "dialect", "judge"), registry=own
        )
        self._seconds = Histogram(
            "judgelm_request_seconds", "From a request's headers to the end of its reply.", ("route",),
            buckets=_BUCKETS_S, registry=own,
        )  # fmt: skip
        self._failures = Counter(
            "judgelm_failures",
            "Judgments without a readable verdict, by failure code.",
            ("code", "judge"),
            registry=own,
        )
        self._errors = Counter(
            "judgelm_errors", "Requests refused or failed, by the code of the reply.", ("code",), registry=own
        )
        self._prompt_tokens = Counter("judgelm_prompt_tokens", "Tokens that the judge read.", ("judge",), registry=own)
        self._completion_tokens = Counter(
            "judgelm_completion_tokens", "Tokens that the judge wrote.", ("judge",), registry=own
        )

    def request(self, route: str, status: int, dialect: str, judge: str, duration_s: float) -> None:
        """Count a request.

        Args:
            route: its path's template.
            status: of the reply.
            dialect: empty where the route has none, `none` where no dialect knew the prompt.
            judge: the judge's own name; empty where the route has none.
            duration_s: from the request's headers to the end of its reply.
        """
        self._requests.labels(route, str(status), dialect, judge).inc()
        self._seconds.labels(route).observe(duration_s)

    def tokens(self, judge: str, prompt: int, completion: int) -> None:
        """Count the tokens of a judge's answer."""
        self._prompt_tokens.labels(judge).inc(prompt)
        self._completion_tokens.labels(judge).inc(completion)

    def failure(self, judge: str, code: str) -> None:
        """Count a judge's judgment without a verdict; `code` as in `records.Unparsed`."""
        self._failures.labels(code, judge).inc()

    def error(self, code: str) -> None:
        """Count a reply with an error."""
        self._errors.labels(code).inc()

    def text(self) -> bytes:
        """All counters in Prometheus' text format."""
        return generate_latest(self._registry)


class _WorkerCollector:
    """The worker's own counts, read on demand."""

    def __init__(self, worker: EngineWorker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        counts = self._worker.counts
        yield GaugeMetricFamily(
            "judgelm_waiting", "Judgments in flight, those in the engine included.", self._worker.in_flight
        )
        for name, meaning, count in (
            ("asked", "Judgments requested.", counts.submitted),
            ("joined", "Of them, judgments that waited for an equal one in flight.", counts.joined),
            ("refused", "Judgments refused because the queue was full.", counts.refused),
            ("answered", "Judgments that ended with a result.", counts.answered),
            ("failed", "Judgments that ended with an error.", counts.failed),
            ("dropped", "Judgments dropped because no client waited for them.", counts.dropped),
        ):
            yield CounterMetricFamily(f"judgelm_{name}", meaning, count)

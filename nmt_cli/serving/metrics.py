"""Metrics of the server in the text format of Prometheus. They contain no text of users."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nmt_cli.serving.models import Models
from nmt_cli.translation.lines import Translation

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram buckets, in seconds."""

# Rounded, because a bound is a label, and 0.1 * 3 is 0.30000000000000004.
CONFIDENCES = tuple(round(0.1 * number, 1) for number in range(1, 11))
"""Upper bounds of the histogram of confidence."""


class Metrics:
    """Counters since the start of the server."""

    def __init__(self) -> None:
        # Otherwise each metric would have a second one, with the time of its creation.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = own = CollectorRegistry()
        self.requests = Counter(
            "nmt_requests_total", "Requests, by route and status.", ["route", "status"], registry=own
        )
        """Status 499 means that the client disconnected."""

        self.seconds = Histogram(
            "nmt_request_seconds", "Time to the end of the response.", ["route"], buckets=BOUNDS, registry=own
        )
        self.confidence = Histogram(
            "nmt_confidence", "Confidence of translated sentences.", buckets=CONFIDENCES, registry=own
        )
        self.sentences = Counter("nmt_sentences_total", "Translated sentences.", registry=own)
        self.characters = Counter("nmt_characters_total", "Translated characters.", registry=own)
        self.dropped = Counter("nmt_dropped_sentences_total", "Abandoned sentences.", registry=own)
        """Sentences of clients that disconnected and of requests that took too long."""

        self.flags = Counter(
            "nmt_odd_translations_total", "Suspicious translations, by flag.", ["flag"], registry=own
        )
        """A translation with several flags counts once for each."""

    def watch(self, waiting: Callable[[], int], models: Models) -> None:
        """Add what others count: the accepted sentences without a translation, and numbers of models."""
        self._registry.register(_Watched(waiting, models))

    def record(self, route: str, status: int, seconds: float) -> None:
        """Count a request that ended with `status` after `seconds`. `route` is its path, or "other"."""
        self.requests.labels(route, status).inc()
        self.seconds.labels(route).observe(seconds)

    def translated(self, translation: Translation) -> None:
        """Count the flags and the confidence of a translated sentence."""
        for flag in translation.flags:
            self.flags.labels(flag).inc()
        if translation.candidates:
            self.confidence.observe(translation.confidence)

    def value(self, name: str, **labels: str) -> int:
        """Return the value of a counter with these labels, such as "nmt_sentences_total"."""
        return int(self._registry.get_sample_value(name, labels) or 0)

    def as_text(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry).decode()


class _Watched(Collector):
    """The metrics that others count, read whenever Prometheus asks for all."""

    def __init__(self, waiting: Callable[[], int], models: Models) -> None:
        self._waiting, self._models = waiting, models

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their present values."""
        models = self._models
        yield GaugeMetricFamily("nmt_waiting_sentences", "Unfinished sentences.", self._waiting())
        yield CounterMetricFamily(
            "nmt_worker_restarts_total", "Workers that died and were replaced.", models.restarts
        )
        yield GaugeMetricFamily("nmt_loaded_models", "Models in memory.", models.loaded)
        yield CounterMetricFamily("nmt_model_loads_total", "Loaded models.", models.loads)

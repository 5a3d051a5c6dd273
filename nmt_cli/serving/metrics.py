"""Metrics of the server in the text format of Prometheus. They contain no text of users."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from nmt_cli.serving.models import Models
from nmt_cli.translation.lines import Translation

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram buckets, in seconds."""

CONFIDENCES = tuple(round(0.1 * number, 1) for number in range(1, 11))
"""Upper bounds of the histogram of confidence."""


@dataclass(slots=True)
class Metrics:
    """Counters since the start of the server, without text of users. Only the event loop changes counters."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Requests by route and status. Status 499 means that the client disconnected."""

    sentences: int = 0
    characters: int = 0
    dropped: int = 0
    """Sentences of clients that disconnected and of requests that took too long."""

    flags: Counter[str] = field(default_factory=Counter)
    """Suspicious translations, by flag. A translation with several flags counts once for each."""

    _confidences: list[float] = field(default_factory=lambda: [0.0] * (len(CONFIDENCES) + 2))
    """The number of sentences up to each bound, the sum of their confidence, and their number."""

    _faster: Counter[tuple[str, float]] = field(default_factory=Counter)
    _seconds: Counter[str] = field(default_factory=Counter)

    def record(self, route: str, status: int, seconds: float) -> None:
        """Count a request that ended with `status` after `seconds`. `route` is its path, or "other"."""
        self.requests[route, status] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]  # a counter also sums fractions
        for bound in BOUNDS:
            self._faster[route, bound] += seconds <= bound

    def translated(self, translation: Translation) -> None:
        """Count the flags and the confidence of a translated sentence."""
        self.flags.update(translation.flags)
        if translation.candidates:
            below = [float(translation.confidence <= bound) for bound in CONFIDENCES]
            added = [*below, translation.confidence, 1.0]
            self._confidences = [one + more for one, more in zip(self._confidences, added, strict=True)]

    def as_text(self, waiting: int, models: Models) -> str:
        """Return all metrics in the text format of Prometheus. `waiting` is the number of accepted sentences
        without a translation. `models` has the numbers of loaded models and replaced workers."""
        requests = [
            f'{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self.requests.items())
        ]
        restarts = [f" {models.restarts}"]
        flags = [f'{{flag="{flag}"}} {count}' for flag, count in sorted(self.flags.items())]
        bounded = zip(CONFIDENCES, self._confidences, strict=False)
        lines = [
            *_counter("nmt_requests_total", "Requests, by route and status.", requests),
            *_header("nmt_request_seconds", "histogram", "Time to the end of the response."),
            *self._histogram(),
            *_header("nmt_confidence", "histogram", "Confidence of translated sentences."),
            *(f'nmt_confidence_bucket{{le="{bound:g}"}} {count:.0f}' for bound, count in bounded),
            f'nmt_confidence_bucket{{le="+Inf"}} {self._confidences[-1]:.0f}',
            f"nmt_confidence_sum {self._confidences[-2]:.6f}",
            f"nmt_confidence_count {self._confidences[-1]:.0f}",
            *_counter("nmt_sentences_total", "Translated sentences.", [f" {self.sentences}"]),
            *_counter("nmt_characters_total", "Translated characters.", [f" {self.characters}"]),
            *_counter("nmt_dropped_sentences_total", "Abandoned sentences.", [f" {self.dropped}"]),
            *_header("nmt_waiting_sentences", "gauge", "Unfinished sentences."),
            f"nmt_waiting_sentences {waiting}",
            *_counter("nmt_worker_restarts_total", "Workers that died and were replaced.", restarts),
            *_header("nmt_loaded_models", "gauge", "Models in memory."),
            f"nmt_loaded_models {models.loaded}",
            *_counter("nmt_model_loads_total", "Loaded models.", [f" {models.loads}"]),
            *_counter("nmt_odd_translations_total", "Suspicious translations, by flag.", flags),
        ]
        return "\n".join([*lines, ""])

    def _histogram(self) -> Iterator[str]:
        """Yield lines with the cumulative buckets, sum and count of request times for each route."""
        name = "nmt_request_seconds"
        for route, seconds in sorted(self._seconds.items()):
            count = sum(number for (one, _), number in self.requests.items() if one == route)
            for bound in BOUNDS:
                yield f'{name}_bucket{{route="{route}",le="{bound:g}"}} {self._faster[route, bound]}'
            yield f'{name}_bucket{{route="{route}",le="+Inf"}} {count}'
            yield f'{name}_sum{{route="{route}"}} {seconds:.6f}'
            yield f'{name}_count{{route="{route}"}} {count}'


def _header(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]


def _counter(name: str, description: str, samples: list[str]) -> list[str]:
    """Return the lines of a counter. A sample has optional labels, a space and the value."""
    return [*_header(name, "counter", description), *(f"{name}{sample}" for sample in samples)]

"""What a server has done so far, in Prometheus' text form: numbers alone, never a text."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds."""


@dataclass(slots=True)
class Metrics:
    """Counts, all of one event loop."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By route and status; 499 is one whose client went away."""

    sentences: int = 0
    characters: int = 0
    dropped: int = 0
    """Sentences whose client went away, or whose time was over."""

    flags: Counter[str] = field(default_factory=Counter)
    """Translations that look odd, by what is odd."""

    _faster: Counter[tuple[str, float]] = field(default_factory=Counter)
    _seconds: Counter[str] = field(default_factory=Counter)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[route, status] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]  # a counter counts in fractions as well
        for bound in BOUNDS:
            self._faster[route, bound] += seconds <= bound

    def as_text(self, waiting: int, restarts: int) -> str:
        """All of it; `waiting` sentences wait or are being translated, and `restarts` workers have died."""
        lines = [
            *_described("nmt_requests_total", "counter", "Requests, by route and status."),
            *(
                f'nmt_requests_total{{route="{route}",status="{status}"}} {count}'
                for (route, status), count in sorted(self.requests.items())
            ),
            *_described("nmt_request_seconds", "histogram", "Time to the end of the answer."),
            *self._histogram(),
            *_single("nmt_sentences_total", "counter", "Sentences translated.", self.sentences),
            *_single("nmt_characters_total", "counter", "Characters translated.", self.characters),
            *_single("nmt_dropped_sentences_total", "counter", "Sentences nobody waits for.", self.dropped),
            *_single("nmt_waiting_sentences", "gauge", "Sentences that wait or are translated.", waiting),
            *_single(
                "nmt_worker_restarts_total", "counter", "Workers that died and were replaced.", restarts
            ),
            *_described("nmt_odd_translations_total", "counter", "Translations that look odd."),
            *(f'nmt_odd_translations_total{{flag="{flag}"}} {n}' for flag, n in sorted(self.flags.items())),
        ]
        return "\n".join([*lines, ""])

    def _histogram(self) -> Iterator[str]:
        name = "nmt_request_seconds"
        for route, seconds in sorted(self._seconds.items()):
            count = sum(n for (one, _), n in self.requests.items() if one == route)
            for bound in BOUNDS:
                yield f'{name}_bucket{{route="{route}",le="{bound:g}"}} {self._faster[route, bound]}'
            yield f'{name}_bucket{{route="{route}",le="+Inf"}} {count}'
            yield f'{name}_sum{{route="{route}"}} {seconds:.6f}'
            yield f'{name}_count{{route="{route}"}} {count}'


def _described(name: str, kind: str, told: str) -> list[str]:
    return [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]


def _single(name: str, kind: str, told: str, value: int) -> list[str]:
    return [*_described(name, kind, told), f"{name} {value}"]

"""The measurements of a run so far. Steps are joined to points of curves, whose number does not grow with the
run."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

POINTS = 600
"""Minimum number of points in the curves of a long run. The maximum is twice this."""

MEASURED = ("loss", "nll", "gradient_norm", "learning_rate", "tokens_per_second")
COUNTS = ("step", "epoch", "source_tokens", "target_tokens", "skipped")
LOSSES = ("nll", "perplexity", "word_perplexity")
"""Keys of a validation in the log, besides those of its scores."""

RECENT_STEPS = 50
"""The training loss of a run is the mean over this many of its latest steps, without those left out."""


@dataclass(frozen=True, slots=True)
class RecentLosses:
    """Training losses in nats per target token, as means over the tokens of the latest steps."""

    smoothed: float
    """With label smoothing, as minimised."""

    nll: float


@dataclass(slots=True)
class Spread:
    """Count, sum, minimum and maximum of the finite values of a measurement."""

    count: int = 0
    total: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")

    def add(self, other: "Spread") -> None:
        """Add the values of `other` to this spread."""
        self.count += other.count
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a run, with totals since its first step."""

    step: int = 0
    epoch: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    hours: float = 0.0
    """Time spent on steps, without validation and saving."""

    skipped: int = 0
    """Number of steps left out because they were not finite."""

    epoch_of: str = ""
    """The corpus whose epochs count, if corpora are mixed."""


@dataclass(slots=True)
class Point:
    """A point of the curves: a few adjacent steps, the moment at their end, and their measurements."""

    end: Moment
    steps: int
    values: dict[str, Spread]

    def join(self, later: "Point") -> None:
        """Add the steps and values of `later`, the next point."""
        self.end = later.end
        self.steps += later.steps
        for name, values in later.values.items():
            self.values[name].add(values)


@dataclass(frozen=True, slots=True)
class Validation:
    """A validation of one set: its moment, the name of the set, and its line in the log."""

    at: Moment
    name: str
    line: dict[str, Any]

    @property
    def scores(self) -> dict[str, float]:
        """The value of each metric by name, such as "bleu", without losses."""
        return {metric: self.line[metric] for metric in self.line["signatures"]}


@dataclass(slots=True)
class RunHistory:
    """All measurements of a run since its first step: thinned curves of steps, validations, and totals."""

    now: Moment = Moment()
    points: list[Point] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)
    _recent: deque[tuple[int, float, float]] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    """Target tokens, loss and nll of the latest steps."""

    _width: int = 1
    """Number of steps in a point."""

    def add(self, lines: Iterable[dict[str, Any]]) -> None:
        """Add the next lines of the log in order: validations, which have the key "valid", and steps."""
        for line in lines:
            if "valid" in line:
                self.validations.append(Validation(self.now, line["valid"], line))
            else:
                self._add_step(line)

    def scores(self, metric: str) -> list[float]:
        """Return the values of `metric` on the first validation set, oldest first, or [] without values."""
        first = self.validations[0].name if self.validations else ""
        validations = [validation for validation in self.validations if validation.name == first]
        return [validation.scores[metric] for validation in validations if metric in validation.scores]

    @property
    def losses(self) -> RecentLosses:
        """The training losses per token over the latest `RECENT_STEPS` steps, nan before the first step."""
        tokens = sum(tokens for tokens, _, _ in self._recent)
        if not tokens:
            return RecentLosses(math.nan, math.nan)
        # A line has the mean of its step, and steps differ in size.
        loss = sum(tokens * loss for tokens, loss, _ in self._recent) / tokens
        return RecentLosses(loss, sum(tokens * nll for tokens, _, nll in self._recent) / tokens)

    def _add_step(self, line: dict[str, Any]) -> None:
        """Add the step in `line` to the totals, the curves and the latest losses.

        A step that was left out, or whose losses were not finite, does not count in the latest losses. Once
        there are `2 * POINTS` points, adjacent points are joined in pairs.
        """
        self.now = _after(self.now, line)
        if line["loss"] is not None and line["nll"] is not None and not line["skipped"]:
            self._recent.append((line["target_tokens"], line["loss"], line["nll"]))
        values = {name: _spread(line.get(name)) for name in MEASURED}
        if self.points and self.points[-1].steps < self._width:
            self.points[-1].join(Point(self.now, 1, values))
            return
        # Joining points in pairs keeps memory and pages small for runs of any length.
        if len(self.points) == 2 * POINTS:
            for first, second in zip(self.points[::2], self.points[1::2], strict=True):
                first.join(second)
            self.points = self.points[::2]
            self._width *= 2
        self.points.append(Point(self.now, 1, values))


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` items, evenly spread, with the first and the last item. `most` is at least 2."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _after(before: Moment, line: dict[str, Any]) -> Moment:
    """Return the moment after the step in `line`: the totals of `before` plus those of the step."""
    speed = line["tokens_per_second"]
    return Moment(
        step=line["step"],
        epoch=line["epoch"],
        source_tokens=before.source_tokens + line["source_tokens"],
        target_tokens=before.target_tokens + line["target_tokens"],
        # The speed in the log is that of steps, so this excludes validation and saving.
        hours=before.hours + (line["target_tokens"] / speed / 3600 if speed else 0.0),
        skipped=before.skipped + line["skipped"],
        epoch_of=line.get("epoch_of", ""),
    )


def _spread(value: float | None) -> Spread:
    return Spread() if value is None else Spread(1, value, value, value)

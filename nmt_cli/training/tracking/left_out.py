"""Warns about training pairs that are left out because they are too long."""

from nmt_cli.training.config import TrainConfig
from nmt_cli.training.tracking.events import Report, Warned


class LeftOut:
    """Warns after an epoch about too long pairs, if their number differs from that in the last warning."""

    def __init__(self, config: TrainConfig, report: Report) -> None:
        limits = {"batch.longest": config.batch.longest, "batch.tokens": config.batch.tokens}
        self._setting, self._limit = min(limits.items(), key=lambda limit: limit[1])
        self._sampled = config.sampling.enabled or config.augment.enabled
        self._report = report
        self._epoch = self._count = self._reported = 0

    def seen(self, epoch: int, count: int) -> None:
        """Record that `count` pairs of `epoch` were left out up to now. When a later epoch begins, first warn
        about the pairs of the epoch before. Do not warn if the last warning had an equal number."""
        # An epoch is planned while it runs, so only its last batch has the full count.
        if epoch > self._epoch and self._count != self._reported:
            self._warn()
        self._epoch, self._count = epoch, count

    def end(self) -> None:
        """At the end of the run, warn if pairs are left out and there was no warning before."""
        if self._count and not self._reported:
            self._warn()

    def _warn(self) -> None:
        segmented = f", as epoch {self._epoch} segments them," if self._sampled else ""
        problem = f"{self._count:,} pairs{segmented} have more than {self._limit:,} tokens on a side"
        self._report(Warned(f"{problem} and are left out ({self._setting})"))
        self._reported = self._count

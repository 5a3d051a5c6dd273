"""Warns of pairs that are too long to be trained on."""

from nmt_cli.training.config import TrainConfig
from nmt_cli.training.tracking.events import Report, Warned


class LeftOut:
    """Warns when an epoch is over, unless as many pairs were left out as at the last warning."""

    def __init__(self, config: TrainConfig, report: Report) -> None:
        limits = {"batch.longest": config.batch.longest, "batch.tokens": config.batch.tokens}
        self._setting, self._limit = min(limits.items(), key=lambda limit: limit[1])
        self._sampled = config.sampling.wanted or config.augment.wanted
        self._report = report
        self._epoch = self._count = self._told = 0

    def seen(self, epoch: int, count: int) -> None:
        """Note a batch of `epoch`; `count` pairs of the epoch were left out up to it."""
        # Pairs are counted as an epoch is planned, so only its last batch knows all of them.
        if epoch > self._epoch and self._count != self._told:
            self._warn()
        self._epoch, self._count = epoch, count

    def end(self) -> None:
        """At the end of the run, warn if no epoch was finished, so that nothing was said yet."""
        if self._count and not self._told:
            self._warn()

    def _warn(self) -> None:
        anew = f", as epoch {self._epoch} segments them," if self._sampled else ""
        told = f"{self._count:,} pairs{anew} have more than {self._limit:,} tokens on a side and are left out"
        self._report(Warned(f"{told} ({self._setting})"))
        self._told = self._count

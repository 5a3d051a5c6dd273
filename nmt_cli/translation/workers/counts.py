"""What worker processes see of the queue without asking for it."""

from dataclasses import dataclass, field

from nmt_cli.runtime.processes import SharedCount


@dataclass(frozen=True, slots=True)
class Counts:
    """Shared with the processes that are forked later; changed only under the lock of the queue."""

    arrivals: SharedCount = field(default_factory=SharedCount)
    """Grows when something waits that did not before."""

    departures: SharedCount = field(default_factory=SharedCount)
    """Grows when sentences were dropped that may be in a batch, and when the queue is closed."""

    unfinished: SharedCount = field(default_factory=SharedCount)
    """How many sentences wait or are being translated."""

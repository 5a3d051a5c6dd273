"""Counters of the queue in shared memory, which worker processes read without sending a message."""

from dataclasses import dataclass, field

from nmt_cli.runtime.processes import SharedCount


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of the queue. Threads of the parent process change them under the lock of the queue."""

    arrivals: SharedCount = field(default_factory=SharedCount)
    """Grows when sentences start to wait."""

    departures: SharedCount = field(default_factory=SharedCount)
    """Grows when a request with unfinished sentences is dropped, and when the queue is closed."""

    unfinished: SharedCount = field(default_factory=SharedCount)
    """Number of sentences that wait or are being translated."""

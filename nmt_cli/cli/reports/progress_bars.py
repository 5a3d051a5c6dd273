"""Progress of long work: bars on a terminal, and otherwise a line every few seconds.

Work has stages, such as "cleaning", one after the previous is complete.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from nmt_cli.units import duration

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def shown_progress(unit: str, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows progress on stderr. Its arguments are the stage, the work done, and the
    total, or 0 if unknown.

    A terminal shows a bar for each stage. Without a terminal, a line is printed every ten seconds. With
    `quiet`, nothing is shown. `unit` names the work in lines, such as "pairs".
    """
    if quiet:
        yield lambda stage, done, total: None
    elif sys.stderr.isatty():
        with bars() as shown:
            stages = _Stages(shown)
            yield stages
            stages.finish()
    else:
        yield _Lines(unit)


class _Stages:
    """Shows a bar for each stage."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show progress in the bar of `stage`. A new stage completes the bars of earlier ones."""
        if stage != self._stage:
            self.finish()
            # A total of 0 means that it is not known yet.
            self._bars.add_task(stage, total=total or None)
            self._stage = stage
        self._bars.update(self._bars.task_ids[-1], completed=done)

    def finish(self) -> None:
        """Show all bars as complete."""
        for task in self._bars.tasks:
            self._bars.update(task.id, total=task.total or 1, completed=task.total or 1)


class _Lines:
    """Prints a line about the current stage every `SECONDS_BETWEEN_LINES`."""

    def __init__(self, unit: str) -> None:
        """`unit` names the work, such as "pairs"."""
        self._unit = unit
        self._stage = ""
        self._started = self._shown = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Print the work done, the total, the rate and the time left, unless the last line is too recent. A
        new stage starts the clock again."""
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._started, self._shown = stage, now, now
        # Without any work done, the remaining time cannot be estimated.
        if done and now - self._shown >= SECONDS_BETWEEN_LINES:
            rate = done / (now - self._started)
            speed, remaining = f"{rate:,.0f} {self._unit}/s", duration((total - done) / rate)
            line = f"{stage}: {done:,} of {total:,} {self._unit}, {speed}, {remaining} to go"
            click.echo(line, err=True)
            self._shown = now


def bars() -> Progress:
    """Return an empty display of bars on stderr."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )

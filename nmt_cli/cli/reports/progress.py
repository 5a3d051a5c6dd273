"""Showing how far long work has come: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from nmt_cli.units import duration

SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def shown_progress(unit: str, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A function to be told the stage, what is done of it and the whole; it shows that on stderr."""
    if quiet:
        yield lambda stage, done, total: None
    elif sys.stderr.isatty():
        with _bars(unit) as bars:
            stages = _Stages(bars)
            yield stages
            stages.finish()
    else:
        yield _Lines(unit)


class _Stages:
    """One bar for each stage."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self.finish()
            # 0 says that the whole is not known yet.
            self._bars.add_task(stage, total=total or None)
            self._stage = stage
        self._bars.update(self._bars.task_ids[-1], completed=done)

    def finish(self) -> None:
        """Show every stage so far as done."""
        for task in self._bars.tasks:
            self._bars.update(task.id, total=task.total or 1, completed=task.total or 1)


class _Lines:
    """A plain line at most every few seconds."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._stage = ""
        self._started = self._shown = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._started, self._shown = stage, now, now
        # Before anything is done the rate is 0, by which the time left is divided.
        if done and now - self._shown >= SECONDS_BETWEEN_LINES:
            rate = done / (now - self._started)
            left = (total - done) / rate
            line = f"{stage}: {done:,} of {total:,} {self._unit}, {rate:,.0f}/s, {duration(left)} to go"
            click.echo(line, err=True)
            self._shown = now


class _Rate(ProgressColumn):
    """How many units a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {self._unit}/s" if speed else "")


def _bars(unit: str) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )

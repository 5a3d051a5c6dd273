"""The progress of `nmt train` on a terminal: a panel that is updated, and lines above it that stay."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nmt_cli.cli.reports.train import Reporter, ending, epoch, perplexity, text
from nmt_cli.errors import printable
from nmt_cli.training.tracking.events import (
    Doing,
    Event,
    Logged,
    Progress,
    Saved,
    Standing,
    Validated,
    Warned,
)
from nmt_cli.units import duration, size

SECONDS_BETWEEN_UPDATES = 0.25
"""The shortest time between two updates of the panel, if only the step changed."""

MAX_WIDTH = 110
"""Columns of the panel."""


class LiveReporter:
    """Shows the events of a run on a terminal: the latest state in a panel, and lasting messages above it."""

    def __init__(self, run: Path, console: Console, live: Live) -> None:
        """`run` is the run folder. Lines are printed to `console`, and `live` shows the panel below them."""
        self._run, self._console, self._live = run, console, live
        self._doing: Doing | None = None
        self._progress: Progress | None = None
        self._bleu: tuple[float, float] | None = None
        self._bleu_on = ""
        self._state = ""
        self._drawn = 0.0
        self._closed = False

    def __call__(self, event: Event) -> None:
        """Show `Doing`, `Progress` and BLEU in the panel. Print skipped steps, notes, warnings, validations
        and costs above it. Ignore `Logged`, `Saved` and `Standing`."""
        match event:
            case Doing(what):
                changed = what != self._state
                self._doing, self._state = event, what
                self._draw(now=changed)
            case Progress():
                self._progress, self._bleu = event, event.bleu or self._bleu
                self._bleu_on = event.bleu_on or self._bleu_on
                if event.skipped:
                    self._print(f"step {event.step:,}: {event.skipped} steps skipped (not finite)", "yellow")
                self._draw()
            case Logged() | Saved() | Standing():
                pass
            case _:
                if isinstance(event, Validated):
                    self._note_bleu(event)
                self._print(text(event), "yellow" if isinstance(event, Warned) else "")

    def end(self, run: Path, complete: bool) -> None:
        """Draw the panel for the last time. Print that `run` is complete, or how to resume it."""
        self._state = "complete" if complete else "stopped"
        self._draw()
        self._print(ending(run, complete), "bold")

    def panel(self) -> RenderableType:
        """Return the panel with the state of the run, or "getting ready …" before a `Doing` event."""
        doing, progress = self._doing, self._progress
        if not doing:
            return Text("getting ready …", style="dim")
        rows: list[RenderableType] = [self._steps(doing, progress)]
        if progress:
            rows.append(_figures(progress, self._bleu))
        title = Text.assemble(
            (printable(self._run.name), "bold"),
            (f" {self._state}, {epoch(doing.epoch, progress.epoch_of if progress else '')}", "dim"),
            (f", BLEU on {self._bleu_on}" if self._bleu_on else "", "dim"),
        )
        width = min(self._console.width, MAX_WIDTH)
        return Panel(Group(*rows), title=title, title_align="left", border_style="dim", width=width)

    def _steps(self, doing: Doing, progress: Progress | None) -> RenderableType:
        """Return a row with the step and, given `progress`, the number of steps, a bar and the time left."""
        row = Table.grid(expand=True, padding=(0, 2, 0, 0))
        for ratio in (None, 1, None):
            row.add_column(ratio=ratio, no_wrap=True)
        if not progress:
            row.add_row(f"step {doing.step:,}", "", "")
            return row
        bar = ProgressBar(progress.max_steps, doing.step)
        left = f"{doing.step / progress.max_steps:.1%}, {duration(progress.seconds_left)} to go"
        row.add_row(f"step {doing.step:,} of {progress.max_steps:,}", bar, left)
        return row

    def _note_bleu(self, event: Validated) -> None:
        """Store BLEU, if any, of the first validation set, its maximum so far and its subset."""
        bleu = next((s.value for s in event.judgements[0].scores if s.metric == "bleu"), None)
        if bleu is not None:
            self._bleu_on = event.judgements[0].subset
            self._bleu = (bleu, max(bleu, self._bleu[1] if self._bleu else bleu))

    def _print(self, line: str, style: str) -> None:
        """Print a line in a `style` of rich, such as "yellow". The line stays above the panel."""
        self._safely(lambda: self._console.print(Text(line, style=style), soft_wrap=True))

    def _draw(self, now: bool = True) -> None:
        """Draw the panel. Without `now`, draw at most once in `SECONDS_BETWEEN_UPDATES`."""
        if now or time.monotonic() - self._drawn > SECONDS_BETWEEN_UPDATES:
            self._drawn = time.monotonic()
            self._safely(lambda: self._live.update(self.panel(), refresh=True))

    def _safely(self, show: Callable[[], None]) -> None:
        """Call `show`. Ignore an `OSError` of a closed terminal, and then show nothing any more."""
        if self._closed:
            return
        try:
            show()
        except OSError:  # the terminal was closed, which must not stop training
            self._closed = True


def _figures(progress: Progress, bleu: tuple[float, float] | None) -> RenderableType:
    """Return the latest measurements in two rows. `bleu` is the last and the best BLEU, or None."""
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in range(4):
        grid.add_column(no_wrap=True)
    scores = f"{bleu[0]:.2f}, best {bleu[1]:.2f}" if bleu else "not yet"
    grid.add_row(
        _figure("loss", f"{progress.loss:.3f}"),
        _figure("perplexity", perplexity(progress)),
        _figure("BLEU", scores),
        _figure("rate", f"{progress.learning_rate:.2e}"),
    )
    grid.add_row(
        _figure("filler", f"{progress.filler:.1%}"),
        _figure("waiting", f"{progress.waiting:.1%}"),
        _figure("real tokens/s", f"{progress.tokens_per_second:,.0f}"),
        _figure("memory", size(progress.memory)),
    )
    return grid


def _figure(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ", "dim"), (value, "bold"))


@contextmanager
def shown_run(run: Path, quiet: bool, silent: bool) -> Iterator[Reporter | LiveReporter]:
    """Yield a reporter of events on stderr: a panel for `run` on a terminal that can redraw, otherwise lines.
    `quiet` prints only warnings, `silent` nothing, both without a panel. The panel ends with the block."""
    console = Console(stderr=True)
    if quiet or silent or not sys.stderr.isatty() or console.is_dumb_terminal:
        yield Reporter(quiet, silent)
        return
    live = Live(console=console, auto_refresh=False, redirect_stdout=False)
    reporter = LiveReporter(run, console, live)
    live.update(reporter.panel())
    with suppress(OSError):
        live.start()
    try:
        yield reporter
    finally:
        with suppress(OSError):
            live.stop()

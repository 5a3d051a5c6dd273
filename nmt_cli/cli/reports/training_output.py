"""The output of `nmt train`: a line per event or, on a terminal, a panel with lasting lines above it. Also
the plan of a dry run.

An event is something that happened in a run, such as the progress of a step or a validation.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nmt_cli.cli.reports.tables import print_facts
from nmt_cli.errors import printable
from nmt_cli.training.tracking.events import Doing, Event, Note, Progress, Spent, Validated, Warned
from nmt_cli.training.validation.judge import Judgement
from nmt_cli.units import duration, size

if TYPE_CHECKING:
    from nmt_cli.training.setup.dry_run import Forecast

SECONDS_BETWEEN_UPDATES = 0.25
"""The minimum time between two updates of the panel for new steps."""

MAX_WIDTH = 110
"""The maximum width of the panel, in columns."""


class RunReporter:
    """Prints the events of training to stderr, one line each. Events that a user does not need have no
    line."""

    def __init__(self, quiet: bool, silent: bool = False) -> None:
        """`quiet` prints only warnings. `silent` prints nothing, for all processes of a run but the first."""
        self._quiet, self._silent = quiet, silent

    def __call__(self, event: Event) -> None:
        """Print the line of an event, if it has one."""
        line = text(event)
        if line and (isinstance(event, Warned) or not self._quiet):
            self._print(line)

    def end(self, run: Path, complete: bool) -> None:
        """Print that the run is complete, or how to resume it."""
        if not self._quiet:
            end = "complete" if complete else "stopped and saved. Run the same command again to resume."
            self._print(printable(f"{run}: {end}"))

    def _print(self, line: str) -> None:
        self._show(lambda: click.echo(line, err=True))

    def _show(self, show: Callable[[], None]) -> None:
        """Call `show`, unless `silent`. After the terminal is closed, nothing is shown any more."""
        if self._silent:
            return
        try:
            show()
        except OSError:  # the terminal was closed, which must not stop training
            self._silent = True


class LiveReporter(RunReporter):
    """Shows the events of a run on a terminal: its state in a panel, and lasting messages above the panel."""

    def __init__(self, run: Path, console: Console, live: Live) -> None:
        """`console` prints lines, and `live` shows the panel below them."""
        super().__init__(quiet=False)
        self._run, self._console, self._live = run, console, live
        self._doing: Doing | None = None
        self._progress: Progress | None = None
        self._state = ""
        self._drawn = 0.0

    def __call__(self, event: Event) -> None:
        """Show the state and the progress in the panel, and the lines of other events above it."""
        match event:
            case Doing(what):
                changed = what != self._state
                self._doing, self._state = event, what
                self._draw(now=changed)
            case Progress():
                self._progress = event
                if event.skipped:
                    self._print(f"step {event.step:,}: {event.skipped} steps skipped (not finite)")
                self._draw()
            case _:
                super().__call__(event)

    def end(self, run: Path, complete: bool) -> None:
        """Draw the panel for the last time, and print that the run is complete, or how to resume it."""
        self._state = "complete" if complete else "stopped"
        self._draw()
        super().end(run, complete)

    def panel(self) -> RenderableType:
        """Return the panel, or the text "getting ready …" until the run has done something."""
        doing, progress = self._doing, self._progress
        if not doing:
            return Text("getting ready …", style="dim")
        rows: list[RenderableType] = [Text(f"step {doing.step:,}")]
        if progress:
            rows = [_steps(doing.step, progress), _figures(progress)]
        state = f" {self._state}, {_epoch(doing.epoch, progress.epoch_of if progress else '')}"
        if progress and progress.bleu_on:
            state += f", BLEU on {progress.bleu_on}"
        title = Text.assemble((printable(self._run.name), "bold"), (state, "dim"))
        width = min(self._console.width, MAX_WIDTH)
        return Panel(Group(*rows), title=title, title_align="left", border_style="dim", width=width)

    def _print(self, line: str) -> None:
        """Print a line that stays above the panel."""
        style = "yellow" if line.startswith("Warning: ") else ""
        self._show(lambda: self._console.print(Text(line, style=style), soft_wrap=True))

    def _draw(self, now: bool = True) -> None:
        """Draw the panel. Without `now`, draw at most once in `SECONDS_BETWEEN_UPDATES`."""
        if now or time.monotonic() - self._drawn > SECONDS_BETWEEN_UPDATES:
            self._drawn = time.monotonic()
            self._show(lambda: self._live.update(self.panel(), refresh=True))


@contextmanager
def shown_run(run: Path, quiet: bool, silent: bool) -> Iterator[RunReporter]:
    """Yield a reporter of the events of a run: with a panel on a terminal that can redraw, otherwise with
    lines.

    `quiet` prints only warnings, and `silent` nothing. The panel ends with the block.
    """
    console = Console(stderr=True)
    # A dumb terminal cannot move the cursor, so each update would be a new panel.
    if quiet or silent or not sys.stderr.isatty() or console.is_dumb_terminal:
        yield RunReporter(quiet, silent)
        return
    live = Live(console=console, auto_refresh=False, redirect_stdout=False)
    reporter = LiveReporter(run, console, live)
    live.update(reporter.panel())
    # The terminal may be closed at any moment, which must not stop training.
    with suppress(OSError):
        live.start()
    try:
        yield reporter
    finally:
        with suppress(OSError):
            live.stop()


def text(event: Event) -> str:
    """Return the line of an event, or "" for events without a line."""
    match event:
        case Note(message):
            return printable(message)
        case Warned(message):
            return printable(f"Warning: {message}")
        case Progress():
            skipped = f", {event.skipped} steps skipped (not finite)" if event.skipped else ""
            return (
                f"step {event.step:,} of {event.max_steps:,}, {_epoch(event.epoch, event.epoch_of)}: "
                f"loss {event.loss:.3f}, perplexity {_perplexity(event)}, "
                f"learning rate {event.learning_rate:.2e}, {event.tokens_per_second:,.0f} tokens/s, "
                f"waiting {event.waiting:.1%}, filler {event.filler:.1%}, "
                f"{duration(event.seconds_left)} to go{skipped}"
            )
        case Validated():
            best = ", the best so far" if event.best else ""
            decoded = "" if event.decoded == "weights" else f" ({event.decoded})"
            scores = judgements(event.judgements)
            return printable(f"step {event.step:,}{decoded}: {scores}{best} ({duration(event.seconds)})")
        case Spent():
            return (
                f"cost: {event.model_flops:.1e} model FLOPs in {duration(3600 * event.hours)}, "
                f"{duration(3600 * event.device_hours)} summed over devices"
            )
    return ""


def judgements(judged: Sequence[Judgement]) -> str:
    """Return a text with the scores and the perplexity of each validation set.

    The scores of short lines follow in parentheses, in the same order, because those of long lines hide them.
    """
    texts = []
    for one in judged:
        scores = ", ".join(f"{score.name} {score.shown}" for score in one.scores)
        if one.short:
            shown = ", ".join(score.shown for score in one.short.scores)
            scores += f" (up to {one.short.length.most} words: {shown})"
        on = f" on {one.subset}" if one.subset else ""
        texts.append(f"{one.name}: {scores}{on}, perplexity {_digits(one.perplexity)}")
    return "; ".join(texts)


def show_forecast(forecast: "Forecast", devices: int, kind: str) -> None:
    """Print the plan of a run to stdout. `devices` is their number, and `kind` is "cpu" or "cuda"."""
    epoch, trial, disk = forecast.epoch, forecast.trial, forecast.disk
    frozen = forecast.parameters - forecast.trained
    dropped = f", {epoch.dropped:,} left out as too long" if epoch.dropped else ""
    corpus = f" (an epoch of {epoch.of})" if epoch.of else ""
    source, target = epoch.source_tokens / epoch.batches, epoch.target_tokens / epoch.batches
    epochs = forecast.steps / epoch.batches
    print_facts(
        {
            "parameters": f"{forecast.parameters:,}" + (f" ({frozen:,} frozen)" if frozen else ""),
            "batches per epoch": f"{epoch.batches:,} of {epoch.pairs:,} pairs{dropped}{corpus}",
            "tokens per batch": f"{source:,.0f} source and {target:,.0f} target on average, "
            f"in {forecast.epoch.micro_batches:.1f} micro-batches on each of {devices} {kind}",
            "padding": f"{forecast.epoch.filler:.2%}",
            "steps": f"{forecast.steps:,} ({epochs:,.{0 if epochs >= 10 else 1}f} epochs)",
            "warm-up": f"{forecast.warmup:,} steps",
            "memory": f"{size(trial.memory)} at most, measured with the longest batch ({trial.tokens:,} "
            f"tokens); {size(forecast.weights_memory)} for weights, gradients and optimiser",
            "checkpoints": f"{disk.interval}, {size(disk.checkpoint)} each, "
            f"{size(disk.checkpoint * disk.count)} for at most {disk.count} ({size(disk.free)} free)",
            "validation": forecast.validation or "none",
            "model FLOPs": f"{forecast.flops:.2e}",
            "time": f"about {duration(forecast.seconds)} without validation, "
            "estimated from the longest batch",
        }
    )


def _epoch(number: int, corpus: str) -> str:
    """Return "epoch 1" for `number` 0. If epochs count passes over one of several corpora, `corpus` is
    added."""
    return f"epoch {number + 1} of {printable(corpus)}" if corpus else f"epoch {number + 1}"


def _perplexity(event: Progress) -> str:
    """Return the perplexity as text, with fewer decimals the larger it is. From e^20 on, and for NaN, it is
    "huge"."""
    # The number of e^20 is too wide for its column, and e^710 for a float.
    if not event.nll < 20:
        return "huge"
    return _digits(math.exp(event.nll))


def _digits(value: float) -> str:
    """Return a number with fewer decimals the larger it is, at most three."""
    digits = 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0
    return f"{value:,.{digits}f}"


def _steps(step: int, progress: Progress) -> RenderableType:
    """Return the row of the panel with the step, the number of steps, a bar, and the time left."""
    row = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for ratio in (None, 1, None):
        row.add_column(ratio=ratio, no_wrap=True)
    left = f"{step / progress.max_steps:.1%}, {duration(progress.seconds_left)} to go"
    row.add_row(f"step {step:,} of {progress.max_steps:,}", ProgressBar(progress.max_steps, step), left)
    return row


def _figures(progress: Progress) -> RenderableType:
    """Return the rows of the panel with the latest measurements."""
    bleu = f"{progress.bleu[0]:.2f}, best {progress.bleu[1]:.2f}" if progress.bleu else "not yet"
    figures = {
        "loss": f"{progress.loss:.3f}",
        "perplexity": _perplexity(progress),
        "BLEU": bleu,
        "rate": f"{progress.learning_rate:.2e}",
        "filler": f"{progress.filler:.1%}",
        "waiting": f"{progress.waiting:.1%}",
        "real tokens/s": f"{progress.tokens_per_second:,.0f}",
        "memory": size(progress.memory),
    }
    cells = [Text.assemble((f"{name} ", "dim"), (value, "bold")) for name, value in figures.items()]
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in range(4):
        grid.add_column(no_wrap=True)
    grid.add_row(*cells[:4])
    grid.add_row(*cells[4:])
    return grid

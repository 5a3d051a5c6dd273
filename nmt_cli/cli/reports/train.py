"""The progress of `nmt train` as plain lines."""

import math
from pathlib import Path

import click

from nmt_cli.errors import printable
from nmt_cli.training.tracking.events import (
    Doing,
    Event,
    Logged,
    Note,
    Progress,
    Saved,
    Spent,
    Standing,
    Validated,
    Warned,
)
from nmt_cli.training.validation.metrics import Judgement
from nmt_cli.units import duration


class Reporter:
    """Prints events of training to stderr, one line each. Events that users need not see have no line."""

    def __init__(self, quiet: bool, silent: bool = False) -> None:
        """`quiet` prints only warnings. `silent` prints nothing. It is set in all processes except the
        first."""
        self._quiet, self._silent = quiet, silent

    def __call__(self, event: Event) -> None:
        """Print the line of one event. `Doing`, `Logged`, `Saved` and `Standing` have no line. With `quiet`,
        print only a `Warned`."""
        if isinstance(event, Doing | Logged | Saved | Standing) or (
            self._quiet and not isinstance(event, Warned)
        ):
            return
        self._print(_progress(event) if isinstance(event, Progress) else text(event))

    def end(self, run: Path, complete: bool) -> None:
        """Print that the run in the folder `run` is complete, or how to resume it. With `quiet`, print
        nothing."""
        if not self._quiet:
            self._print(ending(run, complete))

    def _print(self, line: str) -> None:
        """Print a line to stderr, unless `silent` is set or the terminal was closed. Take an `OSError` as the
        closing."""
        if self._silent:
            return
        try:
            click.echo(line, err=True)
        except OSError:  # the terminal was closed, which must not stop training
            self._silent = True


def text(event: Note | Warned | Validated | Spent) -> str:
    """Return the line for an event: a note, a warning, the scores of a validation, or the cost of a run."""
    match event:
        case Note(text):
            return printable(text)
        case Warned(text):
            return printable(f"Warning: {text}")
        case Validated():
            sets = "; ".join(_judgement(judgement) for judgement in event.judgements)
            best = ", the best so far" if event.best else ""
            decoded = "" if event.decoded == "weights" else f" ({event.decoded})"
            return printable(f"step {event.step:,}{decoded}: {sets}{best} ({duration(event.seconds)})")
        case Spent():
            return _spent(event)


def ending(run: Path, complete: bool) -> str:
    """Return the last line about the folder `run`. If `complete`, it says so. Otherwise it says how to resume
    the run."""
    end = "complete" if complete else "stopped and saved. Run the same command again to resume."
    return printable(f"{run}: {end}")


def epoch(number: int, corpus: str) -> str:
    """Return "epoch 1" for `number` 0, and so on. Append "of" and the name `corpus` unless `corpus` is "". It
    names the mixed corpus whose epochs are counted."""
    return f"epoch {number + 1} of {printable(corpus)}" if corpus else f"epoch {number + 1}"


def _judgement(judgement: Judgement) -> str:
    """Return the name of a validation set, its scores, the subset they were computed on if any, and the
    perplexity."""
    scores = ", ".join(f"{score.name} {score.value:.2f}" for score in judgement.scores)
    on = f" on {judgement.subset}" if judgement.subset else ""
    return f"{judgement.name}: {scores}{on}, perplexity {judgement.perplexity:.3f}"


def _progress(event: Progress) -> str:
    """Return the line of the progress of training. It ends with the number of skipped steps if there are
    any."""
    position = f"step {event.step:,} of {event.max_steps:,}, {epoch(event.epoch, event.epoch_of)}"
    line = (
        f"{position}: loss {event.loss:.3f}, perplexity {perplexity(event)}, "
        f"learning rate {event.learning_rate:.2e}, {event.tokens_per_second:,.0f} tokens/s, "
        f"waiting {event.waiting:.1%}, filler {event.filler:.1%}, {duration(event.seconds_left)} to go"
    )
    return f"{line}, {event.skipped} steps skipped (not finite)" if event.skipped else line


def perplexity(event: Progress) -> str:
    """Return the training perplexity, e^`event.nll`, as text with 3 decimals below 10 down to none from 1000
    on. From e^20 on, and for NaN, return "huge"."""
    # The number of e^20 is too wide for its column, and e^710 for a float.
    if not event.nll < 20:
        return "huge"
    value = math.exp(event.nll)
    digits = 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0
    return f"{value:,.{digits}f}"


def _spent(event: Spent) -> str:
    """Return the line with the cost of a run: model FLOPs, duration, and duration summed over devices."""
    return (
        f"cost: {event.model_flops:.1e} model FLOPs in {duration(3600 * event.hours)}, "
        f"{duration(3600 * event.device_hours)} summed over devices"
    )

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
        """`quiet` prints only warnings. `silent` prints nothing, for all processes except the first."""
        self._quiet, self._silent = quiet, silent

    def __call__(self, event: Event) -> None:
        """Print the line of an event, if the event has a line. With `quiet`, print only a `Warned`."""
        if isinstance(event, Doing | Logged | Saved | Standing) or (
            self._quiet and not isinstance(event, Warned)
        ):
            return
        self._print(_progress(event) if isinstance(event, Progress) else text(event))

    def end(self, run: Path, complete: bool) -> None:
        """Print that `run` is complete, or how to resume it. With `quiet`, print nothing."""
        if not self._quiet:
            self._print(ending(run, complete))

    def _print(self, line: str) -> None:
        """Print a line to stderr, unless `silent`. Once the terminal is closed, print nothing any more."""
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
    """Return the last line about the folder `run`: that it is complete, or how to resume it."""
    end = "complete" if complete else "stopped and saved. Run the same command again to resume."
    return printable(f"{run}: {end}")


def epoch(number: int, corpus: str) -> str:
    """Return "epoch 1" for `number` 0. With `corpus`, the mixed corpus whose epochs count, add "of NAME"."""
    return f"epoch {number + 1} of {printable(corpus)}" if corpus else f"epoch {number + 1}"


def _judgement(judgement: Judgement) -> str:
    """Return the name, the scores, their subset if any, and the perplexity of a validation set."""
    scores = ", ".join(f"{score.name} {score.value:.2f}" for score in judgement.scores)
    on = f" on {judgement.subset}" if judgement.subset else ""
    return f"{judgement.name}: {scores}{on}, perplexity {judgement.perplexity:.3f}"


def _progress(event: Progress) -> str:
    """Return the line of the progress of training, with the number of skipped steps if any."""
    position = f"step {event.step:,} of {event.max_steps:,}, {epoch(event.epoch, event.epoch_of)}"
    line = (
        f"{position}: loss {event.loss:.3f}, perplexity {perplexity(event)}, "
        f"learning rate {event.learning_rate:.2e}, {event.tokens_per_second:,.0f} tokens/s, "
        f"waiting {event.waiting:.1%}, filler {event.filler:.1%}, {duration(event.seconds_left)} to go"
    )
    return f"{line}, {event.skipped} steps skipped (not finite)" if event.skipped else line


def perplexity(event: Progress) -> str:
    """Return e^`event.nll` as text, with fewer decimals if larger. From e^20 on, and for NaN, "huge"."""
    # The number of e^20 is too wide for its column, and e^710 for a float.
    if not event.nll < 20:
        return "huge"
    value = math.exp(event.nll)
    digits = 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0
    return f"{value:,.{digits}f}"


def _spent(event: Spent) -> str:
    return (
        f"cost: {event.model_flops:.1e} model FLOPs in {duration(3600 * event.hours)}, "
        f"{duration(3600 * event.device_hours)} summed over devices"
    )

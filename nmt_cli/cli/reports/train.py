"""What `nmt train` says on the way and at its end, in plain lines."""

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
    """Shows events on stderr."""

    def __init__(self, quiet: bool, silent: bool = False) -> None:
        """`silent` is for all processes but the first, which would say the same."""
        self._quiet, self._silent = quiet, silent

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, Doing | Logged | Saved | Standing) or (
            self._quiet and not isinstance(event, Warned)
        ):
            return
        self._say(_progress(event) if isinstance(event, Progress) else text(event))

    def end(self, run: Path, complete: bool) -> None:
        """Say how the run ended."""
        if not self._quiet:
            self._say(ending(run, complete))

    def _say(self, line: str) -> None:
        if self._silent:
            return
        try:
            click.echo(line, err=True)
        except OSError:  # whoever read it has gone away, which is no reason to stop training
            self._silent = True


def text(event: Note | Warned | Validated | Spent) -> str:
    """What is to be said of what happens now and then."""
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
    """How a run ended."""
    end = "complete" if complete else "stopped and saved; run the same command again to resume"
    return printable(f"{run}: {end}")


def epoch(number: int, corpus: str) -> str:
    """Which epoch it is, counted from 1, and of which corpus, where corpora are mixed."""
    return f"epoch {number + 1} of {printable(corpus)}" if corpus else f"epoch {number + 1}"


def _judgement(judgement: Judgement) -> str:
    scores = ", ".join(f"{score.name} {score.value:.2f}" for score in judgement.scores)
    on = f" on {judgement.subset}" if judgement.subset else ""
    return f"{judgement.name}: {scores}{on}, perplexity {judgement.perplexity:.3f}"


def _progress(event: Progress) -> str:
    place = f"step {event.step:,} of {event.max_steps:,}, {epoch(event.epoch, event.epoch_of)}"
    line = (
        f"{place}: loss {event.loss:.3f}, perplexity {perplexity(event)}, "
        f"learning rate {event.learning_rate:.2e}, {event.tokens_per_second:,.0f} tokens/s, "
        f"waiting {event.waiting:.1%}, filler {event.filler:.1%}, {duration(event.seconds_left)} to go"
    )
    return f"{line}, {event.skipped} steps skipped (not finite)" if event.skipped else line


def perplexity(event: Progress) -> str:
    """Return the perplexity on the training data, with as many digits as in `report.html`."""
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

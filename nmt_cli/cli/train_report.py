"""What `nmt train` says on the way, in plain lines."""

from pathlib import Path

import click

from nmt_cli.training.events import Event, Note, Progress, Saved, Validated, Warned
from nmt_cli.training.validation import Judgement


class Reporter:
    """Shows events on stderr."""

    def __init__(self, quiet: bool, silent: bool = False) -> None:
        """`silent` is for all processes but the first, which would say the same."""
        self._quiet, self._silent = quiet, silent

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if not self._quiet or isinstance(event, Warned):
            self._say(_text(event))

    def end(self, run: Path, complete: bool) -> None:
        """Say how the run ended."""
        if not self._quiet:
            end = "done" if complete else "stopped and saved; the same command again goes on from here"
            self._say(f"{run}: {end}")

    def _say(self, line: str) -> None:
        if self._silent:
            return
        try:
            click.echo(line, err=True)
        except OSError:  # whoever read it has gone away, which is no reason to stop training
            self._silent = True


def _text(event: Event) -> str:
    match event:
        case Note(text):
            return text
        case Warned(text):
            return f"Warning: {text}"
        case Saved(step, place):
            return f"step {step:,}: saved {place}"
        case Validated():
            sets = "; ".join(_judgement(judgement) for judgement in event.judgements)
            best = ", the best so far" if event.best else ""
            return f"step {event.step:,}: {sets}{best} ({event.seconds:.0f} s)"
        case Progress():
            return _progress(event)


def _judgement(judgement: Judgement) -> str:
    scores = ", ".join(f"{score.name} {score.value:.2f}" for score in judgement.scores)
    return f"{judgement.name}: {scores}, perplexity {judgement.perplexity:.3f}"


def _progress(event: Progress) -> str:
    left = (event.max_steps - event.step) * event.seconds / max(event.step, 1)
    line = (
        f"step {event.step:,} of {event.max_steps:,}, epoch {event.epoch + 1}: loss {event.loss:.4f}, "
        f"nll {event.nll:.4f}, rate {event.learning_rate:.2e}, {event.tokens_per_second:,.0f} tokens/s, "
        f"waiting {event.waiting:.1%}, filler {event.filler:.1%}, {_time(left)} to go"
    )
    return f"{line}, {event.skipped} steps skipped (not finite)" if event.skipped else line


def _time(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"

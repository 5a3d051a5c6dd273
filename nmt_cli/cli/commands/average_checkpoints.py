"""`nmt average-checkpoints`: a run folder or several models in, one model folder out."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nmt_cli.cli.options import EXISTING_FOLDER, FOLDER, Command, common
from nmt_cli.errors import printable

if TYPE_CHECKING:
    from nmt_cli.checkpoints.average import Part
    from nmt_cli.training.validation.selection import Trial

LAST = 5
"""As many as the paper averages for its base model."""


def _finite(_: click.Context, __: click.Parameter, minutes: float | None) -> float | None:
    if minutes is not None and not math.isfinite(minutes):
        raise click.BadParameter(f"{minutes} is no number of minutes.")
    return minutes


@click.command("average-checkpoints", cls=Command, epilog="nmt average-checkpoints run --last 5 --out model")
@click.argument("models", nargs=-1, required=True, type=EXISTING_FOLDER, metavar="RUN | MODEL ...")
@click.option("--out", required=True, type=FOLDER, help="Model folder to write.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    help=f"Average so many of the newest checkpoints.  [default: {LAST}]",
)
@click.option("--best", type=click.IntRange(min=1), help="Average so many of the best by validation score.")
@click.option(
    "--every-minutes",
    type=click.FloatRange(min=0, min_open=True),
    callback=_finite,
    help="Of the newest, take --last that were written about so many minutes apart.",
)
@click.option(
    "--select",
    is_flag=True,
    help="Decode the validation sets with the last and the best checkpoint and several averages, and keep "
    "what is best by the run's metric; of equals, the simplest.",
)
@click.option("--licence", default="", help="Licence of the data, for the model's README.md.")
@common
def average_checkpoints(
    models: tuple[Path, ...],
    out: Path,
    last: int | None,
    best: int | None,
    every_minutes: float | None,
    select: bool,
    licence: str,
    quiet: bool,
) -> None:
    """Average checkpoints of RUN, or the models that are named.

    RUN is a run folder that nmt train made; of each MODEL (a model, checkpoint or run folder) the weights are
    taken as they are. The result is a model folder; its config.json says which steps went in, its README.md
    is a card with which it can be handed on.
    """
    ways = {"--last": last, "--best": best, "--every-minutes": every_minutes, "--select": select or None}
    given = [flag for flag, value in ways.items() if value is not None]
    # These two go together: how many, and how far apart.
    if len(given) > 1 and given != ["--last", "--every-minutes"]:
        raise click.UsageError(f"{given[0]} and {given[1]} choose in different ways; take one of them.")

    from nmt_cli.checkpoints import choice
    from nmt_cli.checkpoints.average import average
    from nmt_cli.checkpoints.card import About
    from nmt_cli.checkpoints.finding import WEIGHTS, checkpoints, find_model
    from nmt_cli.runtime.foreign_text import bytes_if_there
    from nmt_cli.training.settings import CONFIG as SETTINGS

    run, file = models[0], WEIGHTS
    several = len(models) > 1 or not checkpoints(run)
    settings = "" if several else bytes_if_there(run / SETTINGS).decode(errors="replace")
    about = About(licence=licence, settings=settings)
    if several:
        if given:
            find_model(run)  # a run without any checkpoint yet is told so
            raise click.UsageError(f"{given[0]} is for the checkpoints of one run; name its folder alone.")
        places: Sequence[Path] = choice.named(models)
    elif select:
        won = _selected(run, out, quiet)
        places, file = won.average.folders, won.average.file
        about = replace(about, scores={each.name: each.scores for each in won.judgements})
    else:
        places = _chosen(run, last, best, every_minutes)
    parts = average(places, out, file, about)
    if not quiet:
        _tell(out, parts, None if several else run)


def _tell(out: Path, parts: Sequence["Part"], run: Path | None) -> None:
    from nmt_cli.checkpoints.finding import EMA

    steps = ", ".join(str(part.step) for part in parts)
    origin = f"steps {steps} of {run}" if run else ", ".join(str(part.place) for part in parts)
    what = "the moving average (EMA) of weights" if parts[0].file == EMA else "the average"
    click.echo(printable(f"{out}: {what} of {origin}"), err=True)


def _chosen(run: Path, last: int | None, best: int | None, every_minutes: float | None) -> Sequence[Path]:
    from nmt_cli.checkpoints import choice

    if best:
        return choice.best(run, best)
    if every_minutes:
        return choice.apart(run, every_minutes, last or LAST)
    return choice.newest(run, last or LAST)


def _selected(run: Path, out: Path, quiet: bool) -> "Trial":
    """The winner; prints how all of them did."""
    from nmt_cli.checkpoints.average import check_replaceable
    from nmt_cli.cli.reports.selection import say, show
    from nmt_cli.runtime.atomic import check_place
    from nmt_cli.runtime.devices import device_of_rank
    from nmt_cli.training.validation.selection import try_all, winner

    # Decoding takes long; that its result can't be written is better told before.
    check_replaceable(out, [])
    check_place(out)
    trials = try_all(run, device_of_rank("auto", 0), lambda trial: None if quiet else say(trial))
    won = winner(trials)
    show(trials, won)
    return won

"""`nmt average-checkpoints`: a run folder or several models in, one averaged model folder out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from nmt_cli.cli.options import COUNT, EXISTING, OUT, Choice, Command, common, not_empty, printer
from nmt_cli.errors import printable
from nmt_cli.training.config import ValidationMetric

if TYPE_CHECKING:
    from nmt_cli.checkpoints.average import Part
    from nmt_cli.checkpoints.card import About
    from nmt_cli.training.validation.selection import Trial

LAST = 5
"""The number of checkpoints that "Attention Is All You Need" averages for its base model."""


@click.command("average-checkpoints", cls=Command, epilog="nmt average-checkpoints run --last 5 --out model")
@click.argument("models", nargs=-1, required=True, type=EXISTING, metavar="RUN | MODEL ...")
@click.option("--out", required=True, type=OUT, help="Model folder to write.")
@click.option("--last", type=COUNT, help=f"Average the N newest checkpoints.  [default: {LAST}]")
@click.option("--best", type=COUNT, help="Average the N best checkpoints by validation score.")
@click.option("--select", is_flag=True, help="Try several averages, and keep the best on validation.")
@click.option(
    "--metric",
    type=Choice(get_args(ValidationMetric)),
    help="Metric of --select.  [default: the run's]",
)
@click.option("--metric-model", type=EXISTING, metavar="FOLDER", help="COMET model of --metric comet.")
@click.option("--licence", callback=not_empty, help="Licence of the data, for README.md.")
@common
def average_checkpoints(
    models: tuple[Path, ...],
    out: Path,
    last: int | None,
    best: int | None,
    select: bool,
    metric: ValidationMetric | None,
    metric_model: Path | None,
    licence: str | None,
    quiet: bool,
) -> None:
    """Average the weights of checkpoints or models.

    RUN is a run folder that nmt train wrote: checkpoints of it are averaged.
    Each MODEL is a model, checkpoint or run folder: their weights are averaged.
    If all have a moving average (optimizer.ema), it replaces the weights.

    --select decodes the validation sets with the last checkpoint, the best one
    and several averages. It keeps the best by the run's validation.metric, or
    --metric, and calibrates the confidence of its translations.

    The result has a model card, README.md, and lists the steps in config.json.
    """
    options = {"--last": last, "--best": best, "--select": select or None}
    used = [flag for flag, value in options.items() if value is not None]
    if len(used) > 1:
        raise click.UsageError(f"{used[0]} has no effect with {used[1]}. Use one of them.")
    if (metric or metric_model) and not select:
        raise click.UsageError("--metric and --metric-model have no effect without --select.")
    from nmt_cli.checkpoints import choice
    from nmt_cli.checkpoints.average import average
    from nmt_cli.checkpoints.card import About
    from nmt_cli.checkpoints.finding import checkpoints, find_model
    from nmt_cli.runtime.foreign_text import read_if_exists
    from nmt_cli.training.settings import CONFIG as SETTINGS

    # One folder with checkpoints is a run, of which checkpoints are averaged. Anything else is a list of
    # models.
    run, file, several = models[0], None, len(models) > 1 or not checkpoints(models[0])
    settings = b"" if several else read_if_exists(run / SETTINGS)
    about = About(licence=licence or "", settings=settings.decode(errors="replace"))
    if several:
        if used:
            # This raises a clearer error if the run has no checkpoint yet.
            find_model(run)
            raise click.UsageError(f"{used[0]} needs the folder of one run (got {len(models)} folders)")
        folders: Sequence[Path] = choice.named(models)
    elif select:
        won, about = _selected(run, out, about, quiet, metric, metric_model)
        folders, file = won.average.folders, won.average.file
    else:
        folders = choice.best(run, best) if best else choice.newest(run, last or LAST)
    printer(quiet)(_summary(out, average(folders, out, file, about), None if several else run))


def _summary(out: Path, parts: Sequence["Part"], run: Path | None) -> str:
    """Return a line about the averaged model.

    - `out`: its folder.
    - `parts`: the models that were averaged.
    - `run`: the run of which they are checkpoints, named by their steps. None for folders, which are named.
    """
    from nmt_cli.checkpoints.finding import EMA

    single = "checkpoint" if run and len(parts) == 1 else "average"
    kind = "moving average (EMA)" if parts[0].file == EMA else single
    steps = ", ".join(str(part.step) for part in parts)
    origin = f"step{'s' if len(parts) > 1 else ''} {steps} of {run}"
    return f"{out}: {kind} of {origin if run else ', '.join(str(part.folder) for part in parts)}"


def _selected(
    run: Path,
    out: Path,
    about: "About",
    quiet: bool,
    metric: ValidationMetric | None,
    metric_model: Path | None,
) -> tuple["Trial", "About"]:
    """Decode with several averages of a run, and return the best one. Also return `about` with its scores and
    calibration.

    - `out`: the model folder to write. Raise `UserError` at once if it cannot be written.
    - `about`: the facts for the model card.
    - `metric`: the metric that decides, or None for that of the run.
    - `metric_model`: the folder of the COMET model for the metric "comet".

    A line is printed for each average, unless `quiet`. A table of all scores follows.
    """
    from nmt_cli.checkpoints.average import check_replaceable
    from nmt_cli.cli.reports.training_output import judgements
    from nmt_cli.runtime.atomic import check_writable
    from nmt_cli.runtime.devices import device_of_rank
    from nmt_cli.training.validation.selection import try_all, winner

    # Decoding takes long. If the result can't be written, fail before it.
    check_replaceable(out, [])
    check_writable(out)
    show = printer(quiet)
    trials = try_all(
        run,
        device_of_rank("auto", 0),
        lambda trial: show(f"{trial.average.name}: {judgements(trial.judgements)}"),
        metric,
        metric_model,
    )
    won = winner(trials)
    _print_trials(trials, won)
    scores = {each.name: each.scores for each in won.judgements}
    return won, replace(about, scores=scores, calibration=won.judgements[0].calibration)


def _print_trials(trials: Sequence["Trial"], won: "Trial") -> None:
    """Print a table of the averages that were tried, with a star at the best one, the metric that decided,
    and signatures."""
    from nmt_cli.cli.reports.tables import print_table

    heads = [
        printable(f"{one.name} {name}")
        for one in won.judgements
        for name in (*(score.name for score in one.scores), "perplexity")
    ]
    rows = []
    for trial in trials:
        cells = ["*" if trial is won else "", trial.average.name]
        for one in trial.judgements:
            cells += [*(score.shown for score in one.scores), f"{one.perplexity:.3f}"]
        rows.append([*cells, ", ".join(map(str, trial.steps))])
    print_table(None, ["", "candidate"], [*heads, "steps"], rows, box=None)
    judged = won.judgements[0]
    click.echo(f"* is the best by {won.metric} on {printable(judged.name)} (the first of equal ones)")
    for score in judged.scores:
        click.echo(f"{score.name}: {score.signature}")

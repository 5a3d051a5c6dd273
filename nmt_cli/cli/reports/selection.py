"""The output of `nmt average-checkpoints --select`."""

import sys
from collections.abc import Sequence

import click
from rich import box
from rich.table import Table
from rich.text import Text

from nmt_cli.cli.reports.tables import table_console
from nmt_cli.errors import printable
from nmt_cli.training.validation.selection import Trial


def trial_line(trial: Trial) -> str:
    """Return a line with the name of a candidate and its scores on each validation set."""
    sets = (
        f"{judgement.name}: {', '.join(f'{score.name} {score.value:.2f}' for score in judgement.scores)}"
        for judgement in trial.judgements
    )
    return f"{trial.average.name}: {'; '.join(sets)}"


def show(trials: Sequence[Trial], won: Trial) -> None:
    """Print a table of candidates to stdout: scores, perplexities and steps, with a star at the winner `won`.
    Then print the metric that decided, and signatures on the first validation set."""
    # Programs that read the output get columns without lines around them.
    table = Table(box=box.HEAVY_HEAD if sys.stdout.isatty() else None)
    table.add_column("")
    table.add_column("candidate")
    for judgement in trials[0].judgements:
        for name in (*(score.name for score in judgement.scores), "perplexity"):
            table.add_column(Text(printable(f"{judgement.name} {name}")), justify="right")
    table.add_column("steps", overflow="fold")
    for trial in trials:
        values = [
            cell
            for judgement in trial.judgements
            for cell in (*(f"{score.value:.2f}" for score in judgement.scores), f"{judgement.perplexity:.3f}")
        ]
        steps = ", ".join(map(str, trial.steps))
        candidate = Text(printable(trial.average.name))
        table.add_row("*" if trial is won else "", candidate, *values, steps)
    table_console().print(table)
    judged = printable(won.judgements[0].name)
    click.echo(f"* is the best by {won.metric} on {judged} (the first of equal ones)")
    for score in won.judgements[0].scores:
        click.echo(f"{score.name}: {score.signature}")

"""`nmt report`: run folders in, a page that compares them out."""

from pathlib import Path

import click

from nmt_cli.cli.options import Command, common


@click.command(cls=Command, epilog="nmt report run-1 run-2 --out runs.html")
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    metavar="RUN ...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Page (.html) or curves (.svg) to write.",
)
@common
def report(runs: tuple[Path, ...], out: Path, quiet: bool) -> None:
    """Compare training runs on one page: curves, scores, the settings that differ, and the environment.

    The page works offline. If --out ends in .svg, the curves alone are drawn, for a paper. Each RUN has a
    report.html of its own.
    """
    from nmt_cli.training.tracking.reports.comparison import write_comparison

    write_comparison(runs, out)
    if not quiet:
        click.echo(f"{out}: {len(runs)} runs", err=True)

"""`nmt report`: run folders in, an HTML page or a figure that compares them out."""

from pathlib import Path

import click

from nmt_cli.cli.options import EXISTING_FOLDER, FILE, Command, common, printer
from nmt_cli.units import counted


@click.command(cls=Command, epilog="nmt report run-1 run-2 --out runs.html")
@click.argument("runs", nargs=-1, required=True, metavar="RUN ...", type=EXISTING_FOLDER)
@click.option("--out", required=True, type=FILE, help="Page (.html) or curves (.svg) to write.")
@common
def report(runs: tuple[Path, ...], out: Path, quiet: bool) -> None:
    """Compare training runs on one HTML page.

    The page shows curves, scores, the settings that differ, and the hardware
    and software. It works offline. If --out ends in .svg, only the curves are
    drawn, for a paper. For one run, see report.html in its folder.
    """
    from nmt_cli.training.tracking.reports.comparison import write_comparison

    write_comparison(runs, out)
    printer(quiet)(f"{out}: {counted(len(runs), 'run')}")

"""`nmt info`: what a folder or file is, and the numbers one wants of it."""

from pathlib import Path

import click

from nmt_cli.cli.options import EXISTING, Command, common
from nmt_cli.errors import printable


@click.command(cls=Command, epilog="nmt info run")
@click.argument("path", type=EXISTING)
@common
def info(path: Path, quiet: bool) -> None:
    """Say what PATH is: a dataset, run, checkpoint or model folder, a text, or another toolkit's model."""
    from nmt_cli.cli.reports.info import facts

    rows = facts(path)
    width = max(map(len, rows))
    for name, value in rows.items():
        click.echo(printable(f"{name:<{width}}  {value}"))

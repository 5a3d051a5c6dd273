"""`nmt info`: a description of a folder or file."""

from pathlib import Path

import click

from nmt_cli.cli.options import EXISTING, Command, common
from nmt_cli.errors import printable


@click.command(cls=Command, epilog="nmt info run")
@click.argument("path", type=EXISTING)
@common
def info(path: Path, quiet: bool) -> None:
    """Describe a dataset, run, model or text file.

    PATH is a dataset, run, checkpoint or model folder, a text or test set, or
    a model of another toolkit.
    """
    from nmt_cli.cli.reports.info import facts

    rows = facts(path)
    width = max(map(len, rows))
    for name, value in rows.items():
        click.echo(printable(f"{name:<{width}}  {value}"))

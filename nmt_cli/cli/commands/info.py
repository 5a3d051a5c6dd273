"""`nmt info`: a description of a folder or file."""

from pathlib import Path

import click

from nmt_cli.cli.options import EXISTING, Command, common


@click.command(cls=Command, epilog="nmt info run")
@click.argument("path", type=EXISTING)
@common
def info(path: Path, quiet: bool) -> None:
    """Describe a dataset, run, model or text file.

    PATH is a dataset, run, checkpoint or model folder, a text or test set, or
    a model of another toolkit.
    """
    from nmt_cli.cli.reports.info import facts
    from nmt_cli.cli.reports.tables import print_facts

    print_facts(facts(path))

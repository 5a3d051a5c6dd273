"""`nmt info`: a description of a folder."""

from pathlib import Path

import click

from nmt_cli.cli.options import EXISTING, Command, common


@click.command(cls=Command, epilog="nmt info run")
@click.argument("path", type=EXISTING)
@common
def info(path: Path, quiet: bool) -> None:
    """Describe a dataset, run or model.

    PATH is a dataset, run, checkpoint or model folder, or a model of another
    toolkit.
    """
    # Imported late, as in all commands: PyTorch takes seconds to load, and --help must appear at once.
    from nmt_cli.cli.reports.folder_facts import facts
    from nmt_cli.cli.reports.tables import print_facts

    print_facts(facts(path))

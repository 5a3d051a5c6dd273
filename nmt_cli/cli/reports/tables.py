"""Tables on stdout or stderr."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmt_cli.errors import printable

PIPED_WIDTH = 160
"""The width of tables, in characters, if the output is not a terminal."""


def print_table(
    title: str | None,
    names: Sequence[str],
    numbers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    stderr: bool = False,
    **options: Any,
) -> None:
    """Print a table, as wide as the terminal.

    - `title`: a line above the table, or None.
    - `names`: the heads of the first columns, which have texts.
    - `numbers`: the heads of the other columns, which are aligned to the right.
    - `rows`: the cells. Texts are made printable, and numbers get thousands separators.
    - `stderr`: whether to print to stderr instead of stdout.
    - `options`: arguments of the `Table` of rich.
    """
    table = Table(title=title, title_justify="left", **options)
    for head in names:
        # Folded, since rich would otherwise cut names that are too long.
        table.add_column(head, overflow="fold")
    for head in numbers:
        table.add_column(Text(head), justify="right", overflow="fold")
    for row in rows:
        texts = [printable(cell) for cell in row[: len(names)]]
        texts += [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row[len(names) :]]
        # As `Text`, since rich would take brackets in a name for markup.
        table.add_row(*map(Text, texts))
    # Without a terminal, rich would cut tables to 80 columns.
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    Console(stderr=stderr, width=None if terminal else PIPED_WIDTH, highlight=False).print(table)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print each name and text on a line of stdout, with the texts below each other."""
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(printable(f"{name:<{width}}  {value}"))

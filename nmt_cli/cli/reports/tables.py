"""The console that tables are printed to."""

import sys

from rich.console import Console

PIPED_WIDTH = 160
"""The width of tables if the output is not a terminal, in characters."""


def table_console(*, stderr: bool = False) -> Console:
    """Return a console for stdout, or `stderr`, as wide as the terminal, or `PIPED_WIDTH` without one."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else PIPED_WIDTH, highlight=False)

"""Errors that a user can fix, and the exit codes of what was asked to end."""

import signal
from collections.abc import Mapping

EXIT_CODES: Mapping[int, int] = {
    signal.SIGINT: 130,
    signal.SIGTERM: 143,
    signal.SIGUSR1: 143,
    signal.SIGHUP: 129,
}
"""By the signal that asked; what Slurm sends before the time is up ends as what it sends then."""


class UserError(Exception):
    """Something outside the program is wrong; the message says what, where, and what to do about it.

    The command line shows it as one line and exits with 1.
    """


class Caution(UserWarning):
    """Something outside the program is not as it should be, but the work goes on.

    The command line shows it as one line.
    """

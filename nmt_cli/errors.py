"""Errors that a user can fix."""


class UserError(Exception):
    """Something outside the program is wrong; the message says what, where, and what to do about it.

    The command line shows it as one line and exits with 1.
    """

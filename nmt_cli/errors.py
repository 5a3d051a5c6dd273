"""Errors that a user can fix, and the exit codes of what was asked to end."""

import json
import signal
from collections.abc import Mapping

EXIT_CODES: Mapping[int, int] = {
    signal.SIGINT: 130,
    signal.SIGTERM: 143,
    signal.SIGUSR1: 143,
    signal.SIGHUP: 129,
}
"""By the signal that asked; what Slurm sends before the time is up ends as what it sends then."""


OBEYED = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""What a terminal would obey and not show: control characters, ends of lines, and changes of direction."""

NO_TEXT = range(0xD800, 0xE000)
"""What stands for bytes of a name that are not UTF-8."""

ESCAPES = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in (*OBEYED, *NO_TEXT)}
IN_JSON = {code: f"\\u{code:04x}" for code in ESCAPES if code >= 0x20}  # JSON itself escapes the others


def printable(text: object) -> str:
    """`text` on one line that shows every character, whoever has chosen them: a file's name, for one."""
    return str(text).translate(ESCAPES)


def printable_json(content: object, indent: int | None = None) -> str:
    """`content` as JSON with nothing in it that a terminal would obey; who reads it finds all as it was."""
    return json.dumps(content, ensure_ascii=False, indent=indent).translate(IN_JSON)


class UserError(Exception):
    """One or more mistakes that the user can correct. Each argument is a message with the remedy.

    The command line shows a line for each message and exits with 1.
    """

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


class Caution(UserWarning):
    """Something outside the program is not as it should be, but the work goes on.

    The command line shows it as one line.
    """


class Notice(UserWarning):
    """Something to know while waiting. The command line shows it as one line, unless `--quiet`."""

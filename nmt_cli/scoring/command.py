"""Scores from a command of the user, which reads texts as JSON lines and prints a number for each.

A thread feeds the command while its output is read. So the command may read everything before it prints, or
print each number at once.
"""

import json
import math
import os
import selectors
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from subprocess import PIPE, Popen, TimeoutExpired
from typing import IO

from nmt_cli import __version__
from nmt_cli.errors import UserError, printable
from nmt_cli.runtime.processes import Progress
from nmt_cli.runtime.programs import kill_program, start_program
from nmt_cli.scoring.scorers import Texts

LONGEST_ANSWER = 1000  # bytes

SILENT_SECONDS = 3600
"""Maximum time without output of a command, in seconds. The largest models take many minutes to load."""


class CommandScorer:
    """A command of the user that scores translations. It is started for each call of `score` or `stream`."""

    name, kind = "scorer", ""

    def __init__(
        self,
        command: str,
        timeout: int = SILENT_SECONDS,
        report: Progress | None = None,
        option: str = "--scorer",
    ) -> None:
        """Keep the settings.

        - `command`: run by the shell.
        - `timeout`: the maximum number of seconds without output.
        - `report`: called after each number, with "scorer", the numbers so far, and their total.
        - `option`: the option or setting that gave the command, named in errors.
        """
        self._command, self._timeout, self._option = command, timeout, option
        self._report = report or (lambda stage, done, total: None)

    def signature(self, references: int) -> str:
        """Return the command and the number of references."""
        return f"scorer:{printable(self._command)}|refs:{references}|version:nmt-{__version__}"

    def score(self, sources: Texts | None, hypotheses: Texts, references: Texts | None) -> list[float]:
        """Return the number that the command prints for each hypothesis.

        The command reads an object per line with the fields "src", "mt" and "ref". A text that is None has no
        field. Raise `UserError` if the command fails, prints nothing for `timeout` seconds, or does not print
        one finite number per line.
        """
        texts = {"src": sources, "mt": hypotheses, "ref": references}
        columns = {name: lines for name, lines in texts.items() if lines is not None}
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        return list(self.stream(rows, len(hypotheses)))

    def stream(self, rows: Iterable[dict[str, str]], total: int) -> Generator[float]:
        """Yield the number that the command prints for each of `rows`. There are `total` rows, and another
        thread reads them.

        Raise `UserError` if the command fails, hangs or prints anything else. If `rows` raises an error,
        raise it after the last number.
        """
        count = 0
        with self._running(rows) as (process, output):
            for count, line in enumerate(self._lines(output), start=1):
                if count > total:
                    raise self._error(f"printed more lines than the {total:,} that it read")
                yield self._number(line, count)
                self._report("scorer", count, total)
            # A command may close its output before it ends, and its exit code decides.
            with suppress(TimeoutExpired):
                process.wait(self._timeout)
            code = process.returncode
        if self._failure:
            raise self._failure
        if code != 0 or count < total:
            end = "did not end" if code is None else f"failed with exit code {code}" if code else "ended"
            advice = "" if code else ". Print one number for each line read"
            raise self._error(f"{end} after {count:,} of {total:,} scores{advice}")

    @contextmanager
    def _running(self, rows: Iterable[dict[str, str]]) -> Iterator[tuple[Popen[bytes], IO[bytes]]]:
        """Start the command, and a thread that feeds it with `rows`. Yield its process and its output. At the
        end of the block, kill the command and its children if they still run."""
        self._failure: Exception | None = None
        started: list[Popen[bytes]] = []
        may_start = threading.Event()

        def start() -> None:
            may_start.wait()
            # In its own session, so that the children of the command can be killed with it.
            process = start_program(self._command, stdin=PIPE, stdout=PIPE)
            started.append(process)
            self._feed(process.stdin, rows)

        # Ctrl-C interrupts only the main thread, so that it can't lose a process that starts in another.
        thread = threading.Thread(target=start, daemon=True)
        thread.start()
        try:
            may_start.set()
            while not started and thread.is_alive():
                thread.join(0.001)
            if not started:
                raise self._error("can't be started")
            assert started[0].stdout
            with started[0].stdout as output:
                yield started[0], output
        finally:
            while may_start.is_set() and thread.is_alive() and not started:
                thread.join(0.001)
            for process in started:
                kill_program(process)
                if process.stdout:
                    process.stdout.close()

    def _lines(self, output: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines of `output`. Raise `UserError` after `timeout` seconds without output."""
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while selector.select(self._timeout):
                block = os.read(output.fileno(), 1 << 16)
                # A block may end inside of a number.
                *lines, rest = (rest + block).split(b"\n")
                yield from lines
                # A line that is too long is yielded as it is, and refused as no number.
                if not block or len(rest) > LONGEST_ANSWER:
                    yield from [rest] if rest else []
                    return
        raise self._error(f"printed nothing for {self._timeout} s. Let it print each score at once")

    def _number(self, line: bytes, number: int) -> float:
        """Return the number in a line of output. Raise `UserError` if it is not a finite number."""
        with suppress(ValueError):
            if math.isfinite(score := float(line)):
                return score
        text = printable(line[:40].decode(errors="replace"))
        raise self._error(f"printed {text!r} in line {number:,}, which is not a finite number")

    def _error(self, reason: str) -> UserError:
        return UserError(f"{self._option} {printable(self._command)!r} {reason}.")

    def _feed(self, stdin: IO[bytes] | None, rows: Iterable[dict[str, str]]) -> None:
        """Write `rows` as JSON lines to `stdin`, and close it. Stop if the command closes its input. An error
        of `rows` is stored for `stream`, because this runs in a thread."""
        assert stdin
        try:
            with suppress(BrokenPipeError), stdin:
                stdin.writelines(json.dumps(row).encode() + b"\n" for row in rows)
        except Exception as error:
            self._failure = error


def score_by_command(command: str, rows: Iterable[dict[str, str]], total: int) -> Generator[float]:
    """Yield the score that the command of filter.scorer prints for each of `rows`, of which there are
    `total`."""
    return CommandScorer(command, option="filter.scorer").stream(rows, total)

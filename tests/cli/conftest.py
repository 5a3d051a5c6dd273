"""Helpers for all tests of commands."""

import io
import subprocess
import sys
from collections.abc import Callable
from subprocess import CompletedProcess

Nmt = Callable[..., CompletedProcess[str]]
"""The type of the fixture `nmt`, which runs a command in this process."""

TINY = (
    *("model.width=16", "model.feed_forward=32", "model.heads=2", "model.encoder_layers=1"),
    *("model.decoder_layers=1", "batch.tokens=400", 'training.precision="fp32"'),
)
"""Settings of a model that trains in seconds."""

SET_TINY = tuple(word for setting in TINY for word in ("--set", setting))

SHOW_MODULES = """
import sys
from nmt_cli.cli.main import main
sys.argv = ["nmt", *sys.argv[1:]]
try:
    main()
finally:
    print(*sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""
"""A program that runs `nmt`, and then prints the names of all loaded modules to stderr."""


class Terminal(io.StringIO):
    """A stream that stores its output and claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def python(*arguments: object) -> CompletedProcess[str]:
    """Run Python with these arguments in a new process."""
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)


def assert_one_line(result: CompletedProcess[str], code: int, *parts: str) -> None:
    """Check the exit code of a command. Check that the command printed only an error that contains all
    `parts`. With exit code 1, the error must be one line."""
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert [part for part in parts if part not in result.stderr] == []
    if code == 1:
        assert result.stderr.count("\n") == 1

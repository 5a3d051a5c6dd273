"""Programs run in their own sessions, and end with all of their children."""

import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest

from nmt_cli.runtime.programs import kill_program, start_program

WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def _runs(number: int) -> bool:
    """Return whether a process runs. One that has ended stays as a zombie until its parent looks."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_killing_a_program_ends_its_children() -> None:
    program = start_program([sys.executable, "-c", WITH_CHILD], stdout=PIPE)
    with program:
        assert program.stdout
        child = int(program.stdout.readline())
        assert _runs(child)
        kill_program(program)
        assert program.returncode == -signal.SIGKILL
        for _ in range(200):
            if not _runs(child):
                break
            time.sleep(0.05)
        assert not _runs(child)


def test_a_program_that_has_ended_is_not_killed() -> None:
    program = start_program("exit 3")
    while program.poll() is None:
        time.sleep(0.01)
    kill_program(program)
    assert program.returncode == 3


def test_a_text_is_a_command_of_the_shell_with_more_variables() -> None:
    with start_program('echo "$NMT_TEST $HOME"', {"NMT_TEST": "a value"}, stdout=PIPE) as program:
        assert program.stdout and program.stdout.read().decode() == f"a value {os.environ['HOME']}\n"


def test_an_interrupt_of_the_terminal_does_not_reach_a_program() -> None:
    script = "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0))"
    with start_program([sys.executable, "-c", script], stdout=PIPE) as program:
        assert program.stdout and program.stdout.read() == b"True\n"

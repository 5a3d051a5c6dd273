"""Processes that start together compile each kernel once, and nothing remains of interrupted ones."""

import errno
import fcntl
import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import nmt_cli
from nmt_cli.runtime.kernels.loading import KernelFiles

PREPARE = """
import signal, sys
from nmt_cli.runtime.kernels import compiling, loading
signal.signal(signal.SIGINT, signal.default_int_handler)
compiling.available_cores, compiling.QUIET_SECONDS = lambda: 2, 0.0
write = loading.KernelFiles.write
def printed(files, name, content):
    write(files, name, content)
    print(name, flush=True)
    sys.stdin.readline()  # waits for the test
loading.KernelFiles.write = printed
# A run has imported these before. Here, importing them takes as long as the assistant needs to compile all.
import torch
loading.compiled_kernels("runtime.kernels.compiled")
print("ready", flush=True)
sys.stdin.readline()
compiling.prepare("model.pointwise.cpu_dropout", "loss.cpu_row_losses")
"""

GROUPS = "model.pointwise.cpu_dropout", "loss.cpu_row_losses"

CLAIM = """
import sys
from nmt_cli.runtime.kernels.loading import KernelFiles
print(KernelFiles(sys.argv[1], "here").claim("a", seconds=0), flush=True)
sys.stdin.read()
"""


def _start(script: str, *arguments: str, cache: Path = Path("/dev/null")) -> Popen[str]:
    """Start a script that stores compiled code in `cache` only."""
    variables = {"PYTHONPATH": str(Path(nmt_cli.__file__).parents[1]), "PYTHONWARNINGS": ""}
    variables |= {"NUMBA_CACHE_DIR": str(cache), "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    command = [sys.executable, "-c", script, *arguments]
    return Popen(command, env=os.environ | variables, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)


def _children(process: Popen[str]) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in path.read_text().split()]


def _runs(number: int) -> bool:
    path = Path(f"/proc/{number}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_claim_excludes_other_processes_until_its_owner_releases_it_or_ends(tmp_path: Path) -> None:
    ours = KernelFiles(str(tmp_path), "here")
    assert ours.claim("a") and ours.claim("a") and ours.claim("b")
    refused = _start(CLAIM, str(tmp_path))
    assert refused.communicate() == ("False\n", "")
    ours.release("a")
    with _start(CLAIM, str(tmp_path)) as owner:
        assert owner.stdout and owner.stdout.readline() == "True\n"
        assert not ours.claim("a", seconds=0.1)
        owner.kill()
    assert ours.claim("a", seconds=10)


def test_in_a_folder_that_can_only_be_read_nothing_is_claimed_or_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = KernelFiles(str(tmp_path), "here")

    def fails(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", fails)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waits"))
    assert not files.claim("a")
    files.release()


def test_on_a_file_system_without_locks_nothing_is_claimed_or_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", fails)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waits"))
    assert not KernelFiles(str(tmp_path), "here").claim("a")


@pytest.mark.slow
def test_processes_that_start_together_compile_each_kernel_once_and_say_so(tmp_path: Path) -> None:
    starting = [_start(PREPARE, cache=tmp_path) for _ in range(2)]
    for process in starting:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in starting:
        assert process.stdin
        process.stdin.write("\n" * 20)
        process.stdin.flush()
    printed = [process.communicate() for process in starting]
    written = [name for out, _ in printed for name in out.split() if name not in GROUPS]
    assert len(written) == len(set(written))
    (folder,) = tmp_path.iterdir()
    names = {path.name for path in folder.iterdir()}
    assert {*GROUPS} < names
    for _, progress in printed:
        assert "Compiling CPU kernels, once after an installation" in progress
        assert "Compiling CPU kernels: 1 of 2 groups after" in progress
        assert "Compiling CPU kernels: done after" in progress
    assert _start(PREPARE, cache=tmp_path).communicate("\n") == ("ready\n", "")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_process_leaves_no_process_and_no_damage(number: int, tmp_path: Path) -> None:
    with _start(PREPARE, cache=tmp_path) as process:
        assert process.stdout and process.stdin and process.stdout.readline() == "ready\n"
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline()  # a stored kernel
        assistants = _children(process)
        process.send_signal(number)
        assert process.wait() != 0
    deadline = time.monotonic() + 30
    while any(map(_runs, assistants)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (folder,) = tmp_path.iterdir()
    stored = {path.name for path in folder.iterdir()} - {"claims"}
    files = KernelFiles(str(folder), "here")
    files._folder = folder
    complete = [name for name in stored if name in GROUPS or "." not in name.rpartition("-")[2]]
    assert complete and all(files.read(name) for name in complete)
    assert all(files.claim(name, seconds=0) for name in stored)

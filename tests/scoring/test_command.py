"""Scores from a command: the protocol, and each way in which a command can fail."""

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select
from subprocess import Popen
from typing import Any

import pytest

from nmt_cli.errors import UserError
from nmt_cli.scoring.command import CommandScorer

PATIENCE = 300
"""Seconds after which a process counts as hung."""


def program(code: str) -> str:
    return shlex.join([sys.executable, "-c", f"import json, sys\n{code}"])


LENGTHS = program("for line in sys.stdin: print(len(json.loads(line)['mt']))")
AT_THE_END = program("print(*(len(json.loads(line)['mt']) for line in [*sys.stdin]), sep='\\n', end='')")


@pytest.mark.parametrize(
    "command", [LENGTHS, AT_THE_END], ids=["line by line", "at the end, without a line end"]
)
def test_there_is_a_number_for_each_line_in_order(command: str) -> None:
    steps = list[tuple[str, int, int]]()
    texts = ["x" * (n % 7) for n in range(500)]
    scorer = CommandScorer(command, 60, lambda *step: steps.append(step))
    assert scorer.score(None, texts, None) == [n % 7 for n in range(500)]
    assert steps == [("scorer", n + 1, 500) for n in range(500)]
    assert scorer.score(None, [], None) == []


def test_the_command_gets_the_texts_that_there_are(tmp_path: Path) -> None:
    odd = ['"\\', "a\u2028b\x85", "😀"]
    for given in (
        {"mt": odd},
        {"src": odd[::-1], "mt": odd},
        {"src": odd, "mt": odd, "ref": ["", " ", "\t"]},
    ):
        command = f"tee {tmp_path}/lines | {LENGTHS}"
        CommandScorer(command, 60).score(given.get("src"), given["mt"], given.get("ref"))
        read = [json.loads(line) for line in (tmp_path / "lines").read_text().split("\n")[:-1]]
        assert read == [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]


def test_large_input_and_output_do_not_deadlock() -> None:
    count = 30_000
    echo = program("for line in sys.stdin: print('1' + ' ' * 200, flush=True)")
    first_all = program("print('1 ' * 0 + '\\n'.join(['1' + ' ' * 200] * 30000), flush=True); [*sys.stdin]")
    for command in (echo, first_all):
        assert CommandScorer(command, 60).score(None, ["x" * 200] * count, None) == [1.0] * count


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("exit 3", "failed with exit code 3 after 0 of 3 scores"),
        ("echo 1; kill -9 $$", "failed with exit code -9 after 1 of 3 scores"),
        ("printf '1\\n2\\n3\\n'; exit 1", "failed with exit code 1 after 3 of 3 scores"),
        ("no-such-program", "failed with exit code 127"),
        ("cat > /dev/null; echo 1", "ended after 1 of 3 scores. Print one number for each line read."),
        ("yes 1", "printed more lines than the 3 that it read"),
        ("echo 1; echo; echo 3", "printed '' in line 2, which is not a finite number"),
        ("echo 1; echo 0.x", "printed '0.x' in line 2"),
        ("echo nan", "printed 'nan' in line 1"),
        ("tr '\\0' 1 < /dev/zero", "printed '1111"),
        ("sleep 60", r"printed nothing for 1 s. Let it print each score at once."),
        ("printf '1\\n2\\n3\\n'; exec >&-; sleep 60", "did not end after 3 of 3 scores"),
        ("sleep 60 & exit 0", "printed nothing for 1 s"),
    ],
)
def test_a_command_that_fails_is_one_clear_error(command: str, reason: str) -> None:
    started = time.monotonic()
    with pytest.raises(UserError) as caught:
        CommandScorer(command, 1).score(None, ["a", "b", "c"], None)
    assert reason in caught.value.args[0]
    assert caught.value.args[0].startswith("--scorer ")
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 30


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[int]:
    """Create a named pipe `pipe`, and yield its end for reading."""
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def received(pipe: int) -> bytes:
    """Return the next bytes from a pipe. There are none when all processes with its other end have ended,
    whether or not another process has waited for them."""
    assert select([pipe], [], [], PATIENCE)[0]
    return os.read(pipe, 100)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_and_its_children(
    tmp_path: Path, pipe: int, start: Callable[..., Popen[str]], number: int
) -> None:
    (text := tmp_path / "text").write_text("a\n")
    command = f"exec 2> {tmp_path}/pipe; sleep 1000 | sleep 1000 & echo started >&2; wait"
    process = start([sys.executable, "-m", "nmt_cli", "score", "--source", text, text, "--scorer", command])
    assert received(pipe) == b"started\n"
    process.send_signal(number)
    assert process.wait(PATIENCE) == 128 + number
    assert received(pipe) == b""


@pytest.mark.slow
def test_an_interrupt_while_the_command_starts_ends_it(
    tmp_path: Path, pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Popen.__init__

    def interrupted(process: Popen[bytes], *arguments: Any, **options: Any) -> None:
        start(process, *arguments, **options)
        assert received(pipe) == b"started\n"
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Popen, "__init__", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            command = f"exec 2> {tmp_path}/pipe; sleep 1000 & echo started >&2; wait"
            CommandScorer(command, 60).score(None, ["a"], None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert received(pipe) == b""

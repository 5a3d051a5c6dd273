"""Several processes started together: all succeed, or the failure of one ends all."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.training.setup import launch
from nmt_cli.training.setup.launch import run_on_devices

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return `run(script, stop_wanted)`, which runs two processes of a shell script that writes to `$OUT`."""

    def run(
        script: str,
        stop_wanted: Callable[[], int] = lambda: 0,
        report: Callable[[str], None] = lambda line: None,
    ) -> int:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("OUT", str(tmp_path))
        monkeypatch.setattr(sys, "executable", str(program))
        return run_on_devices(["train", "DATA", "--devices", "2"], 2, stop_wanted, report)

    return run


READY = """
touch $OUT/ready-$RANK
if [ $RANK = 0 ]; then until [ -e $OUT/ready-1 ]; do sleep 0.05; done; touch $OUT/ready; fi
"""
"""A script that creates `$OUT/ready` when both processes have run it."""


def when(path: Path, number: int) -> Callable[[], int]:
    """Return a function that returns the signal `number` once `path` exists, and 0 before."""
    return lambda: number if path.exists() else 0


def test_each_process_gets_the_same_arguments_and_its_own_rank(run: Run, tmp_path: Path) -> None:
    text = '"$* $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR"'
    assert run(f"echo {text} > $OUT/rank-$RANK") == 0
    for rank in (0, 1):
        line = (tmp_path / f"rank-{rank}").read_text(encoding="utf-8")
        assert line == f"-m nmt_cli train DATA --devices 2 {rank} 2 2 127.0.0.1\n"


def test_all_processes_are_waited_for(run: Run, tmp_path: Path) -> None:
    assert run("sleep 0.$((RANK * 4)); touch $OUT/done-$RANK") == 0
    assert (tmp_path / "done-1").exists()


@pytest.mark.parametrize(("ending", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_a_failing_process_ends_all_and_its_exit_code_is_returned(
    run: Run, tmp_path: Path, ending: str, code: int
) -> None:
    undisturbed = "for i in {1..600}; do sleep 0.1; done; touch $OUT/undisturbed"
    assert run(f"[ $RANK = 1 ] && {ending}; {undisturbed}") == code
    assert not (tmp_path / "undisturbed").exists()


def test_a_process_that_a_signal_ended_is_named(run: Run) -> None:
    lines: list[str] = []
    run("[ $RANK = 1 ] && kill -9 $$; exec sleep 60", report=lines.append)
    assert lines == ["process 1 was ended by SIGKILL. The others end too."]


def test_a_process_that_has_saved_lets_the_others_save(run: Run, tmp_path: Path) -> None:
    saving = "trap 'touch $OUT/disturbed' TERM; sleep 0.5; touch $OUT/saved; exit 143"
    assert run(f"[ $RANK = 1 ] && exit 143; {saving}") == 143
    assert (tmp_path / "saved").exists()
    assert not (tmp_path / "disturbed").exists()


def test_a_process_that_ignores_signals_is_killed(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launch, "SECONDS_TO_END", 0.3)
    deaf = "trap '' TERM; touch $OUT/deaf; for i in {1..600}; do sleep 0.1; done; touch $OUT/alive"
    failing = "until [ -e $OUT/deaf ]; do sleep 0.05; done; exit 5"
    assert run(f"if [ $RANK = 0 ]; then {deaf}; else {failing}; fi") == 5
    assert not (tmp_path / "alive").exists()


@pytest.mark.parametrize(
    ("number", "name", "code"),
    [(signal.SIGINT, "INT", 130), (signal.SIGTERM, "TERM", 143), (signal.SIGUSR1, "USR1", 143)],
)
def test_a_request_to_stop_reaches_all_processes(
    run: Run, tmp_path: Path, number: int, name: str, code: int
) -> None:
    trap = f"trap 'touch $OUT/stopped-$RANK; exit {code}' {name}"
    script = f"{trap}\n{READY}\nfor i in {{1..200}}; do sleep 0.05; done"
    assert run(script, when(tmp_path / "ready", number)) == code
    assert sorted(path.name for path in tmp_path.glob("stopped-*")) == ["stopped-0", "stopped-1"]


@pytest.mark.slow
def test_a_process_that_still_saves_gets_no_second_signal(run: Run, tmp_path: Path) -> None:
    """A second signal would end the process at once (see `Stop`)."""
    script = f"""
    trap 'exit 99' TERM
    trap 'stop=1' INT
    {READY}
    until [ $stop ]; do sleep 0.05; done
    if [ $RANK = 0 ]; then sleep 1; touch $OUT/saved; fi
    exit 130"""
    assert run(script, when(tmp_path / "ready", signal.SIGINT)) == 130
    assert (tmp_path / "saved").exists()

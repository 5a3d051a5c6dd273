"""Processes of `nmt train` and their runs, for the tests of this folder."""

import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

from nmt_cli.checkpoints.finding import checkpoints

PATIENCE = 300
"""Seconds after which a process counts as hung."""

TINY_MODEL = (
    *("--set", "model.width=16", "--set", "model.feed_forward=32", "--set", "model.heads=2"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1", "--device", "cpu"),
    *("--set", "training.precision=fp32"),  # "auto" gives bf16 on some CPUs, with larger errors
)

TIMES = {"tokens_per_second", "waiting"}
"""Fields of the log that differ between any two runs."""


def finish(process: Popen[str]) -> tuple[int, str]:
    """Wait for the end of a process, and return its exit code and stderr."""
    _, stderr = process.communicate(timeout=PATIENCE)
    return process.returncode, stderr


def succeed(process: Popen[str]) -> str:
    """Wait for the end of a process, check that its exit code is 0, and return stderr."""
    code, stderr = finish(process)
    assert code == 0, stderr
    return stderr


def log_lines(run: Path, valid: bool = False) -> list[dict[str, Any]]:
    """Return the log lines of all steps, or of all validations, without times."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines if ("valid" in line) == valid]


def weights_of(run: Path) -> bytes:
    """Return the weights of the last checkpoint of a run."""
    return (run / "last" / "model.safetensors").read_bytes()


def newest_step(run: Path) -> int:
    """Return the step of the newest checkpoint of a run, or 0."""
    return max(checkpoints(run), default=0)


def wait_for_checkpoint(run: Path, process: Popen[str]) -> None:
    """Wait until the run has a checkpoint. Check that the process does not end before."""
    while not newest_step(run):
        assert process.poll() is None
        time.sleep(0.001)


def kill_repeatedly(start: Callable[[], Popen[str]], run: Path, steps: Sequence[int], seed: int) -> None:
    """Start a run once for each of `steps`, and kill it shortly after the checkpoint of that step."""
    draws = random.Random(seed)
    for step in steps:
        process = start()
        while process.poll() is None and newest_step(run) < step:
            time.sleep(0.001)
        time.sleep(draws.random() * 0.05)
        process.kill()
        process.wait()


def children_of(process: int) -> list[int]:
    """Return the process ids of the children of a process, in the order in which they were started."""
    return sorted(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))

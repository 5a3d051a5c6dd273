"""`nmt train` with two processes: the same steps as with one, and faults of one process."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import Popen

import pytest

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.run_folder import read_state
from nmt_cli.data.preprocessing.pipeline import Outcome
from nmt_cli.training.step.distributed import child_environments
from tests.end_to_end.processes import (
    PATIENCE,
    TINY_MODEL,
    children_of,
    finish,
    log_lines,
    succeed,
    wait_for_checkpoint,
)
from tests.fork_server import CHANGE

STEPS = 24

TINY = (
    *(
        *TINY_MODEL,
        "--set",
        "schedule.kind=inverse-sqrt",
        "--set",
        "schedule.peak=0.003",
        "--set",
        "schedule.warmup=10",
    ),
)
WITHOUT_DROPOUT = ("--set", "model.residual_dropout=0")
# torchrun takes itself for dead if it sends no sign of life for 15 s, as on a busy machine.
PATIENT = f"heartbeat_timeout={PATIENCE},keep_alive_max_attempt={PATIENCE},read_timeout={PATIENCE}"
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
    *("--rdzv-conf", PATIENT),
)

OUT_OF_MEMORY = """
import os
import sys
import torch
from nmt_cli.training.step import trainer as step
original, calls = step.Trainer._forward_backward, [0]
def forward_backward(self, *args, **options):
    calls[0] += 1
    if os.environ["RANK"] == "1" and calls[0] in (3, 4, 11):
        if calls[0] == 3:
            original(self, *args, **options)  # memory runs out at the end of a backward pass
        print("simulated", file=sys.stderr)
        raise torch.OutOfMemoryError("simulated")
    original(self, *args, **options)
step.Trainer._forward_backward = forward_backward
"""

SLOW_TO_COMPILE = """
import os
import time
import torch
def compiled(model, dynamic):
    def forward(*inputs):
        if os.environ["RANK"] == "1" and not calls:
            time.sleep(7)
        calls.append(1)
        return model(*inputs)
    calls = []
    return forward
torch.compile = compiled
"""

DIES_ONCE = """
import os
from nmt_cli.training.step import trainer as step
original = step.Trainer.step
def stepped(self, number, *args):
    if number == 9 and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os._exit(3)
    return original(self, number, *args)
step.Trainer.step = stepped
"""


def arguments(dataset: Path, out: Path, *additional: object) -> list[object]:
    """Return the arguments of `nmt train` without dropout, with additional ones at the end."""
    return ["train", dataset, "--out", out, *TINY, *WITHOUT_DROPOUT, "--batch-tokens", 400, *additional]


def losses(run: Path) -> dict[int, float]:
    """Return the loss of each step. Check that no step is missing or repeated."""
    steps = log_lines(run)
    assert [line["step"] for line in steps] == list(range(1, len(steps) + 1))
    return {line["step"]: line["loss"] for line in steps}


def validations(run: Path) -> list[dict[str, float]]:
    """Return the step and scores of each validation."""
    return [
        {key: line[key] for key in ("step", "nll", "bleu", "chrf")} for line in log_lines(run, valid=True)
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, toy_dataset: Path, run_nmt: Callable[..., bytes]) -> Path:
    """Train with one process, and return the run."""
    out = tmp_path_factory.mktemp("alone") / "run"
    run_nmt(*arguments(toy_dataset, out, "--max-steps", STEPS, "--validate-every", 12))
    return out


def test_two_processes_take_the_same_steps_as_one(
    tmp_path: Path, toy_dataset: Path, alone: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    options = ("--max-steps", STEPS, "--validate-every", 12, "--devices", 2)
    often = ("--set", "checkpoints.every_steps=7", "--set", "checkpoints.keep_best=0")
    assert "Warning" not in succeed(start_nmt(*arguments(toy_dataset, tmp_path / "run", *options, *often)))
    assert_alike(tmp_path / "run", alone)
    assert list(checkpoints(tmp_path / "run")) == [*range(7, STEPS, 7), STEPS]


def assert_alike(run: Path, alone: Path) -> None:
    """Check that the losses and validations of two runs are nearly equal."""
    assert losses(run) == pytest.approx(losses(alone), rel=1e-4)
    for ours, theirs in zip(validations(run), validations(alone), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-3)


def test_a_run_resumes_or_hands_its_state_on_with_another_number_of_processes(
    tmp_path: Path, toy_dataset: Path, alone: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    command = arguments(toy_dataset, tmp_path / "run", "--validate-every", 12)
    taking = ("--init-from", tmp_path / "run/last", "--set", 'start.take=["optimizer", "schedule", "data"]')
    taken = arguments(toy_dataset, tmp_path / "taken", *taking)
    for steps, devices, started in ((8, 2, command), (10, 2, taken), (STEPS, 1, command)):
        limits = ("--max-steps", steps, "--devices", devices, "--max-tokens-per-device", 200 + steps)
        succeed(start_nmt(*started, *limits))
    assert losses(tmp_path / "run") == pytest.approx(losses(alone), rel=1e-4)
    later = {line["step"]: line["loss"] for line in log_lines(tmp_path / "taken")}
    assert later == pytest.approx({step: losses(alone)[step] for step in (9, 10)}, rel=1e-4)
    state = read_state(tmp_path / "run/last")
    assert state["seconds"] < state["device_seconds"] < 2 * state["seconds"]


def test_a_process_without_a_pair_does_not_block_the_other(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    few = ("--batch-tokens", 45, "--validate-every", 0, "--max-steps", 30)
    command = ["train", toy_dataset, "--out", tmp_path / "run", *TINY, *few]
    succeed(start_nmt(*command, "--devices", 2))
    assert 1 in {line["pairs"] for line in log_lines(tmp_path / "run")}


def test_a_process_that_runs_out_of_memory_repeats_its_share_without_a_change(
    tmp_path: Path,
    toy_dataset: Path,
    alone: Path,
    start_nmt: Callable[..., Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CHANGE, OUT_OF_MEMORY)
    command = arguments(toy_dataset, tmp_path / "run", "--max-steps", STEPS, "--validate-every", 12)
    stderr = succeed(start_nmt(*command, "--devices", 2))
    assert stderr.count("simulated") == 3
    assert_alike(tmp_path / "run", alone)


def test_a_rank_may_compile_for_longer_than_the_timeout(
    tmp_path: Path,
    toy_dataset: Path,
    start_nmt: Callable[..., Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CHANGE, SLOW_TO_COMPILE)
    settings = ("--set", "training.compile=on", "--set", "training.rank_timeout=5", "--validate-every", 4)
    for steps in (4, 8):  # the second run resumes
        command = arguments(toy_dataset, tmp_path / "run", *settings, "--max-steps", steps)
        succeed(start_nmt(*command, "--devices", 2))
    assert len(losses(tmp_path / "run")) == 8


def test_torchrun_restarts_the_processes_after_one_has_died(
    tmp_path: Path,
    toy_dataset: Path,
    start: Callable[..., Popen[str]],
    nmt_script: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CHANGE, DIES_ONCE)
    command = arguments(toy_dataset, tmp_path / "run", "--max-steps", 12, "--save-every", 4)
    stderr = succeed(start([*TORCHRUN, "--max-restarts", 1, "--no-python", nmt_script, *command]))
    assert "resum" in stderr
    assert len(losses(tmp_path / "run")) == 12


def test_a_killed_process_ends_all_processes(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    command = arguments(toy_dataset, tmp_path / "run", "--validate-every", 0, "--save-every", 5)
    parent = start_nmt(*command, "--devices", 2)
    wait_for_checkpoint(tmp_path / "run", parent)
    children = children_of(parent.pid)
    os.kill(children[1], signal.SIGKILL)
    code, stderr = finish(parent)
    assert code == 128 + signal.SIGKILL
    assert "Traceback" not in stderr
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.parametrize(
    ("number", "launcher", "workers", "code"),
    [
        (signal.SIGINT, True, False, 130),
        (signal.SIGTERM, True, True, 143),
        (signal.SIGUSR1, False, True, 143),
    ],
    ids=["to the launcher", "to all", "to all but the launcher"],
)
def test_a_signal_ends_all_processes_and_saves_the_run_once(
    tmp_path: Path,
    toy_dataset: Path,
    start_nmt: Callable[..., Popen[str]],
    number: int,
    launcher: bool,
    workers: bool,
    code: int,
) -> None:
    command = arguments(toy_dataset, tmp_path / "run", "--validate-every", 0, "--max-steps", 100_000)
    parent = start_nmt(*command, "--devices", 2, "--save-every", 2)
    wait_for_checkpoint(tmp_path / "run", parent)
    for process in (parent.pid,) * launcher + tuple(children_of(parent.pid)) * workers:
        os.kill(process, number)
    returned, stderr = finish(parent)
    assert returned == code, stderr
    assert stderr.count("stopped and saved") == 1
    assert len(losses(tmp_path / "run")) == max(checkpoints(tmp_path / "run"))


@pytest.fixture
def start_ranks(
    start_nmt: Callable[..., Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[Popen[str]]]:
    """Return a function that starts a rank for each list of arguments, below a command or as a fork."""

    def start_ranks(*commands: list[object], below: Sequence[str] = ()) -> list[Popen[str]]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        processes = []
        for environment, command in zip(child_environments(len(commands), port), commands, strict=True):
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            processes.append(start_nmt(*command, below=below))
        return processes

    return start_ranks


@pytest.mark.parametrize(
    ("additional", "message"),
    [(("--set", "schedule.peak=0.1"), "(schedule.peak: 0.003 and 0.1)"), ((), "(dataset: SHA-256 ")],
    ids=["settings", "dataset"],
)
def test_ranks_with_different_settings_or_datasets_end_with_an_error_that_names_them(
    tmp_path: Path,
    toy_dataset: Path,
    make: Callable[..., Outcome],
    dev: str,
    start_ranks: Callable[..., list[Popen[str]]],
    additional: tuple[object, ...],
    message: str,
) -> None:
    dataset = toy_dataset
    if not additional:
        make(dataset := tmp_path / "other", [dev], reuse=toy_dataset)
    limits = ("--validate-every", 0, "--max-steps", 4)
    first = arguments(toy_dataset, tmp_path / "run", *limits)
    second = arguments(dataset, tmp_path / "run", *limits, *additional)
    for code, stderr in map(finish, start_ranks(first, second)):
        assert (code, stderr.count("\n")) == (1, 1)
        assert f"processes 0 and 1 differ {message}" in stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dead", [0, 1])
def test_a_rank_ends_when_the_other_rank_is_killed(
    tmp_path: Path, toy_dataset: Path, start_ranks: Callable[..., list[Popen[str]]], dead: int
) -> None:
    command = arguments(toy_dataset, tmp_path / "run", "--validate-every", 0, "--save-every", 2)
    # One of both is not a fork: a fork has PyTorch's log already, which prints a stack.
    ranks = start_ranks(command, command, below=["env"] if dead == 0 else ())
    wait_for_checkpoint(tmp_path / "run", ranks[dead])
    ranks[dead].kill()
    code, stderr = finish(ranks[1 - dead])
    assert code == 1
    assert "lost contact with the others" in stderr
    assert "Traceback" not in stderr
    assert dead == 1 or "frame #" not in stderr  # of C++

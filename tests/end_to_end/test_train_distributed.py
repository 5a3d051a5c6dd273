"""`nmt train` in two processes: the same steps as in one, and what happens when one of them is in trouble."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from nmt_cli.checkpoints.finding import checkpoints
from nmt_cli.checkpoints.run_folder import read_state
from nmt_cli.data.preprocessing.preprocess import Outcome
from nmt_cli.training.step.distributed import child_environments

STEPS = 24
PATIENCE = 300

TINY = (
    *("--set", "model.width=16", "--set", "model.feed_forward=32", "--set", "model.heads=2"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1", "--device", "cpu"),
    *("--set", "schedule.kind=inverse-sqrt", "--set", "schedule.peak=0.003", "--set", "schedule.warmup=10"),
)
WITHOUT_DROPOUT = ("--set", "model.residual_dropout=0", "--set", "model.embedding_dropout=0")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

IN_TROUBLE = """
import os
import sys
import torch
from nmt_cli.training.step import trainer as step
whole, part = step.Trainer._forward_backward, [0]
def forward_backward(self, *args, **more):
    part[0] += 1
    if os.environ["RANK"] == "1" and part[0] in (3, 4, 11):
        if part[0] == 3:
            whole(self, *args, **more)  # memory runs out at the end of a backward
        raise torch.OutOfMemoryError("made up")
    whole(self, *args, **more)
step.Trainer._forward_backward = forward_backward
from nmt_cli.cli.main import main
sys.argv[0] = "nmt"
main()
"""


def arguments(dataset: Path, out: Path, *more: object) -> list[object]:
    return ["train", dataset, "--out", out, *TINY, *WITHOUT_DROPOUT, "--batch-tokens", 400, *more]


def finish(process: Popen[str]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=PATIENCE)
    return process.returncode, stderr


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "valid" not in line]
    assert [line["step"] for line in steps] == list(range(1, len(steps) + 1))
    return {line["step"]: line["loss"] for line in steps}


def validations(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in ("step", "nll", "bleu", "chrf")} for line in lines if "valid" in line]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, toy_dataset: Path, run_nmt: Callable[..., bytes]) -> Path:
    """The run of one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    run_nmt(*arguments(toy_dataset, out, "--max-steps", STEPS, "--validate-every", 12))
    return out


def test_two_processes_take_the_steps_of_one_and_the_same_with_shares_of_the_optimisers_state(
    tmp_path: Path, toy_dataset: Path, alone: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    more = ("--max-steps", STEPS, "--validate-every", 12, "--devices", 2)
    for split in ("false", "true"):
        words = arguments(toy_dataset, tmp_path / split, *more, "--set", f"optimizer.split={split}")
        code, stderr = finish(start_nmt(*words))
        assert code == 0, stderr
        assert "Warning" not in stderr
        assert_alike(tmp_path / split, alone)
    assert losses(tmp_path / "true") == losses(tmp_path / "false")
    for file in ("model.safetensors", "optimizer.safetensors"):
        contents = [(tmp_path / split / "last" / file).read_bytes() for split in ("false", "true")]
        assert contents[0] == contents[1]


def assert_alike(run: Path, alone: Path) -> None:
    """Losses and validations."""
    assert losses(run) == pytest.approx(losses(alone), rel=1e-4)
    for ours, theirs in zip(validations(run), validations(alone), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-3)


def test_a_run_goes_on_with_another_number_of_processes(
    tmp_path: Path, toy_dataset: Path, alone: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    words = arguments(toy_dataset, tmp_path / "run", "--validate-every", 12)
    for steps, devices in ((8, 2), (STEPS, 1)):
        split = ("--set", "optimizer.split=true") if devices > 1 else ()
        more = ("--max-steps", steps, "--devices", devices, "--max-tokens-per-device", 200 + steps, *split)
        code, stderr = finish(start_nmt(*words, *more))
        assert code == 0, stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(alone), rel=1e-4)
    state = read_state(tmp_path / "run/last")
    assert state["seconds"] < state["device_seconds"] < 2 * state["seconds"]


def test_processes_without_a_pair_of_their_own_hang_nobody(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    few = ("--batch-tokens", 45, "--validate-every", 0, "--max-steps", 30)
    words = ["train", toy_dataset, "--out", tmp_path / "run", *TINY, *few]
    process = start_nmt(*words, "--devices", 2)
    code, stderr = finish(process)
    assert code == 0, stderr
    log = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert 1 in {json.loads(line)["pairs"] for line in log}


def test_under_torchrun_one_process_out_of_memory_takes_its_share_again_and_nothing_changes(
    tmp_path: Path, toy_dataset: Path, alone: Path, start: Callable[..., Popen[str]]
) -> None:
    (tmp_path / "in_trouble.py").write_text(IN_TROUBLE)
    words = arguments(toy_dataset, tmp_path / "run", "--max-steps", STEPS, "--validate-every", 12)
    code, stderr = finish(start([*TORCHRUN, tmp_path / "in_trouble.py", *words]))
    assert code == 0, stderr
    assert_alike(tmp_path / "run", alone)


def test_a_process_that_dies_takes_all_down(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    words = arguments(toy_dataset, tmp_path / "run", "--validate-every", 0, "--save-every", 5)
    parent = start_nmt(*words, "--devices", 2)
    while not checkpoints(tmp_path / "run"):
        assert parent.poll() is None
        time.sleep(0.01)
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
def test_a_signal_is_heard_by_all_and_the_run_is_saved_once(
    tmp_path: Path,
    toy_dataset: Path,
    start_nmt: Callable[..., Popen[str]],
    number: int,
    launcher: bool,
    workers: bool,
    code: int,
) -> None:
    words = arguments(toy_dataset, tmp_path / "run", "--validate-every", 0, "--max-steps", 100_000)
    parent = start_nmt(*words, "--devices", 2, "--save-every", 2)
    while not checkpoints(tmp_path / "run"):
        assert parent.poll() is None
        time.sleep(0.01)
    for process in (parent.pid,) * launcher + tuple(children_of(parent.pid)) * workers:
        os.kill(process, number)
    ended, stderr = finish(parent)
    assert ended == code, stderr
    assert stderr.count("stopped and saved") == 1
    assert len(losses(tmp_path / "run")) == max(checkpoints(tmp_path / "run"))


@pytest.fixture
def start_ranks(
    start_nmt: Callable[..., Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[Popen[str]]]:
    """Starts a process for each of these lists of arguments, as a launcher would that looks after none."""

    def start_ranks(*words: list[object]) -> list[Popen[str]]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        processes = []
        for environment, theirs in zip(child_environments(len(words), port), words, strict=True):
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            processes.append(start_nmt(*theirs))
        return processes

    return start_ranks


@pytest.mark.parametrize(
    ("other", "told"),
    [(("--set", "schedule.peak=0.1"), "(schedule.peak: 0.003 and 0.1)"), ((), "(dataset: SHA-256 ")],
    ids=["settings", "dataset"],
)
def test_ranks_that_were_told_different_things_end_with_one_line_that_says_what(
    tmp_path: Path,
    toy_dataset: Path,
    make: Callable[..., Outcome],
    dev: str,
    start_ranks: Callable[..., list[Popen[str]]],
    other: tuple[object, ...],
    told: str,
) -> None:
    theirs = toy_dataset
    if not other:
        make(theirs := tmp_path / "other", [dev], reuse=toy_dataset)
    words = arguments(toy_dataset, tmp_path / "run", "--validate-every", 0, "--max-steps", 4)
    otherwise = arguments(theirs, tmp_path / "run", "--validate-every", 0, "--max-steps", 4, *other)
    for code, stderr in map(finish, start_ranks(words, otherwise)):
        assert (code, stderr.count("\n")) == (1, 1)
        assert f"processes 0 and 1 differ {told}" in stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dead", [0, 1])
def test_a_rank_that_has_nobody_left_ends(
    tmp_path: Path, toy_dataset: Path, start_ranks: Callable[..., list[Popen[str]]], dead: int
) -> None:
    words = arguments(toy_dataset, tmp_path / "run", "--validate-every", 0, "--save-every", 2)
    ranks = start_ranks(words, words)
    while not checkpoints(tmp_path / "run"):
        assert ranks[dead].poll() is None
        time.sleep(0.01)
    ranks[dead].kill()
    code, stderr = finish(ranks[1 - dead])
    assert code == 1
    assert "lost contact with the others" in stderr
    assert "Traceback" not in stderr


def children_of(pid: int) -> list[int]:
    """In the order in which they were started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sorted(map(int, listed))

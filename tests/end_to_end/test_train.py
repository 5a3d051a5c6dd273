"""`nmt train`: complete runs, interrupted runs, changed settings, a full disk, and limits."""

import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess, Popen

import pytest

from tests.end_to_end.processes import (
    TINY_MODEL,
    finish,
    kill_repeatedly,
    log_lines,
    newest_step,
    succeed,
    wait_for_checkpoint,
    weights_of,
)

STEPS = 40

TINY = (
    *(*TINY_MODEL, "--batch-tokens", "400", "--set", "schedule.warmup=20"),
    *("--set", "model.attention_dropout=0.1", "--set", "model.activation_dropout=0.1"),
)


def arguments(dataset: Path, out: Path, *additional: object) -> list[object]:
    """Return the arguments of `nmt train` for a run of `STEPS` steps, with additional ones at the end."""
    return ["train", dataset, "--out", out, *TINY, "--max-steps", STEPS, "--validate-every", 20, *additional]


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, toy_dataset: Path, run_nmt: Callable[..., bytes]
) -> Path:
    """Train without interruption, and return the run."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run_nmt(*arguments(toy_dataset, out))
    return out


def test_a_run_has_settings_a_log_checkpoints_and_links(undisturbed: Path) -> None:
    names = {path.name for path in undisturbed.iterdir()}
    files = {"config.toml", "environment.jsonl", "log.jsonl", "report.html"}
    assert names == {*files, "checkpoints", "best", "last"}
    assert [line["step"] for line in log_lines(undisturbed)] == list(range(1, STEPS + 1))
    checkpoint = (undisturbed / "last").resolve()
    assert checkpoint.name == f"step-{STEPS:08d}"
    assert {"config.json", "model.safetensors", "optimizer.safetensors", "state.json", "tokenizer"} == {
        path.name for path in checkpoint.iterdir()
    }
    validations = log_lines(undisturbed, valid=True)
    assert [line["step"] for line in validations] == [20, 40]
    assert all({"nll", "bleu", "chrf", "signatures"} <= line.keys() for line in validations)


def test_a_run_that_is_killed_and_resumed_ends_bit_identical(
    tmp_path: Path, toy_dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    seed, run = time.time_ns(), tmp_path / "run"
    start = partial(start_nmt, *arguments(toy_dataset, run, "--save-every", 3))
    kill_repeatedly(start, run, (1, 12, 24), seed)
    assert "resuming from step" in succeed(start()), f"{seed=}"
    assert log_lines(run) == log_lines(undisturbed), f"{seed=}"
    assert weights_of(run) == weights_of(undisturbed), f"{seed=}"


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 143)],
    ids=["Ctrl-C", "SIGTERM", "SIGUSR1"],
)
def test_a_signal_saves_the_run_and_prints_how_to_resume(
    tmp_path: Path,
    toy_dataset: Path,
    undisturbed: Path,
    start_nmt: Callable[..., Popen[str]],
    number: int,
    code: int,
) -> None:
    run = tmp_path / "run"
    process = start_nmt(*arguments(toy_dataset, run, "--save-every", 2, "--max-steps", 100_000))
    wait_for_checkpoint(run, process)
    process.send_signal(number)
    returned, stderr = finish(process)
    assert returned == code
    assert stderr.splitlines()[-1] == f"{run}: stopped and saved. Run the same command again to resume."
    taken = newest_step(run)
    assert len(log_lines(run)) == taken
    succeed(start_nmt(*arguments(toy_dataset, run, "--max-steps", max(taken, STEPS))))
    assert log_lines(run)[:STEPS] == log_lines(undisturbed)
    assert taken > STEPS or weights_of(run) == weights_of(undisturbed)


def test_the_same_command_on_a_complete_run_takes_no_more_steps(
    toy_dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    before = (undisturbed / "log.jsonl").read_bytes()
    assert succeed(start_nmt(*arguments(toy_dataset, undisturbed))) == f"{undisturbed}: complete\n"
    assert (undisturbed / "log.jsonl").read_bytes() == before


def test_the_settings_file_of_a_run_repeats_the_run(
    tmp_path: Path, toy_dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    settings = undisturbed / "config.toml"
    succeed(start_nmt("train", toy_dataset, "--out", run, "--config", settings, "--device", "cpu"))
    assert weights_of(run) == weights_of(undisturbed)


def test_a_resumed_run_reports_a_changed_setting_and_refuses_another_seed(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    succeed(start_nmt(*arguments(toy_dataset, run)[:-4], "--max-steps", 4))
    stderr = succeed(start_nmt(*arguments(toy_dataset, run)[:-4], "--max-steps", 6))
    assert "training.max_steps: 4 -> 6" in stderr
    code, stderr = finish(start_nmt(*arguments(toy_dataset, run)[:-4], "--seed", 9, "--max-steps", 6))
    assert code == 1
    assert "training.seed: 1 -> 9" in stderr
    assert stderr.count("\n") == 1


def test_a_disk_too_full_for_a_checkpoint_is_an_error_before_the_first_step(
    tmp_path: Path,
    toy_dataset: Path,
    undisturbed: Path,
    full_disk: Callable[[int], AbstractContextManager[None]],
    nmt: Callable[..., CompletedProcess[str]],
) -> None:
    run = tmp_path / "run"
    size = (undisturbed / "last" / "model.safetensors").stat().st_size
    with full_disk(size - 1000):
        result = nmt(*arguments(toy_dataset, run, "--save-every", 15))
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith(f"Error: {run}/checkpoints can't be written: ")
    assert not (run / "checkpoints").exists()
    assert log_lines(run) == []


def test_a_run_ends_after_its_hours(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    limits = ("--max-steps", 100_000, "--set", "training.max_hours=0.0003", "--validate-every", 0)
    succeed(start_nmt("train", toy_dataset, "--out", run, *TINY, *limits))
    assert 0 < newest_step(run) < 100_000


def test_a_run_ends_after_its_epochs(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    limits = ("--set", "training.max_epochs=2", "--validate-every", 0)
    succeed(start_nmt("train", toy_dataset, "--out", run, *TINY, *limits))
    steps = log_lines(run)
    assert {line["epoch"] for line in steps} == {0, 1}
    pairs = [sum(line["pairs"] for line in steps if line["epoch"] == epoch) for epoch in (0, 1)]
    assert pairs[0] == pairs[1] > 250

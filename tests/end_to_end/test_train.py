"""`nmt train` as a user runs it: to its end, interrupted at any moment, and with what is in its way."""

import json
import random
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import CompletedProcess, Popen

import pytest

from nmt_cli.checkpoints.finding import checkpoints

STEPS = 40
PATIENCE = 300

TINY = (
    *("--set", "model.width=16", "--set", "model.feed_forward=32", "--set", "model.heads=2"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1"),
    *("--batch-tokens", "400", "--device", "cpu", "--set", "schedule.warmup=20"),
    *("--set", "model.attention_dropout=0.1", "--set", "model.activation_dropout=0.1"),
)

TIMES = {"tokens_per_second", "waiting"}

Lines = list[dict[str, object]]


def arguments(dataset: Path, out: Path, *more: object) -> list[object]:
    return ["train", dataset, "--out", out, *TINY, "--max-steps", STEPS, "--validate-every", 20, *more]


def finish(process: Popen[str]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=PATIENCE)
    return process.returncode, stderr


def steps_of(run: Path) -> Lines:
    """What the log says of every step, times apart."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines if "valid" not in line]


def weights_of(run: Path) -> bytes:
    return (run / "last" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, toy_dataset: Path, run_nmt: Callable[..., bytes]
) -> Path:
    """A run from its first step to its last."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run_nmt(*arguments(toy_dataset, out))
    return out


def test_a_run_leaves_settings_a_log_checkpoints_and_pointers(undisturbed: Path) -> None:
    there = {path.name for path in undisturbed.iterdir()}
    files = {"config.toml", "environment.jsonl", "log.jsonl", "report.html"}
    assert there == {*files, "checkpoints", "best", "last"}
    assert [line["step"] for line in steps_of(undisturbed)] == list(range(1, STEPS + 1))
    checkpoint = (undisturbed / "last").resolve()
    assert checkpoint.name == f"step-{STEPS:08d}"
    assert {"config.json", "model.safetensors", "optimizer.safetensors", "state.json", "tokenizer"} == {
        path.name for path in checkpoint.iterdir()
    }
    validations = [
        line
        for text in (undisturbed / "log.jsonl").read_text().splitlines()
        if "valid" in (line := json.loads(text))
    ]
    assert [line["step"] for line in validations] == [20, 40]
    assert all({"nll", "bleu", "chrf", "signatures"} <= line.keys() for line in validations)


def test_killed_at_random_and_resumed_it_ends_bit_for_bit_the_same(
    tmp_path: Path, toy_dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    seed, run = time.time_ns(), tmp_path / "run"
    chosen = random.Random(seed)
    for least in (1, 12, 24):
        process = start_nmt(*arguments(toy_dataset, run, "--save-every", 3))
        while process.poll() is None and newest(run) < least:
            time.sleep(0.001)
        time.sleep(chosen.random() * 0.05)
        process.kill()
        process.wait()
    code, stderr = finish(start_nmt(*arguments(toy_dataset, run, "--save-every", 3)))
    assert code == 0, (f"{seed=}", stderr)
    assert "resuming from step" in stderr, f"{seed=}"
    assert steps_of(run) == steps_of(undisturbed), f"{seed=}"
    assert weights_of(run) == weights_of(undisturbed), f"{seed=}"


def newest(run: Path) -> int:
    return max(checkpoints(run), default=0)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 143)],
    ids=["Ctrl-C", "SIGTERM", "SIGUSR1"],
)
def test_a_signal_saves_says_how_to_go_on_and_loses_nothing(
    tmp_path: Path,
    toy_dataset: Path,
    undisturbed: Path,
    start_nmt: Callable[..., Popen[str]],
    number: int,
    code: int,
) -> None:
    run = tmp_path / "run"
    process = start_nmt(*arguments(toy_dataset, run, "--save-every", 2, "--max-steps", 100_000))
    while not newest(run):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(number)
    ended, stderr = finish(process)
    assert ended == code
    assert stderr.splitlines()[-1] == f"{run}: stopped and saved. Run the same command again to resume."
    taken = newest(run)
    assert len(steps_of(run)) == taken
    assert finish(start_nmt(*arguments(toy_dataset, run, "--max-steps", max(taken, STEPS))))[0] == 0
    assert steps_of(run)[:STEPS] == steps_of(undisturbed)
    assert taken > STEPS or weights_of(run) == weights_of(undisturbed)


def test_the_same_command_on_a_complete_run_takes_no_more_steps(
    toy_dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    before = (undisturbed / "log.jsonl").read_bytes()
    code, stderr = finish(start_nmt(*arguments(toy_dataset, undisturbed)))
    assert (code, "resuming from step 40" in stderr) == (0, True)
    assert (undisturbed / "log.jsonl").read_bytes() == before


def test_its_settings_file_repeats_the_run(
    tmp_path: Path, toy_dataset: Path, undisturbed: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    settings = undisturbed / "config.toml"
    code, stderr = finish(
        start_nmt("train", toy_dataset, "--out", run, "--config", settings, "--device", "cpu")
    )
    assert code == 0, stderr
    assert weights_of(run) == weights_of(undisturbed)


def test_a_setting_that_changes_on_the_way_is_told_and_one_that_cannot_is_refused(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    assert finish(start_nmt(*arguments(toy_dataset, run)[:-4], "--max-steps", 4))[0] == 0
    code, stderr = finish(start_nmt(*arguments(toy_dataset, run)[:-4], "--max-steps", 6))
    assert (code, "training.max_steps: 4 -> 6" in stderr) == (0, True)
    code, stderr = finish(start_nmt(*arguments(toy_dataset, run)[:-4], "--seed", 9, "--max-steps", 6))
    assert code == 1
    assert "training.seed: 1 -> 9" in stderr
    assert stderr.count("\n") == 1


def test_a_disk_too_full_for_a_checkpoint_is_told_before_the_first_step(
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
    assert steps_of(run) == []


def test_a_run_takes_its_time_and_no_more(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    limits = ("--max-steps", 100_000, "--set", "training.max_hours=0.0003", "--validate-every", 0)
    code, stderr = finish(start_nmt("train", toy_dataset, "--out", run, *TINY, *limits))
    assert code == 0, stderr
    assert 0 < newest(run) < 100_000


def test_a_run_ends_with_its_epochs(
    tmp_path: Path, toy_dataset: Path, start_nmt: Callable[..., Popen[str]]
) -> None:
    run = tmp_path / "run"
    limits = ("--set", "training.max_epochs=2", "--validate-every", 0)
    code, stderr = finish(start_nmt("train", toy_dataset, "--out", run, *TINY, *limits))
    assert code == 0, stderr
    steps = steps_of(run)
    assert {line["epoch"] for line in steps} == {0, 1}
    pairs = [sum(_int(line["pairs"]) for line in steps if line["epoch"] == epoch) for epoch in (0, 1)]
    assert pairs[0] == pairs[1] > 250


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value

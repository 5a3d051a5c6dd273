"""`nmt train --dry-run`: prints the plan of a run, and trains and writes nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import SET_TINY, Nmt

FLAGS = (*SET_TINY, "--device", "cpu", "--max-steps", "6", "--validate-every", "3")

NAMES = (
    *(
        "parameters",
        "batches per epoch",
        "tokens per batch",
        "padding",
        "steps",
        "warm-up",
        "memory",
        "checkpoints",
    ),
    *("validation", "model FLOPs", "time"),
)


@pytest.fixture
def dry_run(nmt: Nmt, toy_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nmt]:
    monkeypatch.setattr("nmt_cli.training.setup.start.default_threads", lambda processes: 1)
    command = ("train", toy_dataset, "--out", tmp_path / "run", *FLAGS)
    yield lambda *arguments: nmt(*command, *arguments)


def test_the_plan_is_all_of_stdout_and_nothing_is_written(dry_run: Nmt, tmp_path: Path) -> None:
    result = dry_run("--dry-run")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line for line, name in zip(lines, NAMES, strict=True) if not line.startswith(f"{name} ")] == []
    assert list(tmp_path.iterdir()) == []


def test_the_plan_names_the_units_of_intervals(dry_run: Nmt) -> None:
    plan = dry_run("--dry-run", "--validate-every", "1", "--save-every", "2").stdout
    assert "\nvalidation         every step\n" in plan
    assert "\ncheckpoints        every 2 steps, " in plan


def test_more_ranks_than_cores_cause_a_warning(dry_run: Nmt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt_cli.training.setup.build.available_cores", lambda: 2)
    result = dry_run("--dry-run", "--devices", "4")
    assert "4 processes share 2 CPU cores, which is slower than --devices 2." in result.stderr


def test_several_devices_are_planned_for_and_not_started(dry_run: Nmt, tmp_path: Path) -> None:
    result = dry_run("--dry-run", "--devices", "8")
    assert "on each of 8 cpu" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_run_is_reported_without_a_plan(dry_run: Nmt, tmp_path: Path) -> None:
    result = dry_run("--dry-run", "--init-from", tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {tmp_path} is not a model: ")
    assert result.stderr.count("\n") == 1


def test_the_model_to_start_from_gets_an_absolute_path(
    dry_run: Nmt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry_run("--quiet")
    (tmp_path / "run").rename(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    result = dry_run("--dry-run", "--init-from", "model")
    assert result.stderr.splitlines()[0].startswith(f"starting from {tmp_path}/model/")

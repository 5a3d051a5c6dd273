"""`nmt train --dry-run`: settings on stdout, the plan on stderr, nothing trained or written."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nmt_cli import config as settings
from nmt_cli.training.config import TrainConfig

Run = Callable[..., CompletedProcess[str]]

TINY = (
    *("--set", "model.width=16", "--set", "model.feed_forward=32", "--set", "model.heads=2"),
    *("--set", "model.encoder_layers=1", "--set", "model.decoder_layers=1", "--batch-tokens", "400"),
    *("--device", "cpu", "--max-steps", "6", "--validate-every", "3"),
)

NAMES = (
    *("parameters", "batches an epoch", "tokens a batch", "filler", "steps", "memory", "checkpoints"),
    *("model FLOPs", "time"),
)


@pytest.fixture
def dry_run(nmt: Run, toy_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr("nmt_cli.training.setup.run.default_threads", lambda processes: 1)
    command = ("train", toy_dataset, "--out", tmp_path / "run", *TINY)
    yield lambda *arguments: nmt(*command, *arguments)


def test_the_plan_is_told_and_nothing_is_written(dry_run: Run, tmp_path: Path) -> None:
    result = dry_run("--dry-run")
    assert result.returncode == 0
    lines = result.stderr.splitlines()
    assert [line for line, name in zip(lines, NAMES, strict=True) if not line.startswith(f"{name} ")] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [(), ("--preset", "tiny", "--seed", "7", "--deterministic")], ids=["", "more"]
)
def test_stdout_is_settings_that_config_takes_back(
    dry_run: Run, nmt: Run, tmp_path: Path, toy_dataset: Path, flags: tuple[str, ...]
) -> None:
    text = dry_run(*flags, "--dry-run").stdout
    assert tomllib.loads(text)["training"]["max_steps"] == 6
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    assert dry_run(*flags, "--quiet").returncode == 0
    planned = settings.read(TrainConfig, tmp_path / "plan.toml")
    assert settings.read(TrainConfig, tmp_path / "run/config.toml") == planned
    again = nmt(
        *("train", toy_dataset, "--out", tmp_path / "again", "--config", tmp_path / "plan.toml"),
        *("--device", "cpu", "--quiet"),
    )
    assert (again.returncode, again.stderr) == (0, "")
    weights = [(tmp_path / run / "last/model.safetensors").read_bytes() for run in ("run", "again")]
    assert weights[0] == weights[1]


def test_more_ranks_than_cores_are_warned_about(dry_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt_cli.training.setup.build.available_cores", lambda: 2)
    result = dry_run("--dry-run", "--devices", "4")
    assert "4 processes share 2 CPU cores, which is slower than --devices 2." in result.stderr


def test_quiet_leaves_the_settings_alone(dry_run: Run) -> None:
    result = dry_run("--dry-run", "--quiet")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == dry_run("--dry-run").stdout != ""


def test_several_devices_are_planned_for_and_not_started(dry_run: Run, tmp_path: Path) -> None:
    result = dry_run("--dry-run", "--devices", "8")
    assert "on each of 8 cpu" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_the_run_would_refuse_is_told_and_no_settings_are(dry_run: Run, tmp_path: Path) -> None:
    result = dry_run("--dry-run", "--init-from", tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {tmp_path} is no model: ")
    assert result.stderr.count("\n") == 1


def test_a_model_to_start_from_is_kept_with_its_whole_path(
    dry_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry_run("--quiet")
    (tmp_path / "run").rename(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    result = dry_run("--dry-run", "--init-from", "model")
    assert result.stderr.splitlines()[0].startswith(f"starting from {tmp_path}/model/")
    assert tomllib.loads(result.stdout)["start"]["model"] == f"{tmp_path}/model"


def test_the_command_is_kept_in_the_run_folder(dry_run: Run, tmp_path: Path) -> None:
    dry_run("--quiet")
    line = (tmp_path / "run/environment.jsonl").read_text(encoding="utf-8")
    assert '"command": ["nmt", "train", ' in line
    assert '"--max-steps", "6"' in line

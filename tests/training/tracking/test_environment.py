"""The environment of a run is stored, with a new line for each change."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.training.step.distributed import Process
from nmt_cli.training.tracking.environment import environment, keep_environment
from tests.training.runs import Go, warnings


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "environment.jsonl").read_text("utf-8").splitlines()]


def test_command_versions_and_machine_are_recorded() -> None:
    facts = environment(["nmt", "train"], torch.device("cpu"), "bf16", Process())
    assert facts["command"] == ["nmt", "train"] and facts["torch"] == torch.__version__
    assert (
        facts["cuda"] is None and facts["precision"] == "bf16" and facts["device"] and facts["devices"] == 1
    )


def test_a_line_is_added_only_for_a_change(tmp_path: Path) -> None:
    for step, host in ((0, "a"), (10, "a"), (20, "b"), (30, "a")):
        keep_environment(tmp_path, step, {"command": ["caf\udce9, 1"], "host": host})
    assert [(line["step"], line["host"]) for line in lines(tmp_path)] == [(0, "a"), (20, "b"), (30, "a")]
    assert "caf" in lines(tmp_path)[0]["command"][0]  # although it is not UTF-8


@pytest.mark.parametrize("damaged", [b'{"step": 5, "ho', b"[" * 100_000, b"\n", b"[]\n", b"\xff\n"], ids=str)
def test_damaged_lines_stay(tmp_path: Path, damaged: bytes) -> None:
    path, first = tmp_path / "environment.jsonl", b'{"step": 0, "host": "a"}'
    path.write_bytes(first + b"\n" + damaged)
    for step in (7, 8):
        keep_environment(tmp_path, step, {"host": "a"})
    stays = [first, damaged.removesuffix(b"\n"), b'{"step": 7, "host": "a"}', b""]
    assert path.read_bytes().split(b"\n") == stays


def test_a_run_records_its_environment(go: Go, run: Path) -> None:
    go("training.max_steps=1")
    (facts,) = lines(run)
    assert {"command", "nmt", "python", "numpy", "device", "devices", "threads"} <= facts.keys()


def test_a_resumed_run_warns_once_if_its_environment_is_lost(go: Go, run: Path) -> None:
    go("training.max_steps=1")
    (run / "environment.jsonl").unlink()
    (warning,) = warnings(go("training.max_steps=2")[1])
    assert warning.startswith(f"{run}/environment.jsonl is missing or empty, so the commands and versions up")
    assert [line["step"] for line in lines(run)] == [1]
    assert warnings(go("training.max_steps=3")[1]) == []

"""The environment of a run is stored, with a new line for each change."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.training.step.distributed import Process
from nmt_cli.training.tracking.environment import environment, keep_environment
from nmt_cli.training.tracking.events import Event, Warned
from tests.training.runs import Go, warnings


def stored(run: Path, step: int, facts: Mapping[str, Any]) -> list[Event]:
    events: list[Event] = []
    keep_environment(run, step, facts, events.append)
    return events


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "environment.jsonl").read_text("utf-8").splitlines()]


def test_command_versions_and_machine_are_recorded() -> None:
    facts = environment(["nmt", "train"], torch.device("cpu"), Process())
    assert facts["command"] == ["nmt", "train"] and facts["torch"] == torch.__version__
    assert facts["cuda"] is None and facts["device"] and facts["devices"] == 1


def test_a_line_is_added_only_for_a_change(tmp_path: Path) -> None:
    for step, host in ((0, "a"), (10, "a"), (20, "b"), (30, "a")):
        assert stored(tmp_path, step, {"host": host}) == []
    assert [(line["step"], line["host"]) for line in lines(tmp_path)] == [(0, "a"), (20, "b"), (30, "a")]


def test_a_command_that_is_not_utf8_is_stored(tmp_path: Path) -> None:
    stored(tmp_path, 0, {"command": ["nmt", "caf\udce9"]})
    assert "caf" in lines(tmp_path)[0]["command"][1]


@pytest.mark.parametrize(
    "damaged", [b'{"step": 5, "ho', b"[" * 100_000, b"\n", b"[]\n", b'{"torch": "\xff2.12"}\n'], ids=str
)
def test_a_damaged_line_is_reported_each_time_and_other_lines_stay(tmp_path: Path, damaged: bytes) -> None:
    path, first = tmp_path / "environment.jsonl", b'{"step": 0, "host": "a"}'
    path.write_bytes(first + b"\n" + damaged)
    warning = Warned(f"{path} has damaged lines (1), which stay as they are")
    assert [stored(tmp_path, 7, {"host": "a"}) for _ in range(2)] == [[warning]] * 2
    stays = [first, damaged.removesuffix(b"\n"), b'{"step": 7, "host": "a"}', b""]
    assert path.read_bytes().split(b"\n") == stays


def test_runs_record_their_environment_and_resume_although_it_is_damaged(go: Go, run: Path) -> None:
    go("training.max_steps=1")
    (facts,) = lines(run)
    assert {"command", "nmt", "python", "numpy", "device", "devices", "threads"} <= facts.keys()
    (run / "environment.jsonl").write_bytes(b"\xff\n")
    complete, events = go("training.max_steps=2")
    assert complete
    assert warnings(events) == [f"{run}/environment.jsonl has damaged lines (1), which stay as they are"]

"""What a run ran on is kept, a line each time it changes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.training.step.distributed import Process
from nmt_cli.training.tracking.environment import environment, keep_environment
from nmt_cli.training.tracking.events import Event, Warned


def kept(run: Path, step: int, facts: Mapping[str, Any]) -> list[Event]:
    events: list[Event] = []
    keep_environment(run, step, facts, events.append)
    return events


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "environment.jsonl").read_text("utf-8").splitlines()]


def test_command_versions_and_machine_are_told() -> None:
    facts = environment(["nmt", "train"], torch.device("cpu"), Process())
    assert facts["command"] == ["nmt", "train"] and facts["torch"] == torch.__version__
    assert facts["cuda"] is None and facts["device"] and facts["devices"] == 1


def test_a_line_is_added_only_where_something_has_changed(tmp_path: Path) -> None:
    for step, host in ((0, "a"), (10, "a"), (20, "b"), (30, "a")):
        assert kept(tmp_path, step, {"host": host}) == []
    assert [(line["step"], line["host"]) for line in lines(tmp_path)] == [(0, "a"), (20, "b"), (30, "a")]


def test_a_name_that_is_no_utf8_is_kept(tmp_path: Path) -> None:
    kept(tmp_path, 0, {"command": ["nmt", "caf\udce9"]})
    assert "caf" in lines(tmp_path)[0]["command"][1]


@pytest.mark.parametrize("end", [b'{"step": 5, "ho', b"[" * 100_000], ids=["cut", "deep"])
def test_a_damaged_line_is_told_of_and_spoils_no_other(tmp_path: Path, end: bytes) -> None:
    (tmp_path / "environment.jsonl").write_bytes(b'{"step": 0, "host": "a"}\n' + end)
    (warned,) = kept(tmp_path, 7, {"host": "a"})
    assert isinstance(warned, Warned) and "damaged lines (1)" in warned.text
    assert json.loads((tmp_path / "environment.jsonl").read_bytes().split(b"\n")[2]) == {
        "step": 7,
        "host": "a",
    }

"""Shared by the training tests: types of fixtures, and the log, the tensors and the events of a run."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from nmt_cli.training.config import TrainConfig
from nmt_cli.training.setup.dry_run import Forecast
from nmt_cli.training.setup.run import TrainingRun
from nmt_cli.training.tracking.events import Doing, Event, Note, Progress, Saved, Validated, Warned

Go = Callable[..., tuple[bool, list[Event]]]
Tiny = Callable[..., TrainConfig]
Complaint = Callable[..., str]
NewRun = Callable[..., TrainingRun]
Planned = Callable[..., Forecast]

TIMES = ("tokens_per_second", "waiting")


def lines_of(run: Path) -> list[dict[str, Any]]:
    """Return the lines of the log."""
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def tensors_of(run: Path, file: str = "model", step: int | None = None) -> dict[str, Tensor]:
    """Return the tensors in FILE.safetensors of the checkpoint of `step`, or of the last one, by name."""
    folder = run / ("last" if step is None else f"checkpoints/step-{step:08}")
    return load_file(folder / f"{file}.safetensors")


def flat(model: nn.Module) -> Tensor:
    """Return a copy of all parameters in one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def content_of(page: Path) -> dict[str, Any]:
    """Return the data in the page of a report."""
    pattern = r'<script type="application/json" id="data">(.*?)</script>'
    (text,) = re.findall(pattern, page.read_text("utf-8"), re.S)
    content: dict[str, Any] = json.loads(text)
    return content


def steps_of(run: Path) -> list[int]:
    """Return the step of each line of the log that is about a step."""
    return [line["step"] for line in lines_of(run) if "valid" not in line]


def timeless(run: Path) -> list[dict[str, Any]]:
    """Return the lines of the log without the entries that depend on time."""
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines_of(run)]


def notes(events: list[Event]) -> list[str]:
    """Return the texts of the notes."""
    return [event.text for event in events if isinstance(event, Note)]


def warnings(events: list[Event]) -> list[str]:
    """Return the texts of the warnings."""
    return [event.text for event in events if isinstance(event, Warned)]


def messages(events: list[Event]) -> list[str]:
    """Return the texts of the notes and warnings, in order."""
    return [event.text for event in events if isinstance(event, Note | Warned)]


def of_kind(kind: type[Event], events: list[Event]) -> list[int]:
    """Return the steps of the events of a kind."""
    chosen = [event for event in events if isinstance(event, kind)]
    return [event.step for event in chosen if isinstance(event, Doing | Progress | Validated | Saved)]

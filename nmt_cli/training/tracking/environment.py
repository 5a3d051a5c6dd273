"""What a run ran on: versions, device and command, kept in its folder."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from nmt_cli import __version__
from nmt_cli.runtime.atomic import room_for
from nmt_cli.runtime.devices import gpu_name, is_gpu, processor_name
from nmt_cli.runtime.foreign_text import bytes_if_there, parsed_json
from nmt_cli.training.step.distributed import Process
from nmt_cli.training.tracking.events import Report, Warned

ENVIRONMENT = "environment.jsonl"

LIBRARIES = ("torch", "numpy", "safetensors", "sacrebleu", "sentencepiece")


def environment(command: Sequence[str], device: torch.device, process: Process) -> dict[str, Any]:
    """The command, and all of the machine and its software that may change the bits of a result."""
    return {
        "command": list(command),
        "nmt": __version__,
        "python": platform.python_version(),
        **{library: version(library) for library in LIBRARIES},
        "cuda": torch.version.cuda if is_gpu(device) else None,
        "device": gpu_name(device) or processor_name(),
        "devices": process.world,
        "threads": torch.get_num_threads(),
        "host": platform.node(),
        "system": platform.platform(),
    }


def keep_environment(run: Path, step: int, facts: Mapping[str, Any], report: Report) -> None:
    """Add a line, "from this step on", unless the last one says the same; damaged lines are told of."""
    path = run / ENVIRONMENT
    content = bytes_if_there(path)
    known = [_without_step(line) for line in content.splitlines()]
    if not known or known[-1] != facts:
        text = json.dumps({"step": step, **facts}, ensure_ascii=False)
        with room_for(path), path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            # A line that a kill cut short must not run into this one.
            file.write("\n" * (not content.endswith(b"\n") and bool(content)) + text + "\n")
    if damaged := known.count(None):
        report(Warned(f"{path} has damaged lines ({damaged}), which are left as they are"))


def _without_step(line: bytes) -> dict[str, Any] | None:
    """Return the facts of a line, or None if it is damaged."""
    try:
        facts = parsed_json(line)
        return {key: value for key, value in facts.items() if key != "step"}
    except (ValueError, AttributeError):
        return None

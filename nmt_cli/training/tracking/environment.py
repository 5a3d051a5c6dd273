"""Records the command, device and versions of a run in its folder."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from nmt_cli import __version__
from nmt_cli.runtime.atomic import reporting_full_disk
from nmt_cli.runtime.devices import gpu_name, is_gpu, processor_name
from nmt_cli.runtime.foreign_text import parsed_json, read_if_exists
from nmt_cli.training.step.distributed import Process
from nmt_cli.training.tracking.events import Report, Warned

ENVIRONMENT = "environment.jsonl"

LIBRARIES = ("torch", "numpy", "safetensors", "sacrebleu", "sentencepiece")


def environment(command: Sequence[str], device: torch.device, process: Process) -> dict[str, Any]:
    """Return the command, versions, device and machine of a run, by name. `cuda` is None on a CPU."""
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
    """If `environment.jsonl` in `run` does not end with `facts`, append a line with `step` and `facts`.
    Report a warning if a line is damaged. Raise `UserError` if the disk is full."""
    path = run / ENVIRONMENT
    content = read_if_exists(path)
    earlier = [_without_step(line) for line in content.splitlines()]
    if not earlier or earlier[-1] != facts:
        text = json.dumps({"step": step, **facts}, ensure_ascii=False)
        with reporting_full_disk(path), path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            # The last line may have been cut short by a kill.
            file.write("\n" * (not content.endswith(b"\n") and bool(content)) + text + "\n")
    if damaged := earlier.count(None):
        report(Warned(f"{path} has damaged lines ({damaged}), which stay as they are"))


def _without_step(line: bytes) -> dict[str, Any] | None:
    """Return the facts of a line of the file, without its step. Return None if the line is damaged."""
    try:
        facts = parsed_json(line)
        return {key: value for key, value in facts.items() if key != "step"}
    except (ValueError, AttributeError):
        return None

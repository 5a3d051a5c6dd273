"""What a run ran on: versions, device and command, kept in its folder."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from nmt_cli import __version__
from nmt_cli.machine.devices import gpu_name, is_gpu, processor_name
from nmt_cli.training.step.distributed import Process

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


def keep_environment(run: Path, step: int, facts: Mapping[str, Any]) -> None:
    """Add a line saying that `facts` hold from `step` on, unless the last line says the same."""
    path = run / ENVIRONMENT
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if lines and _without_step(lines[-1]) == facts:
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **facts}, ensure_ascii=False) + "\n")


def _without_step(line: str) -> dict[str, Any]:
    try:
        facts = json.loads(line)
        return {key: value for key, value in facts.items() if key != "step"}
    except (ValueError, AttributeError):  # cut short by a full disk
        return {}

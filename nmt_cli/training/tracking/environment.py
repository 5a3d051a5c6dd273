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
from nmt_cli.runtime.foreign_text import read_if_exists
from nmt_cli.training.step.distributed import Process

ENVIRONMENT = "environment.jsonl"

LIBRARIES = ("torch", "numpy", "safetensors", "sacrebleu", "sentencepiece")


def environment(
    command: Sequence[str], device: torch.device, precision: str, process: Process
) -> dict[str, Any]:
    """Return the command, versions, device, precision and machine of a run, by name. `cuda` is None on a
    CPU."""
    versions = {library: version(library) for library in LIBRARIES}
    return {
        "command": list(command),
        "nmt": __version__,
        "python": platform.python_version(),
        **versions,
        "cuda": torch.version.cuda if is_gpu(device) else None,
        "device": gpu_name(device) or processor_name(),
        "precision": precision,
        "devices": process.world,
        "threads": torch.get_num_threads(),
        "host": platform.node(),
        "system": platform.platform(),
    }


def keep_environment(run: Path, step: int, facts: Mapping[str, Any]) -> None:
    """Append a line with `step` and `facts` to `environment.jsonl` of `run`, unless the last line has the
    same facts. Raise `UserError` if the disk is full."""
    path = run / ENVIRONMENT
    content = read_if_exists(path)
    line = json.dumps({"step": step, **facts}, ensure_ascii=False).encode(errors="backslashreplace")
    if not content.endswith(line.partition(b", ")[2] + b"\n"):
        with reporting_full_disk(path), path.open("ab") as file:
            # The last line may have been cut short by a kill.
            file.write(b"\n" * (not content.endswith(b"\n") and bool(content)) + line + b"\n")

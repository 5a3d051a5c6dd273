"""`log.jsonl`: one line for every step and every validation, each step once, whatever happens to the run."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.data.loader import Step

LOG = "log.jsonl"


@dataclass(frozen=True, slots=True)
class _Taken:
    number: int
    rate: float
    step: Step
    measured: Tensor


class Log:
    """Collects what steps measure on the device, and writes it in groups: one wait for many steps."""

    def __init__(self, path: Path | None) -> None:
        """Without a path, as on all ranks but the first, nothing is written."""
        self._file = path.open("a", encoding="utf-8") if path else None
        self._taken: list[_Taken] = []
        self._since = time.perf_counter()

    def add(self, number: int, rate: float, step: Step, measured: Tensor) -> None:
        """Remember a step; see `Trainer.step` for what is `measured`."""
        self._taken.append(_Taken(number, rate, step, measured))

    @property
    def age(self) -> float:
        """Seconds since the last flush."""
        return time.perf_counter() - self._since

    def flush(self) -> list[dict[str, Any]]:
        """Write the lines of all steps since the last time, and return them; waits for the device."""
        if not self._taken:
            return []
        values = torch.stack([taken.measured for taken in self._taken]).tolist()
        seconds = self.age
        self._since = time.perf_counter()
        tokens = sum(taken.step.target_tokens for taken in self._taken)
        lines = [
            {**_line(taken, measured), "tokens_per_second": round(tokens / seconds, 1)}
            for taken, measured in zip(self._taken, values, strict=True)
        ]
        self._taken.clear()
        self.write(lines)
        return lines

    def write(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Append lines, and see them reach the disk."""
        if self._file:
            self._file.writelines(json.dumps(line) + "\n" for line in lines)
            self._file.flush()
            os.fsync(self._file.fileno())

    def restart_clock(self) -> None:
        """Leave what was done besides steps out of their speed."""
        self._since = time.perf_counter()

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        if self._file:
            self._file.close()


def _line(taken: _Taken, measured: Sequence[float]) -> dict[str, Any]:
    smoothed, nll, norm, bad, scale = measured
    step = taken.step
    line = {
        "step": taken.number,
        "epoch": step.epoch,
        "loss": smoothed / step.target_tokens,
        "nll": nll / step.target_tokens,
        "learning_rate": taken.rate,
        "gradient_norm": norm,
        "source_tokens": step.source_tokens,
        "target_tokens": step.target_tokens,
        "pairs": step.pairs,
        "filler": _filler(step),
        "skipped": bool(bad),
    }
    return line if scale == 1.0 else {**line, "loss_scale": scale}


def _filler(step: Step) -> float:
    """The share of filler in what this rank has worked on."""
    filler = sum(part.filler for part in step.micro_batches)
    real = sum(part.real_source_tokens + part.real_target_tokens for part in step.micro_batches)
    return round(filler / max(filler + real, 1), 5)


def cut_behind(path: Path, step: int) -> None:
    """Take off the lines of later steps, and a last line that was not finished."""
    if not path.exists():
        return
    whole = [line for line in path.read_bytes().split(b"\n")[:-1] if _step_of(line) <= step]
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(b"".join(line + b"\n" for line in whole))
    unfinished.replace(path)


def _step_of(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError):
        return float("inf")

"""`log.jsonl`: a line for every step and every validation; a step has one line however often a run is
resumed."""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from nmt_cli.data.loader import LocalBatch
from nmt_cli.machine.atomic import NO_ROOM

LOG = "log.jsonl"


class Log:
    """Collects measurements of steps, which are on the device, and writes many at a time, for one wait for
    the device."""

    def __init__(self, path: Path | None) -> None:
        """Without a path, as on all ranks but the first, nothing is written."""
        # Unbuffered, a write on a full disk says how many bytes it has written, and the rest is tried later.
        self._file = path.open("ab", buffering=0) if path else None
        self._taken: list[tuple[dict[str, Any], Tensor]] = []
        self._unwritten = b""
        self._since = time.perf_counter()

    def add(self, number: int, rate: float, batch: LocalBatch, measured: Tensor) -> None:
        """Remember a step; see `Trainer.step` for what is `measured`."""
        self._taken.append((_known(number, rate, batch), measured))

    @property
    def age(self) -> float:
        """Seconds since the last flush."""
        return time.perf_counter() - self._since

    def flush(self, waiting: float = 0.0) -> list[dict[str, Any]]:
        """Write the lines of all steps since the last flush, and return them; waits for the device.

        `waiting` is the share of that time that was spent waiting for data.
        """
        if not self._taken:
            return []
        values = torch.stack([measured for _, measured in self._taken]).tolist()
        seconds = self.age
        self._since = time.perf_counter()
        rate = round(sum(known["target_tokens"] for known, _ in self._taken) / seconds, 1)
        pairs = zip(self._taken, values, strict=True)
        speed = {"tokens_per_second": rate, "waiting": round(waiting, 4)}
        lines = [{**_line(known, measured), **speed} for (known, _), measured in pairs]
        self._taken.clear()
        self.write(lines)
        return lines

    def write(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Append lines and wait until they are on disk; if it is full, they are tried again next time."""
        if not self._file:
            return
        self._unwritten += b"".join(json.dumps(finite(line)).encode() + b"\n" for line in lines)
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[self._file.write(self._unwritten) or 0 :]
            os.fsync(self._file.fileno())
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def restart_clock(self) -> None:
        """Begin to measure speed anew, after something that is no step, such as validation."""
        self._since = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what is left; after an error the device may never answer, so nothing is asked of it."""
        if kind is None:
            self.flush()
        if self._file:
            self._file.close()


def _known(number: int, rate: float, batch: LocalBatch) -> dict[str, Any]:
    """The part of a step's line that the host knows without waiting for the device."""
    return {
        "step": number,
        "epoch": batch.epoch,
        "learning_rate": rate,
        "source_tokens": batch.source_tokens,
        "target_tokens": batch.target_tokens,
        "pairs": batch.pairs,
        "filler": _filler(batch),
    }


def _line(known: Mapping[str, Any], measured: Sequence[float]) -> dict[str, Any]:
    smoothed, nll, norm, bad, scale = measured
    tokens = known["target_tokens"]
    line = {
        **known,
        "loss": smoothed / tokens,
        "nll": nll / tokens,
        "gradient_norm": norm,
        "skipped": bool(bad),
    }
    # fp32 and bf16 have no loss scale.
    return line if scale == 1.0 else {**line, "loss_scale": scale}


def _filler(batch: LocalBatch) -> float:
    """The share of filler in this rank's local batch."""
    filler = sum(part.filler for part in batch.micro_batches)
    real = sum(part.real_source_tokens + part.real_target_tokens for part in batch.micro_batches)
    return round(filler / max(filler + real, 1), 5)


def finite(line: Mapping[str, Any]) -> dict[str, Any]:
    """The line with None in place of numbers that are not finite, which JSON can't write."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()}


def cut_behind(path: Path, step: int, judged: bool) -> None:
    """Remove what a run that is resumed at `step` will write again: lines of later steps, and half a last
    line.

    Unless `judged`, validation at `step` is to be made again too, and its lines are removed.
    """
    if not path.exists():
        return
    # What comes behind the last line end was cut off as it was written.
    lines = ((line, *_step_of(line)) for line in path.read_bytes().split(b"\n")[:-1])
    whole = [line for line, number, valid in lines if number < step or (number == step and judged >= valid)]
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(b"".join(line + b"\n" for line in whole))
    unfinished.replace(path)


def _step_of(line: bytes) -> tuple[float, bool]:
    """The step of a line, and whether it is a validation's; infinite for a damaged line, so that it is
    removed."""
    try:
        content = json.loads(line)
        return float(content["step"]), "valid" in content
    except (ValueError, LookupError, TypeError):
        return math.inf, False

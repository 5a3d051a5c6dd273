"""`log.jsonl`: a line for every step and every validation; a step has one line however often a run is
resumed."""

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from nmt_cli.data.batching.loader import LocalBatch
from nmt_cli.data.batching.mixed_plan import Mixed
from nmt_cli.runtime.atomic import NO_ROOM, file_written_whole, unused
from nmt_cli.runtime.foreign_text import bytes_if_there
from nmt_cli.training.position import Position
from nmt_cli.training.tracking.salvage import salvaged

LOG = "log.jsonl"


class Log:
    """Collects measurements of steps, which are on the device, and writes many at a time, for one wait for
    the device."""

    def __init__(self, path: Path | None) -> None:
        """Without a path, as on all ranks but the first, nothing is written."""
        # Unbuffered, a write on a full disk says how many bytes it has written, and the rest is tried later.
        self._file = path.open("ab", buffering=0) if path else None
        # Carried on with each line: each checkpoint wants it, and to read the whole log again would take ever
        # longer.
        self._hash = hashlib.sha256(path.read_bytes() if path else b"")
        self._bytes = path.stat().st_size if path else 0
        self._taken: list[tuple[dict[str, Any], Tensor]] = []
        self._unwritten = b""
        self._since = time.perf_counter()

    def add(self, number: int, rate: float, batch: LocalBatch, measured: Tensor) -> None:
        """Remember a step; see `Trainer.step` for what is `measured`."""
        self._taken.append((_known(number, rate, batch), measured))

    @property
    def written(self) -> tuple[int, str]:
        """How many bytes the log has, and their SHA-256."""
        return self._bytes, self._hash.hexdigest()

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
                count = self._file.write(self._unwritten) or 0
                self._hash.update(self._unwritten[:count])
                self._bytes += count
                self._unwritten = self._unwritten[count:]
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
        **(_mixed(batch.mixed) if batch.mixed else {}),
    }


def _mixed(mixed: Mixed) -> dict[str, Any]:
    """The part of a step's line that tells of the mixture."""
    return {
        "epoch_of": mixed.counted,
        "stage": mixed.stage + 1,
        "corpus_pairs": mixed.pairs,
        "corpus_epochs": mixed.epochs,
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


def cut_behind(path: Path, position: Position) -> str:
    """Take off what was written after the checkpoint at `position`, and what is damaged before it.

    Returns in words what is lost of the log, and where it is kept as it was; nothing where all is there.
    """
    content = bytes_if_there(path)
    ours, lost = content[: position.log_bytes], ""
    # Checkpoints of older versions do not know the hash.
    if not position.log_sha256 or hashlib.sha256(ours).hexdigest() != position.log_sha256:
        ours, counted = salvaged(content, position)
        if counted or position.log_sha256:
            what = ", ".join(counted) or "some bytes changed"
            lost = f"{path} is not what was written ({what}); whole lines stay"
    if ours == content:
        return lost
    if lost:
        shutil.copy(path, kept := unused(path))
        lost = f"{lost}, and all of it as it was is {kept.name}"
    with file_written_whole(path) as file:
        file.write(ours)
    return lost

"""Writes `log.jsonl`, which has one line per step and one per validation of a set. A resumed run continues
the file."""

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.data.batching.loader import LocalBatch
from nmt_cli.runtime.atomic import NO_ROOM, file_written_whole
from nmt_cli.runtime.foreign_text import read_if_exists
from nmt_cli.training.progress import Position
from nmt_cli.training.tracking.history import History, read_lines

LOG = "log.jsonl"


class Log:
    """The file `log.jsonl` of a run. It writes many steps at once, to wait for the device only once."""

    def __init__(self, path: Path | None) -> None:
        """Open the log to append lines. If `path` is None, as on all ranks but the first, write nothing."""
        # On a full disk, an unbuffered write returns how many bytes it wrote. The others are tried later.
        self._file = path.open("ab", buffering=0) if path else None
        self._steps: list[tuple[dict[str, Any], Tensor]] = []
        self._unwritten = b""
        self._since = time.perf_counter()

    def add(self, number: int, rate: float, batch: LocalBatch, measured: Tensor) -> None:
        """Keep step `number` for the next `flush`, without waiting. `measured` is from `Trainer.step`."""
        self._steps.append((_step_facts(number, rate, batch), measured))

    @property
    def age(self) -> float:
        """Seconds since the last flush or restart of the clock."""
        return time.perf_counter() - self._since

    def flush(self, waiting: float = 0.0) -> list[dict[str, Any]]:
        """Write and return the lines of all steps since the last flush, or [] without steps. Wait for the
        device. `waiting` is the fraction of the time since the last flush that steps waited for data."""
        if not self._steps:
            return self.write([])
        values = torch.stack([measured for _, measured in self._steps]).tolist()
        seconds = self.age
        self._since = time.perf_counter()
        tokens = sum(facts["target_tokens"] for facts, _ in self._steps)
        speed = {"tokens_per_second": round(tokens / seconds, 1), "waiting": round(waiting, 4)}
        steps = zip(self._steps, values, strict=True)
        lines = [{**_line(facts, measured), **speed} for (facts, _), measured in steps]
        self._steps.clear()
        return self.write(lines)

    def write(self, lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Append lines, and wait until they are on disk. Return the lines as written, with None for numbers
        that are not finite. If the disk is full, keep the lines for the next call and do not raise."""
        # JSON has no numbers that are not finite.
        written = [
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()}
            for line in lines
        ]
        if not self._file or not (written or self._unwritten):
            return written
        self._unwritten += b"".join(json.dumps(line).encode() + b"\n" for line in written)
        try:
            while self._unwritten:
                count = self._file.write(self._unwritten) or 0
                self._unwritten = self._unwritten[count:]
            os.fsync(self._file.fileno())
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        return written

    def restart_clock(self) -> None:
        """Restart the measurement of speed, so that validation and saving do not count."""
        self._since = time.perf_counter()

    def close(self) -> None:
        """Write lines that met a full disk, and close the file. Do not write steps since the last flush,
        because the device may never respond."""
        if self._file:
            with closing(self._file):
                self.write([])


def _step_facts(number: int, rate: float, batch: LocalBatch) -> dict[str, Any]:
    """Return the entries of a step's log line that need no wait for the device, with those of a mixture."""
    filler = sum(part.filler for part in batch.micro_batches)
    real = sum(part.real_source_tokens + part.real_target_tokens for part in batch.micro_batches)
    facts: dict[str, Any] = {
        "step": number,
        "epoch": batch.epoch,
        "learning_rate": rate,
        "source_tokens": batch.source_tokens,
        "target_tokens": batch.target_tokens,
        "pairs": batch.pairs,
        "filler": round(filler / max(filler + real, 1), 5),  # of this rank
    }
    if mixed := batch.mixed:
        facts |= {"epoch_of": mixed.counted, "corpus_pairs": mixed.pairs, "corpus_epochs": mixed.epochs}
    return facts


def _line(facts: Mapping[str, Any], measured: Sequence[float]) -> dict[str, Any]:
    """Return a step's log line, with mean losses per target token. Omit a loss scale of 1 in `measured`."""
    smoothed, nll, norm, bad, scale = measured
    tokens = facts["target_tokens"]
    line = {
        **facts,
        "loss": smoothed / tokens,
        "nll": nll / tokens,
        "gradient_norm": norm,
        "skipped": bool(bad),
    }
    # fp32 and bf16 have no loss scale.
    return line if scale == 1.0 else {**line, "loss_scale": scale}


def cut_behind(path: Path, position: Position) -> tuple[History, int]:
    """Remove from the log damaged lines, an incomplete last line, and all lines after `position`. Return the
    history of the other lines, and the number of damaged lines before the last of them. Raise `UserError`
    for a pipe or a folder."""
    history, intact = History(), bytearray()
    damaged = skipped = 0
    for text, line in read_lines(path):
        if line is None:
            skipped += 1
            continue
        # A run resumes after a step, and validates again unless the checkpoint has the score.
        validates_again = "valid" in line and str(position.step) not in position.scores
        if line["step"] > position.step or (line["step"] == position.step and validates_again):
            break
        intact += text + b"\n"
        history.add([line])
        damaged = skipped  # a kill may leave damaged bytes after the last line
    if intact != read_if_exists(path):
        with file_written_whole(path) as file:
            file.write(intact)
    return history, damaged

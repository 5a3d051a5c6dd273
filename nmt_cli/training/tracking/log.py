"""The log of a run: its writer, and the only reader of `log.jsonl`.

The file has one line per step, and one per validation of a set. All that a run measures goes through the log:
its lines become the history, from which reports and curves are drawn, and events for TensorBoard and W&B.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.data.batching.loader import LocalBatch
from nmt_cli.runtime.atomic import NO_ROOM, file_written_whole, unused
from nmt_cli.runtime.foreign_text import parsed_json, read_if_exists
from nmt_cli.training.progress import Position
from nmt_cli.training.tracking.events import Logged, Report
from nmt_cli.training.tracking.history import COUNTS, LOSSES, MEASURED, RunHistory

LOG = "log.jsonl"

LINE_START = b'{"step": '
"""The first bytes of each line."""

LARGEST = 1e300
"""Larger numbers in a log are damage. Sums of them could overflow."""


class Log:
    """The log of a run. It writes many steps at once, to wait for the device only once."""

    def __init__(self, path: Path | None, history: RunHistory, report: Report = lambda event: None) -> None:
        """Open the log to append lines.

        path: the file, or None to write none, as on all ranks but the first.
        history: the history of the lines in the file, to which all later lines are added.
        report: is called with a `Logged` event for each group of lines.
        """
        self.history, self._report = history, report
        # On a full disk, an unbuffered write returns how many bytes it wrote. The others are tried later.
        self._file = path.open("ab", buffering=0) if path else None
        # Each checkpoint stores the hash. Updating it with each line avoids reading the whole log again.
        content = path.read_bytes() if path else b""
        self._bytes, self._hash = len(content), hashlib.sha256(content)
        self._steps: list[tuple[dict[str, Any], Tensor]] = []
        self._unwritten = b""
        self._since = time.perf_counter()

    def add(self, number: int, rate: float, batch: LocalBatch, measured: Tensor) -> None:
        """Keep step `number` for the next `flush`, without waiting. `measured` is from `Trainer.step`."""
        self._steps.append((_step_facts(number, rate, batch), measured))

    @property
    def written(self) -> tuple[int, str]:
        """Size of the file in bytes, and its SHA-256 in hexadecimal."""
        return self._bytes, self._hash.hexdigest()

    @property
    def age(self) -> float:
        """Seconds since the last flush or restart of the clock."""
        return time.perf_counter() - self._since

    def flush(self, waiting: float = 0.0) -> list[dict[str, Any]]:
        """Write the lines of all steps since the last flush, and return them. This waits for the device.

        waiting: the fraction of the time since the last flush in which steps waited for data.
        """
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
        """Append lines, wait until they are on disk, and add them to the history. Return the lines as
        written.

        Numbers that are not finite become None. On a full disk, no error is raised: the lines are kept and
        written by the next call.
        """
        # JSON has no numbers that are not finite.
        written = [
            {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()}
            for line in lines
        ]
        self._append(written)
        self.history.add(written)
        if written:
            self._report(Logged(written))
        return written

    def restart_clock(self) -> None:
        """Restart the measurement of speed, so that validation and saving do not count."""
        self._since = time.perf_counter()

    def close(self) -> None:
        """Write lines that met a full disk, and close the file. Steps since the last flush are lost, because
        the device may never respond."""
        if self._file:
            with closing(self._file):
                self.write([])

    def _append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Append lines to the file, after those that met a full disk before."""
        if not self._file:
            return
        self._unwritten += b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        if not self._unwritten:
            return
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
    if corpora := batch.corpora:
        facts |= {"epoch_of": corpora.counted, "corpus_pairs": corpora.pairs, "corpus_epochs": corpora.epochs}
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


def read_history(log: Path) -> RunHistory:
    """Return the history in a run's log, without damaged lines. It is empty without a log."""
    history = RunHistory()
    history.add(line for _, line in read_lines(log) if line)
    return history


def read_lines(log: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Yield each line of a log as bytes and as a dict, None if it is damaged. Omit an incomplete last line.
    Raise `UserError` if the log is not an ordinary file."""
    for line in read_if_exists(log).split(b"\n")[:-1]:
        try:
            content = parsed_json(line)
            yield line, content if _is_intact(content) else None
        except (ValueError, LookupError, TypeError, AttributeError):
            yield line, None


def _is_intact(line: Mapping[str, Any]) -> bool:
    """Return whether a line of JSON is one that a run wrote: all numbers that readers use are there and
    plausible.

    A number that was not finite is None. If `line` is not a table, return False or raise `LookupError`,
    `TypeError` or `AttributeError`.
    """
    if "valid" in line:
        numbers = [line["step"], *(line[name] for name in (*LOSSES, *line["signatures"]))]
        if line["step"] is None or not isinstance(line["valid"], str):
            return False
    else:
        numbers = [line[name] for name in (*COUNTS, *MEASURED)]
        if None in numbers[: len(COUNTS)]:
            return False
    return all(number is None or abs(number) < LARGEST for number in numbers)


def cut_behind(path: Path, position: Position) -> tuple[RunHistory, str]:
    """Cut the log `path` back to `position`, at which the run resumes. Return the history of the lines that
    stay, and a warning, or "".

    Lines of later steps are removed, as well as damaged lines, lines that a run does not write, and an
    incomplete last line. There is a warning if the lines up to `position` are not those that the run wrote.
    Then the file is copied before it is changed.

    Raise `UserError` for a pipe, a folder or a full disk.
    """
    content = read_if_exists(path)
    history, intact, removed = _lines_up_to(position, path)
    # A kill cuts a line of the run short. Other text at the end is foreign.
    removed += not LINE_START.startswith(content.rpartition(b"\n")[2][: len(LINE_START)])
    count = sum(point.steps for point in history.points)
    if position.log_sha256:
        changed = hashlib.sha256(content[: position.log_bytes]).hexdigest() != position.log_sha256
    else:  # by an older version, or a new run, which has neither steps nor scores
        changed = count < position.step and bool(count or position.scores)
    warning = ""
    if changed or removed:
        foreign = f", and {removed:,} damaged or foreign lines were removed" if removed else ""
        left = f"It has {count:,} steps up to step {position.step:,}"
        warning = f"{path} is not as the run wrote it. {left}{foreign}."
    if intact != content:
        if warning:
            with file_written_whole(copy := unused(path)) as file:
                file.write(content)
            warning += f" {copy.name} is the file as it was."
        with file_written_whole(path) as file:
            file.write(intact)
    return history, warning


def _lines_up_to(position: Position, path: Path) -> tuple[RunHistory, bytes, int]:
    """Return the history and the bytes of the intact lines up to `position`, and the number of lines that are
    neither these nor of later steps.

    Steps rise in a log, and each step and each validation has one line. Other lines are not intact.
    """
    history, intact, others = RunHistory(), bytearray(), 0
    latest, seen = 0, set[tuple[int, str | None]]()
    for text, line in read_lines(path):
        if line is None or line["step"] < latest or (line["step"], line.get("valid")) in seen:
            others += 1
            continue
        # A run resumes after a step, and validates again unless the checkpoint has the score.
        validates_again = "valid" in line and str(position.step) not in position.scores
        if line["step"] > position.step or (line["step"] == position.step and validates_again):
            continue
        latest = line["step"]
        seen.add((latest, line.get("valid")))
        intact += text + b"\n"
        history.add([line])
    return history, bytes(intact), others

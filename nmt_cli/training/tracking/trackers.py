"""Sends the numbers of the log to programs that draw and compare runs: TensorBoard and Weights & Biases."""

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.tracking.events import Event, Logged, Report, Warned
from nmt_cli.training.tracking.history import MEASURED

TENSORBOARD, WANDB = "tensorboard", "wandb"
"""Folders in the run folder."""

PROJECT = "nmt"
"""Default of WANDB_PROJECT."""

CURVES = (*MEASURED, "loss_scale", "waiting", "filler")
"""Keys of a step in the log that get a curve."""


class Scalars:
    """A reader of the events of a run. It writes the numbers in lines of the log to a TensorBoard file."""

    def __init__(self, folder: Path, step: int, report: Report) -> None:
        """Open a new file in `folder`, which is created.

        step: the last step of the run so far. TensorBoard drops later points, which an earlier part of the
            run may have written.
        report: receives warnings.
        """
        # Imported here, since TensorBoard may not be installed.
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._report, self._event, self._summary = report, Event, Summary
        folder.mkdir(exist_ok=True)
        # TensorBoard reads a folder's files in the order of their names.
        self._file = (folder / f"events.out.tfevents.{time.time_ns()}").open("wb")
        self._records = RecordWriter(self._file)
        self._full = False
        self._put(file_version="brain.Event:2")
        # At a START event, TensorBoard drops earlier points from this step on.
        self._put(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def __call__(self, event: Event) -> None:
        """Write the numbers of a `Logged` event as points. If the disk is full, warn and write no more."""
        if not isinstance(event, Logged) or self._full:
            return
        try:
            for line in event.lines:
                values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in numbers(line)]
                self._put(step=line["step"], summary=self._summary(value=values))
            self._records.flush()
        except OSError as error:
            self._full = True
            self._report(Warned(f"no more curves for TensorBoard, training continues: {error}"))

    def close(self) -> None:
        """Close the file. Ignore errors, as a full disk was reported."""
        with suppress(OSError):  # a full disk was reported already
            self._file.close()

    def _put(self, **fields: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())


class Follower:
    """A reader of events that sends numbers to W&B. After an error, it warns once and sends no more."""

    def __init__(self, run: Path, config: TrainConfig, report: Report) -> None:
        """Start the run at W&B, or resume it there, with files in the folder "wandb" of `run`. Raise
        `UserError` if that fails."""
        import wandb

        folder = run / WANDB
        folder.mkdir(exist_ok=True)
        id_file = folder / "id.txt"  # with this id, the run resumes at W&B
        if not id_file.exists():
            id_file.write_text(secrets.token_hex(4), encoding="utf-8")
        self._report, self._failed = report, False
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=run.resolve().name,
                id=id_file.read_text(encoding="utf-8"),
                resume="allow",  # resume the run of that id, or create it
                dir=str(run),
                config=asdict(config),
            )
        except Exception as error:  # the client raises errors of many kinds
            problem = f"Weights & Biases can't be reached or refuses this run ({error})"
            raise UserError(f"{problem}. Set WANDB_MODE=offline, or training.wandb=false.") from error

    def __call__(self, event: Event) -> None:
        """Send the numbers of a `Logged` event. After an error, warn once and send no more."""
        if not isinstance(event, Logged) or self._failed:
            return
        try:
            for line in event.lines:
                self._run.log(dict(numbers(line)), step=line["step"])
        except Exception as error:  # no error of the client may end the run
            self._failed = True
            self._report(Warned(f"no more curves for Weights & Biases, training continues: {error}"))

    def close(self) -> None:
        """Wait until the remaining numbers are sent, and end the run at W&B."""
        self._run.finish()


def numbers(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the name of a curve and its value for each number in a line of the log. Values that are missing
    or None are skipped.

    Names begin with "training/", or with "valid", the name of the set and "/".
    """
    if "valid" in line:
        names, group = ("nll", "perplexity", *line["signatures"]), f"valid {line['valid']}"
    else:
        names, group = CURVES, "training"
    return ((f"{group}/{name}", line[name]) for name in names if line.get(name) is not None)

"""Sends the numbers of the log to Weights & Biases (W&B)."""

import os
import secrets
from dataclasses import asdict
from pathlib import Path

from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.tracking.events import Event, Logged, Report, Warned
from nmt_cli.training.tracking.tensorboard import numbers

FOLDER = "wandb"
ID = "id.txt"
"""File with the id of the run at W&B, with which it resumes."""

PROJECT = "nmt"
"""Default of WANDB_PROJECT."""


class Follower:
    """A reader of events that sends numbers to W&B. After an error, it warns once and sends no more."""

    def __init__(self, run: Path, config: TrainConfig, report: Report) -> None:
        """Start or resume the run at W&B, with files in "wandb" of `run`. Raise `UserError` if that fails."""
        import wandb

        folder = run / FOLDER
        folder.mkdir(exist_ok=True)
        self._report, self._failed = report, False
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=run.resolve().name,
                id=_run_id(folder / ID),
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


def _run_id(file: Path) -> str:
    """Return the id in `file`. If `file` does not exist, create it with a random id."""
    if not file.exists():
        file.write_text(secrets.token_hex(4), encoding="utf-8")
    return file.read_text(encoding="utf-8")

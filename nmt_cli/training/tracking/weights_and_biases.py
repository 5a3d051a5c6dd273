"""The log's numbers for Weights & Biases, for those who follow their runs there."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmt_cli.errors import UserError
from nmt_cli.training.config import TrainConfig
from nmt_cli.training.tracking.events import Event, Logged, Report, Warned
from nmt_cli.training.tracking.tensorboard import numbers

FOLDER = "wandb"
ID = "id.txt"
"""In the folder: by which name a run that goes on is known there."""

PROJECT = "nmt"
"""Unless WANDB_PROJECT says otherwise; WANDB_MODE=offline keeps everything in the folder."""


class Follower:
    """Sends what was measured; where that fails, the run goes on without."""

    def __init__(
        self, run: Path, config: TrainConfig, environment: Mapping[str, Any], report: Report
    ) -> None:
        """`environment` is that of W&B's own variables."""
        import wandb

        folder = run / FOLDER
        folder.mkdir(exist_ok=True)
        self._report, self._failed = report, False
        try:
            self._run = wandb.init(
                project=environment.get("WANDB_PROJECT", PROJECT),
                name=run.resolve().name,
                id=_known_as(folder / ID),
                resume="allow",  # go on with the run of that id, or begin it
                dir=str(run),
                config=asdict(config),
            )
        except Exception as error:  # theirs are of many kinds
            told = f"Weights & Biases can't be reached or refuses this run ({error})"
            raise UserError(f"{told}; set WANDB_MODE=offline, or training.wandb=false.") from error

    def __call__(self, event: Event) -> None:
        """Read one event of a run."""
        if not isinstance(event, Logged) or self._failed:
            return
        try:
            for line in event.lines:
                self._run.log(dict(numbers(line)), step=line["step"])
        except Exception as error:  # whatever their client raises is no reason to stop
            self._failed = True
            self._report(Warned(f"no more curves for Weights & Biases, training continues: {error}"))

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


def require_wandb() -> None:
    """Raise `UserError` where W&B's client is not installed."""
    try:
        import wandb  # noqa: F401
    except ImportError as error:
        raise UserError(
            "training.wandb needs Weights & Biases' client, which is not installed: pip install "
            "'.[wandb]', or leave the setting out."
        ) from error


def _known_as(file: Path) -> str:
    if not file.exists():
        file.write_text(secrets.token_hex(4), encoding="utf-8")
    return file.read_text(encoding="utf-8")
